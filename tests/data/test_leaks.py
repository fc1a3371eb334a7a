"""No node is in training with one client and in validation or test with another, whatever the split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.federation import build_federations
from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import stratified_masks
from fgl_bench.data.pooling import pool
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import generator
from tests.data.graphs import CONF, configured, graphs, make_graph

OWN_PARTS = {"domains", "folds"}  # a data set per client, and masks that are no ratios: tests/test_tasks.py
SPLITS = sorted({path.stem for path in (CONF / "split").glob("*.yaml")} - OWN_PARTS)
OVERLAPPING = ("metis_overlap", "fed_pub_overlap")
OPTIONS = dict.fromkeys(OVERLAPPING, {"samples_per_part": 2})
VARIANTS = [
    (name, setting)
    for name in SPLITS
    for setting in ({}, {"inductive": True}, {"test": "server"})
    if (name, setting) != ("iid_server", {"inductive": True}) and not (name.startswith("fed_pub") and "test" in setting)
]
RATIOS = st.sampled_from([[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.5, 0.0, 0.5], [0.34, 0.33, 0.33]])

SPARSITY = st.sampled_from(["none", "label"])
REFUSED = (
    "no client has a ",
    "there is no ",
    "num_clients=",
    "split.samples_per_part=2: must be",
    "split.least=5: in 100 draws",
    "split: ",
)


@dataclass
class Fixed(Dataset):
    """A graph that is there already."""

    given: Graph

    def read(self, root):
        return self.given


def build(graph, split, num_clients, seeds=(0, 1), sparsity="none", **options):
    return build_federations(
        Fixed("toy", [0.2, 0.4, 0.4], "accuracy", False, given=graph),
        configured("split", split, **{**OPTIONS.get(split, {}), **options}),
        configured("scenario/sparsity", sparsity),
        num_clients=num_clients,
        seeds=list(seeds),
        data_dir=None,
        cache_dir=None,
    )


def held(clients, mask):
    return set(np.concatenate([client.nodes[getattr(client, mask)] for client in clients]).tolist())


def assert_no_leak(federation):
    for client in (*federation.clients, *federation.observed, *federation.scored):
        assert not (client.train & client.val).any() and not (client.train & client.test).any() and not (client.val & client.test).any()
        assert (client.strata[client.train | client.val | client.test] >= 0).all()
    trained = held(federation.clients, "train") | held(federation.observed, "train")
    for scored in (federation.clients, federation.observed, federation.scored):
        validated, tested = held(scored, "val"), held(scored, "test")
        assert not trained & validated and not trained & tested and not validated & tested
    for client, seen in zip(federation.clients, federation.observed, strict=True):
        assert np.array_equal(client.val, seen.val) and np.array_equal(client.test, seen.test)
        if seen.present is not None:
            assert set(seen.nodes[seen.present].tolist()) <= trained, "nobody sees a node that another one is scored on"


@pytest.mark.parametrize(("name", "setting"), VARIANTS, ids=lambda value: str(value))
@settings(max_examples=12, deadline=None)
@given(graph=graphs(), clients=st.integers(1, 4), ratios=RATIOS, unlabelled=st.sampled_from([0.0, 0.3]), sparsity=SPARSITY)
def test_no_node_is_in_training_with_one_client_and_scored_with_another(name, setting, graph, clients, ratios, unlabelled, sparsity):
    rng = np.random.default_rng(graph.num_nodes)
    labels = np.where(rng.random(graph.num_nodes) < unlabelled, -1, graph.labels)
    labels[0] = max(labels[0], 0)
    owner = np.unique(rng.integers(clients, size=graph.num_nodes), return_inverse=True)[1] if name == "natural" else None
    graph = replace(graph, labels=labels, owner=owner)
    count = None if name == "natural" else min(clients * (2 if name in OVERLAPPING else 1), graph.num_nodes)
    try:
        federations = build(graph, name, count, sparsity=sparsity, ratios=ratios, **setting)
    except UserError as error:
        assert any(text in str(error) for text in REFUSED)
        return
    for federation in federations:
        assert_no_leak(federation)
        if setting.get("test") != "server" and name != "iid_server":
            for crossing in (True, False):
                assert_no_leak(pool(federation, crossing))


def test_shared_masks_are_drawn_once_over_the_nodes_that_anybody_holds():
    graph = make_graph(400, 900)
    for federation, seed in zip(build(graph, "metis_overlap", 6, seeds=(0, 7)), (0, 7), strict=True):
        nodes = np.unique(np.concatenate([client.nodes for client in federation.clients]))
        expected = stratified_masks(graph.labels[nodes], (0.2, 0.4, 0.4), generator(seed, "masks", "shared"))
        for name, mask in zip(("train", "val", "test"), expected, strict=True):
            assert held(federation.clients, name) == set(nodes[mask].tolist())
            for client in federation.clients:
                assert np.array_equal(getattr(client, name), mask[np.searchsorted(nodes, client.nodes)])
        for kind in range(3):
            of_kind = nodes[graph.labels[nodes] == kind]
            assert len(held(federation.clients, "train") & set(of_kind.tolist())) == int(0.2 * of_kind.size + 1e-9)


@pytest.mark.parametrize("name", ["metis", "louvain", "dirichlet", "iid", "natural"])
def test_clients_that_share_nothing_draw_their_own(name):
    graph = replace(make_graph(200, 500), owner=np.arange(200) % 5)
    for federation, seed in zip(build(graph, name, 5, seeds=(0, 3)), (0, 3), strict=True):
        for i, client in enumerate(federation.clients):
            expected = stratified_masks(client.labels, (0.2, 0.4, 0.4), generator(seed, "masks", i))
            for name_, mask in zip(("train", "val", "test"), expected, strict=True):
                assert np.array_equal(getattr(client, name_), mask)


def test_global_masks_are_drawn_once_for_clients_that_share_nothing_too():
    graph = make_graph(300, 700)
    (federation,) = build(graph, "metis", 6, seeds=[3], masks="global")
    expected = stratified_masks(graph.labels, (0.2, 0.4, 0.4), generator(3, "masks", "shared"))
    for client in federation.clients:
        assert np.array_equal(client.train, expected[0][client.nodes]) and np.array_equal(client.test, expected[2][client.nodes])


def test_masks_regardless_of_classes_have_the_shares_of_all_nodes():
    graph = replace(make_graph(300, 700), labels=np.r_[np.full(20, -1), make_graph(300, 700).labels[20:]])
    for masks in ("client", "global"):
        (federation,) = build(graph, "iid", 4, seeds=[1], masks=masks, stratify=False)
        train, val, test = (sum(int(getattr(client, name).sum()) for client in federation.clients) for name in ("train", "val", "test"))
        assert abs(train - 56) <= 4 and abs(val - 112) <= 4 and train + val + test == 280
        shares = [client.train.sum() / (client.strata >= 0).sum() for client in federation.clients]
        assert bool(max(abs(share - 0.2) for share in shares) < 0.02) is (masks == "client")
    (even,) = build(graph, "iid", 4, seeds=[1])
    per_class = [np.bincount(client.labels[client.train], minlength=3) for client in even.clients]
    drawn = [np.bincount(client.labels[client.train], minlength=3) for client in federation.clients]
    assert not np.array_equal(per_class, drawn)


def test_clients_that_share_nodes_have_no_masks_of_their_own():
    with pytest.raises(Exception, match="split.masks=client: must be one of global, given, for clients share nodes"):
        build(make_graph(60, 100), "metis_overlap", 5, masks="client")


def test_a_client_without_training_nodes_is_left_one_and_a_federation_of_such_clients_is_refused():
    graph = make_graph(60, 120, num_classes=4)
    (federation,) = build(graph, "metis_overlap", 20, seeds=[0], fraction=0.2)
    trained = [client.train.any() for client in federation.clients]
    assert any(trained) and not all(trained)
    with pytest.raises(UserError, match="no client has a training node"):
        build(graph, "metis_overlap", 20, ratios=[0.01, 0.4, 0.4])
