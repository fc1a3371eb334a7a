"""Masks that the data came with: split.masks=given."""

from __future__ import annotations

import numpy as np
import pytest

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.federation import build_federations
from fgl_bench.data.sparsity import NoSparsity
from fgl_bench.errors import UserError
from fgl_bench.utils.patience import say_once
from tests.data.graphs import configured, need

N = 90


def columns(count=1):
    """train, val and test masks ``[N, count]``: thirds of the nodes, moved by one node for every column."""
    place = np.stack([np.roll(np.arange(N), shift) for shift in range(count)], axis=1)
    return [place % 3 == third for third in range(3)]


def saved(folder, masks, **changes):
    rng = np.random.default_rng(0)
    parts = {"x": rng.random((N, 5)), "edge_index": rng.integers(0, N, (2, 300)), "y": rng.integers(0, 3, N), **changes}
    names = ("train_mask", "val_mask", "test_mask")
    np.savez(folder / "graph.npz", **parts, **{name: each for name, each in zip(names, masks, strict=True) if each is not None})
    return configured("dataset", "custom", path=str(folder / "graph.npz"))


def federations(dataset: Dataset, split="iid", clients=3, seeds=(0, 1, 2), data_dir=None, **changes):
    made = configured("split", split, **{"masks": "given", **changes})
    return build_federations(dataset, made, NoSparsity(), num_clients=clients, seeds=seeds, data_dir=data_dir, cache_dir=None)


def held(federation):
    """The three masks over the whole graph, of what clients hold."""
    whole = np.zeros((3, N), dtype=bool)
    for client in federation.clients:
        whole[:, client.nodes] |= np.stack([client.train, client.val, client.test])
    return whole


@pytest.mark.parametrize(
    ("split", "clients", "whole"),
    [
        ("iid", 3, True),
        ("dirichlet", 3, True),
        ("metis", 3, True),
        ("louvain", 3, True),
        ("metis_overlap", 5, False),
        ("natural", None, True),
    ],
)
def test_every_client_has_its_nodes_of_the_given_masks(tmp_path, split, clients, whole):
    masks = [each[:, 0] for each in columns()]
    dataset = saved(tmp_path, masks, owner=np.arange(N) % 4)
    for federation in federations(dataset, split, clients):
        for client in federation.clients:
            assert [each.tolist() for each in (client.train, client.val, client.test)] == [mask[client.nodes].tolist() for mask in masks]
        assert not whole or np.array_equal(held(federation), masks), "the same in every repetition"


def test_columns_are_taken_by_seed(tmp_path):
    masks = columns(2)
    dataset = saved(tmp_path, [masks[0], masks[1], masks[2]])
    for seed, federation in zip((0, 1, 2), federations(dataset), strict=True):
        assert np.array_equal(held(federation), [mask[:, seed % 2] for mask in masks])
    for federation in federations(dataset, per_seed=["partition"]):
        assert np.array_equal(held(federation), [mask[:, 0] for mask in masks])


def test_a_server_keeps_the_given_masks(tmp_path):
    masks = [each[:, 0] for each in columns()]
    for federation in federations(saved(tmp_path, masks), "iid_server"):
        assert np.array_equal([federation.server.train, federation.server.val, federation.server.test], masks)
        assert sorted(np.concatenate([client.nodes for client in federation.clients])) == np.flatnonzero(masks[0]).tolist()


def test_nodes_without_a_label_are_left_out(tmp_path, capsys):
    say_once.cache_clear()
    masks = [each[:, 0] for each in columns()]
    labels = np.where(np.arange(N) < 30, -1, np.arange(N) % 2)
    (federation, *_) = federations(saved(tmp_path, masks, y=labels))
    assert np.array_equal(held(federation), np.array(masks) & (labels >= 0))
    assert "30 nodes in the masks of dataset=custom have no label" in capsys.readouterr().err


TRAIN, VAL, TEST = (each[:, 0] for each in columns())


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_planetoid_has_its_public_masks(name):
    from torch_geometric.datasets import Planetoid

    folder = {"cora": "Cora", "citeseer": "CiteSeer"}[name]
    root = need(*(f"{folder}/raw/ind.{name}.{part}" for part in ("x", "y", "allx", "test.index")))
    graph = configured("dataset", name).load(root)
    source = Planetoid(root, folder)[0]
    for key in ("train_mask", "val_mask", "test_mask"):
        assert np.array_equal(graph.masks[key], source[key].numpy())
    (federation,) = federations(configured("dataset", name), "metis", 5, (0,), root)
    assert sum(int(client.test.sum()) for client in federation.clients) == 1000


def test_a_generated_graph_has_no_masks():
    with pytest.raises(UserError, match="dataset=csbm has no train_mask and no val_mask and no test_mask"):
        federations(configured("dataset", "csbm", num_nodes=60, num_edges=100))
