"""Sums of raw files: known ones, changed ones, and those of a user's own graph."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from fgl_bench.data import sums
from fgl_bench.data.raw import known_sums
from fgl_bench.data.sums import MEMORY, fingerprint
from fgl_bench.errors import UserError
from tests.data.graphs import CONF, DATA, configured
from tests.data.test_custom_dataset import save_npz
from tests.data.test_pickles import write_planetoid

GIT = "311f9de4a8d39c20d653e8d44673edaa20a88554"  # printf 'graph' | git hash-object --stdin
NAMES = sorted(path.stem for path in (CONF / "dataset").glob("*.yaml"))


@pytest.fixture(autouse=True)
def nothing_said_before(monkeypatch):
    monkeypatch.setattr(sums, "_warned", set())


def dataset(name, **changes):
    return configured("dataset", name, **changes)


def flip(path, position=0):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.audit
@pytest.mark.parametrize("name", [name for name in NAMES if name != "custom"])
def test_the_files_at_hand_are_known(name, capsys):
    found = fingerprint(dataset(name), str(DATA), None)
    if found is None:
        pytest.skip("a file is not at hand")
    assert found == {} and capsys.readouterr().err == ""


def test_every_known_file_is_one_that_a_dataset_reads():
    read = {file for name in NAMES if name != "custom" for file in dataset(name).files(Path("data"))}
    assert set(known_sums()) <= read
    assert all(re.fullmatch("[0-9a-f]{64}|[0-9a-f]{40}", known) for several in known_sums().values() for known in several)


@pytest.mark.audit
@pytest.mark.parametrize("name", [name for name in NAMES if name != "custom" and not name.startswith("csbm")])
def test_every_dataset_names_the_files_that_it_asks_for(name, tmp_path):
    files = dataset(name).files(tmp_path)
    assert files and all(path == tmp_path / file for file, path in files.items())
    assert dataset(name).absent(tmp_path) == list(files.values()) and fingerprint(dataset(name), str(tmp_path), None) is None
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert dataset(name).absent(tmp_path) == []
    with pytest.raises(UserError, match=f"dataset={name}: .*is corrupt or truncated") as caught:
        dataset(name).load(str(tmp_path))  # nothing is downloaded: there is no network in tests
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("csbm")])
def test_generated_graphs_read_no_files(name):
    assert fingerprint(dataset(name), "nowhere", None) == {}


def test_flipped_bits_are_part_of_the_fingerprint_and_warned_of_once(tmp_path, capsys):
    source = Path(DATA) / "Cora" / "raw"
    if not source.is_dir():
        pytest.skip("Cora is not at hand")
    shutil.copytree(source, tmp_path / "Cora" / "raw")
    assert fingerprint(dataset("cora"), str(tmp_path), None) == {}
    path = tmp_path / "Cora" / "raw" / "ind.cora.ally"
    before = sha256(path)
    flip(path, 2000)
    found = fingerprint(dataset("cora"), str(tmp_path), None)
    assert found == {"Cora/raw/ind.cora.ally": sha256(path)}
    said = capsys.readouterr().err
    assert said.startswith(f"warning: {path} ") and said.count("\n") == 1
    assert before[:12] in said and sha256(path)[:12] in said
    assert fingerprint(dataset("cora"), str(tmp_path), None) == found and capsys.readouterr().err == ""
    flip(path, 2000)
    assert fingerprint(dataset("cora"), str(tmp_path), None) == {}


def test_another_graph_in_the_place_of_a_known_one(tmp_path, capsys):
    found = fingerprint(dataset("cora"), write_planetoid(tmp_path), None)
    assert len(found) == 8 == capsys.readouterr().err.count("warning: ")
    (tmp_path / "Cora" / "raw" / "ind.cora.x").unlink()
    assert fingerprint(dataset("cora"), str(tmp_path), None) is None


def test_a_file_may_have_several_sums_one_of_them_gits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sums, "known_sums", lambda: {"Photo/raw/amazon_electronics_photo.npz": ["0" * 64, GIT]})
    path = tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"graph")
    assert fingerprint(dataset("photo"), str(tmp_path), None) == {}
    path.write_bytes(b"graph2")
    assert fingerprint(dataset("photo"), str(tmp_path), None) == {"Photo/raw/amazon_electronics_photo.npz": sha256(path)}
    said = capsys.readouterr().err
    assert "0" * 12 in said and f"git {GIT[:12]}" in said and sha256(path)[:12] in said


def test_a_file_without_a_known_sum_is_summed_up_in_silence(tmp_path, capsys):
    folder = tmp_path / "Reddit" / "raw"
    folder.mkdir(parents=True)
    for name in ("reddit_data.npz", "reddit_graph.npz"):
        (folder / name).write_bytes(name.encode())
    found = fingerprint(dataset("reddit"), str(tmp_path), None)
    assert found == {f"Reddit/raw/{path.name}": sha256(path) for path in folder.iterdir()} and capsys.readouterr().err == ""


def test_an_overwritten_graph_of_ones_own_has_another_fingerprint(tmp_path, monkeypatch, capsys):
    path = save_npz(tmp_path)
    first = fingerprint(dataset("custom", path=path), None, tmp_path)
    assert first == {path: sha256(Path(path))}
    status = os.stat(path)
    save_npz(tmp_path, y=np.array([1, 0, -1, 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert os.stat(path).st_size == status.st_size
    assert fingerprint(dataset("custom", path=path), None, tmp_path) != first
    monkeypatch.chdir(tmp_path)
    assert list(fingerprint(dataset("custom", path="graph.npz"), None, tmp_path)) == ["graph.npz"]
    assert capsys.readouterr().err == "" and fingerprint(dataset("custom", path="no.npz"), None, None) is None


@pytest.fixture
def counted(monkeypatch):
    """Files that are really read; every file of more than ten bytes is a large one."""
    monkeypatch.setattr(sums, "LARGE", 10)
    read, digest = [], hashlib.file_digest
    monkeypatch.setattr(sums.hashlib, "file_digest", lambda file, kind: read.append(file.name) or digest(file, kind))
    return read


def test_the_sum_of_a_large_file_is_remembered(tmp_path, counted, capsys):
    path, cache = save_npz(tmp_path), tmp_path / "new" / "cache"
    own = dataset("custom", path=path)
    found = fingerprint(own, None, cache)
    assert fingerprint(own, None, cache) == found == {path: sha256(Path(path))} and len(counted) == 1
    assert [file.name for file in cache.iterdir()] == [MEMORY] and "computed once" in capsys.readouterr().err
    flip(Path(path), 200)
    os.utime(path, ns=(1, 1))
    assert fingerprint(own, None, cache) == {path: sha256(Path(path))} != found and len(counted) == 2
    assert fingerprint(own, None, None) != found and len(counted) == 3, "without a cache it is read every time"


# ---- what is no file
