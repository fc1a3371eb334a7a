"""Checks the promises of any split."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fgl_bench.cli.check.subject import Broken, Cases, Subject, composed, tried
from fgl_bench.config.groups import build
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split

CLIENTS = 10
SMALL = (f"num_clients={CLIENTS}", "rounds=1", "seeds=[0]")


class Assigned(NamedTuple):
    """A split, a generated graph with owners of nodes, and the clients of the split with seed 0."""

    split: Split
    graph: Graph
    num_clients: int
    clients: list[np.ndarray]


def examine(subject: Subject, overrides: Sequence[str], folders: Sequence[Path] = ()) -> int:
    """Check every promise of a split; returns 0, or 1 if one is broken."""
    cfg = composed(subject, overrides, SMALL, folders)
    split, graph, clients = build(cfg.split), build(cfg.dataset).load(cfg.data_dir), int(cfg.num_clients)
    graph = replace(graph, owner=np.arange(graph.num_nodes) % clients)
    clients = split.stated(graph) or clients
    print(f"{subject.name}: {graph.num_nodes} nodes, {clients} clients", flush=True)
    return tried(subject.name, PROMISES, Assigned(split, graph, clients, split.assign(graph, clients, 0)))


def as_many(assigned: Assigned) -> None:
    if len(assigned.clients) != assigned.num_clients:
        raise Broken(f"there are {len(assigned.clients)} clients, not {assigned.num_clients}")
    empty = [client for client, nodes in enumerate(assigned.clients) if not len(nodes)]
    if empty:
        raise Broken(f"client {empty[0]} has no node")


def valid(assigned: Assigned) -> None:
    for client, nodes in enumerate(assigned.clients):
        ids = np.asarray(nodes)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise Broken(f"client {client} has an array of {ids.dtype} {list(ids.shape)}; expected integers [n]", last=True)
        if ids.size and not 0 <= ids.min() <= ids.max() < assigned.graph.num_nodes:
            raise Broken(f"client {client} has a node outside 0 to {assigned.graph.num_nodes - 1}", last=True)
        if np.unique(ids).size != ids.size:
            raise Broken(f"client {client} has a node twice")
        if (np.diff(ids) < 0).any():
            raise Broken(f"the nodes of client {client} are not ascending")


def seeded(assigned: Assigned) -> None:
    """Clients depend only on the seed, not on global random generators."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        for number in (1, 2):
            random.seed(number)
            np.random.seed(number)  # noqa: NPY002
            torch.manual_seed(number)
            for seed, first in ((0, assigned.clients), (1, assigned.split.assign(assigned.graph, assigned.num_clients, 1))):
                repeated = assigned.split.assign(assigned.graph, assigned.num_clients, seed)
                if len(repeated) != len(first) or not all(map(np.array_equal, repeated, first)):
                    raise Broken(f"seed {seed} gives other clients the second time")
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def owned(assigned: Assigned) -> str | None:
    held = np.bincount(np.concatenate([np.asarray(nodes) for nodes in assigned.clients]), minlength=assigned.graph.num_nodes)
    none, several = int((held == 0).sum()), int((held > 1).sum())
    return ", ".join(f"{count} nodes have {words}" for count, words in ((none, "no client"), (several, "several clients")) if count) or None


PROMISES: Cases = {
    "there are as many clients as asked for, none empty": as_many,
    "clients have ascending ids of nodes, none twice": valid,
    "the same seed gives the same clients": seeded,
    "nodes have clients": owned,
}
