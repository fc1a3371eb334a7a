"""Signs of the differences of all pairs of rows, compiled."""

from __future__ import annotations

from typing import Any

from fgl_bench.engine.compiled import loop


@loop
def signs(coefficients: Any, x: Any, out: Any) -> None:
    """Add ``2 sum_b c_ab sign(x_a - x_b)`` to ``out [S, n, F]``, from ``c [S, n, n]``, symmetric, and ``x [S, n, F]``."""
    seeds, nodes, width = x.shape
    zero, two = x.dtype.type(0), x.dtype.type(2)  # an integer beside single precision would be computed in double
    for s in range(seeds):
        for a in range(nodes):
            for b in range(a):
                each = two * coefficients[s, a, b]
                for f in range(width):
                    one, other = x[s, a, f], x[s, b, f]
                    sign = each if one > other else (-each if one < other else zero)
                    out[s, a, f] += sign
                    out[s, b, f] -= sign
