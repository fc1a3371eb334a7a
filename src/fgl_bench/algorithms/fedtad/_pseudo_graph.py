"""Pseudo graphs of FedTAD, as input of a backbone instead of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms._limited import Limited
from fgl_bench.engine.batch import Operator, adjacency, gcn_operator, mean_operator, plain_operator


class _Refusing(Limited):
    refusal = "cannot run this backbone on its pseudo graphs, which have no {name}"


class _Shared(_Refusing):
    """One matrix ``[S, r, m]`` per seed, multiplied with all models of the seed."""

    def __init__(self, values: Tensor):
        self.values = values

    def __matmul__(self, x: Tensor) -> Tensor:
        """Multiply with ``[S * models, m, h]``; returns ``[S * models, r, h]``."""
        return _Product.apply(self.values, x.unflatten(0, (len(self.values), -1))).flatten(0, 1)


class _Product(torch.autograd.Function):
    """``[S, r, m]`` times ``[S, models, m, h]``; the gradient of the matrix is accumulated over the models."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(values, x)
        return torch.matmul(values[:, None], x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        values, x = ctx.saved_tensors
        to_values = to_x = None
        if ctx.needs_input_grad[0]:
            to_values = torch.empty_like(values, memory_format=torch.contiguous_format)
            for into, each, other in zip(to_values, gradient, x, strict=True):
                torch.addbmm(into, each, other.mT, beta=0, out=into)
        if ctx.needs_input_grad[1]:
            to_x = torch.matmul(values.mT[:, None], gradient)
        return to_values, to_x


def _symmetric(matrix: Tensor) -> Tensor:
    scale = matrix.sum(-1).rsqrt()
    return scale[..., None] * matrix * scale[..., None, :]


def _mean(matrix: Tensor) -> Tensor:
    return matrix / matrix.sum(-1, keepdim=True)


def _itself(matrix: Tensor) -> Tensor:
    return matrix


def _without_loops(matrix: Tensor) -> Tensor:
    alone = matrix - torch.diag_embed(matrix.diagonal(dim1=1, dim2=2))
    scale = torch.where(alone.any(-1), alone.sum(-1).clamp(min=1).rsqrt(), 0.0)
    return scale[..., None] * alone * scale[..., None, :]


# The sparse operators for a dense 0/1 adjacency with self loops.
DENSE: dict[Operator, Callable[[Tensor], Tensor]] = {
    gcn_operator: _symmetric,
    mean_operator: _mean,
    adjacency: _itself,
    plain_operator: _without_loops,
}


class PseudoGraph(_Refusing):
    """Generated nodes of every seed, as input of a backbone instead of a :class:`~fgl_bench.engine.batch.Batch`.

    Each node is joined with the k rows of highest cosine, including itself. Edges go both ways, and the choice has no gradient.

    Args:
        features: ``[S, n, F]``.
    """

    def __init__(self, features: Tensor, neighbors: int):
        self.features = _Shared(features)
        unit = F.normalize(features.detach(), dim=-1, eps=1e-12)
        chosen = (unit @ unit.mT).topk(neighbors, -1).indices
        matrix = torch.zeros_like(unit[..., :1]).expand(-1, -1, unit.shape[1]).contiguous().scatter_(-1, chosen, 1.0)
        self.adjacency = torch.maximum(matrix, matrix.mT)
        self.adjacency.diagonal(dim1=1, dim2=2).fill_(1.0)
        self.valid = torch.ones(1, features.shape[1], dtype=torch.bool, device=features.device)
        self._operators: dict[Operator, _Shared] = {}

    def operator(self, build: Operator) -> _Shared:
        if build not in DENSE:
            self.__getattr__(build.__name__)
        if build not in self._operators:
            self._operators[build] = _Shared(DENSE[build](self.adjacency))
        return self._operators[build]
