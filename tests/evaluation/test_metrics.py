"""Scores against counting by hand and scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fgl_bench.algorithms.local import Local
from fgl_bench.data import checks
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.evaluation import metrics
from fgl_bench.evaluation.metrics import accuracy, auc, scored_nodes
from fgl_bench.evaluation.summary import unscored
from tests.engine.graphs import federation, from_edges, make_client
from tests.small_runs import simulate, synchronous


def masked(labels, val, test):
    client = from_edges([], labels, features=np.zeros((len(labels), 2)))
    masks = {name: np.isin(np.arange(len(labels)), nodes) for name, nodes in (("val", val), ("test", test))}
    return replace(client, train=np.zeros(len(labels), dtype=bool), **masks)


def batch_of(*clients):
    return Batch(clients, torch.float64, "cpu")


def one_hot(answers, classes):
    return torch.nn.functional.one_hot(torch.tensor(answers), classes).double()


def test_accuracy_counts_correct_validation_and_test_nodes():
    clients = [masked([0, 1, 2, 1, 0], val=[0, 1], test=[2, 3]), masked([2, 2], val=[], test=[0, 1])]
    # The first answers 0, 0, 2, 1 (and node 4, in no set, rightly); the second 2 and 0. Padding answers 0, as its labels say.
    logits = one_hot([[0, 0, 2, 1, 0], [2, 0, 0, 0, 0]], 3)
    assert accuracy(logits, batch_of(*clients)).tolist() == [[1, 2], [0, 1]]
    assert scored_nodes(clients, "accuracy").tolist() == [[2, 2], [0, 2]]


def scores_of(values):
    """Logits ``[n, 2]`` whose difference is ``values``."""
    return torch.tensor([[0.0, v] for v in values], dtype=torch.float64)[None] + 3.0


def test_auc_by_hand():
    client = masked([1, 0, 1, 0, 0], val=[0, 1, 2, 3], test=[2, 3, 4])
    # Validation: positives 0.9 and 0.2, negatives 0.2 and 0.1: of four pairs three are in order and one is tied.
    # Test: positive 0.2 over 0.1 and under 0.4: one of two.
    got = auc(scores_of([0.9, 0.2, 0.2, 0.1, 0.4]), batch_of(client))
    assert (got / torch.tensor([4.0, 3.0]))[0].tolist() == pytest.approx([3.5 / 4, 1 / 2])


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3), st.sampled_from(["val", "test", "none"])), min_size=1, max_size=30))
def test_auc_is_that_of_scikit_learn_with_ties(nodes):
    labels = [int(positive) for positive, *_ in nodes]
    parts = {name: [i for i, node in enumerate(nodes) if node[2] == name] for name in ("val", "test")}
    client, other = masked(labels, parts["val"], parts["test"]), make_client(35, classes=2, features=2)
    logits = torch.zeros(2, 35, 2, dtype=torch.float64)
    logits[0, : len(nodes)] = scores_of([value / 7 for _, value, _ in nodes])[0]
    got = auc(logits, batch_of(client, other))[0]
    sizes = scored_nodes([client], "auc")[0]
    for value, size, part in zip(got.tolist(), sizes, parts.values(), strict=True):
        truth, score = [labels[i] for i in part], [nodes[i][1] / 7 for i in part]
        if len(set(truth)) < 2:
            assert value == size == 0, "one class only has no area"
        else:
            assert size == len(part)
            assert value / size == pytest.approx(roc_auc_score(truth, score))


def test_auc_depends_on_the_order_of_scores_only():
    client = make_client(40, classes=2)
    logits = torch.randn(1, 40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = batch_of(client)
    torch.testing.assert_close(auc(logits * 5 + 2, batch), auc(logits, batch))
    sizes = torch.from_numpy(scored_nodes([client], "auc"))
    torch.testing.assert_close(auc(-logits, batch), sizes - auc(logits, batch))


def test_auc_of_a_perfect_and_of_an_indifferent_classifier():
    client = make_client(40, classes=2)
    batch, sizes = batch_of(client), scored_nodes([client], "auc")[0].tolist()
    assert auc(scores_of(client.labels.tolist()), batch)[0].tolist() == sizes
    assert auc(scores_of([0.5] * 40), batch)[0].tolist() == [size / 2 for size in sizes]


def test_auc_of_a_whole_run_is_scikit_learns_and_one_class_clients_are_left_out():
    """In single precision, where ties are made by rounding; the last client's test nodes are of one class."""
    clients = [make_client(size, classes=2, seed=size) for size in (40, 25, 30)]
    labels = np.where(clients[2].test, 1, clients[2].labels)
    clients[2] = replace(clients[2], labels=labels)
    run = simulate([federation(clients, classes=2, metric="auc")], Local(), synchronous(), rounds=3, dtype="float32")
    history, (scored,) = run.histories[0], [scored_nodes(clients, "auc")]
    assert scored[:2].all() and scored[2, 1] == 0
    model, batch, layout = run.sim.setting.model, run.sim.setting.batch, run.sim.setting.layout
    views = layout.views(torch.stack([trips[-1][1] for trips in run.trips]))
    logits = model.forward(views, batch, model.first(views, batch), no_dropout).logits.double().numpy()
    each = history.each("trained")[-1]
    for i, client in enumerate(clients):
        for j, mask in enumerate((client.val, client.test)):
            if scored[i, j]:
                expected = roc_auc_score(client.labels[mask], (logits[i, :, 1] - logits[i, :, 0])[: client.num_nodes][mask])
                assert each[i, j] == pytest.approx(expected, abs=1e-6)
            else:
                assert np.isnan(each[i, j])
    assert unscored([history])["test"] == [1]
    assert history.pooled("trained")[-1, 1] == pytest.approx((each[:2, 1] * scored[:2, 1]).sum() / scored[:2, 1].sum())


def test_every_metric_may_be_asked_for():
    assert {*checks.METRICS, "loss"} == metrics.METRICS.keys()
