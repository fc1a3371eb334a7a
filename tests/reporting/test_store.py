"""Run directories: whole or not at all, and named by what decides the numbers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from omegaconf import OmegaConf

from fgl_bench.errors import UserError
from fgl_bench.reporting.store import (
    PRESENTATION,
    SCHEMA_VERSION,
    config_hash,
    history_rows,
    identity,
    is_complete,
    run_folder,
    versions,
    write_run,
)
from tests.evaluation.test_history import history

SUMMARY = {"schema_version": SCHEMA_VERSION, "test": {"received": {"mean": 0.5}}}
ROWS = [{"seed": 0, "trip": 0}, {"seed": 0, "trip": 20}]
CONFIG = {
    "algorithm": {"_target_": "x.Y", "mu": 0.1}, "dataset": {"name": "cora"}, "seeds": [0, 1], "lr": 0.01, "rounds": None, "trips": None,
    "device": "auto", "threads": None, "memory_budget_gb": None, "seeds_per_chunk": None, "data_dir": "a", "results_dir": "b",
    "cache_dir": "c", "overwrite": False, "progress": True, "tracker": {"_target_": "t"}, "same": "${lr}",
}  # fmt: skip


def digest(rounds=5, trips=100, **changes):
    return config_hash(identity(OmegaConf.merge(OmegaConf.create(CONFIG), changes), rounds, trips))


def write(folder, summary=SUMMARY, **changes):
    arguments = {"config": "lr: 0.01\n", "rows": ROWS, "arrays": {"trips_20": np.eye(2)[None]}, **changes}
    write_run(folder, arguments["config"], summary, arguments["rows"], arguments["arrays"])


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_run_is_written_whole_and_read_back(tmp_path):
    folder = tmp_path / "cora" / "metis-20" / "hash"
    assert not is_complete(folder)
    write(folder)
    assert is_complete(folder)
    assert everything(folder) == ["config.yaml", "history.csv", "mixing.npz", "summary.json"]
    assert json.loads((folder / "summary.json").read_text()) == SUMMARY
    assert [row["trip"] for row in csv.DictReader((folder / "history.csv").read_text().splitlines())] == ["0", "20"]
    with np.load(folder / "mixing.npz") as arrays:
        np.testing.assert_array_equal(arrays["trips_20"], np.eye(2)[None])
    assert everything(folder.parent) == ["hash", *(f"hash/{name}" for name in everything(folder))], "no temporary folder is left"


def test_without_matrices_there_is_no_file_for_them(tmp_path):
    write(tmp_path / "run", arrays={})
    assert "mixing.npz" not in everything(tmp_path / "run")


@pytest.mark.parametrize("summary", [{"value": float("nan")}, {"value": float("inf")}, {"value": object()}])
def test_a_failure_leaves_nothing_behind(tmp_path, summary):
    with pytest.raises((ValueError, TypeError)):
        write(tmp_path / "deep" / "run", summary)
    assert everything(tmp_path) == ["deep"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_the_earlier_run_as_it_was(tmp_path, monkeypatch, interruption):
    write(tmp_path / "run")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in everything(tmp_path / "run")}

    def interrupted(*args, **kwargs):
        raise interruption

    monkeypatch.setattr(json, "dumps", interrupted)
    with pytest.raises(interruption):
        write(tmp_path / "run", {"schema_version": 99})
    assert everything(tmp_path) == ["run", *(f"run/{name}" for name in before)]
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in before}


def test_a_repeated_run_replaces_every_file(tmp_path):
    write(tmp_path / "run")
    write(tmp_path / "run", {**SUMMARY, "more": 1}, arrays={}, config="lr: 1\n")
    assert everything(tmp_path / "run") == ["config.yaml", "history.csv", "summary.json"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["more"] == 1


@pytest.mark.parametrize("text", [None, "", "{", "[]", "null", '{"schema_version": 0}', "{}"])
def test_only_a_readable_summary_of_this_schema_makes_a_run_complete(tmp_path, text):
    write(tmp_path / "run")
    if text is None:
        (tmp_path / "run" / "summary.json").unlink()
    else:
        (tmp_path / "run" / "summary.json").write_text(text)
    assert not is_complete(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^results_dir: cannot write .*file"):
        write(tmp_path / "file" / "run")


def test_the_hash_ignores_where_and_how():
    for key, value in {
        "device": "cuda", "threads": 4, "memory_budget_gb": 1.5, "seeds_per_chunk": 2, "data_dir": "z", "results_dir": "z",
        "cache_dir": "z", "overwrite": True, "progress": False, "tracker": {"_target_": "other"},
    }.items():  # fmt: skip
        assert key in PRESENTATION
        assert digest(**{key: value}) == digest(), key


def test_the_hash_reacts_to_everything_else():
    variants = [
        {}, {"lr": 0.02}, {"seeds": [0]}, {"seeds": [1, 0]}, {"algorithm": {"mu": 0.2}}, {"algorithm": {"nu": 1}},
        {"dataset": {"name": "x"}}, {"rounds": 6}, {"trips": 99}, {"same": 1},
    ]  # fmt: skip
    assert len({digest(**variant) for variant in variants}) == len(variants)


def test_the_hash_does_not_depend_on_the_order_of_keys_nor_on_how_the_budget_was_given():
    turned = OmegaConf.create(dict(reversed(CONFIG.items())))
    assert config_hash(identity(turned, 5, 100)) == digest()
    assert config_hash(identity(OmegaConf.merge(turned, {"rounds": 5}), 5, 100)) == digest()
    assert len(digest()) == 12 and int(digest(), 16) >= 0


def test_folders_are_named_by_what_was_run(tmp_path):
    folder = run_folder(tmp_path, "cora", "metis", 20, "semi_async", "fedsa_gcl", "abc")
    assert folder == tmp_path / "cora" / "metis-20" / "semi_async" / "fedsa_gcl" / "abc"


def test_rows_hold_one_point_each():
    h = history([[[1, 2], [0, 1]], [[2, 2], [1, 0]]], [[2, 4], [2, 4]], seed=3)
    h.staleness[1] = [0.5, 2]
    rows = history_rows([h])
    assert [row["trip"] for row in rows] == [0, 10] and {row["seed"] for row in rows} == {3}
    assert rows[0]["val_received"] == 0.25 and rows[0]["test_trained"] == 0.375
    assert rows[0]["staleness_mean"] is None and rows[1]["staleness_mean"] == 0.5 and rows[1]["staleness_max"] == 2
    json.dumps(rows, allow_nan=False)
    assert history_rows([h], [np.array([1, 0])])[0]["test_received"] == 0.5


def test_versions_name_what_decides_the_numbers():
    found = versions()
    assert {"python", "torch", "numpy", "scipy"} <= set(found) and all(isinstance(text, str) for text in found.values())
