"""Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.errors import Range, above
from fgl_bench.optimizers.base import Optimizer


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam with the L2 penalty inside the gradient, as ``torch.optim.Adam`` (Kingma & Ba, ICLR 2015).

    Attributes:
        beta1, beta2: decay of the running means of the gradient and of its square.
        eps: added to the root of the second.
    """

    ranges: ClassVar[dict[str, Range]] = {"beta1": Range(0, 1, below=True), "beta2": Range(0, 1, below=True), "eps": above(0)}

    beta1: float
    beta2: float
    eps: float

    def start(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        return StackedAdam(count, size, lr, weight_decay, dtype, device, self.beta1, self.beta2, self.eps)


DEFAULT = Adam(0.9, 0.999, 1e-8)
