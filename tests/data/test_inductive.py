"""The inductive setting: what training sees, and that nodes which are not there leave no trace in any method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fgl_bench.data.federation import build_federations
from fgl_bench.data.graph import training_view
from fgl_bench.engine.batch import Batch
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.test_composition import STRATEGIES, gl, sage
from tests.algorithms.test_composition import configured as method
from tests.data.graphs import configured
from tests.data.test_federation import SMALL
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def build(inductive=True, sparsity="none", split="metis", seeds=(0,), **options):
    return build_federations(
        configured("dataset", "csbm", **SMALL),
        configured("split", split, inductive=inductive),
        configured("scenario/sparsity", sparsity, **options),
        num_clients=5, seeds=list(seeds), data_dir=None, cache_dir=None,
    )  # fmt: skip


def compacted(client):
    """The client without the nodes that are not there."""
    place = np.cumsum(client.present) - 1
    arrays = {name: getattr(client, name)[client.present] for name in ("nodes", "features", "labels", "train", "val", "test")}
    return replace(client, edges=place[client.edges], present=None, **arrays)


def inductive(seed=0, clients=6):
    federation = small_federation(seed, clients=clients, sparse=seed == 1)
    return replace(federation, observed=tuple(training_view(c, c.train) for c in federation.clients))


@pytest.mark.parametrize("sparse", [True, False])
def test_only_training_nodes_are_there(sparse):
    (whole,), (split,) = build(False), build()
    for plain, seen, scored in zip(whole.clients, split.observed, split.clients, strict=True):
        if not sparse:
            seen = training_view(replace(plain, features=plain.features.toarray()), plain.train)
        assert np.array_equal(seen.present, plain.train) and scored.present is None
        assert all(np.array_equal(getattr(seen, name), getattr(plain, name)) for name in ("nodes", "labels", "train", "val", "test"))
        inside = plain.train[plain.edges].all(0)
        assert np.array_equal(seen.edges, plain.edges[:, inside]) and 0 < inside.sum() < inside.size
        seen_features, features = (sp.csr_matrix(x).toarray() for x in (seen.features, plain.features))
        assert np.array_equal(seen_features[plain.train], features[plain.train]) and not seen_features[~plain.train].any()
        assert np.array_equal(scored.edges, plain.edges) and (scored.features != plain.features).nnz == 0


@pytest.mark.parametrize("name", ["louvain", "metis", "iid", "dirichlet"])
def test_it_is_a_key_of_every_split_that_changes_no_partition(name):
    (off,), (on,) = (build(flag, split=name) for flag in (False, True))
    assert on.partition_hash == off.partition_hash and off.observed is off.clients
    assert all(client.present is not None for client in on.observed)


def test_with_sparsity_both_take_away():
    (split,) = build(sparsity="label", rate=0.5, evaluation="clean")
    for seen, whole in zip(split.observed, split.clients, strict=True):
        assert np.array_equal(seen.present, whole.train), "a node without its label is still there"
        assert seen.train.sum() == whole.train.sum() - round(0.5 * whole.train.sum())
    (split,) = build(sparsity="topology", rate=0.5, evaluation="observed")
    for seen, scored in zip(split.observed, split.clients, strict=True):
        assert seen.edges.shape[1] < scored.edges.shape[1] and scored.present is None


def test_a_batch_counts_and_marks_who_is_there():
    split = inductive()
    batch = Batch(split.observed, torch.float64, "cpu")
    assert batch.num_nodes.tolist() == [int(c.train.sum()) for c in split.clients]
    assert torch.equal(batch.valid, batch.train) and batch.nodes == max(c.num_nodes for c in split.clients)


METHODS = {
    **{name: lambda name=name: method(name, **STRATEGIES[name]) for name in STRATEGIES},
    "fedgl": gl,
    "fedgl with a pseudo graph": lambda: gl(pseudo_graph=0.3),
    "fedsage_plus without neighbours": lambda: sage(max_neighbours=0),
    "global": lambda: method("global"),
}


@pytest.mark.parametrize("name", METHODS)
def test_training_is_that_on_a_graph_without_the_other_nodes(name):
    """Node by node, whatever a method computes of a client's graph."""
    federations = [inductive(seed) for seed in (0, 1)]
    small = [replace(f, clients=(only := tuple(map(compacted, f.observed))), observed=only) for f in federations]
    left, right = (
        simulate(each, METHODS[name](), synchronous(), rounds=4, local_epochs=2, model=GCN(4, 2, 0.0)) for each in (federations, small)
    )
    assert_same_trips(left, right, fewest=8)


def test_scores_are_those_of_the_whole_graph():
    split = inductive()
    seen, whole = (simulate([f], method("local"), synchronous(), rounds=3) for f in (split, replace(split, observed=split.clients)))
    assert np.array_equal(seen.histories[0].sizes, whole.histories[0].sizes)
    # The same first models; trained ones differ.
    assert np.array_equal(seen.histories[0].scores["received"][0], whole.histories[0].scores["received"][0])
    assert seen.histories[0].sizes.sum() == sum(c.val.sum() + c.test.sum() for c in split.clients)


def test_fedsage_hides_training_nodes_there():
    with pytest.raises(UserError, match=r"algorithm\.hide=val.*algorithm\.hide=train"):
        simulate([inductive()], sage(hide="val"), synchronous(), rounds=1, model=GCN(4, 2, 0.0))
    made = sage()
    simulate([inductive()], made, synchronous(), rounds=1, model=GCN(4, 2, 0.0))
    assert made.missing.sum() > 0, "there is something to generate"
    for visible, client in zip(made.visible, inductive().clients, strict=True):
        assert not (~visible[: client.num_nodes].numpy() & ~client.train).any(), "nothing but training nodes is hidden"
    assert (made.impaired.num_train < made.setting.batch.num_train).any()
