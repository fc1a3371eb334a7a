"""Flickr's raw files are read as PyG reads them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from torch_geometric.datasets import Flickr as Source

from fgl_bench.errors import UserError
from tests.data.graphs import configured


@pytest.fixture
def folder(tmp_path):
    """Seven nodes in GraphSAINT's layout; both directions of every edge, a loop, labels out of order."""
    draw, raw = np.random.default_rng(0), tmp_path / "Flickr" / "raw"
    raw.mkdir(parents=True)
    upper = np.triu(draw.random((7, 7)) < 0.4)
    links = sp.csr_matrix((upper | upper.T).astype(np.float64))
    np.savez(raw / "adj_full.npz", data=links.data, indices=links.indices, indptr=links.indptr, shape=links.shape)
    np.save(raw / "feats.npy", draw.normal(size=(7, 3)))
    labels = {str(i): int(draw.integers(3)) for i in draw.permutation(7)}
    (raw / "class_map.json").write_text(json.dumps({**labels, "6": 2}))
    (raw / "role.json").write_text(json.dumps({"tr": [0, 1, 2], "va": [3, 4], "te": [5, 6]}))
    return tmp_path


def test_it_is_pygs_graph(folder):
    graph, source = configured("dataset", "flickr").load(str(folder)), Source(str(folder / "Flickr"))[0]
    apart = source.edge_index[0] != source.edge_index[1]
    assert set(map(tuple, graph.edges.T)) == set(map(tuple, source.edge_index[:, apart].T.tolist()))
    assert np.array_equal(graph.labels, source.y.numpy()) and graph.num_classes == 3
    assert np.array_equal(np.asarray(graph.features), source.x.numpy())


def test_files_that_do_not_fit_together(folder):
    np.save(folder / "Flickr" / "raw" / "feats.npy", np.zeros((9, 3)))
    with pytest.raises(UserError, match=r"^dataset=flickr: .*class_map\.json"):
        configured("dataset", "flickr").load(str(folder))
