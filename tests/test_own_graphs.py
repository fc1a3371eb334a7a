"""A user's own graph from Python and from the shell: what is taken, what the run is called, and what is said."""

from __future__ import annotations

import json

import numpy as np

import fgl_bench
from fgl_bench.utils.patience import say_once
from tests.warm import command

N = 60
SMALL = {"split": "iid", "num_clients": 3, "rounds": 2, "seeds": [0, 1], "threads": 1, "model__hidden": 4}
LINE = (
    "dataset=custom",
    "dataset.path=g.npz",
    "algorithm=fedavg",
    "rounds=2",
    "seeds=[0,1]",
    "progress=false",
    "threads=1",
    "model.hidden=4",
)


def arrays(**changes):
    draw = np.random.default_rng(0)
    parts = {"x": draw.random((N, 5)), "edge_index": draw.integers(N, size=(2, 200)), "y": draw.integers(3, size=N)}
    return {**parts, **changes}


def pyg():
    import torch
    from torch_geometric.data import Data

    return Data(**{key: torch.from_numpy(value) for key, value in arrays().items()})


def network():
    import networkx

    parts = arrays()
    graph = networkx.Graph()
    graph.add_nodes_from((node, {"x": parts["x"][node], "y": int(parts["y"][node])}) for node in range(N))
    graph.add_edges_from(parts["edge_index"].T.tolist())
    return graph


def run(graph, folder, **more):
    return fgl_bench.run("fedavg", graph, results_dir=str(folder / "runs"), cache_dir=str(folder / "cache"), **{**SMALL, **more})


def test_one_graph_in_any_form_is_one_run(tmp_path, capsys):
    say_once.cache_clear()
    first = run(arrays(), tmp_path)
    finished = first.summary["finished"]
    assert first.summary["dataset"] == "custom" and first.folder.parts[-5:-3] == ("custom", "iid-3")
    for graph in (pyg(), {**arrays(), "weights": np.ones(3)}):
        again = run(graph, tmp_path)
        assert again.folder == first.folder and again.summary["finished"] == finished, "it is there already"
    assert "note: dataset: ignored: weights" in capsys.readouterr().err
    assert run(network(), tmp_path).summary["test"] == first.summary["test"]
    other = run(arrays(y=np.arange(N) % 3), tmp_path)
    assert other.folder != first.folder


def test_a_graph_has_the_name_that_it_is_given(tmp_path):
    named = run(arrays(y=np.where(np.arange(N) % 2, "odd", "even")), tmp_path, dataset__name="numbers", seeds=[0])
    assert set(named.scores()["dataset"]) == {"numbers"} and named.summary["graph"]["classes"] == 2
    assert run(arrays(), tmp_path, dataset__name="numbers", seeds=[0], overwrite=True).folder.parts[-5] == "numbers"


def test_the_file_of_an_object_makes_the_same_run_from_the_shell(tmp_path):
    result = run(arrays(), tmp_path)
    [path] = (tmp_path / "cache/graphs").iterdir()
    words = [f"dataset.path={path}", f"results_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache", "split=iid", "num_clients=3"]
    (tmp_path / "elsewhere").mkdir()
    done = command(tmp_path / "elsewhere", *LINE, *words)
    assert done.returncode == 0 and "complete already" in done.stdout and str(result.folder) in done.stdout, done.stderr


SPLIT = '''
from dataclasses import dataclass
import numpy as np
from fgl_bench import Split

@dataclass
class ByFirst(Split):
    """A client for every value of the first feature."""

    def clients(self, graph):
        return self.parts(graph, None, 0).max() + 1

    def parts(self, graph, num_clients, seed):
        first = graph.features[:, [0]]
        return np.unique(first.toarray() if hasattr(first, "toarray") else first, return_inverse=True)[1].ravel()
'''


def test_a_split_states_its_clients(tmp_path):
    (tmp_path / "mine.py").write_text(SPLIT)
    x = np.column_stack([np.arange(N) % 4 + 1, np.ones(N)])
    np.savez(tmp_path / "g.npz", **arrays(x=x))
    line = (*LINE, "split=iid", "split._target_=mine.ByFirst")
    done = command(tmp_path, *line)
    assert done.returncode == 0 and "byfirst split, 4 clients" in done.stdout, done.stderr
    assert "note: num_clients=4, as split=byfirst states for dataset=custom" in done.stderr
    assert "complete already" in command(tmp_path, *line, "num_clients=4").stdout
    other = command(tmp_path, *line, "num_clients=7")
    assert other.returncode == 1 and "num_clients=7: split=byfirst on dataset=custom needs num_clients=4" in other.stderr
    checked = command(tmp_path, "check", "mine.py")
    assert checked.returncode == 0 and "nodes, 2 clients" in checked.stdout, checked.stdout + checked.stderr


def test_clients_without_a_training_node_are_a_line_and_a_field(tmp_path):
    np.savez(tmp_path / "g.npz", **arrays(train_mask=np.arange(N) < 2, val_mask=np.arange(N) % 3 == 2, test_mask=np.arange(N) % 3 == 1))
    done = command(tmp_path, *LINE, "split=iid", "num_clients=4", "split.masks=global", "split.ratios=[0.05,0.4,0.5]")
    [path] = tmp_path.glob("results/runs/**/summary.json")
    counts = json.loads(path.read_text())["untrained_clients"]
    assert len(counts) == 2 and all(0 < count < 4 for count in counts)
    assert f"of 4 clients {counts[0]}, {counts[1]} (by seed) have an empty training set\n" in done.stderr
    assert "split.masks=given does" in done.stderr
    done = command(tmp_path, *LINE, "split=iid", "num_clients=2", "split.masks=client")
    assert "(by seed)" not in done.stderr and done.returncode == 0
    refused = command(tmp_path, *LINE, "split=iid", f"num_clients={N}")
    assert refused.returncode == 1 and "split.masks=global" in refused.stderr
    assert command(tmp_path, *LINE, "split=iid", f"num_clients={N}", "split.masks=global").returncode == 0
