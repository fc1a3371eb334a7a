"""Metrics that rank positives against negatives: scikit-learn's average precision, and hits and reciprocal ranks by counting."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from fgl_bench.engine.batch import ScoredNodes
from fgl_bench.evaluation.metrics import METRICS, OF_TWO_CLASSES


def random_batch(ties: bool, seed: int = 0):
    draw = np.random.default_rng(seed)
    labels, kind = draw.integers(0, 2, (4, 60)), draw.integers(0, 3, (4, 60))
    scores = draw.integers(0, 8, (4, 60)) / 4 if ties else draw.normal(size=(4, 60))
    logits = torch.stack([torch.zeros(4, 60), torch.as_tensor(scores, dtype=torch.float32)], -1).double()
    val, test = torch.as_tensor(kind == 1), torch.as_tensor(kind == 2)
    batch = SimpleNamespace(labels=torch.as_tensor(labels), val=val, test=test, scored=ScoredNodes.of(val, test, torch.float64))
    return logits, batch, scores, labels, [kind == 1, kind == 2]


def counted(name: str, score: np.ndarray, label: np.ndarray) -> float:
    """The metric by counting negatives for every positive."""
    if name == "ap":
        return float(average_precision_score(label, score))
    positives, negatives = score[label == 1], score[label == 0]
    above = np.array([(negatives > each).sum() for each in positives])
    tied = np.array([(negatives == each).sum() for each in positives])
    if name == "mrr":
        return float((2 / ((above + 1) + (above + tied + 1))).mean())
    return float((above + tied < int(name.partition("@")[2])).mean())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", [name for name in OF_TWO_CLASSES if name != "auc"])
def test_rankings_are_counted(name, ties):
    logits, batch, scores, labels, masks = random_batch(ties)
    found = METRICS[name](logits, batch)
    for i in range(4):
        for j, mask in enumerate(masks):
            expected = counted(name, scores[i][mask[i]].astype(np.float32), labels[i][mask[i]])
            assert float(found[i, j]) / mask[i].sum() == pytest.approx(expected, abs=1e-9)


def test_a_diverged_model_has_no_rank():
    logits, batch, *_ = random_batch(False)
    logits[1, batch.val[1].nonzero()[0, 0], 1] = torch.nan
    assert METRICS["mrr"](logits, batch).isnan().any(1).tolist() == [False, True, False, False]
