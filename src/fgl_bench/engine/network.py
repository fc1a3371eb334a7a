"""Networks and their losses as the trainer sees them; backbones are in ``models``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine import Float, Int
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.stacked_optimizers import Rates

Parameters = Mapping[str, Tensor]


class Output(NamedTuple):
    """Attributes: hidden ``[k, m, h]``, the examples' representation before the last layer; logits ``[k, m, Y]``."""

    hidden: Tensor
    logits: Tensor


class Network(Protocol):
    """A network for all replicas at once; :class:`~fgl_bench.models.base.Backbone` says what each of these is."""

    @property
    def dropout(self) -> float: ...

    @property
    def drops(self) -> bool: ...

    @property
    def rates(self) -> Mapping[str, Rates]: ...

    def first(self, parameters: Parameters, batch: Batch) -> Tensor: ...

    def first_of(self, parameters: Parameters, part: Part) -> Tensor: ...

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output: ...


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
    shares = losses.new_zeros(batch.size * batch.examples, dtype=torch.float64).index_copy_(
        0, train.index, (losses * train.weights).double()
    )
    return shares.view(batch.size, batch.examples).sum(1)
