"""The loss of a node, and of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.shapes import Float, Int

if TYPE_CHECKING:
    from fgl_bench.engine.batch import Batch


def node_losses(logits: Float[Tensor, "T Y"], labels: Int[Tensor, " T"] | Float[Tensor, "T Y"]) -> Float[Tensor, " T"]:
    """``[T, Y]`` logits to ``[T]``: cross-entropy with classes ``[T]``, or the mean over labels of the binary one with ``[T, Y]``."""
    if labels.ndim == logits.ndim:
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(-1)
    return F.cross_entropy(logits, labels, reduction="none")


def client_losses(losses: Float[Tensor, " T"], batch: Batch) -> Float[Tensor, " k"]:
    """Mean loss of every replica's training nodes, from their losses ``[T]`` to ``[k]`` float64; 0 without such nodes.

    Summed over a dense ``[k, n]``, in one order on every device.
    """
    train = batch.training_nodes
    shares = losses.new_zeros(batch.size * batch.nodes, dtype=torch.float64).index_copy_(0, train.index, (losses * train.weights).double())
    return shares.view(batch.size, batch.nodes).sum(1)
