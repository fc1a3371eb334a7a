"""A stored run is the answer to a command only while code and data are those that made it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fgl_bench.config.identity import CORRECTED
from fgl_bench.results.store import config_hash
from tests.warm import command

TINY = (
    "dataset.num_nodes=120", "dataset.num_edges=260", "dataset.num_features=24", "dataset.words_per_node=6", "num_clients=3",
    "rounds=2", "seeds=[0]", "progress=false", "threads=1",
)  # fmt: skip
MINE = """
from mine_helper import Base


class Mine(Base):
    pass
"""
HELPER = """
from fgl_bench.algorithms.fedavg import FedAvg


class Base(FedAvg):
    {body}
"""


def scores(folder: Path) -> list[dict]:
    return [json.loads(path.read_text())["test"] for path in sorted(folder.rglob("summary.json"), key=lambda path: path.stat().st_mtime)]


def test_an_edited_method_is_run_again_and_its_earlier_run_named(tmp_path):
    own = ("algorithm=fedavg", "algorithm._target_=mine_method.Mine", *TINY)
    (tmp_path / "mine_method.py").write_text(MINE)
    (tmp_path / "mine_helper.py").write_text(HELPER.format(body="pass"))
    first = command(tmp_path, *own)
    assert first.returncode == 0 and "written" in first.stdout, first.stderr
    same = command(tmp_path, *own)
    assert "complete already" in same.stdout and same.stderr == ""
    (tmp_path / "mine_helper.py").write_text(HELPER.format(body="def initialize(self, initial): return 0 * initial"))
    edited = command(tmp_path, *own)
    assert edited.returncode == 0 and "written" in edited.stdout, edited.stderr
    [note] = edited.stderr.splitlines()
    assert note.startswith("note: ") and "was made by other code (mine_helper.py, changed " in note
    before, after = scores(tmp_path)
    assert before != after
    # Code goes back: the first run is the answer again.
    (tmp_path / "mine_helper.py").write_text(HELPER.format(body="pass"))
    assert "complete already" in command(tmp_path, *own).stdout


@pytest.mark.nightly
def test_a_run_from_before_a_correction_is_made_again(tmp_path):
    own = ("algorithm=adafgl", *TINY)
    assert command(tmp_path, *own).returncode == 0
    [path] = tmp_path.rglob("summary.json")
    summary = json.loads(path.read_text())
    assert summary["config"].pop("code") == {name: f"corrected on {date}" for name, date in CORRECTED.items()}
    summary["config_hash"] = config_hash(summary["config"])
    path.write_text(json.dumps(summary))
    older = path.parent.rename(path.parent.with_name(summary["config_hash"]))
    again = command(tmp_path, *own)
    assert "written" in again.stdout, again.stderr
    [note] = again.stderr.splitlines()
    assert older.name in note and "was made by other code (AdaFGL, corrected on 20" in note
    assert "complete already" in command(tmp_path, *own).stdout


@pytest.mark.nightly
def test_an_overwritten_graph_is_run_again(tmp_path):
    def write(seed: int) -> None:
        dice = np.random.default_rng(seed)
        np.savez(tmp_path / "graph.npz", x=dice.random((60, 8)), edge_index=dice.integers(0, 60, (2, 200)), y=dice.integers(0, 3, 60))

    own = ("algorithm=fedavg", "dataset=custom", "dataset.path=graph.npz", "split=iid", *TINY[4:])
    write(0)
    assert command(tmp_path, *own).returncode == 0
    assert "complete already" in command(tmp_path, *own).stdout
    write(1)
    edited = command(tmp_path, *own)
    assert "written" in edited.stdout and "was made by other data (graph.npz, changed " in edited.stderr, edited.stderr
    before, after = scores(tmp_path)
    assert before != after


@pytest.mark.nightly
def test_runs_on_other_content_of_a_file_are_not_compared(tmp_path):
    def write(seed: int) -> None:
        dice = np.random.default_rng(seed)
        np.savez(tmp_path / "graph.npz", x=dice.random((60, 8)), edge_index=dice.integers(0, 60, (2, 200)), y=dice.integers(0, 3, 60))

    own = ("dataset=custom", "dataset.path=graph.npz", "split=iid", *TINY[4:])
    for seed, algorithm in enumerate(("fedavg", "fedprox")):
        write(seed)
        assert command(tmp_path, *own, f"algorithm={algorithm}").returncode == 0
    refused = command(tmp_path, "table")
    [line] = refused.stderr.splitlines()
    assert refused.returncode == 1 and "graph.npz was another file for" in line and "make the older ones again" in line
    assert command(tmp_path, *own, "algorithm=fedavg").returncode == 0
    compared = command(tmp_path, "table")
    assert compared.returncode == 0 and "1 run(s) of an earlier version" in compared.stdout + compared.stderr, compared.stderr


@pytest.mark.nightly
def test_runs_on_two_versions_of_an_own_network_are_not_compared(tmp_path):
    for version, algorithm in enumerate(("fedavg", "fedprox")):
        (tmp_path / "own_net.py").write_text(f"from fgl_bench.models.gcn import GCN\n\n\nclass Net(GCN):\n    version = {version}\n")
        assert command(tmp_path, f"algorithm={algorithm}", "model._target_=own_net.Net", *TINY).returncode == 0
    refused = command(tmp_path, "table")
    [line] = refused.stderr.splitlines()
    assert refused.returncode == 1 and "own_net.py was another file for fedavg (" in line and "than for fedprox (" in line
