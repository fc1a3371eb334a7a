from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.data.federation import build_federations, induce
from fgl_bench.errors import UserError
from tests.data.graphs import configured, graphs

SMALL = {"num_nodes": 300, "num_edges": 700, "num_features": 60, "words_per_node": 8}


def build(split="metis", sparsity="none", seeds=(0, 1), num_clients=5, cache_dir=None, options=None, **changes):
    return build_federations(
        configured("dataset", "csbm", **{**SMALL, **changes}),
        configured("split", split, **(options or {})),
        configured("scenario/sparsity", sparsity),
        num_clients=num_clients,
        seeds=list(seeds),
        data_dir=None,
        cache_dir=cache_dir,
    )


def masks(federation):
    return [client.train.tolist() for client in federation.clients]


@given(graphs(max_nodes=25), st.data())
def test_clients_hold_the_induced_subgraphs_even_where_they_overlap(graph, data):
    subsets = st.sets(st.integers(0, graph.num_nodes - 1), min_size=1)
    nodes = [np.array(sorted(chosen)) for chosen in data.draw(st.lists(subsets, min_size=1, max_size=5))]
    clients, crossing = induce(graph, nodes)
    pairs = {tuple(pair) for pair in graph.edges.T.tolist()}
    together = set()
    for ids, client in zip(nodes, clients, strict=True):
        expected = {(u, v) for u, v in pairs if u in ids and v in ids}
        assert [tuple(pair) for pair in client.nodes[client.edges].T.tolist()] == sorted(expected)
        assert client.features.toarray().ravel().tolist() == (ids + 1).tolist()  # the toy feature names the node
        assert np.array_equal(client.labels, graph.labels[ids])
        together |= expected
    held = set(np.concatenate(nodes).tolist())
    assert {tuple(pair) for pair in crossing.T.tolist()} == {(u, v) for u, v in pairs - together if u in held and v in held}


def test_one_federation_a_seed_that_does_not_depend_on_the_others():
    together, alone = build(seeds=(0, 3)), build(seeds=(3,))
    assert [federation.seed for federation in together] == [0, 3]
    assert together[1].partition_hash == alone[0].partition_hash != together[0].partition_hash
    assert masks(together[1]) == masks(alone[0])
    assert together[0].num_clients == 5 and together[0].num_features == 60 and together[0].num_classes == 7


@pytest.mark.parametrize(
    ("axes", "partitions", "draws"), [(["partition", "masks"], 2, 2), (["masks"], 1, 2), (["partition"], 2, 2), ([], 1, 1)]
)
def test_only_the_named_axes_vary_and_the_others_stand_at_seed_0(axes, partitions, draws):
    first, second = build(seeds=(4, 5), options={"per_seed": axes})
    zero = build(seeds=(0,))[0]
    assert len({first.partition_hash, second.partition_hash}) == partitions
    assert len({str(masks(first)), str(masks(second))}) == draws
    assert (first.partition_hash == zero.partition_hash) == ("partition" not in axes)
    assert axes or masks(first) == masks(zero)


def test_ratios_come_from_the_split_then_from_the_dataset():
    sizes = {}
    for name, options in (("dataset", {}), ("split", {"ratios": [0.6, 0.1, 0.3]})):
        clients = build(options=options, num_clients=1, ratios=[0.1, 0.4, 0.4])[0].clients
        sizes[name] = [round(getattr(clients[0], mask).mean(), 1) for mask in ("train", "val", "test")]
    assert sizes == {"dataset": [0.1, 0.4, 0.4], "split": [0.6, 0.1, 0.3]}


@pytest.mark.parametrize("kind", ["label", "topology", "feature"])
def test_sparsity_is_seen_while_training_and_not_in_evaluation(kind):
    clean, sparse = build()[0], build(sparsity=kind)[0]
    assert clean.observed is clean.clients
    parts = {
        "label": lambda c: c.train.sum(),
        "topology": lambda c: c.edges.shape[1],
        "feature": lambda c: np.count_nonzero(c.features.toarray()),
    }
    total = {name: sum(parts[kind](client) for client in getattr(sparse, name)) for name in ("clients", "observed")}
    assert total["observed"] < total["clients"] == sum(parts[kind](client) for client in clean.clients)


def test_sparsity_can_be_evaluated_as_observed():
    sparse = build_federations(
        configured("dataset", "csbm", **SMALL), configured("split", "iid"),
        configured("scenario/sparsity", "topology", evaluation="observed"),
        num_clients=3, seeds=[0], data_dir=None, cache_dir=None,
    )[0]  # fmt: skip
    assert sparse.clients is sparse.observed


def test_overlapping_and_natural_federations_build(monkeypatch):
    assert build(split="metis_overlap", num_clients=10)[0].num_clients == 10
    dataset = configured("dataset", "csbm", **SMALL)
    graph = dataset.load(None)
    owned = replace(graph, owner=graph.labels.copy())
    monkeypatch.setattr(type(dataset), "load", lambda self, data_dir: owned)
    natural = build_federations(
        dataset,
        configured("split", "natural"),
        configured("scenario/sparsity", "none"),
        num_clients=None,
        seeds=[0],
        data_dir=None,
        cache_dir=None,
    )[0]
    assert [set(client.labels.tolist()) for client in natural.clients] == [{kind} for kind in range(7)]


def test_clients_without_training_nodes_survive_but_not_a_federation_without_any():
    # Fifty clients of six nodes: hardly any class has the five nodes that a training node takes.
    sparse = build(num_clients=50)[0]
    trained = [client.train.any() for client in sparse.clients]
    assert any(trained) and not all(trained)
    with pytest.raises(UserError, match=r"split\.ratios=\[0\.01, 0\.4, 0\.4\]: no client has a training node"):
        build(num_clients=50, options={"ratios": [0.01, 0.4, 0.4]})


def test_a_federation_without_validation_nodes_or_where_sparsity_leaves_nothing_is_refused():
    with pytest.raises(UserError, match=r"split\.ratios=\[0\.2, 0\.0, 0\.8\]: no client has a validation node"):
        build(options={"ratios": [0.2, 0, 0.8]})
    for test in ("clients", "server"):
        with pytest.raises(UserError, match=r"split\.ratios=\[0\.5, 0\.5, 1e-09\]: .* test node"):
            build(options={"ratios": [0.5, 0.5, 1e-9], "test": test})
    with pytest.raises(UserError, match=r"scenario\.sparsity: no client has a training node left"):
        build_federations(
            configured("dataset", "csbm", **SMALL), configured("split", "iid"), configured("scenario/sparsity", "label", rate=1.0),
            num_clients=3, seeds=[0], data_dir=None, cache_dir=None,
        )  # fmt: skip
