"""The clients and masks of FED-PUB's code."""

from __future__ import annotations

import ctypes.util
import random

import numpy as np
import pytest
import torch

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.federation import build_federations
from fgl_bench.data.sparsity import NoSparsity
from fgl_bench.data.splits import metis
from tests.data.graphs import configured, need

FILES = {
    "cora": [f"Cora/raw/ind.cora.{part}" for part in ("x", "graph", "test.index")],
    "citeseer": [f"CiteSeer/raw/ind.citeseer.{part}" for part in ("x", "graph", "test.index")],
    "photo": ["Photo/raw/amazon_electronics_photo.npz"],
}
here = pytest.mark.skipif(ctypes.util.find_library("metis") is None, reason="libmetis5 is not installed")


def federations(dataset, clients, data_dir=None, seeds=(0,), overlap=False, **split):
    split = configured("split", "fed_pub_overlap" if overlap else "fed_pub", **{"ratios": [0.2, 0.4, 0.4], **split})
    return build_federations(dataset, split, NoSparsity(), num_clients=clients, seeds=list(seeds), data_dir=data_dir, cache_dir=None)


def small(**keys):
    return configured("dataset", "csbm", num_nodes=401, num_edges=900, **keys)


@here
@pytest.mark.parametrize(
    ("name", "pinned"), [("cora", (1866.4, 890.8, 421.6)), ("citeseer", (1409.6, 675.0, 325.5)), ("photo", (43138.4, 19321.8, 8547.1))]
)
def test_parts_are_those_of_metis_5_1_0(name, pinned):
    """Edges of a client on average, for 5, 10 and 20 clients, as METIS 5.1.0 of Debian gave them: another METIS has other ones."""
    data, dataset = need(*FILES[name]), configured("dataset", name, largest_component=True)
    for clients, edges in zip((5, 10, 20), pinned, strict=True):
        (federation,) = federations(dataset, clients, data, backend="libmetis")
        mean = np.mean([client.edges.shape[1] for client in federation.clients])
        assert mean == pytest.approx(edges, abs=0.05)


@pytest.mark.parametrize(("clients", "draw"), [(5, 1), (10, 2), (20, 3), (7, 1)])
def test_masks_are_the_draw_of_that_number_of_clients(clients, draw):
    (federation,) = federations(small(), clients)
    torch.manual_seed(1234)
    for _ in range(draw):
        order = torch.randperm(401).tolist()
    train, test = round(401 * 0.2), round(401 * (1 - 0.2) / 2)
    expected = {"train": order[:train], "test": order[train : train + test], "val": order[train + test :]}
    for kind, nodes in expected.items():
        held = np.concatenate([client.nodes[getattr(client, kind)] for client in federation.clients])
        assert sorted(held.tolist()) == sorted(nodes)


def test_shares_that_leave_something_over_leave_it_without_a_mask():
    (federation,) = federations(small(), 5, ratios=[0.2, 0.1, 0.3])
    counts = [sum(int(getattr(client, kind).sum()) for client in federation.clients) for kind in ("train", "val", "test")]
    assert counts == [80, 40, 120]


def test_unlabeled_nodes_have_no_mask():
    graph = small().load(None)
    graph.labels[:100] = -1
    split = configured("split", "fed_pub")
    nodes = split.assign(graph, 5, 0)
    for ids, masks in zip(nodes, split.draw_masks(graph, nodes, (0.2, 0.4, 0.4), (0, 0), None), strict=True):
        assert np.array_equal(sum(mask.astype(int) for mask in masks), (graph.labels[ids] >= 0).astype(int))


@pytest.mark.parametrize("clients", [10, 30, 15])
def test_overlapping_clients_are_what_is_left_in_the_generator(clients):
    graph, draws, expected = small().load(None), random.Random(1234), []
    for count in {10: (10,), 30: (10, 30), 15: (15,)}[clients]:
        parts = configured("split", "metis", seeded=False).assign(graph, count // 5, 0)
        expected = [sorted(draws.sample(list(part), len(part) // 2)) for part in parts for _ in range(5)]
    (federation,) = federations(small(), clients, overlap=True)
    assert [client.nodes.tolist() for client in federation.clients] == expected


def test_repetitions_have_one_draw_unless_they_are_told_otherwise():
    def drawn(federation):
        return [(client.nodes.tolist(), np.flatnonzero(client.train).tolist()) for client in federation.clients]

    one, other = map(drawn, federations(small(), 10, seeds=(0, 1), overlap=True))
    assert one == other
    first, second = federations(small(), 10, seeds=(0, 1), overlap=True, per_seed=["masks"])
    assert drawn(first) == one != drawn(second) and first.partition_hash == second.partition_hash
    first, second = federations(small(), 10, seeds=(0, 1), overlap=True, per_seed=["partition"])
    assert first.partition_hash != second.partition_hash


@pytest.mark.parametrize("name", ["fed_pub", "fed_pub_overlap"])
@pytest.mark.parametrize(("key", "value"), [("stratify", True), ("test", "server"), ("masks", "client")])
def test_what_it_does_not_have_is_named(name, key, value):
    with pytest.raises(Exception, match=rf"split\.{key}={str(value).lower()}: "):
        configured("split", name, **{key: value})


def test_overlap_needs_a_multiple_of_the_samples():
    with pytest.raises(Exception, match="num_clients=7: must be a multiple of split.samples_per_part=5"):
        federations(small(), 7, overlap=True)


def test_another_backend_is_refused():
    with pytest.raises(Exception, match="split.backend=kmetis: must be one of"):
        federations(small(), 5, backend="kmetis")


def test_an_absent_library_is_one_line(monkeypatch):
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(Exception, match="split.backend=libmetis needs METIS 5.1 .*apt-get install libmetis5; or split.backend=pymetis"):
        federations(small(), 5, backend="libmetis")


@here
def test_a_library_of_other_numbers_is_not_called(monkeypatch):
    class Wide:
        def METIS_SetDefaultOptions(self, options):
            ctypes.memset(options, -1, 8 * metis.LIBMETIS_OPTIONS)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Wide())
    with pytest.raises(Exception, match="split.backend=libmetis needs .* has 64-bit numbers"):
        federations(small(), 5, backend="libmetis")


@here
def test_parts_of_libmetis_are_balanced_and_cut_few_edges():
    graph = small().load(None)
    drawn, other = metis.metis_parts(graph, 5, None, "libmetis"), metis.metis_parts(graph, 5, None)
    cut = [sum(parts[row] != parts[col] for row, col in graph.edges.T) for parts in (drawn, other)]
    assert np.bincount(drawn).max() <= 1.1 * 401 / 5 and cut[0] < 1.1 * cut[1]
    with pytest.raises(Exception, match="split.backend=libmetis: it is called without a seed"):
        metis.libmetis_parts(adjacency(graph.edges, graph.num_nodes), 5, 3)
