"""Mixing matrices from communication graphs ``heard [S, C, C]`` (bool, i receives from j, no loops), and their products."""

from __future__ import annotations

import torch
from torch import Tensor

from fgl_bench.engine.mixing import normalize
from fgl_bench.engine.shard import ALONE, Shard

# Number of parameters that a CPU copies to float64 at a time, always into the same memory, which stays in the cache.
COLUMNS = 1 << 12


def itself(heard: Tensor) -> Tensor:
    """``[C, C]`` bool: the identity."""
    return torch.eye(heard.shape[-1], dtype=torch.bool, device=heard.device)


def identity(heard: Tensor) -> Tensor:
    """The mixing matrix of an exchange without messages, float64 ``[S, C, C]``."""
    return itself(heard).double().expand(heard.shape)


def uniform(heard: Tensor) -> Tensor:
    """``1 / (1 + in-degree)`` for itself and all in-neighbors: row-stochastic."""
    return normalize((heard | itself(heard)).double())


def sized(heard: Tensor, sizes: Tensor) -> Tensor:
    """In proportion to the senders' ``sizes [S, C]``, the own one included; row-stochastic."""
    support = heard | itself(heard)
    return normalize(sizes.double()[:, None].expand(heard.shape), support)


def metropolis(heard: Tensor) -> Tensor:
    """``M_ij = 1 / (1 + max(deg_i, deg_j))``, the rest on the diagonal: symmetric and doubly stochastic on an undirected graph."""
    degree = heard.sum(-1).double()
    weights = heard / (1 + torch.maximum(degree[..., :, None], degree[..., None, :]))
    return weights + torch.diag_embed(1 - weights.sum(-1))


def pushed(heard: Tensor) -> Tensor:
    """``P_ji = 1 / (1 + out-degree of i)`` for itself and all out-neighbors: column-stochastic."""
    support = (heard | itself(heard)).double()
    return support / support.sum(-2, keepdim=True)


def product(matrix: Tensor, models: Tensor, shard: Shard = ALONE) -> Tensor:
    """``[S, r, C] @ [S, C, P]`` in float64, since repeated mixing in float32 would drift; returned in the type of ``models``.

    Where other workers have the rest of the clients, ``models`` and the result are those of this worker's ``shard``.
    """
    out = models.new_empty(len(models), min(matrix.shape[1], models.shape[1]), models.shape[2])
    return shard.product(matrix.double(), models, out, _product)


def _product(matrix: Tensor, models: Tensor, out: Tensor) -> Tensor:
    if models.is_cuda:
        return out.copy_(torch.bmm(matrix, models.double()))
    sent, mixed = (matrix.new_empty(len(rows), min(COLUMNS, models.shape[2])) for rows in (models[0], out[0]))
    for result, rows, each in zip(out, matrix, models, strict=True):
        for into, columns in zip(result.split(COLUMNS, 1), each.split(COLUMNS, 1), strict=True):
            width = columns.shape[1]
            into.copy_(torch.mm(rows, sent[:, :width].copy_(columns), out=mixed[:, :width]))
    return out


def messages(heard: Tensor, size: int | Tensor) -> Tensor:
    """Bytes by receiver and sender, int64 ``[S, C, C]``, where every message has ``size`` bytes (a tensor broadcasts)."""
    return heard.long() * size
