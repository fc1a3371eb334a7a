"""Run directories: whole or not at all, and named by what decides the numbers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from omegaconf import OmegaConf

from fgl_bench.evaluation.history import history_rows
from fgl_bench.results.provenance import versions
from fgl_bench.results.store import (
    PRESENTATION,
    Untrusted,
    config_hash,
    identity,
    is_complete,
    read_summary,
    run_folder,
    write_run,
)
from tests.evaluation.test_history import history
from tests.results.summaries import summary

WHAT = {"lr": 0.01}
HASH = config_hash(WHAT)
SUMMARY = summary(WHAT)
ROWS = [{"seed": 0, "trip": 0}, {"seed": 0, "trip": 20}]
CONFIG = {
    "algorithm": {"_target_": "x.Y", "mu": 0.1}, "dataset": {"name": "cora"}, "seeds": [0, 1], "lr": 0.01, "rounds": None, "trips": None,
    "device": "auto", "threads": None, "memory_budget_gb": None, "seeds_per_chunk": None, "data_dir": "a", "results_dir": "b",
    "cache_dir": "c", "overwrite": False, "progress": True, "tracker": {"_target_": "t"}, "same": "${lr}",
}  # fmt: skip


def resolved(cfg):
    return OmegaConf.to_container(cfg, resolve=True)


def digest(rounds=5, trips=100, **changes):
    return config_hash(identity(resolved(OmegaConf.merge(CONFIG, changes)), rounds, trips))


def write(folder, summary=SUMMARY, **changes):
    arguments = {"config": "lr: 0.01\n", "rows": ROWS, "arrays": {"trips_20": np.eye(2)[None]}, **changes}
    write_run(folder, arguments["config"], summary, arguments["rows"], arguments["arrays"], arguments.get("final_state"))


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_run_is_written_whole_and_read_back(tmp_path):
    folder = tmp_path / "cora" / "metis-20" / HASH
    assert not is_complete(folder)
    write(folder)
    assert is_complete(folder)
    assert everything(folder) == ["config.yaml", "history.csv", "mixing.npz", "summary.json"]
    assert json.loads((folder / "summary.json").read_text()) == SUMMARY
    assert [row["trip"] for row in csv.DictReader((folder / "history.csv").read_text().splitlines())] == ["0", "20"]
    with np.load(folder / "mixing.npz") as arrays:
        np.testing.assert_array_equal(arrays["trips_20"], np.eye(2)[None])
    assert everything(folder.parent) == [HASH, *(f"{HASH}/{name}" for name in everything(folder))], "no temporary folder is left"


def test_without_matrices_there_is_no_file_for_them(tmp_path):
    write(tmp_path / HASH, arrays={}, final_state={})
    assert everything(tmp_path / HASH) == ["config.yaml", "history.csv", "summary.json"]


def test_what_is_kept_of_the_clients_has_a_file_of_its_own(tmp_path):
    write(tmp_path / HASH, final_state={"coefficients": np.ones((1, 2, 3))})
    with np.load(tmp_path / HASH / "final_state.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].shape for name in arrays.files} == {"coefficients": (1, 2, 3)}


@pytest.mark.parametrize("summary", [{"value": float("nan")}, {"value": float("inf")}, {"value": object()}])
def test_a_failure_leaves_nothing_behind(tmp_path, summary):
    with pytest.raises((ValueError, TypeError)):
        write(tmp_path / "deep" / HASH, summary)
    assert everything(tmp_path) == ["deep"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_the_earlier_run_as_it_was(tmp_path, monkeypatch, interruption):
    write(tmp_path / HASH)
    before = {name: (tmp_path / HASH / name).read_bytes() for name in everything(tmp_path / HASH)}

    def interrupted(*args, **kwargs):
        raise interruption

    monkeypatch.setattr(json, "dumps", interrupted)
    with pytest.raises(interruption):
        write(tmp_path / HASH, {"schema_version": 99})
    assert everything(tmp_path) == [HASH, *(f"{HASH}/{name}" for name in before)]
    assert before == {name: (tmp_path / HASH / name).read_bytes() for name in before}


def test_a_repeated_run_replaces_every_file(tmp_path):
    write(tmp_path / HASH)
    write(tmp_path / HASH, {**SUMMARY, "more": 1}, arrays={}, config="lr: 1\n")
    assert everything(tmp_path / HASH) == ["config.yaml", "history.csv", "summary.json"]
    assert json.loads((tmp_path / HASH / "summary.json").read_text())["more"] == 1


DAMAGE = {
    "no summary": (None, "no summary.json"),
    "empty": ("", "not readable as json"),
    "truncated": (json.dumps(SUMMARY)[:-9], "not readable as json"),
    "a list": ("[]", "no summary of a run"),
    "another program's": ('{"result": 1}', "no summary of a run"),
    "an older schema": (json.dumps({**SUMMARY, "schema_version": 0}), "schema_version 0"),
    "a changed configuration": (json.dumps({**SUMMARY, "config": {"lr": 1}}), f"does not have the hash {HASH}"),
    "another run's": (json.dumps({**SUMMARY, "config": {"lr": 1}, "config_hash": config_hash({"lr": 1})}), f"not {HASH}"),
    "not text": (b"\xff\xfe\x00", "cannot be read"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_no_run_is_not_trusted_reported_and_kept_when_the_run_is_made(tmp_path, kind):
    content, reason = DAMAGE[kind]
    folder = tmp_path / "cora" / "metis-20" / "sync" / "fedavg" / HASH
    write(folder)
    if content is None:
        (folder / "summary.json").unlink()
    else:
        (folder / "summary.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    damaged = {name: (folder / name).read_bytes() for name in everything(folder)}
    assert not is_complete(folder)
    with pytest.raises(Untrusted, match=reason):
        read_summary(folder)

    write(folder)
    assert read_summary(folder) == SUMMARY
    [kept] = folder.parent.glob(f"{HASH}.kept-*")
    assert {name: (kept / name).read_bytes() for name in everything(kept)} == damaged
    assert sorted(folder.parent.iterdir()) == [folder, kept]


def test_a_run_without_its_history_is_not_complete(tmp_path):
    write(tmp_path / HASH)
    (tmp_path / HASH / "history.csv").unlink()
    assert not is_complete(tmp_path / HASH)


def test_a_file_in_the_place_of_a_run_is_kept(tmp_path):
    (tmp_path / HASH).write_text("mine", encoding="utf-8")
    write(tmp_path / HASH)
    assert is_complete(tmp_path / HASH)
    [kept] = tmp_path.glob(f"{HASH}.kept-*")
    assert kept.read_text(encoding="utf-8") == "mine"


def test_the_hash_ignores_where_and_how():
    for key, value in {
        "device": "cuda", "threads": 4, "memory_budget_gb": 1.5, "seeds_per_chunk": 2, "data_dir": "z", "results_dir": "z",
        "cache_dir": "z", "shard": "clients", "overwrite": True, "progress": False, "tracker": {"_target_": "other"},
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
    assert config_hash(identity(resolved(turned), 5, 100)) == digest()
    assert config_hash(identity(resolved(OmegaConf.merge(turned, {"rounds": 5})), 5, 100)) == digest()
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
