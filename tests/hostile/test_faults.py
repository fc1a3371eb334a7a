"""Faults that hostile input once found, in the order of that search: A is silently wrong, C a traceback or a poor message.

Others stand by their subject: outputs that are devices or links in ``test_written_files.py``, values in ``test_top_level.py``, damaged runs
in ``test_results.py``, streams, secrets and readers without permission in ``test_streams.py`` and ``test_surroundings.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from fgl_bench import UserError, run, table
from fgl_bench.config.compose import as_command
from fgl_bench.data import out_of_core, storage
from fgl_bench.report.html import page, sources
from fgl_bench.runner.one import run_one
from tests.data.test_out_of_core import assert_same, build, files
from tests.results.report_pages import data_of
from tests.results.stored_runs import store
from tests.test_api import LINE, TINY
from tests.test_divergence import ran


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


# ---- A1: runs in threads


METHODS = ("fedavg", "fedprox", "local", "fedgta", "d_psgd", "fedavgm", "scaffold", "fedbuff")


def scores_of(method: str, folder: str) -> dict:
    """The run's scores, after checking that it was filed under its own method."""
    result = run(method, "csbm", results_dir=folder, model__hidden=8, **TINY)
    assert result.summary["algorithm"] == result.folder.parent.name == method
    return result.summary["test"]


@pytest.mark.nightly
def test_runs_in_eight_threads_are_those_made_alone() -> None:
    with ThreadPoolExecutor(len(METHODS)) as pool:
        together = list(pool.map(scores_of, METHODS, ["together"] * len(METHODS)))
    assert together == [scores_of(method, "alone") for method in METHODS]


# ---- A2, A3: scores that are not defined


def test_a_seed_without_a_scored_test_node_counts_nowhere(tmp_path: Path) -> None:
    small = "dataset.num_edges=300 dataset.num_features=16 dataset.words_per_node=6 rounds=2 dataset.metric=auc dataset.num_classes=2"
    odd = "seeds=[0,1,2] algorithm=fedavg model.hidden=8 split=dirichlet split.alpha=0.001"
    said, summary, rows = ran(tmp_path, *small.split(), *odd.split())
    test = summary["test"]["received"]
    first, second, third = test["per_seed"]
    assert third is None and test["mean"] == pytest.approx((first + second) / 2) == pytest.approx(0.370, abs=1e-3)
    assert test["last"]["per_seed"][2] is None and test["selected"]["client"]["macro"]["per_seed"][2] is None
    assert all(row["test_received"] == "" for row in rows if row["seed"] == "2")
    assert "no client of seed(s) 2 has a defined test score" in said.stderr and "(2/3)" in said.stdout
    assert summary["diverged"] is None


def test_a_seed_without_a_validation_score_does_not_report_the_untrained_model(tmp_path: Path) -> None:
    odd = "seeds=[0] algorithm=fedavg num_clients=6 split.ratios=[0.5,0.05,0.45] dataset.metric=auc dataset.num_classes=2"
    said, summary, _ = ran(tmp_path, *odd.split())
    for model in ("received", "trained"):
        test = summary["test"][model]
        assert test["per_seed"] == test["selected_trips"] == [None] and test["mean"] is None and test["last"]["mean"] > 0
    assert said.stderr.startswith("warning: no client of seed(s) 0 has a defined validation score") and "split.ratios" in said.stderr


# ---- A4: files of a graph out of core


def flipped(content: bytes, other: bytes) -> bytes:
    """A bit of a number in the middle."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "empty": lambda content, other: b"",
    "cut": lambda content, other: content[: len(content) // 2],
    "zeroed": lambda content, other: bytes(len(content)),
    "flipped": flipped,
    "a header of petabytes": lambda content, other: content.replace(b"'shape': (", b"'shape': (9"),
    "a byte more": lambda content, other: content + b"0",
    "of another graph": lambda content, other: other,
}


AT_NIGHT = ("empty", "zeroed", "a byte more", "of another graph")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.nightly if kind in AT_NIGHT else ()) for kind in [*DAMAGE, "missing"]]
)
def test_a_damaged_file_is_written_again_and_one_line_says_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(storage, "BLOCK_BYTES", 700)  # many blocks of so small a graph
    monkeypatch.setattr(out_of_core, "RANGE", 150)
    sound = build()
    build(tmp_path)
    (folder,) = tmp_path.glob("graph_*")
    build(tmp_path, seed=1)
    (another,) = (path for path in tmp_path.glob("graph_*") if path != folder)
    for path in sorted(files(folder)):
        other = next(another.glob(path.name if path.parent == folder else f"clients_*/{path.name}"))
        path.unlink() if kind == "missing" else path.write_bytes(DAMAGE[kind](path.read_bytes(), other.read_bytes()))
        capsys.readouterr()
        assert_same(sound, build(tmp_path))
        notes = capsys.readouterr().err.splitlines()
        assert kind == "missing" or (len(notes) == 1 and str(path) in notes[0]), (path, notes)
        assert_same(sound, build(tmp_path))
        assert capsys.readouterr().err == "", "it is sound again"


# ---- A6: processes that start together


# ---- A7: folders of any layout


def test_runs_are_reported_from_folders_of_any_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [store(tmp_path / "made/of/old", method) for method in ("fedavg", "local")]
    flat = tmp_path / "flat"
    flat.mkdir()
    [folder, _] = [path.rename(flat / path.name) for path in kept]
    for where, shown in ((tmp_path, "flat"), (flat, "."), (folder, "."), (flat, folder.name), (tmp_path / "made", "../flat")):
        monkeypatch.chdir(where)
        made = page(sources(shown), where / "report.html")
        assert len(data_of(made)["runs"]) == len(list(Path(shown).rglob("summary.json")))
        assert str(table(shown)).startswith("test accuracy in %")


# ---- A8, C11: values of Python


def test_arrays_backslashes_and_quotes_arrive_as_they_are(here: Path) -> None:
    own = here / "it's" / "dataset"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("defaults: [csbm]\n", encoding="utf-8")
    ratios = np.array([0.3, 0.3, 0.4])
    result = run("fedavg", "mine", config_dir=own.parent, results_dir="a\\b", split__ratios=ratios, num_clients=3, rounds=2, seeds=[0])
    assert result.summary["config"]["split"]["ratios"] == [0.3, 0.3, 0.4] and (here / "a\\b").is_dir()
    assert len(repr(result)) < 300 and "fedavg" in repr(result)


# ---- C10: the process of the caller


def test_another_application_of_hydra_keeps_its_state(here: Path) -> None:
    from hydra import initialize_config_dir, version
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    (here / "app.yaml").write_text("algorithm: theirs\n", encoding="utf-8")
    with initialize_config_dir(str(here), job_name="theirs", version_base="1.2"):
        HydraConfig.instance().cfg = OmegaConf.create({"hydra": {"runtime": {"choices": {"algorithm": "theirs"}}}})
        before = GlobalHydra.instance().hydra, HydraConfig.instance().cfg, version.getbase()
        try:
            scores_of("fedprox", "results")
            assert (GlobalHydra.instance().hydra, HydraConfig.instance().cfg, version.getbase()) == before
        finally:
            HydraConfig.instance().cfg = None


def test_torch_is_left_as_it_was_and_its_modes_change_nothing() -> None:
    expected, threads = scores_of("fedprox", "plain"), torch.get_num_threads()
    run("fedprox", "csbm", threads=threads + 1, **TINY)
    assert torch.get_num_threads() == threads
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert scores_of("fedprox", "inside") == expected
        assert torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")
    with torch.no_grad():
        assert scores_of("fedprox", "without gradients") == expected


# ---- C13: a folder that goes


def test_a_run_whose_folder_goes_while_it_trains_says_that_it_is_lost(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    line = ["algorithm=fedavg", "dataset=csbm", "checkpoint_minutes=null", "progress=false", *LINE]
    with as_command(line) as cfg, pytest.raises(UserError, match="results/runs.* a run of .* is lost"):
        run_one(cfg, watch=lambda row: shutil.rmtree(here / "gone", ignore_errors=True))
