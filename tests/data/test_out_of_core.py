"""Graphs in files: the same as in memory, made once, and going on where they were interrupted."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.data import out_of_core as on_disk
from fgl_bench.data import storage
from fgl_bench.data.canonical import canonical_edges
from fgl_bench.data.datasets.base import stored
from fgl_bench.data.federation import build_federations
from fgl_bench.data.out_of_core import canonical_edges_on_disk
from fgl_bench.data.storage import Disk, Memory
from fgl_bench.utils.files import lock
from tests.data.graphs import configured, make_graph

SMALL = {"num_nodes": 400, "num_edges": 1200, "num_features": 9, "words_per_node": None}
ARRAYS = ("nodes", "features", "edges", "labels", "train", "val", "test")


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch):
    monkeypatch.setattr(storage, "BLOCK_BYTES", 700)
    monkeypatch.setattr(on_disk, "RANGE", 150)


def build(cache_dir=None, split="metis", sparsity="none", options=None, num_clients=6, **changes):
    return build_federations(
        configured("dataset", "csbm", **{**SMALL, **changes}),
        configured("split", split, **(options or {})),
        configured("scenario/sparsity", sparsity),
        num_clients=num_clients,
        seeds=[0, 1],
        data_dir=None,
        cache_dir=cache_dir,
        out_of_core=cache_dir is not None,
    )


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}


def assert_same(ones, others):
    for one, other in zip(ones, others, strict=True):
        assert one.partition_hash == other.partition_hash and one.notes["edges"] == other.notes["edges"]
        assert np.array_equal(one.cross_edges, other.cross_edges)
        for held, kept in zip(one.clients, other.clients, strict=True):
            for name in ARRAYS:
                np.testing.assert_array_equal(getattr(held, name), getattr(kept, name))
                assert getattr(held, name).dtype == getattr(kept, name).dtype


@pytest.mark.parametrize("split", ["metis", "iid", "dirichlet", "louvain"])
def test_clients_in_files_are_those_in_memory(split, tmp_path):
    held, kept = build(split=split), build(tmp_path, split)
    assert_same(held, kept)
    assert all(client.folder is None for client in held[0].clients)
    assert all(isinstance(client.features, np.memmap) for client in kept[0].clients)
    assert all(client.folder.is_relative_to(tmp_path) for client in kept[0].clients)


def test_files_are_made_once(tmp_path):
    build(tmp_path)
    before = files(tmp_path)
    build(tmp_path)
    assert files(tmp_path) == before and not list(tmp_path.rglob("*.part"))


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(tmp_path):
    left, written, other = (tmp_path / name for name in (".edges-77", ".edges-78", ".edges.keys-77"))
    for path in (left, written, other):
        path.mkdir()
        (path / "edges.npy").write_bytes(b"half")
    handle = lock(written)
    made = Disk(tmp_path).array("edges", (3,), np.int64, lambda out: np.copyto(out, 7))
    os.close(handle)
    assert made.tolist() == [7, 7, 7]
    assert not left.exists() and written.exists(), "the lock shows that its process is alive"
    assert other.exists(), "another array's"


def test_other_ratios_and_names_need_no_new_graph_and_another_seed_does(tmp_path):
    build(tmp_path)
    count = len(list(tmp_path.glob("graph_*")))
    build(tmp_path, ratios=[0.5, 0.2, 0.3])
    assert len(list(tmp_path.glob("graph_*"))) == count
    build(tmp_path, seed=1)
    assert len(list(tmp_path.glob("graph_*"))) == count + 1


@pytest.mark.parametrize("after", range(9))
def test_an_interrupted_preparation_goes_on_and_gives_equal_numbers(after, monkeypatch, tmp_path):
    finished, write = [], Disk._write

    def interrupted(self, part, shape, dtype, fill):
        if len(finished) == after:
            write(self, part, shape, dtype, lambda out: (fill(out), _stop()))
        write(self, part, shape, dtype, fill)
        finished.append(part)

    def _stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(Disk, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path)
    assert len(finished) == after and not list(tmp_path.rglob("*.part"))
    monkeypatch.setattr(Disk, "_write", write)
    before = {path: made for path, made in files(tmp_path).items() if path.parent.name.startswith("clients") or "keys" not in path.name}
    assert_same(build(), build(tmp_path))
    after_ = files(tmp_path)
    assert all(after_[path] == made for path, made in before.items() if path in after_), "what was finished is not made again"


@settings(max_examples=60, deadline=None)
@given(nodes=st.integers(1, 40), pairs=st.integers(0, 300), seed=st.integers(0, 100))
def test_edges_sorted_in_ranges_are_the_canonical_ones(nodes, pairs, seed, tmp_path_factory):
    rng = np.random.default_rng(seed)
    row, col = rng.integers(nodes, size=(2, pairs))
    disk = Disk(tmp_path_factory.mktemp("edges"))
    cut = np.sort(rng.integers(pairs + 1, size=2))
    found = canonical_edges_on_disk(lambda: zip(np.split(row, cut), np.split(col, cut), strict=True), nodes, disk)
    expected = canonical_edges(row, col, nodes)
    assert found.dtype == expected.dtype and np.array_equal(found, expected)
    assert [path.name for path in disk.folder.iterdir()] == ["edges.npy"], "the scratch files are removed"


def test_a_graph_read_whole_is_spilled_under_a_name_of_its_content(tmp_path):
    graph = replace(make_graph(50, 120), features=np.random.default_rng(0).random((50, 3), dtype=np.float32))
    kept = stored(graph, tmp_path)
    assert kept.folder == stored(graph, tmp_path).folder
    assert kept.folder != stored(replace(graph, labels=(graph.labels + 1) % 3), tmp_path).folder
    for name in ("features", "edges", "labels"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(kept, name))


def test_memory_and_disk_are_filled_alike(tmp_path):
    def fill(out):
        out[1:] = [[1, 2], [3, 4]]

    made = [place.array("name", (3, 2), np.int32, fill) for place in (Memory(), Disk(tmp_path), Disk(tmp_path))]
    assert all(np.array_equal(array, [[0, 0], [1, 2], [3, 4]]) and array.dtype == np.int32 for array in made)
    assert Disk(tmp_path).array("empty", (0, 2), np.int64, lambda out: None).shape == (0, 2)


def test_a_client_with_another_graph_has_no_folder(tmp_path):
    client = build(tmp_path)[0].clients[0]
    assert replace(client, train=client.val).folder == client.folder
    assert replace(client, edges=client.edges[:, client.edges[0] > 2]).folder is None
    assert replace(client, features=client.features * 2).folder is None


def test_threads_that_want_the_same_file_make_it_once(tmp_path):
    made, disk = [], Disk(tmp_path)

    def fill(out):
        made.append(len(out))
        time.sleep(0.02)
        out[:] = np.arange(len(out))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: disk.array("numbers", (9,), np.int64, fill), range(4)))
    assert made == [9] and all(np.array_equal(array, np.arange(9)) for array in found)
