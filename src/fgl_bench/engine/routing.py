"""Neighbourhood routing: which of K latent factors joins two nodes, found by fixed-point iterations over the edges of all replicas."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.sparse import BlockSparse, Edges


def unit(x: Tensor) -> Tensor:
    """Rows of length one; a row of zeros stays, and gets no gradient."""
    return x * _inverse(x.norm(dim=-1, keepdim=True))


def _inverse(norm: Tensor) -> Tensor:
    return torch.where(norm > 1e-12, 1 / norm.clamp(min=1e-12), 0.0)


def route(graph: BlockSparse, z: Tensor, iterations: int, temperature: float) -> Tensor:
    """Disentangled convolution (Ma et al., ICML 2019, algorithm 1), parameter-free.

    ``c_v,k <- unit(z_v,k + sum over edges u -> v of p_uv,k z_u,k)`` with ``p_uv,k = softmax over k of <z_u,k, c_v,k> / temperature``, from
    ``c = z`` on. Of the edges only K numbers each are held; per iteration, and again in backward, sums over edges are bag reductions.

    Args:
        graph: whose entries are the edges; their values do not matter.
        z: ``[k, n, K, d]``.

    Returns:
        ``[k, n, K, d]``.
    """
    k, n, factors, _ = z.shape
    by_factor = z.flatten(0, 1).transpose(0, 1).contiguous()
    # With one factor every p is 1: the first iteration is the fixed point.
    routed = _Route.apply(by_factor, graph.edges, min(iterations, 1) if factors == 1 else iterations, temperature)
    return routed.transpose(0, 1).reshape(k, n, factors, -1)


class _Bags:
    """Sums over consecutive edges of ``[K, N, d]`` rows with weights ``[K, E]``."""

    def __init__(self, index: Tensor, starts: Tensor, factors: int, nodes: int):
        count = index.numel()
        narrow = torch.int32 if factors * max(nodes, count) < 2**31 else torch.int64
        lead = torch.arange(factors, device=index.device)[:, None]
        self.index = (index + lead * nodes).flatten().to(narrow)
        self.starts = torch.cat([(starts[:-1] + lead * count).flatten(), starts.new_full((1,), factors * count)]).to(narrow)

    def __call__(self, rows: Tensor, weights: Tensor) -> Tensor:
        if not weights.numel():
            return torch.zeros_like(rows)
        out = F.embedding_bag(
            self.index, rows.flatten(0, 1), self.starts, mode="sum", per_sample_weights=weights.flatten(), include_last_offset=True
        )
        return out.view_as(rows)


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z: Tensor, edges: Edges, iterations: int, temperature: float) -> Tensor:
        z = z.detach()
        factors, nodes, _ = z.shape
        into = _Bags(edges.source, edges.into, factors, nodes)
        c, steps = z, []
        for _ in range(iterations):
            p = torch.softmax(edges.dots(c, z) / temperature, 0)
            c = into(z, p).add_(z)
            scale = _inverse(c.norm(dim=-1, keepdim=True))
            c.mul_(scale)
            if ctx.needs_input_grad[0]:
                steps.append((p, scale, c.detach()))  # what is returned must not hold itself
        if steps:
            ctx.z, ctx.edges, ctx.temperature, ctx.into, ctx.steps = z, edges, temperature, into, steps
        return c

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        z, edges, into, steps = ctx.z, ctx.edges, ctx.into, ctx.steps
        back = _Bags(edges.target.index_select(0, edges.order), edges.out_of, len(z), z.shape[1])
        total = torch.zeros_like(z)
        for number in reversed(range(len(steps))):
            p, scale, c = steps[number]
            before = steps[number - 1][2] if number else z
            along = torch.linalg.vecdot(c, gradient)[..., None]
            moved = torch.addcmul(gradient, c, along, value=-1).mul_(scale)
            total += moved
            total += back(moved, p.index_select(1, edges.order))
            if len(z) == 1:
                gradient = torch.zeros_like(z)
                continue
            each = edges.dots(moved, z)
            each = p * (each - (p * each).sum(0)) / ctx.temperature
            total += back(before, each.index_select(1, edges.order))
            gradient = into(z, each)
        return total.add_(gradient), None, None, None
