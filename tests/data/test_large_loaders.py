"""Yelp, Reddit, ogbn-products and ogbn-papers100M from small files in their published layouts, and the generated twins."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import scipy.sparse as sp

from fgl_bench.data import storage
from fgl_bench.data.datasets import ogb
from fgl_bench.errors import UserError
from tests.data.graphs import configured

NODES = 7
ROW, COL = np.array([0, 1, 1, 5, 6, 6]), np.array([1, 0, 2, 4, 6, 3])
PAIRS = {(0, 1), (1, 0), (1, 2), (2, 1), (4, 5), (5, 4), (3, 6), (6, 3)}
FEATURES = np.random.default_rng(0).normal(size=(NODES, 3)).astype(np.float32)


def edges_of(graph):
    return {tuple(pair) for pair in graph.edges.T.tolist()}


def test_yelp_has_several_labels_a_node_and_pygs_edges(tmp_path):
    raw = tmp_path / "Yelp" / "raw"
    raw.mkdir(parents=True)
    links = sp.csr_matrix((np.ones(ROW.size), (ROW, COL)), shape=(NODES, NODES))
    np.savez(raw / "adj_full.npz", data=links.data, indices=links.indices, indptr=links.indptr, shape=links.shape)
    np.save(raw / "feats.npy", FEATURES.astype(np.float64))
    labels = np.random.default_rng(1).integers(2, size=(NODES, 4))
    (raw / "class_map.json").write_text(json.dumps({str(node): labels[node].tolist() for node in reversed(range(NODES))}))
    graph = configured("dataset", "yelp").load(str(tmp_path))
    assert edges_of(graph) == PAIRS and graph.num_classes == 4
    assert graph.labels.dtype == np.float32 and np.array_equal(graph.labels, labels)
    assert np.array_equal(graph.features, FEATURES)
    first = [row.tolist().index(1) if row.any() else -1 for row in labels]
    assert graph.strata.tolist() == first, "in splits and masks a node counts for its lowest label"


def test_reddit_is_read_from_pygs_two_archives(tmp_path):
    raw = tmp_path / "Reddit" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "reddit_data.npz", feature=FEATURES.astype(np.float64), label=np.arange(NODES) % 3, node_types=np.ones(NODES))
    sp.save_npz(raw / "reddit_graph.npz", sp.coo_matrix((np.ones(ROW.size), (ROW, COL)), shape=(NODES, NODES)))
    graph = configured("dataset", "reddit").load(str(tmp_path))
    assert edges_of(graph) == PAIRS and graph.num_classes == 3 and graph.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert np.array_equal(graph.features, FEATURES)
    (raw / "reddit_graph.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="reddit_graph.npz is corrupt"):
        configured("dataset", "reddit").load(str(tmp_path))


LABELS = np.array([2.0, np.nan, 0, 1, 1, np.nan, 0])


def write_tables(raw):
    for name, table in (("edge", np.stack([ROW, COL], 1)), ("node-feat", FEATURES), ("node-label", LABELS[:, None])):
        with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            file.writelines(",".join("nan" if value != value else repr(value.item()) for value in row) + "\n" for row in table)


def write_arrays(raw):
    np.savez_compressed(raw / "data.npz", edge_index=np.stack([ROW, COL]), node_feat=FEATURES, node_year=np.zeros(NODES))
    np.savez_compressed(raw / "node-label.npz", node_label=LABELS[:, None])


@pytest.mark.parametrize(("name", "write"), [("ogbn_products", write_tables), ("ogbn_papers100m", write_arrays)])
def test_the_large_graphs_of_ogb_are_the_same_in_memory_and_in_files(name, write, monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "BLOCK_BYTES", 20)
    monkeypatch.setattr(ogb, "LINES", 2)
    raw = tmp_path / name / "raw"
    raw.mkdir(parents=True)
    write(raw)
    held, kept = (configured("dataset", name).load(str(tmp_path), folder) for folder in (None, tmp_path / "cache"))
    for graph in (held, kept):
        assert edges_of(graph) == PAIRS and graph.num_classes == 3
        assert graph.labels.tolist() == [2, -1, 0, 1, 1, -1, 0]
        np.testing.assert_allclose(graph.features, FEATURES, rtol=1e-6)
    assert kept.folder is not None and held.folder is None
    np.testing.assert_array_equal(held.features, kept.features)
    made = {path: path.stat().st_mtime_ns for path in kept.folder.iterdir()}
    configured("dataset", name).load(str(tmp_path), tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in kept.folder.iterdir()} == made


def test_a_papers100m_archive_that_ends_early_is_one_line(tmp_path):
    raw = tmp_path / "ogbn_papers100m" / "raw"
    raw.mkdir(parents=True)
    write_arrays(raw)
    content = (raw / "data.npz").read_bytes()
    (raw / "data.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="data.npz is corrupt or truncated"):
        configured("dataset", "ogbn_papers100m").load(str(tmp_path), tmp_path / "cache")


def test_the_twins_are_named_as_twins_and_have_the_counts():
    counts = {"csbm_yelp": (716_847, 6_977_410, 300, 100), "csbm_reddit": (232_965, 57_307_946, 602, 41)}
    for name, expected in counts.items():
        twin = configured("dataset", name)
        assert (twin.num_nodes, twin.num_edges, twin.num_features, twin.num_classes) == expected and twin.name == name
        assert twin.words_per_node is None, "dense, as theirs"


def test_a_generated_node_has_its_class_and_others_that_depend_on_it():
    small = {"num_nodes": 3000, "num_edges": 9000, "num_features": 4, "num_classes": 12, "labels_per_node": 3}
    graph = configured("dataset", "csbm_yelp", **small).load(None)
    assert graph.labels.shape == (3000, 12) and set(np.unique(graph.labels)) == {0, 1}
    assert graph.labels.sum(1).mean() == pytest.approx(3, abs=0.15) and graph.labels.any(1).all()
    together = graph.labels.T @ graph.labels / graph.labels.sum(0)
    assert together[~np.eye(12, dtype=bool)].max() > 0.5, "some labels go together"
    assert np.array_equal(graph.labels, configured("dataset", "csbm_yelp", **small).load(None).labels)
