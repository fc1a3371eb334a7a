"""SCAFFOLD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, ServerRounds, Setting, Traffic
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, above


@dataclass
class Scaffold(ServerRounds):
    """Control variates against client drift (Karimireddy et al., ICML 2020, algorithm 1).

    A local step uses ``g_i(y) - c_i + c``. After the trip, c_i becomes the client's mean gradient along the trip; the server takes
    ``w <- w + server_lr * mean over S of (y_i - w)`` and ``c <- c + 1/C sum over S of the changes of c_i``, so c stays the
    mean of all c_i. All states start at zero, so the first round is a uniform average.

    Resolutions: ``c_i = 1/E sum_k g_i(y_k)``, without weight decay. That is option II under plain SGD and, unlike its formula
    ``c_i - c + (w - y)/(E lr)``, is meaningful under Adam, whose step length does not depend on the gradient
    (``control=option_ii_literal`` uses the formula). A client without training nodes keeps its c_i. An upload that misses
    a deadline is lost with its change of c_i.

    Attributes:
        server_lr: the server's step on the mean change of the model.
        control: ``mean_gradient`` or ``option_ii_literal``.
        weighting: ``uniform`` (the paper), or by size (``samples``).
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    own_reports: ClassVar[tuple[str, ...]] = ("variate",)
    ranges: ClassVar[dict[str, Range]] = {"server_lr": above(0)}

    server_lr: float
    control: Literal["mean_gradient", "option_ii_literal"]
    weighting: Literal["uniform", "samples"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, seeds = setting.batch, len(setting.seeds)
        self._sum: Tensor  # of the gradients of a trip
        self.variates = torch.zeros(seeds, batch.size // seeds, setting.layout.size, dtype=batch.dtype, device=batch.device)  # c_i
        self.correction = torch.zeros_like(self.variates)  # c - c_i

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        self._sum = self._sum.add_(gradient) if step.epoch else gradient
        return gradient + of_replicas(self.correction, step.batch)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return {"variate": keep_unable(CONTROLS[self.control](self, trips), self.variates, trips.batch)}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        fresh, shard = reports["variate"], self.setting.shard
        self.variates = fresh if self.setting.full_participation else torch.where(shard.of(arrived)[..., None], fresh, self.variates)
        self.correction = shard.mean(self.variates) - self.variates
        return Mixing(normalize(WEIGHTINGS[self.weighting](self.setting.weights), arrived)[:, None])

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        return received if self.server_lr == 1 else torch.lerp(previous, received, self.server_lr)

    def traffic(self) -> Traffic:
        payload = {"model": self.setting.layout.count, "variate": self.setting.layout.count}
        return Traffic(upload=payload, download=payload)


def of_replicas(state: Tensor, batch: Batch) -> Tensor:
    """Return the rows ``[k, ...]`` of ``state [S, C, ...]`` for the replicas of ``batch``."""
    flat = state.flatten(0, 1)
    return flat if batch.size == len(flat) else flat[batch.replicas]


def keep_unable(fresh: Tensor, state: Tensor, batch: Batch) -> Tensor:
    """Return ``fresh [k, P]``, with the old row of ``state [S, C, P]`` for clients without training nodes, which take no step."""
    if batch.num_train.all():
        return fresh
    return torch.where(batch.train.any(1, keepdim=True), fresh, of_replicas(state, batch))


def displacement(method: Algorithm, trips: Trips) -> Tensor:
    """Return the mean gradient ``[k, P]`` that plain SGD would need for the same trip: ``(w - y) / (E lr)``."""
    return (trips.received - trips.trained) / (trips.steps * trips.lr)


CONTROLS = {
    "mean_gradient": lambda method, trips: method._sum / trips.steps,
    "option_ii_literal": lambda method, trips: displacement(method, trips) - of_replicas(method.correction, trips.batch),
}
WEIGHTINGS = {"uniform": torch.ones_like, "samples": lambda sizes: sizes}
