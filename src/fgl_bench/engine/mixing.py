"""Aggregation as a matrix over clients: row-stochastic, or made from communication graphs.

A communication graph ``adjacency [S, C, C]`` is bool: i receives from j, no loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fgl_bench.engine import Bool, Float
from fgl_bench.engine.hooks import check_kind, check_shape
from fgl_bench.engine.shard import ALONE, Shard

if TYPE_CHECKING:
    from fgl_bench.engine.layout import ParameterLayout


def normalize(weights: Float[Tensor, "... C"], support: Bool[Tensor, "... C"] | None = None) -> Float[Tensor, "... C"]:
    """Non-negative ``weights [..., C]`` scaled to sum to one; uniform on ``support`` (bool, default: everywhere) where they vanish."""
    support = torch.ones_like(weights, dtype=torch.bool) if support is None else support.expand_as(weights)
    weights = torch.where(support, weights, 0.0)
    total = weights.sum(-1, keepdim=True)
    usable = (total > 1e-12) & (total < torch.inf)
    uniform = support.to(weights.dtype) / support.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(usable, weights / torch.where(usable, total, 1.0), uniform)


def cosine(x: Float[Tensor, "... C d"]) -> Float[Tensor, "... C C"]:
    """Pairwise cosine similarity of the rows of ``x [..., C, d]``, clamped to [-1, 1]; 0 where a row is zero. ``[..., C, C]``."""
    unit = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return (unit @ unit.mT).clamp(-1.0, 1.0)


def stacked_product(weights: Float[Tensor, "S r C"], models: Float[Tensor, "S C P"], out: Float[Tensor, "S r P"]) -> Float[Tensor, "S r P"]:
    """``[S, r, C] @ [S, C, P]``; on a CPU one seed at a time, where the batched product takes a slow path for few rows."""
    if models.is_cuda:
        return torch.bmm(weights, models, out=out)
    for row, model, result in zip(weights, models, out, strict=True):
        torch.mm(row, model, out=result)
    return out


@dataclass(frozen=True)
class Mixing:
    """``theta' = M theta`` for every seed.

    Attributes:
        weights: ``[S, C, C]`` with row i what client i receives, or ``[S, 1, C]`` where every client receives the same;
            rows sum to one.
        receivers: ``[S, C]`` bool, the clients whose pending model is replaced; None means all.
        shared: names of the parameters that are aggregated; None means all. The others stay each client's own.
    """

    weights: Float[Tensor, "S C C"] | Float[Tensor, "S 1 C"]
    receivers: Bool[Tensor, "S C"] | None = None
    shared: tuple[str, ...] | None = None

    communicates: ClassVar[bool] = True  # whether anything travels

    def without(self, frozen: tuple[str, ...], layout: ParameterLayout) -> Mixing:
        """The same mixing, in which the parameters ``frozen`` and ``layout.personal`` stay each client's own."""
        names, own = layout.shapes if self.shared is None else self.shared, (*frozen, *layout.personal)
        return replace(self, shared=tuple(name for name in names if name not in own)) if own else self

    def matrix(self) -> Float[Tensor, "S C C"]:
        """The full ``[S, C, C]``; rows of clients that receive nothing are those of the identity."""
        seeds, _, clients = self.weights.shape
        matrix = self.weights.expand(seeds, clients, clients)
        if self.receivers is None:
            return matrix
        return torch.where(self.receivers[..., None], matrix, torch.eye(clients, dtype=matrix.dtype, device=matrix.device))

    def apply(
        self,
        models: Float[Tensor, "S C P"],
        received: Float[Tensor, "S C P"],
        layout: ParameterLayout,
        trained: Float[Tensor, "S C P"] | None = None,
        shard: Shard = ALONE,
    ) -> Float[Tensor, "S C P"]:
        """``M models``, both ``[S, C, P]``; of this worker's clients, where others have the rest.

        A rank-one M costs one row per seed, and the result is then a view of those rows.

        Args:
            models: what clients uploaded.
            received: what the clients received last, kept by those that receive nothing now; may be overwritten.
            layout: resolves ``shared``.
            trained: the clients' own models, which provide the parameters that are not shared; None means ``models``.
            shard: this worker's clients.
        """
        mixed = self._mixed(models, received, models if trained is None else trained, layout, shard)
        return mixed if self.receivers is None else torch.where(shard.of(self.receivers)[..., None], mixed, received)

    def _mixed(self, models: Tensor, received: Tensor, own: Tensor, layout: ParameterLayout, shard: Shard) -> Tensor:
        """Models of the receiving clients; parameters that are not shared come from ``own [S, C, P]``."""
        if self.weights.shape[1] == 1:
            mixed = self._common(models, received, layout, shard).expand_as(models)
        else:
            out = received if self.receivers is None and _writable(received) else torch.empty_like(models)
            mixed = shard.product(self.weights.to(models.dtype), models, out, stacked_product)
        if self.shared is None:
            return mixed
        flat = own.flatten(0, 1).clone()
        for name in self.shared:
            layout.view(flat, name).copy_(layout.view(mixed.flatten(0, 1), name))
        return flat.view_as(models)

    def _common(self, models: Tensor, received: Tensor, layout: ParameterLayout, shard: Shard) -> Tensor:
        """The model ``[S, 1, P]`` that all clients receive."""
        return shard.product(self.weights.to(models.dtype), models, models.new_empty(len(models), 1, models.shape[2]), stacked_product)


class _Alone(Mixing):
    """The identity, without a product that would spread one diverged client to all."""

    communicates: ClassVar[bool] = False

    def _mixed(self, models: Tensor, received: Tensor, own: Tensor, layout: ParameterLayout, shard: Shard) -> Tensor:
        return (received if _writable(received) else torch.empty_like(models)).copy_(own)


def alone(arrived: Bool[Tensor, "S C"]) -> Mixing:
    """The identity: every client continues with the model that it trained last. ``arrived [S, C]`` gives the shape."""
    seeds, clients = arrived.shape
    return _Alone(torch.eye(clients, dtype=torch.float64, device=arrived.device).expand(seeds, clients, clients))


@dataclass(frozen=True)
class Blockwise(Mixing):
    """A matrix for every block of parameters: ``theta'^(b) = M^(b) theta^(b)``; parameters in no block stay each client's own.

    ``weights`` is for plots and counts, for instance the mean of the blocks' matrices.

    Attributes:
        blocks: matrices ``[S, C, C]``, or ``[S, 1, C]``, each with a function from models ``[S * C, P]`` and their layout to a
            view of the block.
    """

    blocks: tuple[tuple[Float[Tensor, "S r C"], Callable[[Float[Tensor, "k P"], ParameterLayout], Float[Tensor, "k ..."]]], ...] = ()

    def _mixed(self, models: Tensor, received: Tensor, own: Tensor, layout: ParameterLayout, shard: Shard) -> Tensor:
        out, shape = own.clone(memory_format=torch.contiguous_format), models.shape[:2]
        for weights, block in self.blocks:
            part = block(models.flatten(0, 1), layout)
            flat = part.reshape(*shape, -1)
            weights = weights.to(models.dtype).expand(-1, weights.shape[2], -1)
            mixed = shard.product(weights, flat, torch.empty_like(flat), stacked_product)
            block(out.flatten(0, 1), layout).copy_(mixed.view(part.shape))
        return out


def _writable(x: Tensor) -> bool:
    """Return True if no two elements share memory."""
    return 0 not in x.stride()


def checked(mixing: Any, arrived: Bool[Tensor, "S C"]) -> Mixing:
    """Check the return value of a method's ``mix`` for ``arrived [S, C]``; UserError if it is not a mixing of these clients."""
    check_kind("mix()", mixing, Mixing, "a Mixing")
    sizes = dict(zip("SC", arrived.shape, strict=True))
    check_shape("mix()", mixing.weights, sizes, "S C C", "S 1 C")
    if mixing.receivers is not None:
        check_shape("mix().receivers", mixing.receivers, sizes, "S C")
    return mixing


# Number of parameters that a CPU copies to float64 at a time, always into the same memory, which stays in the cache.
COLUMNS = 1 << 12


def self_loops(adjacency: Tensor) -> Tensor:
    """``[C, C]`` bool: the identity."""
    return torch.eye(adjacency.shape[-1], dtype=torch.bool, device=adjacency.device)


def identity(adjacency: Tensor) -> Tensor:
    """The mixing matrix of an exchange without messages, float64 ``[S, C, C]``."""
    return self_loops(adjacency).double().expand(adjacency.shape)


def uniform(adjacency: Tensor) -> Tensor:
    """``1 / (1 + in-degree)`` for itself and all in-neighbors: row-stochastic."""
    return normalize((adjacency | self_loops(adjacency)).double())


def sized(adjacency: Tensor, sizes: Tensor) -> Tensor:
    """In proportion to the senders' ``sizes [S, C]``, the own one included; row-stochastic."""
    support = adjacency | self_loops(adjacency)
    return normalize(sizes.double()[:, None].expand(adjacency.shape), support)


def metropolis(adjacency: Tensor) -> Tensor:
    """``M_ij = 1 / (1 + max(deg_i, deg_j))``, the rest on the diagonal: symmetric and doubly stochastic on an undirected graph."""
    degree = adjacency.sum(-1).double()
    weights = adjacency / (1 + torch.maximum(degree[..., :, None], degree[..., None, :]))
    return weights + torch.diag_embed(1 - weights.sum(-1))


def pushed(adjacency: Tensor) -> Tensor:
    """``P_ji = 1 / (1 + out-degree of i)`` for itself and all out-neighbors: column-stochastic."""
    support = (adjacency | self_loops(adjacency)).double()
    return support / support.sum(-2, keepdim=True)


def product(matrix: Tensor, models: Tensor, shard: Shard = ALONE) -> Tensor:
    """``[S, r, C] @ [S, C, P]`` in float64, since repeated mixing in float32 would drift; returned in the type of ``models``.

    Where other workers have the rest of the clients, ``models`` and the result are those of this worker's ``shard``.
    """
    out = models.new_empty(len(models), min(matrix.shape[1], models.shape[1]), models.shape[2])
    return shard.product(matrix.double(), models, out, _in_double)


def _in_double(matrix: Tensor, models: Tensor, out: Tensor) -> Tensor:
    if models.is_cuda:
        return out.copy_(torch.bmm(matrix, models.double()))
    sent, mixed = (matrix.new_empty(len(rows), min(COLUMNS, models.shape[2])) for rows in (models[0], out[0]))
    for result, rows, each in zip(out, matrix, models, strict=True):
        for into, columns in zip(result.split(COLUMNS, 1), each.split(COLUMNS, 1), strict=True):
            width = columns.shape[1]
            into.copy_(torch.mm(rows, sent[:, :width].copy_(columns), out=mixed[:, :width]))
    return out


def messages(adjacency: Tensor, size: int | Tensor) -> Tensor:
    """Bytes by receiver and sender, int64 ``[S, C, C]``, where every message has ``size`` bytes (a tensor broadcasts)."""
    return adjacency.long() * size
