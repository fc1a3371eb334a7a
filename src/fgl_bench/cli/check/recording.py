"""Small simulations of a method that record what its clients train, report and upload."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, MixingPeers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting, Message, Server, Upload
from fgl_bench.config.groups import check_node
from fgl_bench.data.graph import Federation
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Blockwise, Mixing, checked
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.evaluation.history import Outcome
from fgl_bench.models.base import Backbone
from fgl_bench.results.callbacks import Callback, Callbacks, Report
from fgl_bench.runner.checkpoints import Checkpoints
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulate
from fgl_bench.runner.spec import RunSpec
from fgl_bench.scenarios.semi_async import SemiAsync
from fgl_bench.scenarios.sync import Sync

Watched: Any = Algorithm  # the recording subclass of the method
SCALAR = 4  # bytes of a transferred number, as traffic() counts them; a bool takes a bit


@dataclass
class Recorded:
    """The record of a simulation.

    Attributes:
        trips: received and trained models of every client and seed, in order.
        rows: weights of every mixing, for seeds with at least one arrival.
        uploaded: bytes that clients must have uploaded: mixed parts of their models, and reports.
        answered: True if all predicted logits are finite.
        method: the method.
        gradients: ``[2, P]``, the largest absolute gradients before and after :meth:`Algorithm.correct_gradient`.
    """

    trips: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    rows: list[Tensor] = field(default_factory=list)
    uploaded: float = 0.0
    answered: bool = True
    method: Any = None
    gradients: Tensor | None = None
    outcome: Outcome = field(default_factory=lambda: Outcome([], {}, {}))


def watch(cfg: DictConfig) -> None:
    """Replace the configured method by a recording subclass."""
    module, _, name = cfg.algorithm._target_.rpartition(".")
    method, scenario = getattr(importlib.import_module(module), name), check_node(cfg.scenario)[0]
    with_server, with_events = issubclass(scenario, Sync), issubclass(scenario, SemiAsync)

    class Listening(method):  # type: ignore[misc, valid-type]
        notes: ClassVar[Recorded]

        def prepare(self, setting: Setting) -> None:
            super().prepare(setting)
            self.notes.method = self

        def report(self, done: Trips) -> dict[str, Tensor]:
            reports = super().report(done)
            for row, received, trained in zip(done.rows, done.received, done.trained, strict=True):
                seed, client = divmod(int(row), self.setting.num_clients)
                self.notes.trips.setdefault((self.setting.seeds[seed], client), []).append((received.clone(), trained.clone()))
            if with_server and isinstance(reports, Mapping):
                self.notes.uploaded += size_of(reports, self.unsent, self.setting.layout)
            return reports

        def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
            before = gradient.abs().amax(0)
            corrected = super().correct_gradient(step, gradient)
            if not isinstance(corrected, Tensor):  # the trainer rejects it
                return corrected
            largest, known = torch.stack([before, corrected.detach().abs().amax(0)]), self.notes.gradients
            self.notes.gradients = largest if known is None or known.shape != largest.shape else known.maximum(largest)
            return corrected

        def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
            mixing = checked(super().mix(reports, arrived), arrived).without(self.frozen, self.setting.layout)
            self.notes.rows.append(mixing.weights.detach()[arrived.any(1)].clone())
            self.model_size = mixed_size(mixing, self.setting.layout)
            self.notes.uploaded += self.model_size * int(arrived.sum()) if with_server else 0
            return mixing

        def exchange(self, meeting: Meeting) -> Exchange:
            exchange = super().exchange(meeting)
            if getattr(method, "exchange", None) is MixingPeers.exchange:  # custom exchanges count their bytes
                clients = meeting.trained.shape[0] * meeting.trained.shape[1]
                reported = size_of(meeting.reports, self.unsent, self.setting.layout) / clients
                self.notes.uploaded += links(exchange.matrix) * (self.model_size + reported)
            return exchange

        def serve(self, server: Server, arrivals: Sequence[Upload]) -> Iterable[Message]:
            for upload in arrivals:
                names = self.setting.layout.shapes if upload.blocks is None else upload.blocks
                model = SCALAR * sum(self.setting.layout.numel(name) for name in names)
                self.notes.uploaded += model + size_of(upload.reports, self.unsent, self.setting.layout) if with_events else 0
            return super().serve(server, arrivals)

        def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
            logits = super().predict(model, parameters, batch, first)
            self.notes.answered &= bool(torch.isfinite(logits[batch.labeled]).all())
            return logits

    Listening.__name__ = method.__name__
    globals()["Watched"] = Listening
    cfg.algorithm._target_ = f"{__name__}.Watched"


def size_of(reports: Mapping[str, Any], unsent: Sequence[str], layout: ParameterLayout) -> float:
    """Return the bytes of reports ``[k, ...]`` of k trips; rows of model length are counted without padding."""
    size = 0.0
    for value in (np.asarray(value) for name, value in reports.items() if name not in unsent):
        scalars = value.size // layout.size * layout.count if value.shape[-1:] == (layout.size,) else value.size
        size += scalars / 8 if value.dtype == bool else SCALAR * scalars
    return size


def mixed_size(mixing: Mixing, layout: ParameterLayout) -> int:
    """Return the bytes of the model that a client uploads for ``mixing``; 0 if no client receives from another."""
    if isinstance(mixing, Blockwise):
        row = torch.zeros(1, layout.size)
        return SCALAR * sum(block(row, layout).numel() for weights, block in mixing.blocks if links(weights))
    names = layout.shapes if mixing.shared is None else mixing.shared
    return SCALAR * sum(layout.numel(name) for name in names) if links(mixing.weights) else 0


def links(weights: Tensor) -> int:
    """Count the pairs in which a client receives from another one, from ``weights [S, C, C]`` or ``[S, 1, C]``."""
    clients = weights.shape[-1]
    matrix = weights.expand(len(weights), clients, clients)
    return int(((matrix != 0) & ~torch.eye(clients, dtype=torch.bool, device=matrix.device)).sum())


def simulated(
    spec: RunSpec,
    federations: Sequence[Federation],
    replicas: int | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    share: float = math.inf,
) -> Recorded:
    """Run the small federations in one program with at most ``replicas`` replicas at a time.

    Args:
        checkpoints: the run resumes from them and writes to them.
        share: fraction of the run after which it is interrupted.

    Raises:
        Interrupted: after more than ``share`` of the run.
    """
    Watched.notes = recorded = Recorded()
    callbacks, plan = Callbacks([Interruption(share * spec.trips * len(federations))]), Plan(len(federations), replicas)
    recorded.outcome = simulate(spec, federations, torch.device("cpu"), callbacks, plan, checkpoints=checkpoints)
    return recorded


class Interrupted(Exception):
    """Raised after the requested share of a simulation."""


class Interruption(Callback):
    """Interrupts a run after ``trips`` client trips."""

    pause = 0.0

    def __init__(self, trips: float):
        self.trips = trips

    def report(self, report: Report) -> None:
        if report.trips > self.trips:
            raise Interrupted
