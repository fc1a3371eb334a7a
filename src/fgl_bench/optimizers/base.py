"""The base of the choices of the group ``optimizer``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fgl_bench.errors import Range, check_ranges


@dataclass(frozen=True)
class Optimizer(ABC):
    """How clients step along their gradients; a subclass's fields are its keys. The learning rate and the weight decay are top-level keys.

    Class attributes:
        ranges: allowed numbers of its keys; checked before anything is read.
    """

    ranges: ClassVar[dict[str, Range]] = {}

    def __post_init__(self) -> None:
        check_ranges(self, "optimizer")

    @abstractmethod
    def start(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """A fresh optimizer of ``count`` replicas of ``size`` scalars, with the interface of ``engine.stacked_optimizers.StackedAdam``."""
