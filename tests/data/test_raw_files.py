"""Absent, unreachable, damaged and malicious raw files."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import shutil
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fgl_bench.errors import UserError
from tests.data.graphs import configured, need

DOWNLOADABLE = [
    "cora", "photo", "physics", "tolokers", "chameleon_filtered", "dblp", "citeseer_full", "actor", "cornell5", "ogbn_arxiv", "flickr",
]  # fmt: skip
NOT_DOWNLOADABLE = ["facebook_page_page", "github_social", "deezer_europe", "twitch"]


class Answer(io.BytesIO):
    """What a server sends."""

    def __init__(self, content, announced=None):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content) if announced is None else announced)}


@pytest.fixture
def offline(monkeypatch):
    def refuse(address, timeout=None):
        assert timeout is not None and timeout <= 30
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def write_csr_npz(path, nodes=6, **changes):
    """A small file in the layout of Amazon, Coauthor and CitationFull."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ring = sp.csr_matrix((np.ones(nodes), (np.arange(nodes), (np.arange(nodes) + 1) % nodes)), shape=(nodes, nodes))
    words = sp.csr_matrix(np.diag(np.arange(nodes) - 1.0))  # one negative, one zero, the others positive
    arrays = {"labels": np.arange(nodes) % 2}
    for name, matrix in (("adj", ring), ("attr", words)):
        arrays |= {
            f"{name}_data": matrix.data,
            f"{name}_indices": matrix.indices,
            f"{name}_indptr": matrix.indptr,
            f"{name}_shape": np.array(matrix.shape),
        }
    np.savez(path, **{**arrays, **changes})
    return path


@pytest.mark.parametrize("name", DOWNLOADABLE)
def test_an_absent_file_without_network_is_one_line_that_helps(name, offline, tmp_path):
    data_dir = tmp_path / "not" / "yet"
    with pytest.raises(UserError) as caught:
        configured("dataset", name).load(str(data_dir))
    message = str(caught.value)
    assert "\n" not in message and f"dataset={name}: {data_dir}" in message and "no network" in message
    first = next(iter(configured("dataset", name).files(data_dir).values()))
    assert re.search(rf"downloading https?://\S+ failed .*{first.name} (by hand into|in) {re.escape(str(first.parent))},", message)
    assert "data_dir" in message and "FGL_BENCH_DATA" in message and "dataset=csbm" in message
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("name", NOT_DOWNLOADABLE)
def test_what_nobody_publishes_is_not_asked_for(name, monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *given, **more: pytest.fail("it went to the network"))
    with pytest.raises(UserError, match=f"dataset={name}: .*not found, and it has no download.*adj_.*docs/data.md.*dataset=csbm"):
        configured("dataset", name).load(str(tmp_path))


def test_a_folder_that_cannot_be_made_is_said_so_before_any_download(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *given, **more: pytest.fail("it went to the network"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written to download it"):
        configured("dataset", "photo").load(str(tmp_path / "file" / "below"))


def test_the_environment_names_the_folder_where_the_key_does_not(monkeypatch, offline, tmp_path):
    monkeypatch.setenv("FGL_BENCH_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match=str(tmp_path / "elsewhere")):
        configured("dataset", "photo").load(None)


def test_a_download_comes_from_pygs_address_and_is_kept(monkeypatch, tmp_path):
    content = write_csr_npz(tmp_path / "made.npz").read_bytes()
    asked = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: asked.append(address) or Answer(content))
    for _ in range(2):
        assert configured("dataset", "photo").load(str(tmp_path / "data")).num_nodes == 6
    assert asked == ["https://github.com/shchur/gnn-benchmark/raw/master/data/npz/amazon_electronics_photo.npz"]
    assert [path.name for path in (tmp_path / "data" / "Photo" / "raw").iterdir()] == ["amazon_electronics_photo.npz"]


def test_half_a_download_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: Answer(b"half", announced=8))
    with pytest.raises(UserError, match="4 of 8 bytes arrived"):
        configured("dataset", "photo").load(str(tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_layout_and_file_names_are_pygs(offline, tmp_path):
    from torch_geometric import datasets

    for name, kind, title in [
        ("cora", datasets.Planetoid, "Cora"), ("citeseer", datasets.Planetoid, "CiteSeer"), ("pubmed", datasets.Planetoid, "PubMed"),
        ("photo", datasets.Amazon, "photo"), ("computers", datasets.Amazon, "computers"),
        ("cs", datasets.Coauthor, "CS"), ("physics", datasets.Coauthor, "Physics"),
        ("roman_empire", datasets.HeterophilousGraphDataset, "roman_empire"),
        ("questions", datasets.HeterophilousGraphDataset, "questions"),
        ("dblp", datasets.CitationFull, "dblp"), ("cora_ml", datasets.CitationFull, "cora_ml"), ("reed98", datasets.LINKXDataset, "reed98"),
    ]:  # fmt: skip
        source = kind.__new__(kind)
        source.root, source.name, source.split = str(tmp_path), title, "public"
        names = [source.raw_file_names] if isinstance(source.raw_file_names, str) else source.raw_file_names
        with pytest.raises(UserError) as caught:
            configured("dataset", name).load(str(tmp_path))
        assert str(Path(source.raw_dir) / names[0]) in str(caught.value)


def test_features_are_made_binary_as_pyg_does(tmp_path):
    from torch_geometric.io import read_npz

    path = write_csr_npz(tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz")
    graph, theirs = configured("dataset", "photo").load(str(tmp_path)), read_npz(str(path))
    assert np.array_equal(graph.features.toarray(), theirs.x.numpy())
    assert graph.features.diagonal().tolist() == [-1, 0, 1, 1, 1, 1]  # negative values stay
    assert graph.edges.shape[1] == theirs.edge_index.shape[1] == 12


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[:-30], lambda data: b"<html>not found</html>"]
)
def test_a_damaged_npz_is_named(tmp_path, damage):
    path = write_csr_npz(tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"dataset=photo: .*amazon_electronics_photo\.npz is corrupt or truncated") as caught:
        configured("dataset", "photo").load(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.zeros(4, dtype=int)},
        {"attr_indices": np.array([0, 1, 2, 3, 99])},
        {"attr_shape": np.array([7, 6])},
        {"adj_indptr": np.zeros(7, dtype=int) + 9},
    ],
)
def test_parts_that_do_not_fit_together_are_named(tmp_path, changes):
    write_csr_npz(tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz", **changes)
    with pytest.raises(UserError, match=r"amazon_electronics_photo\.npz is corrupt"):
        configured("dataset", "photo").load(str(tmp_path))


def test_a_file_that_asks_for_too_much_memory_is_one_line(tmp_path):
    path = write_csr_npz(tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz")
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<i8", "fortran_order": False, "shape": (2**50,)})
    with zipfile.ZipFile(path) as archive:
        arrays = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**arrays, "labels.npy": out.getvalue()}.items():
            archive.writestr(name, content)
    with pytest.raises(UserError, match="amazon_electronics_photo.npz takes more memory than there is"):
        configured("dataset", "photo").load(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": np.array([0, 1, 0, 1, 0, 10**6])}, "a label of 1000000 for 6 nodes"),
        ({"labels": np.array([0, 1, 0, 1, 0, 10**12])}, "a label of 1000000000000 for 6 nodes"),
        ({"attr_shape": np.array([6, 10**9])}, "1000000000 columns of features; at most 1000000"),
        ({"attr_shape": np.array([10**12, 6])}, "is corrupt"),
        ({"adj_shape": np.array([10**12, 10**12])}, "is corrupt"),
        ({"adj_indices": np.array([0.5, 1, 2, 3, 4, 5])}, "must hold integers"),
        ({"attr_data": np.array([np.nan, 1, 1, 1, 1])}, "a feature is not a finite number|is corrupt"),
        ({"labels": np.array([-5, 1, 0, 1, 0, 1])}, "a label lies outside"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_made_of_them(changes, says, tmp_path):
    write_csr_npz(tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz", **changes)
    with pytest.raises(UserError, match=says) as caught:
        configured("dataset", "photo").load(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_edges_are_named_by_integers(tmp_path):
    path = tmp_path / "minesweeper" / "raw" / "minesweeper.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, node_features=np.ones((3, 2)), node_labels=np.array([0, 1, 0]), edges=np.array([[0, 1.5], [1, 2]]))
    with pytest.raises(UserError, match="edges must name nodes by integers, not float64"):
        configured("dataset", "minesweeper").load(str(tmp_path))


class Bomb:
    """Runs code when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def copied(folder, tmp_path):
    source = Path(need(f"{folder}/raw/ind.{folder.lower()}.x")) / folder
    shutil.copytree(source, tmp_path / folder)
    return tmp_path / folder / "raw"


@pytest.mark.parametrize("part", ["allx", "tx", "ally", "ty", "graph", "test.index"])
def test_a_truncated_planetoid_file_is_named(part, tmp_path):
    path = copied("Cora", tmp_path) / f"ind.cora.{part}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match="dataset=cora: .*Cora/raw.* is corrupt or truncated"):
        configured("dataset", "cora").load(str(tmp_path))


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run_it(tmp_path):
    path = copied("Cora", tmp_path) / "ind.cora.graph"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(UserError, match=r"ind\.cora\.graph is corrupt.*mkdir is not allowed in a data file"):
        configured("dataset", "cora").load(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def ogb_archive(nodes=5):
    def packed(rows):
        return gzip.compress("\n".join(",".join(map(str, row)) for row in rows).encode())

    tables = {
        "edge": [(i, (i + 1) % nodes) for i in range(nodes)],
        "node-feat": [(i + 0.5, -1.0) for i in range(nodes)],
        "node-label": [(i % 3,) for i in range(nodes)],
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, rows in tables.items():
            archive.writestr(f"arxiv/raw/{name}.csv.gz", packed(rows))
        archive.writestr("../../escaped.txt", "out of the folder")
    return out.getvalue()


def test_ogbs_archive_is_unpacked_into_its_layout_and_nowhere_else(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: Answer(ogb_archive()))
    graph = configured("dataset", "ogbn_arxiv").load(str(tmp_path / "data"))
    assert graph.num_nodes == 5 and graph.edges.shape == (2, 10) and graph.num_classes == 3
    assert graph.features[2].tolist() == [2.5, -1.0] and graph.labels.tolist() == [0, 1, 2, 0, 1]
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == [f"data/ogbn_arxiv/raw/{name}.csv.gz" for name in ("edge", "node-feat", "node-label")]


def test_a_damaged_ogb_archive_is_named_and_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: Answer(ogb_archive()[:200]))
    with pytest.raises(UserError, match=r"dataset=ogbn_arxiv: https://.*arxiv\.zip is damaged"):
        configured("dataset", "ogbn_arxiv").load(str(tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_a_truncated_ogb_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: Answer(ogb_archive()))
    configured("dataset", "ogbn_arxiv").load(str(tmp_path))
    path = tmp_path / "ogbn_arxiv" / "raw" / "edge.csv.gz"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match=r"edge\.csv\.gz is corrupt or truncated"):
        configured("dataset", "ogbn_arxiv").load(str(tmp_path))


def test_a_server_that_never_answers_is_given_up(monkeypatch, tmp_path):
    import socket

    from fgl_bench.data import raw
    from fgl_bench.data.datasets import amazon

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(raw, "TIMEOUT_SECONDS", 0.2)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(amazon, "_address", lambda file: f"http://127.0.0.1:{silent.getsockname()[1]}/{file}")
        with pytest.raises(UserError, match="timed out"):
            configured("dataset", "photo").load(str(tmp_path))
