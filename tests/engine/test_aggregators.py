"""Robust aggregation: rules by hand, against scipy, and as the choice of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import trim_mean

from fgl_bench import UserError, run
from fgl_bench.engine.aggregators import Aggregated, GeometricMedian, Krum, Mean, Median, MultiKrum, TrimmedMean
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.shard import ALONE

TINY = {"dataset__num_nodes": 200, "dataset__num_edges": 500, "num_clients": 5, "rounds": 4, "seeds": [0, 1], "dtype": "float64"}
KEY = torch.zeros(1, dtype=torch.int64)
ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median")


def center(rule, rows, weights=None):
    uploads = torch.tensor(rows, dtype=torch.float64)
    return rule.center(uploads, torch.tensor(weights or [1 / len(rows)] * len(rows), dtype=torch.float64)).tolist()


def test_the_median_is_that_of_numpy():
    assert center(Median(), [[1, 9], [2, 0], [100, 1]]) == [2, 1]
    assert center(Median(), [[1], [2], [4], [100]]) == [3]
    rows = np.random.default_rng(0).normal(size=(6, 7))
    assert center(Median(), rows.tolist()) == pytest.approx(np.median(rows, 0))


def test_the_trimmed_mean_is_that_of_scipy():
    assert center(TrimmedMean(0.25), [[-100], [1], [3], [50]]) == [2]
    rows = np.random.default_rng(0).normal(size=(10, 7))
    assert center(TrimmedMean(0.2), rows.tolist()) == pytest.approx(trim_mean(rows, 0.2))
    assert center(TrimmedMean(0), rows.tolist()) == pytest.approx(rows.mean(0))
    with pytest.raises(UserError, match="aggregator.fraction=0.49: trims all"):
        center(TrimmedMean(0.49), [[1], [2]])


LINE = [[0.0], [1.0], [3.0], [3.5], [100.0]]
"""With f = 1 every upload has 5 - 1 - 2 = 2 neighbors; sums of squared distances: 10, 5, 4.25, 6.5, 18721.25."""


def test_krum_by_hand():
    assert center(Krum(0.2), LINE) == [3]
    assert center(MultiKrum(0.2), LINE) == [pytest.approx((0 + 1 + 3 + 3.5) / 4)]
    assert Krum(0.2).ordered(torch.tensor(LINE)).tolist() == [2, 1, 3, 0, 4]
    with pytest.raises(UserError, match="2 uploads leaves no neighbor"):
        center(Krum(0), LINE[:2])


@pytest.mark.parametrize("weights", [None, [0.4, 0.1, 0.2, 0.1, 0.1, 0.1]])
def test_the_geometric_median_minimizes_the_distances(weights):
    rows = np.random.default_rng(0).normal(size=(6, 3))
    sizes = np.full(6, 1 / 6) if weights is None else np.array(weights)
    best = minimize(lambda point: sizes @ np.linalg.norm(rows - point, axis=1), rows.mean(0), tol=1e-12)
    assert center(GeometricMedian(1000, 1e-9), rows.tolist(), weights) == pytest.approx(best.x, abs=1e-4)
    assert center(GeometricMedian(100, 1e-9), [[0.0], [1.0], [100.0]]) == pytest.approx([1], abs=1e-3)


def test_only_weighted_uploads_and_shared_parameters_take_part():
    layout = ParameterLayout({"shared": (1,), "own": (1,)})
    models = torch.tensor([[[1.0, 5], [2, 6], [9, 7], [1000, 8]]], dtype=torch.float64)
    weights = torch.tensor([[[0.2, 0.2, 0.6, 0.0]]], dtype=torch.float64)
    mixing = Aggregated(weights, shared=("shared",), rule=Median(), key=KEY)
    assert mixing.apply(models, models.clone(), layout).tolist() == [[[2, 5], [2, 6], [2, 7], [2, 8]]]
    mean = Aggregated(weights, shared=("shared",), rule=Mean(), key=KEY).apply(models, models.clone(), layout)
    assert torch.allclose(mean, Mixing(weights, shared=("shared",)).apply(models, models.clone(), layout))
    nobody = Median().combine(models, models, torch.zeros(1, 4), ALONE, KEY)
    assert nobody.tolist() == [[0, 0]]


def test_the_mean_changes_no_score_and_the_others_do(tmp_path):
    curves = {name: run("fedavg", "csbm", aggregator=name, results_dir=tmp_path, **TINY) for name in ("mean", *ROBUST)}
    plain = run("fedavg", "csbm", results_dir=tmp_path, **TINY)
    assert plain.folder == curves["mean"].folder and "aggregator" not in plain.summary
    drawn = {name: result.curve() for name, result in curves.items()}
    assert all(not drawn[name].equals(drawn["mean"]) for name in ROBUST)
    assert curves["krum"].summary["aggregator"] == "krum" and "aggregator=krum" in str(curves["krum"])


@pytest.mark.parametrize("method", ["fedadam", "scaffold", "fedper", "fednova"])
def test_methods_that_average_compose(method, tmp_path):
    one, other = (run(method, "csbm", aggregator=name, results_dir=tmp_path, **TINY, participation=0.8) for name in ("mean", "median"))
    assert not one.curve().equals(other.curve())


@pytest.mark.parametrize("method", ["fedavg_finetune", "adafgl"])
def test_a_stage_without_a_server_needs_no_aggregator(method, tmp_path):
    """Two rounds with the median, and two in which nothing travels: both stages run, and the first is that of FedAvg with the median."""
    staged = run(method, "csbm", aggregator="median", algorithm__federated_rounds=2, results_dir=tmp_path, **TINY).curve()
    plain = run("fedavg", "csbm", aggregator="median", results_dir=tmp_path, **TINY).curve()
    first, scores = staged["round"] < 2, ["val_received", "test_received", "val_trained", "test_trained"]
    assert staged[first][scores].equals(plain[first][scores]) and staged["round"].max() == 4


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("fedgta", "Median makes one model of all uploads, and the server of FedGTA does not; use aggregator=mean"),
        ("local", "the server of Local does not"),
        ("fedsa_gcl", "aggregator=median: scenario=semi_async has no rounds of a server"),
        ("d_psgd", "aggregator=median: scenario=decentralized has no rounds of a server"),
    ],
)
def test_others_are_refused(method, why, tmp_path):
    with pytest.raises(UserError, match=why):
        run(method, "csbm", aggregator="median", results_dir=tmp_path, **TINY)
