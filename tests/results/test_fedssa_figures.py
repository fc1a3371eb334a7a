"""FedSSA's settings by row and column, and its figures from runs and cells that are written by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from fgl_bench.papers.plans._fediih import DISJOINT, OVERLAPPING
from fgl_bench.papers.plans._unifilter import overrides as unifilter
from fgl_bench.papers.plans.fedssa import CHOSEN, PAPER, SWEPT
from omegaconf import OmegaConf
from tests.results.located import located

from fgl_bench.config.choices import choices
from fgl_bench.config.compose import Composer
from fgl_bench.papers.figures import alignment
from fgl_bench.papers.figures.base import Sources
from fgl_bench.papers.figures.fedssa import draw
from fgl_bench.papers.plan import Cell, plan
from fgl_bench.results.cells import covers
from fgl_bench.runner.run import federations_of
from tests.results import summaries

TABLES = {table.key: table for table in PAPER.tables}


def narrowed(key: str, rows: tuple[str, ...], datasets: tuple[str, ...], groups: tuple[str, ...]):
    table = TABLES[key]
    columns = tuple(c for c in table.columns if c.dataset in datasets and c.group in groups)
    return dataclasses.replace(table, rows=tuple(row for row in table.rows if row.key in rows), columns=columns)


# ---- rows whose settings depend on the column


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, str], Cell]:
    shown = ("fed_pub", "fediih", "fedper")
    tables = [
        narrowed("1", shown, ("cora", "computers"), ("5 clients", "20 clients")),
        narrowed("6", shown, ("cora", "computers"), ("30 clients",)),
        narrowed("9", shown, ("cora",), ("5 clients", "30 overlapping clients")),
    ]
    return {(cell.table, cell.row.key, cell.column.key): cell for cell in plan(PAPER, tables)}


def test_commands_compose_to_their_hashes(found) -> None:
    some = [cell for cell in found.values() if cell.row.key in ("fed_pub", "fediih")]
    composed = Composer()
    for cell in some[:: len(some) // 5]:
        assert located(composed(cell.overrides)) == (cell.digest, cell.folder, cell.config), cell.command


def test_fed_pub_is_sharper_among_overlapping_clients_and_all_have_its_authors_weight_decay(found) -> None:
    pub, other = ({key: cell.config for key, cell in found.items() if key[1] == name} for name in ("fed_pub", "fedper"))
    assert {config["weight_decay"] for config in (*pub.values(), *other.values())} == {1e-6}
    assert pub["1", "fed_pub", "cora, 5 clients"]["algorithm"]["tau"] == 3
    assert pub["6", "fed_pub", "cora, 30 clients"]["algorithm"]["tau"] == 5
    assert {config["algorithm"]["reg"] for config in pub.values()} == {"inert"}


def test_results_of_former_readings_are_not_found() -> None:
    """Whatever is stored without the keys that tell the readings apart is of the former ones."""
    names = ("adafgl", "fediih", "fed_pub", "fed_pub_regularized")
    by_row = {cell.row.key: cell.config for cell in plan(PAPER, [narrowed("1", names, ("cora",), ("5 clients",))])}
    for name, key in (("adafgl", "attention"), ("fediih", "inference_activation")):
        now = by_row[name]
        before = {**now, "algorithm": {own: value for own, value in now["algorithm"].items() if own != key}}
        assert covers(now, now) and not covers(now, before)
    assert not covers(by_row["fed_pub"], by_row["fed_pub_regularized"])


def test_fediih_has_the_numbers_of_its_authors(found) -> None:
    def of(table: str, column: str) -> dict:
        return found[table, "fediih", column].config

    cora = of("1", "cora, 5 clients")
    assert (cora["model"]["factors"], cora["model"]["width"], cora["model"]["layers"], cora["model"]["dropout"]) == (2, 128, 2, 0.3)
    assert (cora["lr"], cora["weight_decay"], cora["algorithm"]["inference_layers"]) == (0.02, 0.005, 2)
    assert [of("1", f"computers, {n} clients")["model"]["dropout"] for n in (5, 20)] == [0.35, 0.4]
    assert (of("1", "computers, 5 clients")["model"]["factors"], of("6", "computers, 30 clients")["model"]["factors"]) == (6, 4)
    assert of("1", "computers, 5 clients")["model"]["layers"] == of("1", "computers, 5 clients")["algorithm"]["inference_layers"] == 1


def test_seconds_are_those_of_the_accuracy_tables_runs(found) -> None:
    for row in ("fed_pub", "fediih", "fedper"):
        assert found["9", row, "cora, 5 clients"].digest == found["1", row, "cora, 5 clients"].digest
        assert found["9", row, "cora, 30 overlapping clients"].digest == found["6", row, "cora, 30 clients"].digest


def test_unifilter_has_fedgsps_numbers_where_it_is_tuned() -> None:
    table = narrowed("1", ("local_tuned", "fedavg_tuned", "fedavg"), ("photo",), ("5 clients", "20 clients"))
    cells = {(cell.row.key, cell.column.group): cell.config for cell in plan(PAPER, [table])}
    for name in ("local_tuned", "fedavg_tuned"):
        model, run = cells[name, "5 clients"]["model"], cells[name, "5 clients"]
        assert (model["orders"], model["hidden"], model["layers"], model["tau"]) == (10, 256, 5, 0.95)
        assert (model["dropout"], model["input_dropout"], model["basis_dropout"]) == (0.4, 0.4, 0.25)
        assert (run["lr"], run["weight_decay"], model["filter_lr"], model["filter_weight_decay"]) == (0.006, 5e-5, 0.005, 5e-4)
        assert (run["rounds"], run["local_epochs"], model["per_feature"], model["default_homophily"]) == (200, 2, True, 0.75)
    assert cells["local_tuned", "20 clients"]["model"]["tau"] == 0.99
    assert "per_feature" not in cells["fedavg", "5 clients"]["model"]


def test_every_column_of_the_paper_is_known_of_unifilter() -> None:
    for key in ("1", "2", "6", "7"):
        for column in TABLES[key].columns:
            assert len(unifilter(column)) == len({text.partition("=")[0] for text in unifilter(column)}) == 16
    assert not [name for name in choices("experiment") if "_unifilter" in name]


def test_every_dataset_of_the_paper_is_known_of_fediih() -> None:
    for key, chosen in (("1", DISJOINT), ("2", DISJOINT), ("6", OVERLAPPING), ("7", OVERLAPPING)):
        assert set(TABLES[key].datasets) <= set(chosen)


def test_what_is_given_for_all_runs_wins_over_a_rows_own() -> None:
    [cell] = plan(PAPER, [narrowed("1", ("fediih",), ("cora",), ("5 clients",))], ("lr=0.5", "model.factors=3", "rounds=4"))
    assert (cell.config["lr"], cell.config["model"]["factors"], cell.config["model"]["width"], cell.config["rounds"]) == (0.5, 3, 128, 4)
    composed = Composer()
    assert located(composed(cell.overrides))[0] == cell.digest


# ---- the runs of figures


def test_figures_share_the_tables_runs() -> None:
    rows, ten = ("fedssa", "fedssa_without_semantic"), ("10 clients",)
    cells = plan(PAPER, [narrowed(key, rows, ("cora",), ten) for key in ("1", "8", "figure4", "figure5", "figure6")])
    digests = {(cell.table, cell.row.key): cell.digest for cell in cells}
    assert len({digests[key, "fedssa"] for key in ("1", "8", "figure4", "figure5", "figure6")}) == 1
    assert digests["8", "fedssa_without_semantic"] == digests["figure6", "fedssa_without_semantic"]


def test_the_sweep_goes_through_the_chosen_values_and_every_other_is_a_run_of_its_own() -> None:
    cells = plan(PAPER, [dataclasses.replace(TABLES["figure5"], columns=TABLES["figure5"].columns[:1])])
    assert len({cell.digest for cell in cells}) == len(cells) == 1 + sum(len(values) - 1 for _, values in SWEPT.values())
    [own] = [cell.config["algorithm"] for cell in cells if cell.row.key == "fedssa"]
    assert {key: float(value) for key, value in CHOSEN.items()} == {key: own[key] for key in CHOSEN}
    assert all(CHOSEN[key] in values for key, (_, values) in SWEPT.items())


# ---- numbers behind the pictures


def test_points_are_the_classes_that_a_client_has() -> None:
    means = np.arange(12.0).reshape(1, 2, 3, 2)
    state = {"class_means": means, "class_counts": np.array([[[1, 0, 2], [0, 0, 5]]])}
    points, label, client = alignment.class_points(state)
    assert (points.tolist(), label.tolist(), client.tolist()) == ([[0, 1], [4, 5], [10, 11]], [0, 2, 2], [0, 0, 1])


def test_closeness_compares_distances_within_and_between_classes() -> None:
    points = np.array([[0.0], [1.0], [10.0]])  # within: 1; between: 10 and 9
    assert alignment.closeness(points, np.array([0, 0, 1])) == pytest.approx(1 / 9.5)
    assert np.isnan(alignment.closeness(points, np.array([0, 1, 2]))) and np.isnan(alignment.closeness(points, np.zeros(3)))


def test_the_plane_keeps_far_groups_apart_and_is_the_same_every_time() -> None:
    points = np.concatenate([np.random.default_rng(0).normal(centre, 0.1, (12, 5)) for centre in (0, 8)])
    plane = alignment.planar(points)
    assert np.array_equal(plane, alignment.planar(points))
    assert alignment.closeness(plane, np.repeat([0, 1], 12)) < 0.5
    assert np.isfinite(alignment.planar(np.ones((5, 3)))).all()


def test_a_client_is_drawn_beside_what_its_cluster_aligns_to() -> None:
    own = np.array([[[0.0, 1.0], [0.0, 3.0], [5.0, 5.0]]])
    targets = np.array([[[0.0, 2.0], [0.0, 2.0], [5.0, 5.0]]])
    with_, without = alignment.filters({"with": {"coefficients": own, "targets": targets}, "without": {"coefficients": own}}, "t").axes
    assert with_.get_title().endswith(" 2.7191") and without.get_title().endswith(" 2.7191")
    assert sorted(line.get_ydata().tolist() for line in with_.get_lines()) == [[0, 1], [0, 2], [0, 3], [5, 5], [5, 5]]
    assert without.get_lines()[-1].get_ydata() == pytest.approx([5 / 3, 3.0])


# ---- from files to figures


def test_a_final_state_is_found_under_its_old_name_too(tmp_path: Path) -> None:
    assert alignment.read_final_state(tmp_path) == {}
    np.savez(tmp_path / "portrait.npz", coefficients=np.zeros(2))
    assert alignment.read_final_state(tmp_path)["coefficients"].tolist() == [0, 0]
    np.savez(tmp_path / "final_state.npz", coefficients=np.ones(2))
    assert alignment.read_final_state(tmp_path)["coefficients"].tolist() == [1, 1]


def stored(folder: Path, cells: list[Cell]) -> None:
    """A run with history and final state, and a cell, for each of ``cells``."""
    (folder / "cells" / "fedssa").mkdir(parents=True)
    for number, cell in enumerate(cells):
        run = folder / "runs" / cell.folder
        run.mkdir(parents=True, exist_ok=True)
        summary = summaries.summary(cell.config)
        summary["test"] = {model: {**scores, "mean": 0.5 + number / 100, "ci95": 0.01} for model, scores in summary["test"].items()}
        (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        (folder / "cells" / "fedssa" / f"{cell.digest}.json").write_text(json.dumps(summary), encoding="utf-8")
        (run / "config.yaml").write_text(OmegaConf.to_yaml(cell.config), encoding="utf-8")
        (run / "history.csv").write_text("seed,trip,test_received,test_trained\n0,0,0.1,0.1\n0,10,0.5,0.6\n", encoding="utf-8")
        draws = np.random.default_rng(number)
        kept = {"class_means": draws.normal(size=(1, 4, 3, 2)), "class_counts": np.ones((1, 4, 3)), "coefficients": np.ones((1, 4, 2))}
        np.savez(run / "final_state.npz", **kept)


def test_what_is_there_is_drawn_and_no_more(tmp_path: Path) -> None:
    tables = (
        narrowed("1", ("majority", "fedavg", "fedavg_gcn", "fedssa"), ("cora",), ("10 clients",)),
        narrowed("8", ("fedssa", "fedssa_without_semantic"), ("cora",), ("10 clients",)),
        narrowed("figure5", ("fedssa", "fedssa_l1_0.01"), ("cora",), ("10 clients",)),
        narrowed("7", ("fedavg", "fedssa"), ("tolokers",), ("30 clients",)),
    )
    paper = dataclasses.replace(PAPER, tables=tables)
    sources = Sources(paper, ("cora", "tolokers"), tmp_path, None, federations_of)
    stored(tmp_path, [cell for cell in sources.planned([table.key for table in paper.tables]) if cell.row.key != "fedavg_gcn"])
    made = dict(draw(sources))
    assert set(made) == {
        "figure3_ablation_cora", "figure4_convergence_cora", "figure9_convergence_tolokers", "figure5_sensitivity_cora",
        "figure6_classes_cora",
    }  # fmt: skip
    assert [line.get_label() for line in made["figure4_convergence_cora"].axes[0].get_lines()] == ["FedAvg, UniFilter", "FedSSA"]
    assert made["figure9_convergence_tolokers"].axes[0].get_ylabel() == "test AUC in %"
    [axis] = made["figure5_sensitivity_cora"].axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0.001", "0.01"]
    without, full = made["figure6_classes_cora"].axes
    assert sum(len(points.get_offsets()) for points in full.collections) == 12
