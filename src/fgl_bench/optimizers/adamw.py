"""AdamW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fgl_bench.engine.stacked_optimizers import StackedAdamW
from fgl_bench.optimizers.adam import Adam


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, as ``torch.optim.AdamW`` (Loshchilov & Hutter, ICLR 2019)."""

    def start(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        return StackedAdamW(count, size, lr, weight_decay, dtype, device, self.beta1, self.beta2, self.eps)
