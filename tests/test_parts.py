"""Configurations that are put together from parts are those that Hydra composes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fgl_bench.config import choices, compose, parts
from fgl_bench.config.compose import Composer
from fgl_bench.config.parts import Entangled, Parts, of_file
from fgl_bench.papers import plan as planning
from fgl_bench.papers.plan import load_paper, papers, plan
from fgl_bench.papers.plans.fedgta import PAPER

ALL = [table for name in papers() for table in load_paper(name).tables]
SAMPLE = random.Random(7).sample([(table, row, column) for table in ALL for row in table.rows for column in table.columns], 12)
COMMANDS = [
    (f"experiment={table.experiment}", f"dataset={column.dataset}", f"algorithm={row.algorithm}")
    + (*row.overrides, *column.overrides, *row.by_column(column))
    for table, row, column in SAMPLE
]


@pytest.fixture
def both() -> Iterator[tuple[Composer, Parts]]:
    with Composer() as composer:
        yield composer, Parts(composer)


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the configuration's files, which may be changed."""
    folder = tmp_path / "conf"
    shutil.copytree(choices.config_folder(), folder)
    for module in (choices, compose, parts, planning):
        monkeypatch.setattr(module, "config_folder", lambda: folder)
    return folder


def same(both: tuple[Composer, Parts], overrides: Sequence[str]) -> bool:
    composer, made = both
    return text(made(overrides).plain) == text(OmegaConf.to_container(composer(overrides), resolve=True))


def text(plain: object) -> str:
    """What a hash is made of: 1 and 1.0 differ."""
    return json.dumps(plain, sort_keys=True)


@pytest.mark.parametrize("experiment", sorted({table.experiment for table in ALL}))
def test_every_preset_is_what_hydra_composes_with_a_method_of_each_scenario(both: tuple[Composer, Parts], experiment: str) -> None:
    assert same(both, (f"experiment={experiment}",))
    for method in ("fedgta", "fedbuff", "gossip"):
        assert same(both, (f"experiment={experiment}", f"algorithm={method}", "num_clients=7"))


@pytest.mark.parametrize("overrides", COMMANDS, ids=" ".join)
def test_planned_runs_are_what_hydra_composes(both: tuple[Composer, Parts], overrides: Sequence[str]) -> None:
    assert same(both, overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ("lr=1",),  # a whole number in the place of a real one
        ("algorithm=fedprox", "algorithm.mu=1", "weight_decay=0", "trips=7"),
        ("split.ratios=[0.5,0.2,0.3]", "split=louvain", "split.delta=3"),
        ("num_clients=3", "num_clients=4"),
        ("scenario/sparsity=label", "scenario.sparsity.rate=0.5", "algorithm=fedavg"),
        ("scenario=sync", "algorithm=local"),
        ("algorithm=fedsage_plus", "algorithm@algorithm.strategy=fedgta", "algorithm.strategy.threshold=0.1"),
        ("+algorithm.more=1", "algorithm=fedavg", "algorithm._target_=mine.Mine"),
        ("lr=${weight_decay}",),
        ("model.hidden=${num_clients}", "model=gcn"),
        ("~targets",),
    ],
    ids=" ".join,
)
def test_what_a_person_may_write_is_what_hydra_composes(both: tuple[Composer, Parts], overrides: Sequence[str]) -> None:
    assert same(both, overrides)


def test_the_order_of_configurations_changes_none() -> None:
    with Composer() as composer:
        forth = Parts(composer)
        first = [forth(overrides).plain for overrides in COMMANDS]
        back = Parts(composer)
        back.expect(reversed(COMMANDS))
        assert [back(overrides).plain for overrides in reversed(COMMANDS)] == first[::-1]


def test_presets_do_not_spill_into_each_other(both: tuple[Composer, Parts]) -> None:
    presets = ("fedsa_gcl/table4", "fedssa/table1", "fedaas/table2", "fedsa_gcl/table4")
    for preset in presets:
        both[1]((f"experiment={preset}", "algorithm=fedavg"))
        both[1]((f"experiment={preset}", "algorithm=fedbuff"))
    assert all(same(both, (f"experiment={preset}", f"algorithm={name}")) for preset in presets for name in ("fedavg", "fedbuff"))
    assert same(both, ("algorithm=fedavg",))


def test_a_configuration_is_refused_as_hydra_refuses_it(both: tuple[Composer, Parts]) -> None:
    for overrides in (("algorithm=fedprox", "algorithm.mue=1"), ("algorithm=absent",), ("num_clients=many",), ("lr=fast",)):
        with pytest.raises(Exception) as theirs:
            both[0](overrides)
        with pytest.raises(type(theirs.value)):
            both[1](overrides)


def test_an_edited_file_changes_the_plan(conf: Path) -> None:
    [table] = [table for table in PAPER.tables if table.key == "3"]
    table = type(table)(**{**vars(table), "rows": table.rows[:3], "columns": table.columns[:1]})
    before = plan(PAPER, [table])
    assert [cell.digest for cell in plan(PAPER, [table])] == [cell.digest for cell in before]
    preset = conf / "experiment" / "fedgta" / "_common.yaml"  # which the table's own file is made from
    preset.write_text(preset.read_text().replace("lr: 0.01", "lr: 0.02"))
    after = plan(PAPER, [table])
    assert all(old.digest != new.digest and new.config["lr"] == 0.02 for old, new in zip(before, after, strict=True))


def test_a_choice_that_says_more_than_its_own_keys_is_composed_whole(conf: Path) -> None:
    (conf / "model" / "loud.yaml").write_text("# @package _global_\nlr: 0.5\nmodel:\n  _target_: fgl_bench.models.mlp.MLP\n")
    (conf / "algorithm" / "pushy.yaml").write_text(
        "defaults:\n  - override /split@_global_.split: iid\n_target_: fgl_bench.algorithms.fedavg.FedAvg\n"
    )
    for group, choice in (("model", "loud"), ("algorithm", "pushy")):
        with pytest.raises(Entangled):
            of_file(group, choice)
    with Composer() as composer:
        made = Parts(composer)
        for overrides in (("model=loud",), ("algorithm=pushy",), ("algorithm=fedavg",), ("model=gcn",)):
            assert same((composer, made), overrides)


@pytest.mark.parametrize("experiment", ["fedssa/table1", "fedssa/table2", "fedgta/table3"])
def test_what_goes_with_a_data_set(conf: Path, experiment: str) -> None:
    folder = conf / "by_dataset" / "fedssa"
    for path in folder.iterdir():
        path.unlink()
    (folder / "photo.yaml").write_text("# @package _global_\nrounds: 200\nlocal_epochs: 2\nsplit:\n  ratios: [0.3, 0.3, 0.4]\n")
    with Composer() as composer:
        both = composer, Parts(composer)
        for dataset in ("cora", "photo", "pubmed"):
            for more in ((), ("rounds=5",), ("split=louvain", "algorithm=fedprox"), ("split.ratios=[0.1,0.1,0.8]",)):
                assert same(both, (f"experiment={experiment}", f"dataset={dataset}", *more))
        assert same(both, (f"experiment={experiment}",)) and same(both, ("dataset=photo",))
        rounds = {name: both[1]((f"experiment={experiment}", f"dataset={name}")).settings.rounds for name in ("cora", "photo")}
        assert (rounds["photo"] == 200) == experiment.startswith("fedssa/") and rounds["cora"] == 100
        assert both[1]((f"experiment={experiment}", "dataset=photo", "rounds=5")).settings.rounds == 5, "the command line wins"


def test_the_plan_and_the_command_line_agree_on_what_goes_with_a_data_set(conf: Path) -> None:
    folder = conf / "by_dataset" / "fedgta"
    (folder / "citeseer.yaml").write_text("# @package _global_\nlocal_epochs: 7\n")
    [table] = [table for table in PAPER.tables if table.key == "3"]
    cells = {cell.dataset: cell for cell in plan(PAPER, [table]) if cell.row == table.rows[0]}
    assert cells["citeseer"].config["local_epochs"] == 7 != cells["cora"].config["local_epochs"]
    assert not any("local_epochs" in text for text in cells["citeseer"].overrides), "the printed command needs no key for it"
