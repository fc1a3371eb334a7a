"""FedSA-GCL: its limits, the server step and the merge by hand, ClusterCast, reports, bytes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from fgl_bench.algorithms.local import Local
from fgl_bench.algorithms.records import Message
from fgl_bench.engine.mixing import cosine
from fgl_bench.models.gcn import GCN
from fgl_bench.scenarios.semi_async import _Loop
from tests.algorithms.comparing import MODEL_SCALARS, arrivals, assert_same_trips, server, trips_of, watch
from tests.engine.graphs import from_edges, make_client, permuted
from tests.reference.small import small_federation
from tests.small_runs import semi_async, simulate, synchronous
from tests.test_equivalence import SAGCL

MODEL = GCN(hidden=4, layers=2, dropout=0.5)


def method(**changes):
    return FedSAGCL(**{**SAGCL, **changes})


def run(algorithm, clients=6, trips=48, seeds=(0, 1), scenario=None, **settings):
    federations = [small_federation(seed, clients=clients) for seed in seeds]
    return simulate(federations, algorithm, scenario or semi_async(), trips=trips, **settings)


def pushes(calls):
    return [message for _, messages in calls for message in messages if message.confidence is not None]


# ---- limits


@pytest.mark.parametrize("lag_unit", ["trips", "time"])
@pytest.mark.parametrize("clustercast", [True, False])
def test_a_threshold_beyond_one_is_local_training_trip_by_trip(lag_unit, clustercast):
    algorithm = method(threshold=1.01, clustercast=clustercast)
    calls = watch(algorithm, "serve")
    alone = run(algorithm, scenario=semi_async(lag_unit=lag_unit), model=MODEL, local_epochs=2)
    local = simulate([small_federation(seed, clients=6) for seed in (0, 1)], Local(), synchronous(), rounds=30, model=MODEL, local_epochs=2)
    assert_same_trips(alone, local, fewest=96)
    assert not pushes(calls)
    for (state, uploads), messages in calls:
        assert sorted(m.client for m in messages) == sorted({u.client for u in uploads})
        assert all(torch.equal(m.model, state.uploads[m.client]) for m in messages), "everybody gets its own upload back"


@pytest.mark.parametrize("lag_unit", ["trips", "time"])
def test_waiting_for_everybody_leaves_nobody_to_push_to_and_nothing_stale(lag_unit):
    algorithm = method(buffer=6, staleness_exponent=0.0)
    calls = watch(algorithm, "serve")
    one = run(algorithm, scenario=semi_async(lag_unit=lag_unit))
    assert len(calls) == 2 * 8 and not pushes(calls)
    assert {upload.staleness for (_, uploads), _ in calls for upload in uploads} == {0}
    other = run(method(buffer=6, staleness_exponent=4.0), scenario=semi_async(lag_unit=lag_unit))
    assert_same_trips(one, other, exact=True, fewest=96)


@pytest.mark.parametrize("lag_unit", ["trips", "time"])
@pytest.mark.parametrize("slow_fraction", [0.0, 0.5])
def test_one_cluster_weighted_by_samples_is_fedavg_when_everybody_is_waited_for(lag_unit, slow_fraction):
    algorithm = method(threshold=-1.0, staleness_exponent=0.0, buffer=6, clustercast=False, weights="samples")
    clustered = run(algorithm, scenario=semi_async(lag_unit=lag_unit, slow_fraction=slow_fraction), local_epochs=2)
    averaged = simulate([small_federation(seed, clients=6) for seed in (0, 1)], FedAvg(), synchronous(), rounds=8, local_epochs=2)
    assert_same_trips(clustered, averaged, fewest=96)


def test_without_clustercast_no_message_has_a_confidence():
    algorithm = method(clustercast=False)
    calls = watch(algorithm, "serve")
    run(algorithm)
    assert calls and not pushes(calls)


# ---- the server step by hand

ALIKE = [[[1, 0], [0, 0]], [[1, 0], [0, 0.1]], [[0, 0], [0, 1]], [[0.9, 0], [0, 0.9]]]  # 0, 1 and 3 are similar at 0.7; 2 and 3 too


def state(**changes):
    settings = {
        "uploads": np.diag([1.0, 2.0, 3.0, 4.0]), "version": 5, "base_version": [4, 3, 4, 1], "confidence": [1.0, 3.0, 2.0, 4.0],
        "cluster": ALIKE, "known": [True] * 4, "weights": [5, 1, 1, 3], **changes,
    }  # fmt: skip
    return server(settings.pop("uploads"), **settings)


def served(algorithm, current, clients):
    """Replies and pushes ``{client: message}``; uploads are a diagonal, so a message shows the weights of the senders."""
    algorithm.setting = SimpleNamespace(num_clients=4)
    messages = algorithm.serve(current, arrivals(current, clients))
    replies = {m.client: (m.model / current.uploads.diagonal()).tolist() for m in messages if m.confidence is None}
    pushed = {m.client: m for m in messages if m.confidence is not None}
    assert len(messages) == len(replies) + len(pushed), "one message a client"
    return replies, pushed


def test_weights_are_confidence_times_staleness_within_the_cluster():
    replies, _ = served(method(threshold=0.7, staleness_exponent=1.0), state(), [0])
    # Staleness of 0, 1, 3: 0, 1, 3 versions; LSC / (1 + s) = 1, 3/2, 4/4.
    assert replies[0] == pytest.approx([1 / 3.5, 1.5 / 3.5, 0, 1 / 3.5])
    replies, _ = served(method(threshold=0.7, staleness_exponent=1.0, staleness="clamp"), state(), [0])
    assert replies[0] == pytest.approx([c / (1 + 3 + 4 / 3) for c in (1, 3, 0, 4 / 3)])
    replies, _ = served(method(threshold=0.7, weights="samples"), state(), [0])
    assert replies[0] == pytest.approx([5 / 9, 1 / 9, 0, 3 / 9])
    replies, _ = served(method(threshold=0.7, weights="uniform"), state(), [0])
    assert replies[0] == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_clients_that_never_uploaded_are_in_no_cluster_and_get_no_push():
    replies, pushed = served(method(threshold=0.7), state(known=[True, False, True, False]), [0])
    assert replies[0] == [1, 0, 0, 0] and not pushed


def test_clustercast_pushes_to_similar_clients_that_did_not_upload():
    replies, pushed = served(method(threshold=0.7, staleness_exponent=0.0), state(), [0])
    assert set(replies) == {0} and set(pushed) == {1, 3}
    for message in pushed.values():
        assert message.confidence == 1 + 3 + 4, "the sender cluster's confidences, without staleness"
        assert (message.model / torch.tensor([1.0, 2, 3, 4])).tolist() == pytest.approx([1 / 8, 3 / 8, 0, 4 / 8])


def test_uploaders_are_answered_and_never_pushed_to():
    replies, pushed = served(method(threshold=0.7), state(), [3, 0, 1])
    assert set(replies) == {0, 1, 3} and set(pushed) == {2}


@pytest.mark.parametrize(("push", "sender"), [("most_similar", 0), ("last", 2)])
def test_who_is_covered_twice_is_sent_the_model_of_one(push, sender):
    # 3 is similar to 0 and to 2, a little more to 0.
    cluster = [*ALIKE[:3], [[0.9, 0], [0, 0.8]]]
    algorithm = method(threshold=0.6, staleness_exponent=0.0, push=push)
    replies, pushed = served(algorithm, state(cluster=cluster), [0, 2])
    assert (pushed[3].model / torch.tensor([1.0, 2, 3, 4])).tolist() == pytest.approx(replies[sender])


def test_a_client_twice_in_the_buffer_is_one_uploader():
    replies, _ = served(method(threshold=1.01), state(), [1, 0, 1])
    assert replies == {0: [1, 0, 0, 0], 1: [0, 1, 0, 0]}


def test_a_client_without_edges_stays_alone_at_a_positive_threshold():
    cluster = [np.zeros((2, 2)), *ALIKE[1:]]
    replies, pushed = served(method(threshold=0.1), state(cluster=cluster, confidence=[0.0, 3, 2, 4]), [0])
    assert replies[0] == [1, 0, 0, 0] and not pushed


def test_a_cluster_without_confidence_counts_alike():
    replies, _ = served(method(threshold=0.7), state(confidence=[0.0] * 4), [0])
    assert replies[0] == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


@given(st.permutations(range(4)))
def test_renumbering_clients_renumbers_the_answers(order):
    untied = [*ALIKE[:3], [[0.9, 0], [0, 0.8]]]
    plain, pushed = served(method(threshold=0.6), state(cluster=untied), [0, 2])
    names = ("base_version", "confidence", "cluster", "weights")
    base = state(cluster=untied)
    values = {"base_version": base.base_version, "weights": base.weights, **base.reports}
    moved = state(uploads=np.diag(np.array([1.0, 2, 3, 4])[order]), **{name: np.asarray(values[name])[order] for name in names})
    replies, others = served(method(threshold=0.6), moved, [order.index(0), order.index(2)])
    for client, row in plain.items():
        assert replies[order.index(client)] == pytest.approx([row[i] for i in order])
    assert {order[i]: m.confidence for i, m in others.items()} == {i: pytest.approx(m.confidence) for i, m in pushed.items()}


# ---- merging a push


def test_a_reply_overwrites_and_a_push_is_merged_by_confidence():
    algorithm, sent, own = method(), torch.tensor([4.0, 0.0]), torch.tensor([0.0, 8.0])
    assert algorithm.begin(Message(0, sent), own, {"confidence": 1.0}).tolist() == [4, 0]
    assert algorithm.begin(Message(0, sent, confidence=3.0), own, {"confidence": 1.0}).tolist() == [3, 2]
    assert algorithm.begin(Message(0, sent, confidence=0.0), own, {"confidence": 0.0}).tolist() == [2, 4]
    assert algorithm.begin(Message(0, sent, confidence=0.0), own, {"confidence": 1.0}).tolist() == [0, 8]


# ---- what happens in a run


@pytest.mark.parametrize("merge", ["at_begin", "before_upload"])
@pytest.mark.parametrize("lag_unit", ["trips", "time"])
def test_pushes_reach_clients_that_are_training(monkeypatch, merge, lag_unit):
    algorithm, seen = method(merge=merge), []
    calls, serve = watch(algorithm, "serve"), _Loop._serve

    def checking(loop):
        before, waiting = len(calls), loop.waiting.copy()
        serve(loop)
        for (_, uploads), messages in calls[before:]:
            uploaders = {upload.client for upload in uploads}
            for message in messages:
                if message.confidence is not None:
                    assert message.client not in uploaders and not waiting[message.client]
                    seen.append(message.client)

    monkeypatch.setattr(_Loop, "_serve", checking)
    run(algorithm, scenario=semi_async(lag_unit=lag_unit))
    assert seen, "this setting pushes"


def test_a_push_is_merged_before_the_next_trip_begins_and_the_upload_is_unmerged():
    """With algorithm 2's timing each trip starts from begin(push, trained) and uploads what it trained itself."""
    algorithm = method(threshold=0.0)
    begun, served_ = watch(algorithm, "begin"), watch(algorithm, "serve")
    result = run(algorithm, seeds=(0,))
    trained = [row for trips in result.trips for _, row in trips]
    starts = [row for trips in result.trips for row, _ in trips]
    merged = [(args, out) for args, out in begun if args[0].confidence is not None]
    assert merged
    sent = pushes(served_)
    for (push, own, _), _ in merged:
        assert any(torch.equal(own, row) for row in trained)
        assert any(torch.equal(push.model, m.model) and push.client == m.client for m in sent)
    assert sum(any(torch.equal(out, row) for row in starts) for _, out in merged) >= len(merged) - 6, "all but trips still under way"
    for (_, uploads), _ in served_:
        for upload in uploads:
            assert any(torch.equal(upload.payload, row) for row in trained)


def test_merging_before_the_upload_sends_the_merged_model():
    algorithm = method(threshold=0.0, merge="before_upload")
    begun, served_ = watch(algorithm, "begin"), watch(algorithm, "serve")
    run(algorithm, seeds=(0,))
    merged = [out for args, out in begun if args[0].confidence is not None]
    payloads = [upload.payload for (_, uploads), _ in served_ for upload in uploads]
    assert merged and sum(any(torch.equal(out, p) for p in payloads) for out in merged) >= len(merged) - 2, "all but the last buffer"


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        # S = [0 1; 1 0]: Y = Y0 / 2 + S Y0 / 2.
        ({}, [(0.25, 0.75), (0.25, 0.75)]),
        ({"lsc_temperature": 20.0}, [(1 / (1 + math.exp(0.5 / 20)), 1 / (1 + math.exp(-0.5 / 20)))] * 2),
        # S = [1 1; 1 1] / 2 and node 0 begins with its class: Y1 = (.2, .8) / 2 + (1.2, .8) / 4 = (.4, .6).
        ({"lsc": "fedgta"}, [(1, 0), (1 / (1 + math.exp(0.2 / 20)), 1 / (1 + math.exp(-0.2 / 20)))]),
        ({"lsc": "fedgta", "lsc_temperature": 1.0}, [(1, 0), (1 / (1 + math.exp(0.2)), 1 / (1 + math.exp(-0.2)))]),
    ],
)
def test_the_confidence_of_two_joined_nodes_by_hand(changes, rows):
    """Node 0 trains and is of class 0; predictions are (.3, .7) and (.2, .8); one step, lambda 1/2; both degrees are 1."""
    logits = torch.log(torch.tensor([[0.3, 0.7], [0.2, 0.8]], dtype=torch.float64))
    client = from_edges([(0, 1)], [0, 1], train=[0])
    found = method(steps=1, **changes).report(trips_of([client], [logits]))["confidence"]
    wanted = sum(1 / math.e + (y * math.log(y) if y else 0) for row in rows for y in row)
    assert found.item() == pytest.approx(wanted, abs=1e-6)


def test_reports_do_not_depend_on_the_numbering_of_nodes_nor_on_duplicated_edges():
    client, order = make_client(10, seed=2), np.random.default_rng(0).permutation(10)
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = method().report(trips_of([client], [logits]))
    moved = method().report(trips_of([permuted(client, order)], [logits[order]]))
    for name in plain:
        torch.testing.assert_close(moved[name], plain[name], rtol=1e-10, atol=1e-12)
    twice = client.__class__(**{**client.__dict__, "edges": np.repeat(client.edges, 2, axis=1)})
    both = torch.cat([plain["cluster"], method().report(trips_of([twice], [logits]))["cluster"]]).flatten(1)
    assert cosine(both)[0, 1].item() == pytest.approx(1)


# ---- bytes


@pytest.mark.parametrize("clusters", ["sfm", "moments"])
def test_bytes_by_hand(clusters):
    algorithm = method(clusters=clusters)
    calls = watch(algorithm, "serve")
    history = run(algorithm, seeds=(0,)).histories[0]
    features = {"sfm": 3 * 3, "moments": 2 * 10 * 3}[clusters]
    # Up: model, features, confidence, version. Reply: model, version. Push: model, version, confidence.
    assert history.upload.tolist() == [4 * n * (MODEL_SCALARS + features + 2) for n in history.trips]
    pushed = len(pushes(calls))
    replies = sum(len(messages) for _, messages in calls) - pushed
    assert pushed and replies
    assert history.download[-1] == 4 * ((6 + replies) * (MODEL_SCALARS + 1) + pushed * (MODEL_SCALARS + 2))
