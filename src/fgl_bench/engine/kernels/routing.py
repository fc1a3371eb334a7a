"""Neighborhood routing: which of K latent factors joins two nodes, found by fixed-point iterations over the edges of all replicas."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.kernels.compiled import compiles
from fgl_bench.engine.sparse import BlockSparse, Edges

# Numbers of one factor in the clients that are routed together, and factors in a group. Elsewhere than on a CPU few launches count.
PART = {"cpu": 1 << 18}
GROUP = {"cpu": 1}


def unit(x: Tensor) -> Tensor:
    """Rows of length one; a row of zeros stays, and gets no gradient."""
    return x * _inverse(x.norm(dim=-1, keepdim=True))


def _inverse(norm: Tensor) -> Tensor:
    return F.threshold(norm, 1e-12, torch.inf).reciprocal()


def convolve(graph: BlockSparse, x: Tensor, iterations: int, temperature: float, slope: float) -> Tensor:
    """A routing layer of ``x [k, n, K, d]``: rows of length one, :func:`route`, a LeakyReLU; compiled where it can be."""
    if not compiles(x):
        return F.leaky_relu(route(graph, unit(x), iterations, temperature), slope)
    from fgl_bench.engine.kernels.routing_loops import Convolution

    return Convolution.apply(x, graph.edges, _enough(x, iterations), temperature, slope)


def route(graph: BlockSparse, z: Tensor, iterations: int, temperature: float) -> Tensor:
    """Disentangled convolution (Ma et al., ICML 2019, algorithm 1), parameter-free.

    ``c_v,k <- unit(z_v,k + sum over edges u -> v of p_uv,k z_u,k)`` with ``p_uv,k = softmax over k of <z_u,k, c_v,k> / temperature``, from
    ``c = z`` on. Of the edges only K numbers each are held; per iteration, and again in backward, sums over edges are bag reductions.

    Args:
        graph: square, whose entries are the edges; their values do not matter.
        z: ``[k, n, K, d]``.

    Returns:
        ``[k, n, K, d]``.
    """
    return _Route.apply(z, graph.edges, _enough(z, iterations), temperature)


def _enough(z: Tensor, iterations: int) -> int:
    """With one factor every p is 1: the first iteration is the fixed point."""
    return min(iterations, 1) if z.shape[2] == 1 else iterations


class _Part:
    """The routing of some clients with N nodes: K factors in groups ``[g, N, d]``, each of which a CPU's cache holds where it can."""

    def __init__(self, z: Tensor, edges: Edges, temperature: float, group: int):
        self.edges, self.temperature = edges, temperature
        self.z = z.flatten(0, 1).transpose(0, 1).contiguous().split(group)
        self.steps: list[tuple[Tensor, list[Tensor], list[Tensor]]] = []

    def _cooled(self, scores: Tensor) -> Tensor:
        return scores if self.temperature == 1 else scores / self.temperature

    def into(self, rows: Tensor, weights: Tensor) -> Tensor:
        """``[g, N, d]`` rows with weights ``[g, E]`` summed over the edges into every node."""
        return _sums(rows, weights, *self.edges.bags(False, len(rows)))

    def out_of(self, rows: Tensor, weights: Tensor) -> Tensor:
        """The same over the edges out of every node."""
        return _sums(rows, weights.index_select(1, self.edges.order), *self.edges.bags(True, len(rows)))

    def forward(self, iterations: int, keep: bool) -> list[Tensor]:
        """The routed rows ``[g, N, d]``, group by group; ``keep`` what :meth:`backward` needs."""
        size, c = len(self.z[0]), list(self.z)
        scores = [self.edges.dots(each, each) for each in c]
        for number in range(iterations):
            p = torch.softmax(self._cooled(_joined(scores)), 0)
            c, scales = [], []
            for i, (z, weights) in enumerate(zip(self.z, p.split(size), strict=True)):
                moved = self.into(z, weights).add_(z)
                scales.append(_inverse(moved.norm(dim=-1, keepdim=True)))
                c.append(moved.mul_(scales[i]))
                if number < iterations - 1:
                    scores[i] = self.edges.dots(moved, z)
            if keep:
                self.steps.append((p, scales, c))
        return c

    def backward(self, gradient: list[Tensor]) -> list[Tensor]:
        """From the gradient of the routed rows to that of z, group by group; ``gradient`` is used up."""
        size, totals = len(self.z[0]), [torch.zeros_like(z) for z in self.z]
        for number in reversed(range(len(self.steps))):
            p, scales, c = self.steps[number]
            before = self.steps[number - 1][2] if number else self.z
            each = []
            for i, weights in enumerate(p.split(size)):
                along = torch.linalg.vecdot(c[i], gradient[i])[..., None]
                moved = torch.addcmul(gradient[i], c[i], along, value=-1).mul_(scales[i])
                totals[i] += moved
                totals[i] += self.out_of(moved, weights)
                each.append(self.edges.dots(moved, self.z[i]))
            slopes = _joined(each)
            slopes = self._cooled(p * (slopes - (p * slopes).sum(0)))
            for i, weights in enumerate(slopes.split(size)):
                totals[i] += self.out_of(before[i], weights)
                gradient[i] = self.into(self.z[i], weights)
        return [total.add_(last) for total, last in zip(totals, gradient, strict=True)]


def _joined(groups: list[Tensor]) -> Tensor:
    return groups[0] if len(groups) == 1 else torch.cat(groups)


def _sums(rows: Tensor, weights: Tensor, index: Tensor, starts: Tensor) -> Tensor:
    if not weights.numel():
        return torch.zeros_like(rows)
    out = F.embedding_bag(index, rows.flatten(0, 1), starts, mode="sum", per_sample_weights=weights.flatten(), include_last_offset=True)
    return out.view_as(rows)


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: Edges, iterations: int, temperature: float) -> Tensor:
        (k, nodes, factors, width), z, out = z.shape, z.detach(), torch.empty_like(z)
        device = z.device.type
        most = max(1, PART.get(device, k * nodes * width) // max(nodes * width, 1))
        ctx.parts = []
        for clients, within in edges.parts(k, most):
            part = _Part(z[clients], within, temperature, GROUP.get(device, factors))
            _put(out[clients], part.forward(iterations, ctx.needs_input_grad[0]))
            if ctx.needs_input_grad[0]:
                ctx.parts.append((clients, part))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        out = torch.empty_like(gradient)
        for clients, part in ctx.parts:
            here = gradient[clients].flatten(0, 1).transpose(0, 1).contiguous().split(len(part.z[0]))
            _put(out[clients], part.backward(list(here)))
        return out, None, None, None


def _put(out: Tensor, groups: list[Tensor]) -> None:
    """``[g, m * n, d]`` groups of factors into ``out [m, n, K, d]``."""
    rows, first = out.view(-1, *out.shape[2:]), 0
    for each in groups:
        rows[:, first : first + len(each)] = each.transpose(0, 1)
        first += len(each)
