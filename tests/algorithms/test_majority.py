"""The majority baseline, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fgl_bench.algorithms.majority import Majority
from fgl_bench.models.gcn import GCN
from tests.engine.graphs import federation, from_edges
from tests.reference.small import small_federation
from tests.small_runs import counts, simulate, synchronous


def client(labels, train, val):
    made = from_edges([], labels, train, features=np.eye(6)[: len(labels)])
    mask = np.zeros(len(labels), dtype=bool)
    mask[list(val)] = True
    return replace(made, val=mask, test=made.test & ~mask)


CLIENTS = [
    client([2, 2, 1, 2, 1, 2], train=[0, 1, 2], val=[3]),  # answers 2: validation 1 of 1, test (1, 2) one of two
    client([1, 2, 2, 1, 1], train=[0, 1], val=[3, 4]),  # classes 1 and 2 tie, the smaller answers: validation 2, test (2) none
    client([0, 1, 0, 2], train=[], val=[0]),  # no training nodes, answers 0: validation 1, test (1, 0, 2) one
]


def run(**settings):
    return simulate([federation(CLIENTS)], Majority(), synchronous(), rounds=2, **settings)


def test_answers_ties_and_a_client_without_training_nodes():
    history = run().histories[0]
    for model in ("received", "trained"):
        for point in range(len(history.trips)):
            assert counts(history, model, point) == [(1, 1), (2, 0), (1, 1)]


def test_nothing_is_sent_and_nothing_is_learnt():
    result = run()
    history = result.histories[0]
    assert history.trips.tolist() == [0, 3, 6], "trips are counted nominally"
    assert not history.upload.any() and not history.download.any()
    for trips in result.trips:
        assert all(torch.equal(received, trained) for received, trained in trips)


def test_it_depends_neither_on_the_initial_model_nor_on_chunks():
    federations = [small_federation(seed) for seed in (0, 1)]
    whole, parts = (simulate(federations, Majority(), synchronous(), rounds=1, chunk=chunk) for chunk in (None, 3))
    for a, b, federated in zip(whole.histories, parts.histories, federations, strict=True):
        np.testing.assert_array_equal(a.scores["trained"], b.scores["trained"])
        for i, member in enumerate(federated.clients):
            answer = np.bincount(member.labels[member.train], minlength=3).argmax()
            expected = ((member.labels == answer) & member.val).sum(), ((member.labels == answer) & member.test).sum()
            assert counts(a, "trained", -1)[i] == expected


def test_majority_of_what_is_observed_is_scored_on_what_is_true():
    observed = replace(CLIENTS[0], train=np.array([False, False, True, False, False, False]))  # only class 1 is seen
    clean = federation(CLIENTS)
    result = simulate([replace(clean, observed=(observed, *CLIENTS[1:]))], Majority(), synchronous(), rounds=1)
    assert counts(result.histories[0], "received", 0)[0] == (0, 1)


def test_no_network_is_made_and_none_is_asked():
    class Refusing(GCN):
        def first(self, *_):
            raise AssertionError("a pass over the features")

    result = run(model=Refusing(hidden=4, layers=2, dropout=0.0))
    assert {len(received) for trips in result.trips for received, _ in trips} == {1}
