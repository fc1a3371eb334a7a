"""Histories of seeds, and rows of their evaluation points while they train."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fgl_bench.config.settings import Settings
from fgl_bench.data.federation import Federation
from fgl_bench.evaluation.history import History, Point, excerpt, history_rows
from fgl_bench.evaluation.metrics import scored_nodes
from fgl_bench.runner.program import reported
from fgl_bench.scenarios.simulation import Simulation

UNKNOWN = ("upload_bytes", "download_bytes", "busiest_bytes")  # before the end


class NewPoints:
    """Reads the evaluation points of a program that are new since the last call, as rows of ``history.csv`` without bytes and costs.

    A row also has ``seconds`` since training began and ``memory_mb``: what torch has allocated of the GPU, or what is resident of the
    process that trains the seed. Reading waits for the device.
    """

    def __init__(self, sim: Simulation, counts: Sequence[Counts], weights: Sequence[np.ndarray] | None):
        self.sim, self.counts, self.weights = sim, counts, weights
        self.told = [0] * len(counts)
        self.last: list[dict[str, Any]] = []
        self.begin = time.perf_counter()

    def __call__(self) -> list[dict[str, Any]]:
        rows, self.last = [*self.last, *self._read()], []
        return rows

    def finish(self) -> None:
        """Read the last points while the simulation has them: the reader may call after it is closed."""
        self.last += self._read()

    def _read(self) -> list[dict[str, Any]]:
        found = self.sim.scored_points(self.told)
        if not any(found):
            return []
        used = {"seconds": round(time.perf_counter() - self.begin, 3), "memory_mb": round(memory(self.sim.initial.device) / 1e6, 1)}
        rows: list[dict[str, Any]] = []
        for s, points in enumerate(found):
            if points:
                self.told[s] += len(points)
                points, logs = excerpt(points, self.sim.log, self.sim.losses)
                seen = history(self.sim.setting.seeds[s], self.counts[s], points, logs, self.sim.warmup_rounds, {})
                new = history_rows([seen], None if self.weights is None else [self.weights[s]])
                rows += [{key: value for key, value in row.items() if key not in UNKNOWN} | used for row in new]
        return rows


class Counts(NamedTuple):
    """Numbers of nodes that a seed's scores and losses sum over: ``[C, 2]`` validation and test nodes by metric, ``[C]`` training nodes."""

    scored: dict[str, np.ndarray]
    train: np.ndarray

    @classmethod
    def of(cls, settings: Settings, federation: Federation) -> Counts:
        scored = {name: scored_nodes(federation.scored, name) for name in reported(settings, federation)}
        return cls(scored, np.array([client.train.sum() for client in federation.observed]))


def history(
    seed: int,
    counts: Counts,
    points: list[Point],
    logs: tuple[np.ndarray, np.ndarray],
    warmup_rounds: int,
    cost_history: dict[str, np.ndarray],
) -> History:
    """The evaluation points of one seed with all metrics and training losses; ``logs`` hold the scores and the losses."""
    (_, first), *others = counts.scored.items()
    return History.of(seed, points, logs[0], first, warmup_rounds, dict(others), cost_history, logs[1], counts.train)


def node_counts(settings: Settings, federations: Sequence[Federation]) -> list[np.ndarray] | None:
    """Nodes of the clients ``[C]`` of each seed where ``eval_weight=nodes`` weighs by them, else None."""
    return None if settings.eval_weight == "test" else [np.array([c.num_nodes for c in f.clients]) for f in federations]


def memory(device: torch.device) -> int:
    """Bytes of the GPU that torch has allocated; on a CPU the resident memory of this process, its peak where the system says no more."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
