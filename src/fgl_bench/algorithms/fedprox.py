"""FedProx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import Range, at_least


@dataclass
class FedProx(FedAvg):
    """FedAvg with a proximal pull to the received model: ``mu/2 ||theta - w||^2`` in the local loss (Li et al., MLSys 2020, eq. 2).

    The term enters as its gradient ``mu (theta - w)``, before the optimizer, which is the same thing and cheaper. At the
    first local step theta equals w, so with one local step per trip FedProx is FedAvg for every mu.

    Resolution: layers of a client's own (``split=domains``) are not pulled, since the server has no model of them: GCFL's code (Xie et
    al., NeurIPS 2021) has the term on shared layers only.

    Attributes:
        mu: strength of the proximal term.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"mu": at_least(0)}

    mu: float

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        if step.epoch:
            own = {name: step.layout.view(gradient, name).clone() for name in step.layout.personal}
            gradient.add_(step.theta, alpha=self.mu).sub_(step.received, alpha=self.mu)
            for name, unpulled in own.items():
                step.layout.view(gradient, name).copy_(unpulled)
        return gradient
