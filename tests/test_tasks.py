"""Tasks: what they refuse, how graphs and pairs of nodes are divided, and that every method runs on a task or refuses it."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf

import fgl_bench
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedstar import FedStar
from fgl_bench.algorithms.local import Local
from fgl_bench.cli.check import examine
from fgl_bench.config.choices import choices, config_folder
from fgl_bench.data.datasets.tu import TU
from fgl_bench.data.federation import build_federations
from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.pooling import pool
from fgl_bench.data.sparsity import NoSparsity
from fgl_bench.data.splits.feature_skew import FeatureSkew
from fgl_bench.data.splits.folds import Folds
from fgl_bench.data.splits.iid import IID
from fgl_bench.data.splits.label_skew import LabelSkew
from fgl_bench.data.splits.topology_skew import TopologySkew
from fgl_bench.engine.batch import Batch
from fgl_bench.errors import UserError
from fgl_bench.models.gin import GIN
from fgl_bench.models.gin_plain import GINPlain
from fgl_bench.results.store import config_hash, identity
from fgl_bench.tasks.link import ENUMERATED, divided, draw_negatives
from tests.algorithms.comparing import assert_same_trips
from tests.reference.small import small_federation
from tests.small_graph_sets import TASK, graph_set, of_graphs, of_pairs
from tests.small_runs import simulate, synchronous

NAMES = choices("algorithm")
QUICK = {"fedavg", "gcfl_plus", "fed_pub", "fedstar", "fedasync", "d_psgd", "scaffold", "global", "majority", "moon"}
SMALL = {"rounds": 2, "seeds": [0, 1], "num_clients": 4, "threads": 1}
CSBM = {"dataset__num_nodes": 120, "dataset__num_edges": 300, "dataset__num_features": 12, "dataset__words_per_node": 4}


def write_tu(folder: Path, name: str = "MUTAG", count: int = 60, attributes: bool = False, labels: bool = True) -> None:
    """A random set of graphs as files of the TU collection."""
    graphs, raw = graph_set(count, classes=2), folder / "tu" / name / "raw"
    raw.mkdir(parents=True)
    kinds = (graphs.features.argmax(1) + 3).astype(int)
    files = {"A": graphs.edges.T + 1, "graph_indicator": graphs.graph + 1, "graph_labels": 2 * graphs.labels - 1}
    files |= {"node_labels": kinds} if labels else {}
    files |= {"node_attributes": graphs.features} if attributes else {}
    for kind, values in files.items():
        np.savetxt(raw / f"{name}_{kind}.txt", values, fmt="%.6f" if kind == "node_attributes" else "%d", delimiter=", ")


@pytest.fixture(scope="module")
def tu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tu")
    write_tu(folder)
    write_tu(folder, "PROTEINS", attributes=True)
    write_tu(folder, "IMDB-BINARY", labels=False)
    return folder


def options(task: str, folder: Path, results: Path) -> dict:
    own = {"dataset": "mutag", "data_dir": str(folder)} if task == "graph" else {"dataset": "csbm", **CSBM}
    return {"task": task, **SMALL, **own, "results_dir": str(results)}


@pytest.mark.parametrize("task", ["graph", "link"])
def test_check_tries_a_method_on_a_task(task, tu, capsys):
    data = ["dataset=mutag", f"data_dir={tu}"] if task == "graph" else []
    assert examine("fedprox", [f"task={task}", *data]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("task", ["graph", "link"])
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in NAMES])
def test_every_method_runs_on_a_task_or_refuses_it_in_one_line(task, name, tu, tmp_path):
    declared = get_class(OmegaConf.load(config_folder() / "algorithm" / f"{name}.yaml")._target_).tasks
    try:
        result = fgl_bench.run(name, **options(task, tu, tmp_path))
    except UserError as error:
        assert task not in declared
        assert re.fullmatch(
            rf"algorithm={name}: is defined for task=\w+ only; try: fgl-bench .*algorithm=fedavg.* task={task}.*", str(error)
        )
    else:
        assert task in declared
        assert result.summary["task"] == task
        for model in ("received", "trained"):
            assert 0 <= result.summary["test"][model]["mean"] <= 1


@pytest.mark.parametrize("backbone", ["gin_plain", "gin"])  # without and with batch normalization
def test_saved_models_predict_every_graph_also_those_that_they_trained_on(backbone, tu, tmp_path):
    result = fgl_bench.run("fedavg", **options("graph", tu, tmp_path), model=backbone, keep_models="best")
    rows = fgl_bench.predictions(result)
    assert rows.groupby("seed")["node"].apply(sorted).tolist() == [list(range(60))] * 2 and len(fgl_bench.embeddings(result)) == len(rows)
    test = rows[rows["part"] == "test"]
    right = (test["label"] == test["predicted"]).groupby(test["seed"]).mean()
    assert right.tolist() == pytest.approx(result.summary["test"]["trained"]["per_seed"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "cora", "task": "graph"}, "dataset=cora: is for task=node, link, not for task=graph; try: fgl-bench .*dataset=mutag"),
        ({"dataset": "mutag"}, "dataset=mutag: is for task=graph, not for task=node; try: fgl-bench .*task=graph"),
        (
            {"task": "link", "dataset": "csbm", "split": "iid_server"},
            "split.test=server: is defined for task=node only.*split.test=clients",
        ),
        ({"task": "link", "dataset": "csbm", "split__inductive": True}, "split.inductive=true: is defined for task=node only"),
        ({"task": "link", "dataset": "csbm", "scenario__sparsity": "label"}, "scenario/sparsity=label: is defined for task=node only"),
        ({"task": "link", "dataset": "csbm", "split__masks": "global"}, "split.masks=global: masks of task=link"),
        ({"task": "link", "dataset": "csbm", "split": "metis_overlap"}, "task=link: clients of this split share nodes"),
        ({"task": "link", "dataset": "csbm", "split__stratify": False}, "split.stratify=false: task=link divides edges and negatives"),
        (
            {"task": "graph", "model": "gin", "model__hidden": [8, 8]},
            "model: task=graph has a head of its own, so that model.head=conv: hidden",
        ),
        (
            {"task": "graph", "split": "domains", "dataset": "molecules", "algorithm": "fedadam", "num_clients": 5},
            "split=domains: clients have",
        ),
    ],
)
def test_refusals_name_the_key_and_what_works(arguments, message, tmp_path):
    with pytest.raises(UserError, match=message):
        fgl_bench.run(results_dir=str(tmp_path), **arguments)


def test_a_node_run_has_the_identity_that_it_had_before_there_were_tasks():
    config = {"task": {"_target_": "fgl_bench.tasks.node.NodeClassification"}, "lr": 0.01, "seeds": [0]}
    before = {key: value for key, value in config.items() if key != "task"}
    assert config_hash(identity(config, 1, 2)) == config_hash(identity(before, 1, 2))
    config["task"] = {"_target_": "fgl_bench.tasks.graph.GraphClassification"}
    assert config_hash(identity(config, 1, 2)) != config_hash(identity(before, 1, 2))


def test_results_of_different_tasks_share_no_table(tu, tmp_path):
    for task in ("graph", "link"):
        fgl_bench.run("fedavg", **options(task, tu, tmp_path))
    with pytest.raises(UserError, match="a table has one task: write where=task=graph"):
        fgl_bench.table(tmp_path)
    assert "test auc in %" in str(fgl_bench.table(tmp_path, where="task=link"))


# ---- sets of graphs


def split_of(cls: type, **own: object) -> object:
    return cls(ratios=None, per_seed=["partition", "masks"], test="clients", inductive=False, **own)


def federation_of(folder: Path, split: object, clients: int | None = 4, **changes: object):
    keys = {"name": "mutag", "sets": ["MUTAG"], "ratios": [0.8, 0.1, 0.1], "metric": "accuracy", "largest_component": False}
    dataset = TU(**{**keys, "node_labels": True, "node_attributes": False, "use_node_attr": False, "max_degree": 64, **changes})
    (federation,) = build_federations(
        dataset, split, NoSparsity(), num_clients=clients, seeds=[0], data_dir=str(folder), cache_dir=None, labeling=TASK
    )
    return federation


@pytest.mark.parametrize(
    ("name", "changes"),
    [("MUTAG", {}), ("PROTEINS", {"node_attributes": True, "use_node_attr": True}), ("IMDB-BINARY", {"node_labels": False})],
)
def test_a_set_of_the_collection_is_read_as_by_pyg(name, changes, tu):
    from torch_geometric.io import read_tu_data
    from torch_geometric.utils import one_hot

    data, slices, _ = read_tu_data(str(tu / "tu" / name / "raw"), name)
    keys = {"name": "a", "sets": [name], "ratios": [0.8, 0.1, 0.1], "metric": "accuracy", "largest_component": False, "node_labels": True}
    graphs = TU(**{**keys, "node_attributes": False, "use_node_attr": False, "max_degree": 64, **changes}).load(str(tu))
    counts = torch.as_tensor(np.bincount(graph_set(60, classes=2).graph))
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, slices["edge_index"].diff())
    edges = (data.edge_index + starts).numpy()
    if data.x is None:
        data.x = one_hot(torch.bincount(torch.as_tensor(edges[0]), minlength=graphs.num_nodes))
    features = graphs.features if isinstance(graphs.features, np.ndarray) else graphs.features.toarray()
    torch.testing.assert_close(torch.from_numpy(features), data.x)
    assert {*map(tuple, edges.T)} == {*map(tuple, graphs.edges.T)}
    np.testing.assert_array_equal(graphs.labels, data.y)
    np.testing.assert_array_equal(np.bincount(graphs.graph), counts)


@pytest.mark.parametrize(
    "split",
    [
        split_of(IID),
        split_of(LabelSkew, alpha=1.0, least=5),
        split_of(TopologySkew),
        split_of(FeatureSkew, by="component"),
    ],
    ids=lambda split: type(split).__name__,
)
def test_a_split_divides_graphs_whole(split, tu):
    federation = federation_of(tu, split)
    whole = TU("a", [0.8, 0.1, 0.1], "accuracy", False, ["MUTAG"], True, False, False, 64).load(str(tu))
    np.testing.assert_array_equal(np.sort(np.concatenate([client.ids for client in federation.clients])), np.arange(60))
    for client in federation.clients:
        np.testing.assert_array_equal(client.labels, whole.labels[client.ids])
        np.testing.assert_array_equal(client.ids[client.graph], whole.graph[client.nodes])
        assert (client.train.astype(int) + client.val + client.test == 1).all()
        inside = np.isin(whole.edges[0], client.nodes)
        np.testing.assert_array_equal(client.nodes[client.edges], whole.edges[:, inside])


def test_every_graph_is_tested_in_one_fold(tu):
    keys = {"ratios": None, "per_seed": ["masks"], "test": "clients", "inductive": False, "folds": 5}
    dataset = TU("mutag", [0.8, 0.1, 0.1], "accuracy", False, ["MUTAG"], True, False, False, 64)
    federations = build_federations(
        dataset, Folds(**keys), NoSparsity(), num_clients=2, seeds=range(5), data_dir=str(tu), cache_dir=None, labeling=TASK
    )
    for kind in ("val", "test"):
        counts = sum(np.concatenate([getattr(client, kind).astype(int) for client in f.clients]) for f in federations)
        assert (counts == 1).all()
    for federation in federations:
        tested = np.concatenate([client.labels[client.test] for client in federation.clients])
        assert np.bincount(tested).tolist() == [6, 6]
        assert all((client.train.astype(int) + client.val + client.test == 1).all() for client in federation.clients)


def test_skewed_clients_have_successive_values(tu):
    def means(split, value):
        return [np.sort([value(client, i) for i in range(client.labels.size)]) for client in federation_of(tu, split).clients]

    by_degree = means(split_of(TopologySkew), lambda c, i: (c.graph[c.edges[0]] == i).sum() / (c.graph == i).sum())
    assert [len(each) for each in by_degree] == [15] * 4
    for low, high in zip(by_degree, by_degree[1:], strict=False):
        assert low[-1] <= high[0]
    with pytest.raises(UserError, match="the same for all of dataset=mutag .*split.by=component"):
        federation_of(tu, split_of(FeatureSkew, by="mean"))


def test_domains_are_one_set_per_client_with_their_own_ends(tu, tmp_path):
    keys = {
        "dataset": "molecules",
        "dataset__sets": ["MUTAG", "PROTEINS", "IMDB-BINARY"],
        "data_dir": str(tu),
        "results_dir": str(tmp_path),
    }
    write_node_labels = tu / "tu" / "IMDB-BINARY" / "raw" / "IMDB-BINARY_node_labels.txt"
    write_node_labels.write_text((tu / "tu" / "MUTAG" / "raw" / "MUTAG_node_labels.txt").read_text())
    try:
        result = fgl_bench.run("fedavg", task="graph", split="domains", model="gin_plain", rounds=3, seeds=[0], keep_models="final", **keys)
    finally:
        write_node_labels.unlink()
    assert result.summary["num_clients"] == 3
    first, second = (fgl_bench.load_models(result.folder)[0][client]["received"] for client in (0, 1))
    names = [name for name in first if not torch.equal(first[name], second[name])]
    assert {name.split(".")[0] for name in names} == {"input", "pooled", "classifier"}


@pytest.mark.parametrize("model", [GINPlain(4, 2, 0.0, "linear"), GIN(4, 2, 0.0, "batch", "mlp")], ids=["plain", "batch norm"])
@pytest.mark.parametrize("method", [FedAvg(), FedStar(3, 4), Local()], ids=lambda method: type(method).__name__)
def test_graphs_that_a_step_or_a_score_does_not_need_change_nothing(model, method, tu):
    federation = federation_of(tu, split_of(LabelSkew, alpha=1.0, least=5))
    assert all(client.train.all() for client in federation.observed)
    runs = [
        simulate([each], deepcopy(method), synchronous(), rounds=3, model=TASK.network(model))
        for each in (federation, replace(federation, observed=federation.clients))
    ]
    assert_same_trips(*runs, fewest=12)
    histories = [run.histories[0] for run in runs]
    for kind in ("received", "trained"):
        np.testing.assert_allclose(*(history.scores[kind] for history in histories))


def test_a_backbone_that_normalizes_has_to_say_so(tu):
    class Silent(GIN):
        normalizes = False

    with pytest.raises(UserError, match="normalizes = True"):
        simulate([federation_of(tu, split_of(IID))], FedAvg(), synchronous(), model=TASK.network(Silent(4, 2, 0.0, "batch", "mlp")))


def test_normalization_takes_no_statistics_of_held_out_graphs():
    federation = of_graphs()
    model = TASK.network(GIN(4, 2, 0.0, "batch", "mlp"))
    layout = model.layout(5, 3)
    parameters = layout.views(torch.stack([layout.pack(model.init_parameters(layout, torch.Generator().manual_seed(0)))] * 3))

    def logits(clients):
        batch = Batch(clients, torch.float64, "cpu")
        return model.forward(parameters, batch, model.first(parameters, batch), lambda x, rate=None: x).logits

    def changed(client: ClientGraph) -> ClientGraph:
        other = ~client.train[client.graph]
        return replace(client, features=np.where(other[:, None], client.features + 1, client.features))

    before, after = logits(federation.clients), logits([changed(client) for client in federation.clients])
    for i, client in enumerate(federation.clients):
        same = (before[i] == after[i]).all(-1)[: client.labels.size].numpy()
        np.testing.assert_array_equal(same, client.train)


@pytest.mark.parametrize("federation", [of_graphs(), of_pairs()], ids=["graphs", "pairs"])
def test_pooled_clients_hold_the_examples_of_all(federation):
    pooled = pool(federation, crossing=False)
    (whole,) = pooled.clients
    for client in federation.clients:
        place = np.searchsorted(whole.example_ids, client.example_ids)
        for name in ("labels", "train", "val", "test"):
            np.testing.assert_array_equal(getattr(whole, name)[place], getattr(client, name))
        if hasattr(client, "pairs"):
            np.testing.assert_array_equal(whole.nodes[whole.pairs[:, place]], client.nodes[client.pairs])
        else:
            own = np.isin(whole.nodes, client.nodes)
            np.testing.assert_array_equal(whole.ids[whole.graph[own]], client.ids[client.graph])


# ---- pairs of nodes


@pytest.mark.parametrize("seed", range(4))
def test_held_out_edges_pass_no_messages_and_negatives_are_no_edges(seed):
    for whole in small_federation(seed).clients:
        client = divided(whole, (0.6, 0.2, 0.2), np.random.default_rng(seed), 5)
        edges, messages = ({*map(tuple, graph.edges.T)} for graph in (whole, client))
        pairs = [tuple(pair) for pair in client.pairs.T]
        assert len({*pairs}) == len(pairs)
        for pair, label, train in zip(pairs, client.labels, client.train, strict=True):
            assert (pair in edges) == (label == 1)
            assert (pair in messages) == (pair[::-1] in messages) == (label == 1 and train)
        assert len(messages) == 2 * (client.labels[client.train] == 1).sum()
        assert (client.labels == 0).sum() == min(len(edges) // 2, whole.num_nodes * (whole.num_nodes - 1) // 2 - len(edges) // 2)
        assert (client.train.astype(int) + client.val + client.test <= 1).all()


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_pairs_of_the_reserve_are_the_same_in_all_repetitions_and_never_tested(share):
    validated, tested = set(), set()
    for seed in range(6):
        for whole in small_federation(0).clients:
            client = divided(whole, (0.5, 0.2, 0.2), np.random.default_rng(seed), 0, share)
            ends = whole.nodes[client.pairs]
            validated |= {*map(tuple, ends[:, client.val].T)}
            tested |= {*map(tuple, ends[:, client.test].T)}
            for label in (0, 1):
                of_label = client.labels == label
                assert client.train[of_label].sum() == np.floor(0.5 * of_label.sum())
                assert client.test[of_label].sum() <= np.floor(0.2 * of_label.sum())
    assert validated and tested and not validated & tested


def test_a_model_does_not_see_held_out_edges():
    federation = of_pairs()
    client = federation.clients[0]
    held_out = client.pairs[:, ~client.train & (client.labels == 1)]
    batch = Batch(federation.clients, torch.float64, "cpu")
    assert held_out.size
    assert batch.degree[0].sum() == 2 * (client.labels[client.train] == 1).sum()


def test_negatives_of_large_clients_are_drawn_without_a_list():
    nodes = int(ENUMERATED**0.5) + 1
    edges = np.stack([np.zeros(500, dtype=int), np.arange(1, 501)])
    drawn = draw_negatives(edges, nodes, np.random.default_rng(0))
    assert drawn.shape == (2, 500)
    assert (drawn[0] < drawn[1]).all()
    assert np.unique(drawn[0] * nodes + drawn[1]).size == 500
    assert not ((drawn[0] == 0) & (drawn[1] <= 500)).any()


def test_sets_are_named_once():
    with pytest.raises(UserError, match="dataset.sets"):
        TU("a", [0.8, 0.1, 0.1], "accuracy", False, ["MUTAG", "MUTAG"], True, False, False, 64)
