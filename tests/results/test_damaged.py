"""Broken copies of real results: each costs itself and a warning that names its file, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fgl_bench.results.cells import compact
from fgl_bench.results.store import Untrusted, config_hash, is_complete, read_summary
from tests.hostile.worker import answer

SMALL = (
    "dataset=csbm", "dataset.num_nodes=120", "dataset.num_edges=240", "num_clients=3", "rounds=2", "seeds=[0,1]", "progress=false",
    "device=cpu", "mixing_at=[3]", "targets=[0.1]", "metrics=[macro_f1]",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory as the command writes it."""
    folder = tmp_path_factory.mktemp("made")
    said = answer([*SMALL, "algorithm=fedavg", f"results_dir={folder}"], {}, {})
    assert said.status == 0, said.stderr
    return next(folder.rglob("summary.json")).parent


@pytest.fixture
def copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, tmp_path / "a" / "b" / "c" / "d" / made.name))


def put(value: Any, *keys: Any) -> Callable[[dict], None]:
    def change(summary: dict) -> None:
        for key in keys[:-1]:
            summary = summary[key]
        summary[keys[-1]] = value

    return change


def drop(*keys: Any) -> Callable[[dict], None]:
    def change(summary: dict) -> None:
        for key in keys[:-1]:
            summary = summary[key]
        del summary[keys[-1]]

    return change


# How a summary or a cell is changed, and what is said of it.
DAMAGE = {
    "no scores": (put({}, "test"), "test.received is missing"),
    "one model": (drop("test", "trained"), "test.trained is missing"),
    "a mean that is true": (put(True, "test", "trained", "mean"), "test.trained.mean is True"),
    "a mean that is NaN": (put(float("nan"), "test", "received", "mean"), "NaN is no number"),
    "no mean": (drop("test", "received", "mean"), "test.received.mean is missing"),
    "a seed's score that is a text": (put("x", "test", "received", "per_seed", 1), r"test.received.per_seed\[1\] is 'x'"),
    "a score too many": (put([0.1, 0.2, 0.3], "test", "received", "per_seed"), "has 3 values for 2 seed"),
    "a trip count too few": (put([3], "client_trips", "to_target", "0.1", "trained", "per_seed"), "has 1 values for 2 seed"),
    "no seeds": (put([], "seeds"), "seeds is empty"),
    "seeds that are texts": (put(["a", "b"], "seeds"), r"seeds\[0\] is 'a'"),
    "no seconds": (drop("seconds"), "seconds is missing"),
    "no bytes": (put(None, "bytes"), "bytes is None"),
    "versions that are a list": (put([1], "versions"), "versions is"),
    "a date that is a number": (put(3, "finished"), "finished is 3"),
    "another metric that is empty": (put({}, "metrics", "macro_f1"), "metrics.macro_f1.received is missing"),
    "divergence without a round": (put({"trained": {"0": {"clients": 1, "trip": 2}}}, "diverged"), "diverged.trained.0.round is missing"),
    "a mean of 400 digits": (put(10**400, "test", "trained", "mean"), "test.trained.mean is 1000"),
    "a mean above 1": (put(1.01, "test", "trained", "mean"), "test.trained.mean is 1.01, not a score from 0 to 1"),
    "bytes of 1e308": (put(1e308, "bytes", "upload"), r"bytes.upload is 1e\+308"),
    "a seed twice": (put([1, 1], "seeds"), "seeds has a value twice"),
    "a selected score too many": (put([0.1] * 3, "test", "trained", "selected", "client", "macro", "per_seed"), "3 values for 2 seed"),
    "escapes in the device": (put("\x1b[31mGPU", "device"), "device is .*without control characters"),
    "a lone surrogate": (put("\ud800", "algorithm"), "algorithm is .*without control characters"),
    "escapes in a name": (put({"\x1b[2J": "1"}, "versions"), "versions has a key that is not a text without control characters"),
    "a target that is a word": (put({"high": {}}, "client_trips", "to_target"), "client_trips.to_target.high"),
    "code that is a text": (put("x", "config", "code"), "config.code is 'x'"),
    "a class that is a number": (put(5, "config", "dataset", "_target_"), "config.dataset._target_ is 5"),
    "a key of 400 digits": (put(10**400, "config", "lr"), "config.lr is .*not made of plain values"),
}  # fmt: skip
RUN_ONLY = {
    "no seconds of training": (drop("seconds", "train"), "seconds.train is missing"),
    "no last point": (drop("test", "trained", "last"), "test.trained.last is missing"),
    "no metric": (drop("metric"), "metric is missing"),
    "a number of clients that is a text": (put("3", "num_clients"), "num_clients is '3'"),
}


def changed(path: Path, change: Callable[[dict], None]) -> None:
    """Change a summary; its hash is that of its configuration."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    change(summary)
    if isinstance(summary["config"], dict):
        summary["config_hash"] = config_hash(summary["config"])
    path.write_text(json.dumps(summary), encoding="utf-8")


@pytest.mark.parametrize("kind", [*DAMAGE, *RUN_ONLY])
def test_a_run_with_a_damaged_summary_is_not_used(kind: str, copy: Path) -> None:
    change, reason = (DAMAGE | RUN_ONLY)[kind]
    assert is_complete(copy)
    changed(copy / "summary.json", change)
    digest = json.loads((copy / "summary.json").read_text(encoding="utf-8"))["config_hash"]
    copy = copy.rename(copy.with_name(digest))
    assert not is_complete(copy)
    with pytest.raises(Untrusted, match=reason):
        read_summary(copy)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("history.csv", b"", "history.csv cannot be read"),
        ("history.csv", b"seed,trip\n", "history.csv cannot be read"),
        ("history.csv", b"seed,trip\n0,0\n", "no row of seed 1"),
        ("history.csv", b"seed,trip\n0,0\n1\n", "history.csv cannot be read"),
        ("history.csv", b"seed\n0\n1\n", "has no column trip"),
        ("history.csv", b"seed,trip\n0,0\n1,0\n0,0\n", "history.csv repeats a trip of seed 0"),
        ("history.csv", b"seed,trip\n0,0\n1,0\n2,0\n", "rows of another seed 2"),
        ("history.csv", b"seed,trip\n0,0\n1,x\n", "history.csv cannot be read as a table of numbers .*'x'"),
        ("history.csv", b"seed,trip\n0,0\n1,\n", "history.csv has a row without trip"),
        ("history.csv", b"seed,trip,upload_bytes\n0,0,1\n1,0,1e308\n", r"upload_bytes is 1e\+308"),
        ("history.csv", b"seed,trip,test_trained\n0,0,1\n1,0,1.5\n", "test_trained is 1.5, not a score"),
        ("history.csv", b"\xff\xfe\x00\x01", "history.csv cannot be read"),
        ("mixing.npz", b"garbage", "mixing.npz is no archive of arrays"),
        ("mixing.npz", b"", "mixing.npz is no archive of arrays"),
        ("final_state.npz", b"garbage", "final_state.npz is no archive of arrays"),
        ("portrait.npz", b"garbage", "portrait.npz is no archive of arrays"),
    ],
)
def test_a_run_with_a_damaged_file_is_not_used(name: str, content: bytes, reason: str, copy: Path) -> None:
    (copy / name).write_bytes(content)
    with pytest.raises(Untrusted, match=reason):
        read_summary(copy)


def test_the_command_makes_a_damaged_run_again_and_keeps_what_was_there(made: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(made.parents[4], tmp_path / "results"))
    [folder] = [path.parent for path in results.rglob("summary.json")]
    changed(folder / "summary.json", put({}, "test"))
    said = answer([*SMALL, "algorithm=fedavg", f"results_dir={results}"], {}, {})
    assert said.status == 0 and "Traceback" not in said.stderr
    [warning] = [line for line in said.stderr.splitlines() if "is not used" in line]
    assert warning.startswith("warning: ") and "test.received is missing" in warning
    assert is_complete(folder) and len(list(folder.parent.glob(f"{folder.name}.kept-*"))) == 1


def test_results_of_before_lack_what_is_new_and_count(copy: Path, tmp_path: Path) -> None:
    changed(copy / "summary.json", drop("diverged"))
    lines = (copy / "history.csv").read_text(encoding="utf-8").splitlines()
    new = [lines[0].split(",").index(name) for name in ("train_loss", "diverged_received", "diverged_trained")]
    kept = [",".join(value for i, value in enumerate(line.split(",")) if i not in new) for line in lines]
    (copy / "history.csv").write_text("\n".join(kept) + "\n", encoding="utf-8")
    cell = compact(read_summary(copy), "fgl-bench", copy)
    assert "diverged" not in cell and cell["curve"]["trips"] == [0, 3, 6]
