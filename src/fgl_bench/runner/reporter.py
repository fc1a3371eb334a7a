"""Reports of the seeds that are trained together: trips, score and evaluation points; and their histories."""

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
from fgl_bench.results.callbacks import Callbacks, Report, Send
from fgl_bench.runner.build import reported
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback

UNKNOWN = ("upload_bytes", "download_bytes", "busiest_bytes")  # before the end


class Reporter(StepCallback):
    """Reports the progress of a program, at most every ``callbacks.pause`` seconds and at the end. It then waits for the device.

    A reported evaluation point also has ``seconds`` since training began and ``memory_mb``: what torch has allocated of the GPU, or
    what is resident of the process that trains the seeds.

    Args:
        counts, weights: of every seed.
    """

    def __init__(self, callbacks: Callbacks, send: Send, counts: Sequence[Counts], weights: Sequence[np.ndarray] | None):
        self.callbacks, self.send, self.counts, self.weights = callbacks, send, counts, weights
        self.reported = [0] * len(counts)
        self.begin = time.perf_counter()
        self.due = 0.0

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        if time.monotonic() >= self.due:
            self._report(sim, state)

    def train_end(self, sim: Simulation, state: ScenarioState) -> None:
        self._report(sim, state)

    def _report(self, sim: Simulation, state: ScenarioState) -> None:
        points = self._points(sim, state) if self.callbacks.reads_points else []
        self.send(Report(sim.setting.seeds, state.trips, sim.accuracy(state.last), points))
        self.due = time.monotonic() + self.callbacks.pause

    def _points(self, sim: Simulation, state: ScenarioState) -> list[dict[str, Any]]:
        used = {"seconds": round(time.perf_counter() - self.begin, 3), "memory_mb": round(memory(sim.initial.device) / 1e6, 1)}
        rows: list[dict[str, Any]] = []
        for s, points in enumerate(state.points(self.reported)):
            if points:
                self.reported[s] += len(points)
                points, logs = excerpt(points, sim.log, sim.losses)
                seen = history(sim.setting.seeds[s], self.counts[s], points, logs, sim.warmup_rounds, {})
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
    named = {name.rpartition(".")[2]: each for name, each in others}  # a user's metric by its function
    return History.of(seed, points, logs[0], first, warmup_rounds, named, cost_history, logs[1], counts.train)


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
