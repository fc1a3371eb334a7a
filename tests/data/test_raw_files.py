"""Absent, unreachable, damaged and malicious raw files."""

from __future__ import annotations

import gc
import gzip
import hashlib
import io
import multiprocessing
import os
import pickle
import shutil
import threading
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import requests
import scipy.sparse as sp

from fgl_bench.data import raw
from fgl_bench.data.datasets import graphsaint, npz, ogb, planetoid
from fgl_bench.errors import UserError
from tests.data.graphs import configured, need

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pooch leaves a failed answer open


class Server(BaseHTTPRequestHandler):
    """Answers by ``server.answers``: a status, the bytes sent and the length announced, one after another, the last one again and again."""

    def do_GET(self):
        self.server.asked.append(self.path)
        answers = self.server.answers
        status, content, announced = answers.pop(0) if len(answers) > 1 else answers[0]
        time.sleep(self.server.delay)
        self.send_response(status)
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given):
        pass


@pytest.fixture
def server(monkeypatch):
    """Every dataset is published here; attempts follow one another at once."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda seconds: None))
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as served:
        served.answers, served.asked, served.delay = [sent(b"")], [], 0
        served.address = f"http://127.0.0.1:{served.server_port}"
        for cls in (npz._OneGraph, planetoid.Planetoid, ogb.OGB, graphsaint.Reddit):
            published = cls.address
            monkeypatch.setattr(cls, "address", lambda self, file, real=published: f"{served.address}/{Path(real(self, file)).name}")
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()
    gc.collect()


def sent(content, status=200, announced=None):
    return status, content, len(content) if announced is None else announced


@pytest.fixture
def offline(monkeypatch):
    def refuse(address, timeout=None, **more):
        assert timeout is not None and timeout <= 30
        raise requests.ConnectionError("no network")

    monkeypatch.setattr(requests, "get", refuse)
    monkeypatch.setattr(raw, "RETRIES", 0)


def left(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


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


def test_the_environment_names_the_folder_where_the_key_does_not(monkeypatch, offline, tmp_path):
    monkeypatch.setenv("FGL_BENCH_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match=str(tmp_path / "elsewhere")):
        configured("dataset", "photo").load(None)


PHOTO = "Photo/raw/amazon_electronics_photo.npz"


@pytest.fixture
def photo(tmp_path, monkeypatch):
    """The bytes of a small graph, which is the known one."""
    content = write_csr_npz(tmp_path / "made" / "photo.npz").read_bytes()
    monkeypatch.setattr(raw, "known_sums", lambda: {PHOTO: ["0" * 64, hashlib.sha256(content).hexdigest()]})
    return content


def test_a_download_is_kept(server, photo, tmp_path):
    server.answers = [sent(photo)]
    for _ in range(2):
        assert configured("dataset", "photo").load(str(tmp_path / "data")).num_nodes == 6
    assert server.asked == ["/amazon_electronics_photo.npz"] and left(tmp_path / "data") == [PHOTO]
    assert (tmp_path / "data" / PHOTO).stat().st_mode == (tmp_path / "made" / "photo.npz").stat().st_mode


@pytest.mark.parametrize("failure", [sent(b"", status=503), sent(b"half", announced=8), sent(b"<html>quota exceeded</html>")])
def test_a_failed_attempt_is_repeated(failure, server, photo, tmp_path):
    server.answers = [failure, failure, sent(photo)]
    assert configured("dataset", "photo").load(str(tmp_path / "data")).num_nodes == 6
    assert len(server.asked) == 3 and left(tmp_path / "data") == [PHOTO]


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (sent(b"", status=404), "404 Client Error"),
        (sent(b"half", announced=8), "4 bytes read, 4 more expected"),
        (sent(b"another graph"), "its sum is none of the 2 known"),
    ],
)
def test_a_download_that_keeps_failing_is_one_line_and_leaves_nothing(failure, says, server, photo, tmp_path):
    server.answers = [failure]
    with pytest.raises(UserError, match=f"dataset=photo: .*{PHOTO} not found, and downloading http.* failed .*{says}") as caught:
        configured("dataset", "photo").load(str(tmp_path / "data"))
    assert "\n" not in str(caught.value) and len(server.asked) == 3 and left(tmp_path / "data") == []


def test_gits_id_is_a_known_sum(server, photo, monkeypatch, tmp_path):
    git = hashlib.sha1(b"blob %d\0" % len(photo) + photo).hexdigest()
    monkeypatch.setattr(raw, "known_sums", lambda: {PHOTO: [git]})
    server.answers = [sent(photo)]
    assert configured("dataset", "photo").load(str(tmp_path)).num_nodes == 6


def fetch_photo(address, folder):
    files = {PHOTO: Path(folder) / PHOTO}
    raw.fetch("photo", PHOTO, files, address)
    return files[PHOTO].read_bytes()


def test_two_processes_download_a_file_once(server, tmp_path):
    server.answers, server.delay = [sent(b"graph")], 0.5
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork"), unknown_sums) as pool:
        found = list(pool.map(fetch_photo, [f"{server.address}/photo"] * 2, [tmp_path] * 2))
    assert found == [b"graph"] * 2 and server.asked == ["/photo"] and left(tmp_path) == [PHOTO]


def unknown_sums():
    raw.known_sums = dict


def test_addresses_are_pygs():
    from torch_geometric import datasets

    for name, kind in [("cora", datasets.Planetoid), ("photo", datasets.Amazon), ("cs", datasets.Coauthor), ("actor", datasets.Actor),
                       ("roman_empire", datasets.HeterophilousGraphDataset), ("reddit", datasets.Reddit)]:  # fmt: skip
        assert all(configured("dataset", name).address(file).startswith(kind.url) for file in configured("dataset", name).files(Path()))
    full = configured("dataset", "cora_ml")
    assert full.address(full.paths["cora_ml"]) == datasets.CitationFull.url.format("cora_ml")
    for name in ("reed98", "johnshopkins55"):
        assert configured("dataset", name).address(f"{name}/raw/data.mat") == datasets.LINKXDataset.datasets[name]["data.mat"]
    for name, kind in [("flickr", datasets.Flickr), ("yelp", datasets.Yelp)]:
        assert configured("dataset", name).drive == (kind.adj_full_id, kind.feats_id, kind.class_map_id)


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


def test_ogbs_archive_is_unpacked_into_its_layout_and_nowhere_else(server, tmp_path):
    server.answers = [sent(ogb_archive())]
    graph = configured("dataset", "ogbn_arxiv").load(str(tmp_path / "data"))
    assert graph.num_nodes == 5 and graph.edges.shape == (2, 10) and graph.num_classes == 3
    assert graph.features[2].tolist() == [2.5, -1.0] and graph.labels.tolist() == [0, 1, 2, 0, 1]
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == [f"data/ogbn_arxiv/raw/{name}.csv.gz" for name in ("edge", "node-feat", "node-label")]
