"""FedAsync."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import SemiAsyncServer, Traffic
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import SHARE, Range, at_least


@dataclass
class FedAsync(SemiAsyncServer):
    """Each arriving model is mixed into the global model immediately (Xie, Koyejo & Gupta, OPT 2020, algorithm 1).

    On an arrival ``w <- (1 - a) w + a theta_i`` with ``a = alpha sigma(s)``; the client restarts from w. The local loss has the
    additional term ``rho/2 ||theta - w_base||^2``, which has no effect with one local epoch. Clients are not weighted by size.

    Resolutions: s = 0 for a fresh model (the paper's t - tau counts the step in progress: ``offset=1``); the hinge's ``b`` is a
    cycle, since at one step per arrival even a fast client is C - 1 versions old and the paper's b = 4 freezes the model.

    Attributes:
        alpha: mixing weight of a fresh model, in [0, 1].
        staleness: sigma(s): ``constant``, 1; ``polynomial``, (1 + s)^-exponent; ``hinge``, 1 up to b, then 1 / (1 + slope (s - b)).
        exponent: exponent of the polynomial.
        hinge_slope: of the hinge (the paper's a).
        hinge_b: where the hinge begins to fall, in ``staleness_unit``; null means one cycle.
        staleness_unit: s in server ``version``s, or in ``cycle``s of C versions (not rounded).
        offset: added to s, in versions.
        halve_after: arrivals after which alpha is halved (the paper: 800 of 2000); null: never.
        rho: strength of the proximal term.
    """

    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "alpha": SHARE, "exponent": at_least(0), "hinge_slope": at_least(0), "hinge_b": at_least(0), "offset": at_least(0),
        "halve_after": at_least(1), "rho": at_least(0),
    }  # fmt: skip

    alpha: float
    staleness: Literal["constant", "polynomial", "hinge"]
    exponent: float
    hinge_slope: float
    hinge_b: float | None
    staleness_unit: Literal["version", "cycle"]
    offset: int
    halve_after: int | None
    rho: float

    def buffer_size(self) -> int:
        return 1

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        if step.epoch:
            gradient.add_(step.theta, alpha=self.rho).sub_(step.received, alpha=self.rho)
        return gradient

    def mixing_weight(self, staleness: int, version: int) -> float:
        """Return the weight of a model ``staleness`` versions old in the step to ``version``."""
        cycle = self.setting.num_clients
        unit = {"version": 1, "cycle": cycle}[self.staleness_unit]
        late = self.halve_after is not None and version > self.halve_after
        return self.alpha * (0.5 if late else 1.0) * STALENESS[self.staleness](self, (staleness + self.offset) / unit, cycle / unit)

    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        for upload in arrivals:
            server.model = torch.lerp(server.model, upload.payload, self.mixing_weight(upload.staleness, server.version))
        return [Message(upload.client, server.model) for upload in arrivals]

    def traffic(self) -> Traffic:
        payload = {"model": self.setting.layout.count, "version": 1}
        return Traffic(upload=payload, download=payload)


def _hinge(method: FedAsync, staleness: float, cycle: float) -> float:
    b = cycle if method.hinge_b is None else method.hinge_b
    return 1.0 if staleness <= b else 1.0 / (1.0 + method.hinge_slope * (staleness - b))


STALENESS = {
    "constant": lambda method, staleness, cycle: 1.0,
    "polynomial": lambda method, staleness, cycle: (1.0 + staleness) ** -method.exponent,
    "hinge": _hinge,
}
