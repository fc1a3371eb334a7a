"""DFed-SST: its statistics by brute force, ranks and partners, weights, ablations, leaks, bytes, the plain loop."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.dfed_sst import DFedSST, hops, stack
from fgl_bench.algorithms.records import Setting
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.mixing import cosine
from fgl_bench.engine.topologies import Links, random_k_in
from fgl_bench.utils.seeding import generator
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT
from tests.algorithms.peers import assert_follows, decentralized, run, watch_exchanges
from tests.engine.graphs import from_edges, make_client
from tests.reference import decentralized as plain

DEFAULTS = {
    "refresh": 5, "self_in_aggregation": False, "label_source": "train_pred", "unreachable": "penalty", "sources": 32,
    "landmarks": 1024, "degree": "wlsd", "similarity_of": "cse", "selection": "similar",
}  # fmt: skip


def method(**changes):
    return DFedSST(**{**DEFAULTS, **changes})


def prepared(clients, classes=3, seeds=(0,), **changes):
    algorithm, batch = method(**changes), Batch(clients, torch.float64, "cpu")
    layout = SimpleNamespace(count=10)
    weights = torch.ones(len(seeds), len(clients) // len(seeds), dtype=torch.float64)
    algorithm.prepare(Setting(tuple(seeds), weights.shape[1], classes, None, layout, batch, weights, 1, 0.01, None))
    return algorithm, batch


def soften(clients, classes=3, seed=0):
    """Predictions ``[k, n, Y]`` with padding that must not matter."""
    rng = np.random.default_rng(seed)
    soft = torch.from_numpy(rng.dirichlet(np.ones(classes), (len(clients), max(c.num_nodes for c in clients))))
    return soft


def seen(clients, soft, number=0, **changes):
    algorithm, batch = prepared(clients, soft.shape[-1], **changes)
    return algorithm.dispersion(batch, soft, number)


def brute(client, soft, label_source="train_pred", unreachable="penalty"):
    guess = soft[: client.num_nodes].argmax(-1).numpy()
    label = {"train_pred": np.where(client.train, client.labels, guess), "train": np.where(client.train, client.labels, -1), "pred": guess}
    groups = [np.flatnonzero(label[label_source] == k).tolist() for k in range(soft.shape[-1])]
    return plain.dispersion(client.num_nodes, client.edges.T.tolist(), groups, soft.tolist(), unreachable)


@given(
    seed=st.integers(0, 10**6),
    edges=st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.6]),
    label_source=st.sampled_from(["train_pred", "train", "pred"]),
    unreachable=st.sampled_from(["penalty", "ignore"]),
)
def test_statistics_equal_brute_force_on_connected_and_disconnected_graphs(seed, edges, label_source, unreachable):
    clients = [make_client(size, edges, seed=seed + size) for size in (2, 9, 17)]
    soft = soften(clients, seed=seed)
    found = seen(clients, soft, label_source=label_source, unreachable=unreachable)
    for i, client in enumerate(clients):
        wlsd, spread, embedding = brute(client, soft[i], label_source, unreachable)
        assert found.wlsd[i].item() == pytest.approx(wlsd, abs=1e-12)
        np.testing.assert_allclose(found.spread[i].numpy(), spread, atol=1e-12)
        np.testing.assert_allclose(found.embedding[i].numpy(), embedding, atol=1e-12)


def line(nodes, labels=None):
    labels = [0] * nodes if labels is None else labels
    return from_edges([(i, i + 1) for i in range(nodes - 1)], labels, train=range(nodes))


def test_distances_by_hand():
    clique = from_edges([(i, j) for i in range(5) for j in range(i)], [1] * 5, train=range(5))
    for client, k, expected in ((line(7), 0, 8 / 3), (line(4), 0, 5 / 3), (clique, 1, 1.0)):
        found = seen([client], soften([client]))
        assert found.spread[0, k].item() == pytest.approx(expected) and found.wlsd[0].item() == pytest.approx(expected)


def test_no_path_is_one_hop_more_than_the_longest():
    two = from_edges([(0, 1), (1, 2), (3, 4)], [0, 1, 0, 0, 1], train=range(5))
    # Class 0: nodes 0, 2, 3. 0 and 2 are two apart, 3 is apart from both: 2 + 1 hops.
    assert seen([two], soften([two])).spread[0, 0].item() == pytest.approx((2 + 3 + 3) / 3)
    assert seen([two], soften([two]), unreachable="ignore").spread[0, 0].item() == pytest.approx(2)


def test_sampled_pairs_estimate_the_distance_without_bias():
    client = replace(make_client(40, 0.06, seed=1), labels=np.zeros(40, dtype=np.int64), train=np.ones(40, bool))
    soft = soften([client])
    exact = seen([client], soft, sources=40)
    algorithm, batch = prepared([client], sources=4)
    draws = [algorithm.dispersion(batch, soft, number) for number in range(400)]
    mean = torch.stack([draw.spread[0, 0] for draw in draws])
    assert abs(mean.mean() - exact.spread[0, 0]) < 4 * mean.std() / 20 and mean.std() > 1e-3
    torch.testing.assert_close(torch.stack([d.embedding[0, 0] for d in draws]).mean(0), exact.embedding[0, 0], rtol=0.05, atol=0)
    again = algorithm.dispersion(batch, soft, 7)
    assert torch.equal(again.wlsd, draws[7].wlsd), "pairs belong to (client, refresh)"


def test_a_client_of_many_nodes_is_searched_from_landmarks_only():
    clients = [make_client(12, 0.2, seed=5), make_client(30, 0.2, seed=6)]
    algorithm, _ = prepared(clients, landmarks=12)
    assert algorithm._hops.distance.shape == (2, 12, 30) and algorithm._hops.there.all()
    assert torch.equal(algorithm._hops.sources[0], torch.arange(12))
    for i, client in enumerate(clients):
        for node, row in zip(algorithm._hops.sources[i].tolist(), algorithm._hops.distance[i], strict=True):
            np.testing.assert_array_equal(row[: client.num_nodes].numpy(), hops(client, np.array([node]))[0])


def test_a_class_without_a_landmark_is_left_out_of_wlsd():
    client = replace(make_client(30, 0.2, seed=6), labels=np.repeat([0, 1, 2], [26, 3, 1]), train=np.ones(30, bool))
    soft = soften([client])
    exact = seen([client], soft)
    algorithm, batch = prepared([client], landmarks=12)
    algorithm._hops = stack([client], [np.arange(4)], 30, batch.device)
    found = algorithm.dispersion(batch, soft, 0)
    sizes = np.log1p([26, 1])
    assert found.spread[0, 1] == 0 < exact.spread[0, 1]
    torch.testing.assert_close(found.wlsd[0].item(), found.spread[0, 0].item() * sizes[0] / sizes.sum())


def test_padding_and_the_other_clients_do_not_matter():
    clients = [make_client(size, 0.15, seed=size) for size in (8, 30, 21)]
    soft = soften(clients)
    whole, scrambled = seen(clients, soft, sources=3), soft.clone()
    scrambled[0, 8:], scrambled[2, 21:] = 9.0, -4.0
    moved = seen(clients, scrambled, sources=3)
    alone = seen(clients[:1], soft[:1, :8], sources=3)
    for a, b in zip(whole, moved, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(whole, alone, strict=True):
        assert torch.equal(a[:1], b)


@pytest.mark.parametrize(("changes", "refresh"), [({}, 2), ({"self_in_aggregation": True}, 1), ({"unreachable": "ignore"}, 2)], ids=str)
def test_it_follows_the_plain_loop(changes, refresh):
    def reference(one):
        first = random_k_in(Links(6, 0, generator(one.seed, "topology", 0), 3, 0.0))
        return plain.DFedSST([set(np.flatnonzero(row).tolist()) for row in first], refresh=refresh, **changes)

    assert_follows(lambda: method(refresh=refresh, **changes), reference, local_epochs=2)


def graph_of(wlsd, embedding, **changes):
    """In-neighbours and matrix after a refresh with these statistics."""
    clients = [make_client(6, seed=i) for i in range(len(wlsd))]
    algorithm, _ = prepared(clients, **changes)
    heard = ~torch.eye(len(wlsd), dtype=torch.bool)[None]
    reports = {"wlsd": torch.tensor([wlsd], dtype=torch.float64), "cse": torch.tensor([embedding], dtype=torch.float64)[..., None]}
    algorithm._renew(reports, heard, 0)
    trained = torch.eye(len(wlsd), dtype=torch.float64)[None]
    meeting = SimpleNamespace(graph=lambda _: heard, number=1, trained=trained, uploaded=trained, reports=reports)
    exchange = algorithm.exchange(meeting)
    return algorithm, exchange


def random_statistics(seed, clients=8):
    rng = np.random.default_rng(seed)
    return rng.uniform(1, 5, clients).tolist(), rng.uniform(0, 1, (clients, 4)).tolist()


@given(seed=st.integers(0, 10**6), self_in=st.booleans())
def test_in_degrees_are_ranks_and_rows_are_stochastic(seed, self_in):
    wlsd, embedding = random_statistics(seed)
    algorithm, exchange = graph_of(wlsd, embedding, self_in_aggregation=self_in)
    degree = algorithm._partners[0].sum(1)
    assert degree.tolist() == np.argsort(np.argsort(wlsd)).tolist()
    torch.testing.assert_close(exchange.matrix.sum(-1), torch.ones(1, 8, dtype=torch.float64))
    own = exchange.matrix[0].diagonal()
    assert own[degree == 0].tolist() == [1.0]
    assert ((own[degree > 0] > 0) == self_in).all()
    assert (exchange.sent[0] > 0).sum() == 8 * 7 / 2 and exchange.sent.sum() == 28 * 40
    torch.testing.assert_close(exchange.models, exchange.matrix)


@given(seed=st.integers(0, 10**6))
def test_partners_are_the_most_similar_and_weights_are_eq_8(seed):
    wlsd, embedding = random_statistics(seed)
    algorithm, exchange = graph_of(wlsd, embedding)
    similar = cosine(torch.tensor(embedding, dtype=torch.float64))
    for i in range(8):
        chosen = torch.nonzero(algorithm._partners[0, i])[:, 0].tolist()
        others = [j for j in range(8) if j != i and j not in chosen]
        assert i not in chosen and all(similar[i, j] >= similar[i, k] for j in chosen for k in others)
        weights = {j: math.exp(similar[i, j]) * wlsd[j] for j in chosen} or {i: 1.0}
        for j in range(8):
            assert exchange.matrix[0, i, j].item() == pytest.approx(weights.get(j, 0.0) / sum(weights.values()))


def test_ties_isolate_and_a_scale_of_the_embedding_does_not_matter():
    _, embedding = random_statistics(0)
    algorithm, exchange = graph_of([2.0] * 8, embedding)
    assert not algorithm._partners.any() and torch.equal(exchange.matrix[0], torch.eye(8, dtype=torch.float64))
    wlsd, _ = random_statistics(1)
    scaled = [[value * (i + 1) for value in row] for i, row in enumerate(embedding)]
    torch.testing.assert_close(graph_of(wlsd, scaled)[1].matrix, graph_of(wlsd, embedding)[1].matrix)


def test_partners_without_dispersion_are_weighed_by_similarity():
    _, exchange = graph_of([0.0, 0.0, 1.0], [[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    weights = [math.e, math.exp(math.sqrt(0.5))]
    torch.testing.assert_close(exchange.matrix[0, 2, :2], torch.tensor(weights, dtype=torch.float64) / sum(weights))
    _, zero = graph_of([1.0, 2.0, 3.0], [[0.0, 0.0]] * 3)
    torch.testing.assert_close(zero.matrix[0, 2], torch.tensor([1 / 3, 2 / 3, 0], dtype=torch.float64))


def test_without_wlsd_everybody_hears_half():
    wlsd, embedding = random_statistics(2)
    algorithm, exchange = graph_of(wlsd, embedding, degree="half")
    assert (algorithm._partners[0].sum(1) == 4).all()
    row, similar = exchange.matrix[0, 0], cosine(torch.tensor(embedding, dtype=torch.float64))[0]
    weights = torch.exp(similar) * torch.tensor(wlsd) * algorithm._partners[0, 0]
    torch.testing.assert_close(row, weights / weights.sum())


def test_without_selection_partners_are_random_and_drawn_anew():
    wlsd, embedding = random_statistics(3)
    similar, _ = graph_of(wlsd, embedding)
    algorithm, _ = graph_of(wlsd, embedding, selection="random")
    first = algorithm._partners
    assert first[0].sum(1).tolist() == similar._partners[0].sum(1).tolist() and not torch.equal(first, similar._partners)
    reports = {"wlsd": torch.tensor([wlsd]), "cse": torch.tensor([embedding])[..., None]}
    algorithm._renew(reports, ~torch.eye(8, dtype=torch.bool)[None], 1)
    assert not torch.equal(first, algorithm._partners)


def test_without_cse_the_mean_features_are_compared():
    clients = [make_client(9, seed=i, sparse=i % 2 == 0) for i in range(4)]
    algorithm, _ = prepared(clients, similarity_of="features")
    means = np.stack([np.asarray(c.features.mean(0)).ravel() for c in clients])
    expected = cosine(torch.from_numpy(means)[None])
    torch.testing.assert_close(algorithm.similarity({}), expected)


@pytest.mark.parametrize(("changes", "size"), [({}, 9), ({"similarity_of": "features"}, 6)])
def test_bytes_by_hand_and_the_graph_stands_between_refreshes(changes, size):
    algorithm = method(refresh=3, **changes)
    exchanges = watch_exchanges(algorithm)
    history = run(algorithm, rounds=8).histories[0]
    broadcast, model = 30 * 4 * (size + 1), 4 * MODEL_SCALARS
    sent = np.diff(history.upload)
    edges = [int(((exchange.matrix[0] > 0) & ~torch.eye(6, dtype=torch.bool)).sum()) for *_, exchange in exchanges]
    assert edges[0] == 18, "half of the others at first"
    assert sent.tolist() == [n * model + broadcast * (t % 3 == 0) for t, n in enumerate(edges)]
    matrices = [exchange.matrix for *_, exchange in exchanges]
    for t in range(1, 8):
        assert torch.equal(matrices[t], matrices[t - 1]) == (t not in (1, 4, 7))


def test_only_working_links_are_chosen_and_used():
    algorithm = method(refresh=2)
    exchanges = watch_exchanges(algorithm)
    scenario = decentralized(link_failure=0.4)
    sim = run(algorithm, scenario=scenario, rounds=6).sim
    for number, (*_, exchange) in enumerate(exchanges):
        heard = torch.from_numpy(np.stack([scenario.adjacency(sim, seed, number) for seed in (0, 1)]))
        assert not (exchange.sent * ~heard).any() and not (exchange.matrix * ~(heard | torch.eye(6, dtype=torch.bool))).any()
        torch.testing.assert_close(exchange.matrix.sum(-1), torch.ones(2, 6, dtype=torch.float64), **TIGHT)
