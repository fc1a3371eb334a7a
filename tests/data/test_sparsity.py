from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.data.sparsity import FeatureSparsity, LabelSparsity, NoSparsity, TopologySparsity
from fgl_bench.errors import UserError
from tests.data.graphs import make_client

RATES = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
SEEDS = st.integers(0, 50)


def arrays(client, *without):
    """The parts of a client as plain arrays, save some."""
    parts = {name: getattr(client, name) for name in ("nodes", "features", "edges", "labels", "train", "val", "test")}
    return {name: value.toarray() if sp.issparse(value) else value for name, value in parts.items() if name not in without}


def same(one, other, *without):
    left, right = arrays(one, *without), arrays(other, *without)
    return all(np.array_equal(left[name], right[name]) for name in left)


def test_none_changes_nothing():
    client = make_client()
    assert NoSparsity().apply(client, np.random.default_rng(0)) is client


@given(RATES, SEEDS)
def test_labels_leave_the_train_mask_only(rate, seed):
    client = make_client(seed=seed)
    seen = LabelSparsity(rate, "clean").apply(client, np.random.default_rng(seed))
    assert int(client.train.sum() - seen.train.sum()) == round(rate * int(client.train.sum()))
    assert not (seen.train & ~client.train).any()
    assert same(client, seen, "train")


@given(RATES, SEEDS)
def test_edges_leave_in_both_directions(rate, seed):
    client = make_client(seed=seed)
    seen = TopologySparsity(rate, "clean").apply(client, np.random.default_rng(seed))
    before, after = ({tuple(pair) for pair in each.edges.T.tolist()} for each in (client, seen))
    assert len(after) == seen.edges.shape[1] == 2 * round((1 - rate) * (len(before) // 2))
    assert after <= before and {(v, u) for u, v in after} == after
    assert seen.edges.T.tolist() == sorted(seen.edges.T.tolist())
    assert same(client, seen, "edges")


@given(st.integers(0, 20), SEEDS, st.booleans())
def test_every_node_loses_its_share_of_entries(twentieths, seed, dense):
    client = make_client(seed=seed, dense=dense)
    seen = FeatureSparsity(twentieths / 20, "clean").apply(client, np.random.default_rng(seed))
    before, after = arrays(client)["features"], arrays(seen)["features"]
    count = (before != 0).sum(axis=1)
    assert np.array_equal(count - (after != 0).sum(axis=1), twentieths * count // 20)
    assert np.array_equal(after[after != 0], before[after != 0])
    assert isinstance(seen.features, np.ndarray) == dense
    assert same(client, seen, "features")


@pytest.mark.parametrize("kind", [LabelSparsity, TopologySparsity, FeatureSparsity])
def test_the_stream_decides_and_the_client_is_left_alone(kind):
    client, untouched = make_client(), make_client()
    one, again, other = (kind(0.5, "clean").apply(client, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert same(one, again) and not same(one, other) and same(client, untouched)


@pytest.mark.parametrize("kind", [LabelSparsity, TopologySparsity, FeatureSparsity])
def test_a_client_without_edges_words_or_training_nodes_survives(kind):
    client = make_client(num_edges=0)
    bare = type(client)(
        client.nodes, sp.csr_matrix((40, 12), dtype=np.float32), client.edges, client.labels, client.train & False, client.val, client.test
    )
    assert same(kind(0.5, "clean").apply(bare, np.random.default_rng(0)), bare)


def test_bad_options_are_refused_by_key():
    with pytest.raises(UserError, match=r"scenario\.sparsity\.rate=1\.5: must be between 0 and 1"):
        LabelSparsity(1.5, "clean")
    with pytest.raises(UserError, match=r"scenario\.sparsity\.evaluation=dirty: must be one of clean, observed"):
        TopologySparsity(0.1, "dirty")
