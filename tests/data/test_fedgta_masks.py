"""Masks as FedGTA's code draws them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fgl_bench.data.federation import build_federations
from fgl_bench.data.sparsity import NoSparsity
from fgl_bench.data.splits.louvain import masks_in_order
from tests.data.graphs import configured, need

AS_THERE = {"deal": "fedgta", "masks": "fedgta", "stratify": False, "per_seed": []}


class Reversing:
    def shuffle(self, values: list[int]) -> None:
        values.reverse()


def federations(dataset, data_dir, cache_dir, seeds=(0,), clients=10, **split):
    split = configured("split", "louvain", **{**AS_THERE, **split})
    return build_federations(dataset, split, NoSparsity(), num_clients=clients, seeds=list(seeds), data_dir=data_dir, cache_dir=cache_dir)


def drawn(federation) -> list[np.ndarray]:
    return [client.nodes[mask] for client in federation.clients for mask in (client.train, client.val, client.test)]


@pytest.mark.parametrize(
    ("name", "folder", "but", "digest"), [("cora", "Cora", (7, 8), "329b5f8321b6f684"), ("citeseer", "CiteSeer", (), "d50d1f97697ef8f2")]
)
def test_they_are_the_masks_that_the_code_comes_with(name, folder, but, digest, tmp_path):
    """sha256 over the ids in its ``Client10/Louvain/data<i>.pt``; on Cora clients 7 and 8 hold two nodes twice there."""
    data = need(*(f"{folder}/raw/ind.{name}.{part}" for part in ("x", "graph", "test.index")))
    (federation,) = federations(configured("dataset", name), data, tmp_path, seed=2023)
    kept = [ids for i, ids in enumerate(drawn(federation)) if i // 3 not in but]
    assert hashlib.sha256(b"".join(ids.astype("<i8").tobytes() for ids in kept)).hexdigest()[:16] == digest


def test_a_draw_by_hand():
    # In reverse order 14, 11, 12, 12, 10: one of five trains, two validate, the rest tests; 12 keeps the first of its two masks.
    ids, labeled = np.array([10, 11, 12, 13, 14]), np.array([True, True, True, False, True])
    masks = masks_in_order([10, 12, 12, 11, 14], ids, labeled, (0.2, 0.4, 0.4), Reversing())
    assert [ids[mask].tolist() for mask in masks] == [[14], [11, 12], [10]]
    # Shares that leave something over: int(0.2 * 5), int(0.4 * 5), int(0.3 * 5); an unlabeled node has no mask.
    masks = masks_in_order([10, 12, 13, 11, 14], ids, labeled, (0.2, 0.4, 0.3), Reversing())
    assert [ids[mask].tolist() for mask in masks] == [[14], [11], [12]]


def test_masks_divide_every_client_and_follow_seed_or_repetition(tmp_path):
    graph = configured("dataset", "csbm", num_nodes=400, num_edges=900)
    fixed = federations(graph, None, tmp_path, seeds=(0, 1), seed=5)
    assert all(np.array_equal(*pair) for pair in zip(*map(drawn, fixed), strict=True))
    for client in fixed[0].clients:
        assert (client.train.astype(int) + client.val + client.test == 1).all()
        assert 0.1 * client.num_nodes < client.train.sum() < 0.4 * client.num_nodes  # exactly a fifth unless some nodes were dealt twice
    one, other = map(drawn, federations(graph, None, tmp_path, seeds=(0, 1), per_seed=["masks"]))
    assert not all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
    again = federations(graph, None, None, seeds=(1,), per_seed=["masks"])  # without the cache
    assert all(np.array_equal(*pair) for pair in zip(other, drawn(again[0]), strict=True))


def test_clients_that_were_dealt_nothing_have_masks_too(tmp_path):
    graph = configured("dataset", "csbm", num_nodes=60, num_edges=60)
    (federation,) = federations(graph, None, tmp_path, clients=20, ratios=[0.5, 0.25, 0.25])
    for client in federation.clients:
        assert (client.train.astype(int) + client.val + client.test == 1).all()


@pytest.mark.parametrize("wrong", [{"deal": "openfgl"}, {"stratify": True}, {"test": "server"}])
def test_what_does_not_go_with_them_is_named(wrong):
    ((key, _),) = wrong.items()
    with pytest.raises(Exception, match=rf"split\.masks=fedgta: goes with split\.{key}=\w+ only"):
        configured("split", "louvain", **{**AS_THERE, **wrong})
    with pytest.raises(Exception, match="split.masks=fedgta: must be one of client, global"):
        configured("split", "metis", masks="fedgta")
