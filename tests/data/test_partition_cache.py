from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from fgl_bench.data import partition_cache
from fgl_bench.data.partition_cache import assignment_digest, cached_assignment, file_name
from fgl_bench.errors import UserError
from fgl_bench.utils import files
from tests.data.graphs import configured, make_graph

GRAPH = make_graph(60, 150)


class Counting:
    """Counts how often a split is really drawn."""

    def __init__(self, monkeypatch, split):
        self.split, self.times = split, 0
        real = type(split).assign

        def assign(this, *given):
            self.times += 1
            return real(this, *given)

        monkeypatch.setattr(type(split), "assign", assign)


@pytest.fixture
def counting(monkeypatch):
    return Counting(monkeypatch, configured("split", "metis"))


def equal(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_second_time_comes_from_the_file(counting, tmp_path):
    first, versions = cached_assignment(counting.split, GRAPH, 4, 0, tmp_path / "new" / "folder")
    second, kept = cached_assignment(counting.split, GRAPH, 4, 0, tmp_path / "new" / "folder")
    assert counting.times == 1 and equal(first, second)
    assert versions == kept and kept["pymetis"] and kept["numpy"] == np.__version__
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert file.name == file_name(counting.split, GRAPH, 4, 0)
    assert file.name.startswith("partition_toy_metis_4_") and file.name.endswith("_0.npz")


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"x" * 300])
def test_a_damaged_file_is_made_anew(counting, tmp_path, damage):
    first, _ = cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert equal(cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)[0], first) and counting.times == 2
    assert equal(cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)[0], first) and counting.times == 2


@pytest.mark.parametrize("part", ["nodes", "sizes", "versions", "sha256"])
def test_a_changed_file_is_noticed_by_its_hash(counting, tmp_path, part):
    first, _ = cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)
    (file,) = tmp_path.iterdir()
    with np.load(file) as archive:
        content = {key: archive[key] for key in archive.files}
    changed = {
        "nodes": content["nodes"][::-1],
        "sizes": content["sizes"][::-1] + np.array([1, 0, 0, -1]),
        "versions": np.array(json.dumps({"pymetis": "0"})),
        "sha256": np.array("0" * 64),
    }
    np.savez(file, **{**content, part: changed[part]})
    assert equal(cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)[0], first) and counting.times == 2


def parts(*sizes):
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


WRONG = {
    "three clients": parts(20, 20, 20),
    "five clients": parts(12, 12, 12, 12, 12),
    "every node is 0": [np.zeros(15, int)] * 4,
    "a node twice in a client": [np.array([0, 0, 1]), *parts(10, 10, 10)[1:], np.array([50])],
    "a node with two clients": [np.array([0, 1]), np.array([1, 2]), np.array([3]), np.array([4])],
    "not in order": [np.array([1, 0]), *(np.array([i]) for i in (2, 3, 4))],
    "a client without nodes": parts(30, 0, 15, 15),
    "a node that is not there": parts(15, 15, 15, 16),
    "a negative node": [part - 1 for part in parts(15, 15, 15, 15)],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_sealed_file_that_is_no_partition_is_made_anew(counting, tmp_path, name):
    path = tmp_path / file_name(counting.split, GRAPH, 4, 0)
    partition_cache._write(path, WRONG[name], {"numpy": "0"})
    nodes, versions = cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)
    assert counting.times == 1 and versions["numpy"] == np.__version__ and sorted(np.concatenate(nodes)) == list(range(60))
    cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)
    assert counting.times == 1, "now it is sound"


def test_clients_that_overlap_and_any_number_of_owners_are_kept(monkeypatch, tmp_path):
    owned = replace(GRAPH, owner=np.arange(60) % 3)
    for name, graph, clients in (("metis_overlap", GRAPH, 5), ("natural", owned, None)):
        counting = Counting(monkeypatch, configured("split", name))
        drawn = [cached_assignment(counting.split, graph, clients, 0, tmp_path)[0] for _ in range(2)]
        assert equal(*drawn) and counting.times == 1


def test_a_full_disk_leaves_nothing_behind(counting, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    cached_assignment(counting.split, GRAPH, 4, 0, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_name_tells_apart_whatever_changes_the_partition_and_nothing_else():
    louvain = configured("split", "louvain")
    names = {
        file_name(louvain, GRAPH, 4, 0),
        file_name(louvain, GRAPH, 4, 1),
        file_name(louvain, GRAPH, 5, 0),
        file_name(louvain, make_graph(60, 150, seed=1), 4, 0),
        file_name(configured("split", "louvain", delta=3), GRAPH, 4, 0),
        file_name(configured("split", "metis"), GRAPH, 4, 0),
    }
    assert len(names) == 6
    assert file_name(configured("split", "louvain", ratios=[0.5, 0.2, 0.3], per_seed=[]), GRAPH, 4, 0) in names


def test_the_digest_is_fixed_for_ever():
    # sha256 of the little-endian int64 numbers 2, 1 (sizes), 0, 2, 1 (nodes).
    import struct

    expected = hashlib.sha256(struct.pack("<5q", 2, 1, 0, 2, 1)).hexdigest()
    assert assignment_digest([np.array([0, 2]), np.array([1])]) == expected
    assert assignment_digest([np.array([0]), np.array([2, 1])]) != expected


class TestDrawnAhead:
    """Partitions that take long are drawn by several processes."""

    @pytest.fixture
    def slow(self, monkeypatch):
        monkeypatch.setattr(partition_cache.patience, "PATIENCE", 0.0)
        monkeypatch.setattr(partition_cache.torch, "get_num_threads", lambda: 2)

    def test_they_are_those_that_one_process_draws(self, slow, counting, tmp_path):
        partition_cache.draw_ahead(counting.split, GRAPH, 4, [0, 1, 2, 3, 0], tmp_path / "cache")
        assert counting.times == 1, "the first here, the others elsewhere"
        ahead = [cached_assignment(counting.split, GRAPH, 4, seed, tmp_path / "cache")[0] for seed in range(4)]
        assert counting.times == 1
        assert all(equal(nodes, cached_assignment(counting.split, GRAPH, 4, seed, None)[0]) for seed, nodes in enumerate(ahead))

    def test_what_lies_there_is_not_drawn_again(self, slow, counting, tmp_path):
        for seed in range(4):
            cached_assignment(counting.split, GRAPH, 4, seed, tmp_path)
        partition_cache.draw_ahead(counting.split, GRAPH, 4, range(4), tmp_path)
        assert counting.times == 4

    def test_without_a_cache_that_can_be_written_nothing_is_drawn_for_nothing(self, slow, counting, tmp_path):
        (tmp_path / "file").touch()
        partition_cache.draw_ahead(counting.split, GRAPH, 4, range(4), tmp_path / "file")
        assert counting.times == 1
        partition_cache.draw_ahead(counting.split, GRAPH, 4, range(4), None)
        assert counting.times == 1

    def test_what_fails_is_said_by_who_needs_it(self, slow, tmp_path, monkeypatch):
        split = configured("split", "metis")
        real = type(split).assign

        def assign(this, graph, num_clients, seed):
            if seed:
                raise UserError("no partition")
            return real(this, graph, num_clients, seed)

        monkeypatch.setattr(type(split), "assign", assign)
        partition_cache.draw_ahead(split, GRAPH, 4, range(3), tmp_path)
        with pytest.raises(UserError, match="no partition"):
            cached_assignment(split, GRAPH, 4, 1, tmp_path)
