"""Checks what must hold for any split."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fgl_bench.cli.check.promise import Broken, Unusable, tried
from fgl_bench.cli.check.subject import Subject, composed
from fgl_bench.config.groups import build
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split

CLIENTS = 10
SMALL = (f"num_clients={CLIENTS}", "rounds=1", "seeds=[0]")


@dataclass
class Case:
    """A split under test and its clients on a generated graph whose nodes have owners."""

    split: Split
    graph: Graph
    num_clients: int
    nodes: list[np.ndarray]

    def assign(self, seed: int) -> list[np.ndarray]:
        return self.split.assign(self.graph, self.num_clients, seed)


def examine(subject: Subject, overrides: Sequence[str], folders: Sequence[Path] = ()) -> int:
    """Check every promise of a split; returns 0, or 1 if one is broken."""
    cfg = composed(subject, overrides, SMALL, folders)
    split, graph, clients = build(cfg.split), build(cfg.dataset).load(cfg.data_dir), int(cfg.num_clients)
    graph = replace(graph, owner=np.arange(graph.num_nodes) % clients)
    clients = (split.stated(graph) if isinstance(split, Split) else None) or clients
    print(f"{subject.name}: {graph.num_nodes} nodes, {clients} clients", flush=True)
    return tried(subject.name, PROMISES, Case(split, graph, clients, split.assign(graph, clients, 0)))


# ---- the promises


def as_many(case: Case) -> None:
    if len(case.nodes) != case.num_clients:
        raise Broken(f"there are {len(case.nodes)} clients, not {case.num_clients}")
    empty = [client for client, nodes in enumerate(case.nodes) if not len(nodes)]
    if empty:
        raise Broken(f"client {empty[0]} has no node")


def valid(case: Case) -> None:
    for client, nodes in enumerate(case.nodes):
        ids = np.asarray(nodes)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise Unusable(f"client {client} has an array of {ids.dtype} {list(ids.shape)}; expected integers [n]")
        if ids.size and not 0 <= ids.min() <= ids.max() < case.graph.num_nodes:
            raise Unusable(f"client {client} has a node outside 0 to {case.graph.num_nodes - 1}")
        if np.unique(ids).size != ids.size:
            raise Broken(f"client {client} has a node twice")
        if (np.diff(ids) < 0).any():
            raise Broken(f"the nodes of client {client} are not ascending")


def seeded(case: Case) -> None:
    """The clients depend on the seed only, not on the state of global random generators."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        for number in (1, 2):
            random.seed(number)
            np.random.seed(number)  # noqa: NPY002
            torch.manual_seed(number)
            for seed, first in ((0, case.nodes), (1, None)):
                again = case.assign(seed)
                first = case.assign(seed) if first is None else first
                if len(again) != len(first) or any(not np.array_equal(x, y) for x, y in zip(again, first, strict=True)):
                    raise Broken(f"seed {seed} gives other clients the second time")
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def owned(case: Case) -> str | None:
    held = np.bincount(np.concatenate([np.asarray(nodes) for nodes in case.nodes]), minlength=case.graph.num_nodes)
    none, several = int((held == 0).sum()), int((held > 1).sum())
    return ", ".join(f"{count} nodes have {words}" for count, words in ((none, "no client"), (several, "several clients")) if count) or None


PROMISES: dict[Callable[[Case], str | None], str] = {
    as_many: "there are as many clients as asked for, none empty",
    valid: "clients have ascending ids of nodes, none twice",
    seeded: "the same seed gives the same clients",
    owned: "nodes have clients",
}
