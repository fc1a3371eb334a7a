"""F1 and one-vs-rest areas against scikit-learn, with ties, absent classes and several labels a node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

from fgl_bench.engine.batch import Batch
from fgl_bench.evaluation.history import History, Point
from fgl_bench.evaluation.metrics import METRICS, accuracy, auc_ovr, loss, macro_f1, micro_f1, scored_nodes, scores
from fgl_bench.evaluation.summary import other_scores
from tests.engine.graphs import from_edges

CLASSES = 4


def client(labels, roles):
    held = from_edges([], np.arange(len(roles)) % 2, features=np.zeros((len(roles), 2)))
    masks = {name: np.array([role == name for role in roles]) for name in ("train", "val", "test")}
    return replace(held, labels=np.asarray(labels), **masks)


def batch_of(*clients):
    return Batch(clients, torch.float64, "cpu")


@st.composite
def answered(draw, several=False):
    """A client, and logits with many ties; some classes may be absent."""
    nodes = draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    present = draw(st.integers(1, CLASSES))
    labels = (rng.random((nodes, CLASSES)) < 0.4).astype(np.float32) if several else rng.integers(present, size=nodes)
    if several:
        labels[:, present:] = 0
    roles = rng.choice(["val", "test", "train"], size=nodes)
    return client(labels, roles), torch.from_numpy(rng.integers(-2, 3, size=(nodes, CLASSES)) / 2)


def measured(metric, name, held, logits):
    """The client's own value on its test nodes; None where it has none. A second, larger client stands beside it."""
    other = client(np.zeros_like(held.labels, shape=(25, *held.labels.shape[1:])), ["test"] * 25)
    padded = torch.zeros(2, 25, CLASSES, dtype=torch.float64)
    padded[0, : len(logits)] = logits
    size = scored_nodes([held], name)[0, 1]
    got = metric(padded, batch_of(held, other))[0, 1].item()
    if not size:
        assert got == 0
        return None
    return got / size


def area(truth, score):
    """Mean over the classes that have positives and negatives."""
    columns = [c for c in range(CLASSES) if 0 < truth[:, c].sum() < len(truth)]
    return np.mean([roc_auc_score(truth[:, c], score[:, c]) for c in columns]) if columns else None


@given(answered())
def test_with_one_label_a_node_they_are_scikit_learns(pair):
    held, logits = pair
    truth, answer = held.labels[held.test], logits.numpy()[held.test]
    if not len(truth):
        return
    found = answer.argmax(1)
    assert measured(macro_f1, "macro_f1", held, logits) == pytest.approx(f1_score(truth, found, average="macro", zero_division=0))
    assert measured(micro_f1, "micro_f1", held, logits) == pytest.approx((truth == found).mean())
    probability = torch.softmax(torch.from_numpy(answer), -1).numpy()
    expected = area(np.eye(CLASSES)[truth], probability)
    got = measured(auc_ovr, "auc_ovr", held, logits)
    assert got is None if expected is None else got == pytest.approx(expected)


@given(answered(several=True))
def test_with_several_labels_a_node_they_are_scikit_learns(pair):
    held, logits = pair
    truth, answer = held.labels[held.test].astype(int), logits.numpy()[held.test]
    if not len(truth):
        return
    for average, metric in (("macro", macro_f1), ("micro", micro_f1)):
        expected = f1_score(truth, (answer > 0).astype(int), average=average, zero_division=0)
        assert measured(metric, f"{average}_f1", held, logits) == pytest.approx(expected)
    expected, got = area(truth, answer), measured(auc_ovr, "auc_ovr", held, logits)
    assert got is None if expected is None else got == pytest.approx(expected)
    hits = truth[np.arange(len(truth)), answer.argmax(1)]
    assert measured(accuracy, "accuracy", held, logits) == pytest.approx(hits.mean())


def test_f1_is_not_accuracy_where_classes_are_unequal():
    held = client([0] * 9 + [1], ["test"] * 10)
    logits = torch.zeros(10, CLASSES, dtype=torch.float64)
    logits[:, 0] = 1
    assert measured(accuracy, "accuracy", held, logits) == pytest.approx(0.9)
    assert measured(macro_f1, "macro_f1", held, logits) == pytest.approx((2 * 9 / 19) / 2)


def test_constant_scores_have_an_area_of_one_half():
    held = client([0, 1, 2, 0], ["test"] * 4)
    assert measured(auc_ovr, "auc_ovr", held, torch.zeros(4, CLASSES, dtype=torch.float64)) == 0.5


def test_a_client_of_one_class_has_no_area_and_an_f1():
    held = client([1, 1], ["test"] * 2)
    assert scored_nodes([held], "auc_ovr").tolist() == [[0, 0]] and scored_nodes([held], "macro_f1").tolist() == [[0, 2]]


def test_the_loss_is_the_mean_cross_entropy_and_undefined_where_it_is_not_finite():
    held = client([0, 1, 1, 2], ["val", "test", "test", "train"])
    logits = torch.randn(4, CLASSES, dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(logits[1:3], torch.tensor([1, 1])).item()
    assert measured(loss, "loss", held, logits) == pytest.approx(expected)
    for value in (torch.nan, torch.inf):
        diverged = logits.clone()
        diverged[1] = value
        assert np.isnan(measured(loss, "loss", held, diverged)), "never a number that could be a loss"
    large = torch.zeros(4, CLASSES, dtype=torch.float64)
    large[:, 0], large[:, 1] = 1e9, -1e9
    assert measured(loss, "loss", held, large) == 2e9, "a large loss is reported as it is"
    large[:, 0], large[:, 1] = 1e308, -1e308
    assert np.isnan(measured(loss, "loss", held, large)), "finite logits, whose loss is not"
    several = client(np.eye(CLASSES, dtype=np.float32), ["test"] * 4)
    assert measured(loss, "loss", several, torch.zeros(4, CLASSES, dtype=torch.float64)) == pytest.approx(np.log(2))


def test_one_metric_is_that_metric_and_several_stand_side_by_side():
    assert scores(["accuracy"]) is METRICS["accuracy"], "the default costs nothing"
    held = client([0, 1, 1], ["val", "test", "test"])
    logits, batch = torch.randn(1, 3, CLASSES, dtype=torch.float64), batch_of(held)
    both = scores(["accuracy", "macro_f1"])(logits, batch)
    torch.testing.assert_close(both, torch.cat([accuracy(logits, batch), macro_f1(logits, batch)], 1))


def test_other_metrics_are_reported_where_the_first_is_best():
    points = [Point(t, t, t, np.array([2 * t, 2 * t + 1]), np.array([2 * t, 2 * t + 1]), 0, 0) for t in range(3)]
    log = np.zeros((6, 4))  # of every model: two sums by accuracy, two by F1
    log[:, 0] = [1, 1, 4, 4, 2, 2]  # validation accuracy is best at the second point
    log[:, 3] = [9, 9, 1, 3, 8, 8]
    sizes = np.full((2, 2), 10)
    history = History.of(0, points, log, sizes, 0, {"macro_f1": sizes})
    found = other_scores([history])["macro_f1"]["received"]
    assert found["per_seed"] == [pytest.approx(0.2)] and found["last"]["mean"] == pytest.approx(0.8)
    assert history.pooled("received")[:, 0].tolist() == pytest.approx([0.1, 0.4, 0.2])
