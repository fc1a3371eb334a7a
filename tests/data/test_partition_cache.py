from __future__ import annotations

import json

import numpy as np
import pytest

from fgl_bench.data import partition_cache
from fgl_bench.data.partition_cache import assignment_digest, cached_assignment, file_name
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


def test_no_folder_and_an_unwritable_folder_are_no_failure(counting, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    drawn = [cached_assignment(counting.split, GRAPH, 4, 0, cache_dir)[0] for cache_dir in (None, blocked, blocked / "below")]
    assert equal(drawn[0], drawn[1]) and equal(drawn[0], drawn[2]) and counting.times == 3


def test_a_full_disk_leaves_nothing_behind(counting, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(partition_cache.np, "savez_compressed", full)
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
    import hashlib
    import struct

    expected = hashlib.sha256(struct.pack("<5q", 2, 1, 0, 2, 1)).hexdigest()
    assert assignment_digest([np.array([0, 2]), np.array([1])]) == expected
    assert assignment_digest([np.array([0]), np.array([2, 1])]) != expected
