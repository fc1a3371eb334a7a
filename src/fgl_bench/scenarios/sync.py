"""Synchronous rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.engine.answers import check_shape
from fgl_bench.engine.mixing import checked
from fgl_bench.errors import Range, above
from fgl_bench.scenarios.base import Moved, Rounds
from fgl_bench.scenarios.simulation import Simulation


@dataclass
class Sync(Rounds):
    """Rounds of download, local epochs, upload and aggregation by a server.

    A method with one global model sends it to everybody; a personalised method replaces the models of the participants only.

    Attributes:
        deadline: cycles after which the server aggregates without the late uploads; their trips count and they start again
            from the newest model. null waits for everybody.
    """

    name: ClassVar[str] = "sync"
    ranges: ClassVar[dict[str, Range]] = {"deadline": above(0)}

    deadline: float | None

    @property
    def drops_uploads(self) -> bool:
        return self.deadline is not None

    def late(self, duration: float) -> bool:
        return self.deadline is not None and duration > self.deadline

    def longest(self, slowest: float) -> float:
        return slowest if self.deadline is None else min(slowest, self.deadline)

    def aggregate(
        self, sim: Simulation, number: int, reports: dict[str, Tensor], arrived: Tensor, trained: Tensor, received: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor]]:
        method = sim.algorithm
        mixing = checked(method.mix(reports, arrived), arrived)
        # Mixing may write to what clients had received.
        previous = received.clone() if self.drops_uploads or method.refines else received
        received = mixing.apply(trained, received, sim.trainer.layout)
        if method.refines:
            received = method.refine(previous, received, trained, arrived)
            check_shape("refine()", received, dict(zip("SCP", trained.shape, strict=True)), "S C P")
        if self.drops_uploads:  # a seed of which nobody was in time keeps what it had
            received = torch.where(arrived.any(1)[:, None, None], received, previous)
        return received, mixing.matrix

    def moved(self, sim: Simulation, rounds: Sequence[int], count: int) -> list[list[Moved]]:
        each = [sim.algorithm.bytes_after(number, number * count) for number in rounds]
        return [[Moved(*bytes_) for bytes_ in seed] for seed in zip(*each, strict=True)]
