"""Partitions as files: frozen, hashed, with the versions that produced them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import multiprocessing
import os
import platform
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split
from fgl_bench.data.storage import update
from fgl_bench.errors import UserError
from fgl_bench.utils import patience
from fgl_bench.utils.files import write_bytes
from fgl_bench.utils.patience import announce_if_slow, say_once
from fgl_bench.utils.processes import end_with

PACKAGES = ("numpy", "scipy", "pymetis", "python-louvain", "networkx", "igraph")
NOT_OPTIONS = ("ratios", "per_seed", "test", "inductive", "masks", "score_trained")


def assignment_digest(nodes: Sequence[np.ndarray]) -> str:
    """sha256 over the clients' sizes and node ids, the same on every machine."""
    sizes = np.array([ids.size for ids in nodes], dtype="<i8")
    return hashlib.sha256(sizes.tobytes() + np.concatenate(nodes).astype("<i8").tobytes()).hexdigest()


def cached_assignment(
    split: Split, graph: Graph, num_clients: int | None, seed: int, cache_dir: str | Path | None
) -> tuple[list[np.ndarray], dict[str, str]]:
    """The clients' node ids, from the cache where they lie there sound, and the versions of what made them.

    A damaged file is recomputed. A file made by other versions is used unchanged: a partition is data, and the
    versions that produced it are recorded in the result.
    """
    path = None if cache_dir is None else Path(os.path.expanduser(cache_dir)) / file_name(split, graph, num_clients, seed)
    stored = None if path is None else _read_valid(path, split, graph, num_clients)
    if stored is not None:
        return stored
    with announce_if_slow(f"drawing the {type(split).__name__.lower()} partition of {graph.name} for seed {seed}"):
        nodes, versions = split.assign(graph, num_clients, seed), producing_versions()
    if path is not None:
        _write(path, nodes, versions)
    return nodes, versions


def draw_ahead(split: Split, graph: Graph, num_clients: int | None, seeds: Sequence[int], cache_dir: str | Path | None) -> None:
    """Put the partitions that the cache lacks into it: side by side, as processes of torch's number of threads, if the first takes long.

    A partition is a function of its seed, so it does not matter which process draws it. What a process could not draw is left to
    :func:`cached_assignment`, which says why.
    """
    seeds = list(dict.fromkeys(seeds))
    if len(seeds) < 3 or cache_dir is None or sys.platform != "linux" or multiprocessing.current_process().daemon:
        return  # the first shows how long it takes; one more would have nothing to run in parallel with
    folder = Path(os.path.expanduser(cache_dir))
    paths = {seed: folder / name for seed, name in zip(seeds, file_names(split, graph, num_clients, seeds), strict=True)}
    absent = [seed for seed, path in paths.items() if _read_valid(path, split, graph, num_clients) is None]
    if len(absent) < 3:
        return
    begin, draw = time.monotonic(), partial(_draw, split, graph, num_clients, cache_dir)
    draw(absent[0])
    quick = time.monotonic() - begin < patience.PATIENCE
    if quick or torch.get_num_threads() == 1 or not paths[absent[0]].is_file():
        return
    with warnings.catch_warnings():  # a child that draws needs none of the other threads
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        fork, begun = multiprocessing.get_context("fork"), end_with(os.getpid())
        with suppress(UserError, BrokenProcessPool), ProcessPoolExecutor(torch.get_num_threads(), fork, begun) as pool:
            list(pool.map(draw, absent[1:]))


def _draw(split: Split, graph: Graph, num_clients: int | None, cache_dir: str | Path, seed: int) -> None:
    cached_assignment(split, graph, num_clients, seed, cache_dir)


def _read_valid(path: Path, split: Split, graph: Graph, num_clients: int | None) -> tuple[list[np.ndarray], dict[str, str]] | None:
    """The cached partition, or None if it is absent or damaged."""
    stored = _read(path)
    return stored if stored is not None and _fits(stored[0], graph.num_nodes, num_clients, split.overlaps) else None


def file_name(split: Split, graph: Graph, num_clients: int | None, seed: int) -> str:
    """``partition_<dataset>_<split>_<clients>_<hash of split options and graph>_<seed>.npz``."""
    return file_names(split, graph, num_clients, [seed])[0]


def file_names(split: Split, graph: Graph, num_clients: int | None, seeds: Sequence[int]) -> list[str]:
    """:func:`file_name` of every seed; the graph is read once."""
    options = {field.name: str(getattr(split, field.name)) for field in fields(split) if field.name not in NOT_OPTIONS}
    method = type(split).__name__.lower()
    content = hashlib.sha256(json.dumps([type(split).__module__, method, options, graph.num_nodes], sort_keys=True).encode())
    for array in (graph.edges, graph.labels, graph.owner):
        content.update(b"none") if array is None else update(content, array, "<i8")
    if split.reads_features:
        update(content, graph.features.toarray() if sp.issparse(graph.features) else graph.features, "<f4")
    clients = "all" if num_clients is None else num_clients
    stem = f"partition_{graph.name}_{method}_{clients}_{content.hexdigest()[:16]}".replace(os.sep, "-")
    return [f"{stem}_{seed}.npz" for seed in seeds]


def producing_versions() -> dict[str, str]:
    """Versions of Python and of the packages that partitions depend on."""
    installed = {name.lower(): version for name in PACKAGES if (version := _version(name))}
    return {"python": platform.python_version(), **installed}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _seal(nodes: Sequence[np.ndarray], versions: str, name: str) -> str:
    """Covers the content and the file's name, hence dataset, split, options, clients, graph and seed."""
    return hashlib.sha256(f"{assignment_digest(nodes)} {versions} {name}".encode()).hexdigest()


def _fits(nodes: Sequence[np.ndarray], num_nodes: int, num_clients: int | None, overlaps: bool) -> bool:
    """Return True if the assignment has the expected number of non-empty clients, ascending ids and no unexpected overlap."""
    ids = np.concatenate(nodes)
    sound = all(part.size and (np.diff(part) > 0).all() for part in nodes) and ids.min() >= 0 and ids.max() < num_nodes
    return bool(sound and num_clients in (None, len(nodes)) and (overlaps or np.bincount(ids).max() == 1))


def _read(path: Path) -> tuple[list[np.ndarray], dict[str, str]] | None:
    """The content of the file, or None if the file is absent, damaged or belongs to another partition."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            sizes, ids = archive["sizes"].astype(np.int64), archive["nodes"].astype(np.int64)
            versions, seal = str(archive["versions"]), str(archive["sha256"])
        nodes = np.split(ids, np.cumsum(sizes)[:-1])
        return (nodes, json.loads(versions)) if seal == _seal(nodes, versions, path.name) else None
    except Exception:  # a damaged archive may raise anything; recompute the partition in every case
        return None


def _write(path: Path, nodes: Sequence[np.ndarray], versions: dict[str, str]) -> None:
    text = json.dumps(versions, sort_keys=True)
    sizes = np.array([ids.size for ids in nodes], dtype=np.int64)
    archive, seal = io.BytesIO(), np.array(_seal(nodes, text, path.name))
    np.savez_compressed(archive, sizes=sizes, nodes=np.concatenate(nodes), versions=np.array(text), sha256=seal)
    try:
        write_bytes(path, archive.getvalue())
    except OSError as error:  # which costs time, not correctness
        say_once(f"note: cache_dir: {path.parent} cannot be written ({error.strerror or error}); partitions are drawn again every time")
