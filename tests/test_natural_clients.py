"""``split=natural``: clients are the owners that the data names, and their number need not be given."""

from __future__ import annotations

import numpy as np

from fgl_bench.config.compose import composed
from tests.warm import command

OWNERS = ["berlin", "lima", "oslo", "rome"]
LINE = ("dataset=custom", "dataset.path=g.npz", "split=natural", "algorithm=fedavg", "rounds=2", "seeds=[0]", "progress=false")


def test_the_number_of_clients_is_that_of_the_owners_unless_another_is_given(tmp_path):
    draw = np.random.default_rng(0)
    parts = {"x": draw.random((60, 5)), "edge_index": draw.integers(60, size=(2, 200)), "y": draw.integers(3, size=60)}
    np.savez(tmp_path / "g.npz", owner=np.array(OWNERS * 15), **parts)
    done = command(tmp_path, *LINE)
    assert done.returncode == 0 and "natural split, 4 clients" in done.stdout, done.stderr
    again = command(tmp_path, *LINE, "num_clients=4")
    assert "complete already" in again.stdout
    other = command(tmp_path, *LINE, "num_clients=20")
    assert other.returncode == 1 and "needs num_clients=4" in other.stderr and len(other.stderr.splitlines()) == 1


def test_a_task_has_a_default_of_its_own_which_presets_and_commands_replace():
    def clients(*overrides):
        return composed(overrides).num_clients

    assert (clients(), clients("task=link"), clients("task=graph")) == (20, 20, 10)
    assert (clients("task=graph", "num_clients=7"), clients("experiment=gin/ten_folds")) == (7, 1)
