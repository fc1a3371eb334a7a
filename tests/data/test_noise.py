"""Noise in what clients observe while training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench import UserError, run
from fgl_bench.data.federation import build_federations
from fgl_bench.data.noise import EdgeNoise, FeatureNoise, LabelNoise, NoNoise
from fgl_bench.data.sparsity import LabelSparsity, NoSparsity
from tests.data.graphs import configured, make_client
from tests.data.test_sparsity import RATES, SEEDS, arrays, same

CLASSES = 3
TINY = {"dataset__num_nodes": 120, "dataset__num_edges": 300, "num_clients": 3, "rounds": 3, "seeds": [0, 1], "dtype": "float64"}


def pairs(client):
    return {tuple(pair) for pair in client.edges.T.tolist()}


@given(RATES, SEEDS, st.sampled_from(["symmetric", "pairwise"]))
def test_a_share_of_the_training_labels_is_wrong_and_no_other(rate, seed, kind):
    client = make_client(seed=seed)
    seen = LabelNoise(rate, kind).apply(client, CLASSES, np.random.default_rng(seed))
    wrong = seen.labels != client.labels
    assert int(wrong.sum()) == round(rate * int(client.train.sum())) and not (wrong & ~client.train).any()
    assert set(seen.labels.tolist()) <= set(range(CLASSES)) and same(client, seen, "labels")
    if kind == "pairwise":
        assert np.array_equal(seen.labels[wrong], (client.labels[wrong] + 1) % CLASSES)


def test_symmetric_noise_draws_every_other_class_alike():
    client = make_client(num_nodes=3000, num_edges=10)
    client = replace(client, train=np.ones(3000, dtype=bool), labels=np.zeros(3000, dtype=np.int64))
    seen = LabelNoise(1.0, "symmetric").apply(client, 4, np.random.default_rng(0))
    counts = np.bincount(seen.labels, minlength=4)
    assert counts[0] == 0 and np.all(np.abs(counts[1:] - 1000) < 5 * np.sqrt(3000 * 2 / 9))


@given(st.floats(0.01, 2), SEEDS, st.booleans())  # float32 features lose smaller ones
def test_features_get_gaussian_noise_of_this_deviation(rate, seed, dense):
    client = make_client(num_nodes=200, seed=seed, dense=dense)
    seen = FeatureNoise(rate).apply(client, CLASSES, np.random.default_rng(seed))
    added = arrays(seen)["features"] - arrays(client)["features"]
    assert added.dtype == np.float32 and same(client, seen, "features")
    assert abs(added.std() - rate) <= 0.1 * rate and abs(added.mean()) <= 0.1 * rate


@given(st.floats(0, 3), SEEDS)
def test_edges_are_added_in_both_directions(rate, seed):
    client = make_client(num_nodes=20, num_edges=40, seed=seed)
    seen = EdgeNoise(rate).apply(client, CLASSES, np.random.default_rng(seed))
    before, after = pairs(client), pairs(seen)
    assert len(after) == seen.edges.shape[1] == min(len(before) + 2 * round(rate * (len(before) // 2)), 20 * 19)
    assert before <= after and {(v, u) for u, v in after} == after and not any(u == v for u, v in after)
    assert seen.edges.T.tolist() == sorted(seen.edges.T.tolist()) and same(client, seen, "edges")


NOISES = [LabelNoise(0.5, "symmetric"), LabelNoise(0.5, "pairwise"), FeatureNoise(0.5), EdgeNoise(0.5)]


@pytest.mark.parametrize("noise", NOISES)
def test_the_stream_decides_and_rate_0_gives_the_client_itself(noise):
    client, untouched = make_client(), make_client()
    one, again, other = (noise.apply(client, CLASSES, np.random.default_rng(seed)) for seen, seed in enumerate((0, 0, 1)))
    assert same(one, again) and same(client, untouched)
    assert not same(one, other) or getattr(noise, "kind", "") == "pairwise"
    assert replace(noise, rate=0).apply(client, CLASSES, np.random.default_rng(0)) is client
    bare = replace(client, edges=client.edges[:, :0], train=client.train & False)
    assert isinstance(noise, FeatureNoise) or noise.apply(bare, CLASSES, np.random.default_rng(0)) is bare


def federation(noise, sparsity=None, seed=0):
    dataset = configured("dataset", "csbm", num_nodes=120, num_edges=300)
    options = {"num_clients": 3, "seeds": [seed], "data_dir": None, "cache_dir": None, "noise": noise}
    return build_federations(dataset, configured("split", "metis"), sparsity or NoSparsity(), **options)[0]


@pytest.mark.parametrize("noise", NOISES)
def test_only_the_training_view_has_noise_and_it_composes_with_sparsity(noise):
    clean, seen = federation(NoNoise()), federation(noise)
    assert all(same(one, other) for one, other in zip(clean.clients, seen.clients, strict=True))
    assert not any(same(one, other) for one, other in zip(seen.clients, seen.observed, strict=True))
    without = federation(replace(noise, rate=0))
    assert clean.observed is clean.clients and without.observed is without.clients
    both = federation(noise, LabelSparsity(0.5, "clean"))
    fewer = federation(NoNoise(), LabelSparsity(0.5, "clean"))
    for one, other in zip(both.observed, fewer.observed, strict=True):
        assert np.array_equal(one.train, other.train) and not same(one, other)
        assert np.array_equal(one.labels[~one.train], other.labels[~one.train])


@pytest.mark.parametrize("choice", ["label", "feature", "edge"])
def test_rate_0_changes_no_score_and_more_changes_them(choice, tmp_path):
    def scores(**more):
        return run("fedavg", "csbm", results_dir=tmp_path, **TINY, **more).curve()

    assert scores(scenario__noise=choice, **{"scenario__noise__rate": 0.0}).equals(scores())
    assert not scores(scenario__noise=choice, **{"scenario__noise__rate": 0.5}).equals(scores())


def test_noise_is_named_in_the_run_and_refused_where_it_is_not_defined(tmp_path):
    result = run("fedavg", "csbm", scenario__noise="label", results_dir=tmp_path, **TINY)
    assert result.summary["noise"] == "label" and "noise=label" in str(result)
    with pytest.raises(UserError, match="task=node only"):
        run("fedavg", "mutag", task="graph", scenario__noise="label", results_dir=tmp_path)
    with pytest.raises(UserError, match="scenario.noise.rate=2.* out of range"):
        run("fedavg", "csbm", scenario__noise="label", scenario__noise__rate=2, results_dir=tmp_path)
    with pytest.raises(UserError, match="out_of_core=true: scenario/noise=edge"):
        run("fedavg", "csbm", scenario__noise="edge", out_of_core=True, results_dir=tmp_path, cache_dir=tmp_path)
