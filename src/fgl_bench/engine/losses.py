"""The loss of a node."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def node_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """``[T, Y]`` logits to ``[T]``: cross-entropy with classes ``[T]``, or the mean over labels of the binary one with ``[T, Y]``."""
    if labels.ndim == logits.ndim:
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(-1)
    return F.cross_entropy(logits, labels, reduction="none")
