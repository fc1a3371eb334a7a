"""Neighborhood routing node by node, compiled: the same as :mod:`~fgl_bench.engine.kernels.routing`, in one pass over the neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.kernels.compiled import loop, parallel_for, shares
from fgl_bench.engine.sparse import Edges


@loop
def scale(x: Any, z: Any, inverse: Any, first: int, last: int) -> None:
    """Rows ``x [N, K, d]`` of length one, and one over their lengths ``[N, K]``; 0 where there is none."""
    _, factors, width = x.shape
    zero = x.dtype.type(0)
    for v in range(first, last):
        for k in range(factors):
            total = zero
            for j in range(width):
                total += x[v, k, j] * x[v, k, j]
            length = np.sqrt(total)
            each = 1 / length if length > 1e-12 else zero
            inverse[v, k] = each
            for j in range(width):
                z[v, k, j] = x[v, k, j] * each


@loop
def copy(rows: Any, out: Any) -> None:
    """``rows [K, d]`` into ``out``: an assignment of arrays takes six times as long."""
    for k in range(len(rows)):
        for j in range(rows.shape[1]):
            out[k, j] = rows[k, j]


@loop
def gather(z: Any, sources: Any, weights: Any, out: Any) -> None:
    """Add the weighted rows of ``sources`` to ``out [K, d]``, two of them at a time."""
    factors, width = out.shape
    e, count = 0, len(sources)
    while e + 1 < count:
        one, other = z[sources[e]], z[sources[e + 1]]
        for k in range(factors):
            first, second = weights[e, k], weights[e + 1, k]
            for j in range(width):
                out[k, j] += first * one[k, j] + second * other[k, j]
        e += 2
    if e < count:
        one = z[sources[e]]
        for k in range(factors):
            first = weights[e, k]
            for j in range(width):
                out[k, j] += first * one[k, j]


@loop
def dots(a: Any, one: Any, other: Any, out: Any) -> None:
    """``out [2, K]`` gets the inner products of ``a [K, d]`` with one row and another, factor by factor."""
    factors, width = a.shape
    zero = a.dtype.type(0)
    for k in range(factors):
        first, second = zero, zero
        for j in range(width):
            first += a[k, j] * one[k, j]
            second += a[k, j] * other[k, j]
        out[0, k], out[1, k] = first, second


@loop
def add(one: Any, other: Any, weights: Any, count: int, out: Any) -> None:
    """Add the rows, the second only if ``count`` is 2, with ``weights [2, K]`` to ``out [K, d]``."""
    factors, width = out.shape
    for k in range(factors):
        first, second = weights[0, k], weights[1, k]
        if count == 2:
            for j in range(width):
                out[k, j] += first * one[k, j] + second * other[k, j]
        else:
            for j in range(width):
                out[k, j] += first * one[k, j]


@loop
def softmax(rows: Any) -> None:
    """Softmax of ``rows [2, K]``, in place."""
    factors = rows.shape[1]
    for i in range(2):
        top, total = rows[i, 0], rows.dtype.type(0)
        for k in range(1, factors):
            top = max(top, rows[i, k])
        for k in range(factors):
            rows[i, k] = np.exp(rows[i, k] - top)
            total += rows[i, k]
        for k in range(factors):
            rows[i, k] /= total


@loop
def shorten(rows: Any, inverse: Any) -> None:
    """``rows [K, d]`` to length one, and one over their lengths ``[K]``."""
    factors, width = rows.shape
    zero = rows.dtype.type(0)
    for k in range(factors):
        total = zero
        for j in range(width):
            total += rows[k, j] * rows[k, j]
        length = np.sqrt(total)
        inverse[k] = 1 / length if length > 1e-12 else zero
        for j in range(width):
            rows[k, j] *= inverse[k]


@loop
def route_forward(
    z: Any, source: Any, into: Any, temperature: Any, slope: Any, out: Any, shares: Any, iterations: int, first: int, last: int
) -> None:
    """Route the nodes from ``first`` to ``last``; ``out`` gets them behind a LeakyReLU.

    Args:
        z: ``[N, K, d]``.
        source, into: of the edges, as :class:`~fgl_bench.engine.sparse.Edges` has them.
        shares: ``[iterations, E, K]``, gets p; with no rows it is not kept.
    """
    _, factors, width = z.shape
    keep = len(shares) > 0
    c, moved = np.empty((factors, width), z.dtype), np.empty((factors, width), z.dtype)
    p, inverse = np.empty((2, factors), z.dtype), np.empty(factors, z.dtype)
    for v in range(first, last):
        copy(z[v], c)
        for t in range(iterations):
            copy(z[v], moved)
            for e in range(into[v], into[v + 1], 2):
                count = min(2, into[v + 1] - e)
                one, other = z[source[e]], z[source[e + count - 1]]
                dots(c, one, other, p)
                for i in range(2):
                    for k in range(factors):
                        p[i, k] /= temperature
                softmax(p)
                for i in range(count if keep else 0):
                    for k in range(factors):
                        shares[t, e + i, k] = p[i, k]
                add(one, other, p, count, moved)
            shorten(moved, inverse)
            copy(moved, c)
        for k in range(factors):
            for j in range(width):
                out[v, k, j] = c[k, j] if c[k, j] > 0 else slope * c[k, j]


@loop
def route_backward(
    z: Any, source: Any, into: Any, temperature: Any, slope: Any, shares: Any, gradient: Any, inverse: Any, total: Any, dx: Any,
    first: int, last: int,
) -> None:  # fmt: skip
    """From the ``gradient`` of :func:`route_forward`'s result to ``dx``, that of :func:`scale`'s x. No edge leaves these nodes.

    What forward went through is computed again from p: reading it would take as long, and it is T times as large as z.

    Args:
        shares: p, ``[iterations, E, K]``.
        inverse: ``[N, K]`` of :func:`scale`. total: ``[N, K, d]`` zeros, gets the gradient of z.
    """
    iterations, (_, factors, width) = len(shares), z.shape
    zero = z.dtype.type(0)
    most = 0
    for v in range(first, last):
        most = max(most, into[v + 1] - into[v])
    c, moved = np.empty((iterations + 1, factors, width), z.dtype), np.empty((iterations, factors, width), z.dtype)
    lengths, slopes = np.empty((iterations, factors), z.dtype), np.empty((iterations, most, factors), z.dtype)
    g, p = np.empty((factors, width), z.dtype), np.empty((2, factors), z.dtype)
    for v in range(first, last):
        begin, end = into[v], into[v + 1]
        count, sources = end - begin, source[begin:end]
        copy(z[v], c[0])
        for t in range(iterations):
            copy(z[v], c[t + 1])
            gather(z, sources, shares[t, begin:end], c[t + 1])
            shorten(c[t + 1], lengths[t])
        for k in range(factors):
            for j in range(width):
                g[k, j] = gradient[v, k, j] if c[iterations, k, j] > 0 else slope * gradient[v, k, j]
        for t in range(iterations - 1, -1, -1):
            here, step = c[t + 1], moved[t]
            for k in range(factors):
                along = zero
                for j in range(width):
                    along += here[k, j] * g[k, j]
                for j in range(width):
                    step[k, j] = (g[k, j] - here[k, j] * along) * lengths[t, k]
                    total[v, k, j] += step[k, j]
            for k in range(factors):
                for j in range(width):
                    g[k, j] = zero
            for e in range(0, count, 2):
                several = min(2, count - e)
                one, other = z[sources[e]], z[sources[e + several - 1]]
                dots(step, one, other, p)
                for i in range(several):
                    share, mean = shares[t, begin + e + i], zero
                    for k in range(factors):
                        mean += p[i, k] * share[k]
                    for k in range(factors):
                        p[i, k] = share[k] * (p[i, k] - mean) / temperature
                        slopes[t, e + i, k] = p[i, k]
                add(one, other, p, several, g)
        for k in range(factors):
            for j in range(width):
                total[v, k, j] += g[k, j]
        for k in range(factors):
            for e in range(count):
                row = total[sources[e], k]
                for t in range(0, iterations - 1, 2):  # two iterations at a time
                    share, after = shares[t, begin + e, k], shares[t + 1, begin + e, k]
                    each, next_each = slopes[t, e, k], slopes[t + 1, e, k]
                    for j in range(width):
                        row[j] += (share * moved[t, k, j] + each * c[t, k, j]) + (after * moved[t + 1, k, j] + next_each * c[t + 1, k, j])
                if iterations % 2:
                    t = iterations - 1
                    share, each = shares[t, begin + e, k], slopes[t, e, k]
                    for j in range(width):
                        row[j] += share * moved[t, k, j] + each * c[t, k, j]
    for v in range(first, last):
        for k in range(factors):
            along = zero
            for j in range(width):
                along += total[v, k, j] * z[v, k, j]
            for j in range(width):
                dx[v, k, j] = (total[v, k, j] - z[v, k, j] * along) * inverse[v, k]


class Convolution(torch.autograd.Function):
    """``leaky_relu(route(unit(x)))`` of ``x [k, n, K, d]``, on every thread some clients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Edges, iterations: int, temperature: float, slope: float) -> Tensor:
        (_, n, factors, _), keep = x.shape, ctx.needs_input_grad[0]
        rows = x.detach().contiguous().flatten(0, 1)
        z, out, inverse = torch.empty_like(rows), torch.empty_like(rows), rows.new_empty(rows.shape[:2])
        saved = rows.new_empty(iterations if keep else 0, edges.source.numel(), factors)
        constants = edges.source.numpy(), edges.into.numpy(), *np.array([temperature, slope], z.numpy().dtype)
        ranges = [(first * n, last * n) for first, last in shares(np.diff(edges.bounds).tolist())]
        arrays = [each.numpy() for each in (rows, z, inverse, out, saved)]

        def route(first: int, last: int) -> None:
            rows, z, inverse, out, saved = arrays
            scale(rows, z, inverse, first, last)
            route_forward(z, *constants, out, saved, iterations, first, last)

        parallel_for(ranges, route)
        if keep:
            ctx.z, ctx.saved, ctx.inverse, ctx.constants, ctx.ranges = z, saved, inverse, constants, ranges
        return out.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        rows = gradient.contiguous().view_as(ctx.z)
        total, dx = torch.zeros_like(rows), torch.empty_like(rows)
        z, saved, inverse, *arrays = (each.numpy() for each in (ctx.z, ctx.saved, ctx.inverse, rows, total, dx))

        def back(first: int, last: int) -> None:
            route_backward(z, *ctx.constants, saved, arrays[0], inverse, *arrays[1:], first, last)

        parallel_for(ctx.ranges, back)
        return dx.view_as(gradient), None, None, None, None
