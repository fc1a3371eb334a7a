"""Gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fgl_bench.engine.stacked_optimizers import StackedSGD
from fgl_bench.errors import Range, require
from fgl_bench.optimizers.base import Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent with momentum and an L2 penalty inside the gradient, as ``torch.optim.SGD`` without dampening.

    An epoch is one step on all training nodes of a client, or a pass over mini-batches with ``batch_nodes``.

    Attributes:
        momentum: decay of the velocity; 0 has none.
        nesterov: step along the gradient plus ``momentum`` times the velocity; needs momentum.
    """

    ranges: ClassVar[dict[str, Range]] = {"momentum": Range(0, 1, below=True)}

    momentum: float
    nesterov: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.momentum > 0 or not self.nesterov, "optimizer.nesterov", self.nesterov, "false with optimizer.momentum=0")

    def start(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        return StackedSGD(count, size, lr, weight_decay, dtype, device, self.momentum, self.nesterov)
