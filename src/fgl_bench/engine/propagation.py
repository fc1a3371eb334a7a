"""Propagation without trainable parts: precomputed hops of a client's features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.graph import ClientGraph, Features
from fgl_bench.engine.batch import Operator, adjacency, gcn_operator
from fgl_bench.engine.derived import Derived

# Numbers of float64 that one client's propagation holds at a time (64 MB), so that wide features cost no second copy.
BLOCK = 1 << 23


@dataclass(frozen=True)
class Skewed:
    """``S_r = (D+I)^(r-1) (A+I) (D+I)^-r``: r = 0 is the mean over a node and its neighbors' rows, 0.5 the symmetric form."""

    r: float

    __name__ = "skewed_operator"

    def __call__(self, client: ClientGraph) -> sp.csr_matrix:
        matrix = (adjacency(client) + sp.eye(client.num_nodes)).tocsr()
        degree = np.asarray(matrix.sum(1)).ravel()
        return (sp.diags(degree ** (self.r - 1)) @ matrix @ sp.diags(degree**-self.r)).tocsr()


def loops_operator(r: float) -> Operator:
    """``S_r``; the common symmetric one is the operator that others use too."""
    return gcn_operator if r == 0.5 else Skewed(r)


def dense(features: Features | sp.csc_matrix) -> np.ndarray:
    """``features`` as a float64 array."""
    return np.asarray(features.toarray() if sp.issparse(features) else features, dtype=np.float64)


def identity(hops: int) -> tuple[tuple[float, ...], ...]:
    """Coefficients of the hops 0 to ``hops``, each a matrix of its own."""
    return tuple(tuple(float(i == j) for j in range(hops + 1)) for i in range(hops + 1))


@dataclass(frozen=True)
class Hops(Derived):
    """Matrix c is ``sum_l coefficients[c][l] S_r^l X``, made in float64."""

    coefficients: tuple[tuple[float, ...], ...]
    r: float = 0.5

    @property
    def copies(self) -> int:
        return len(self.coefficients)

    @property
    def operator(self) -> Operator:
        """The matrix of one hop."""
        return loops_operator(self.r)

    def fill(self, client: ClientGraph, out: np.ndarray) -> None:
        operator = self.operator(client)
        features = client.features.tocsc() if sp.issparse(client.features) else client.features
        width = max(1, BLOCK // (client.num_nodes * (2 + self.copies)))
        for start in range(0, features.shape[1], width):
            x = dense(features[:, start : start + width])
            made = np.zeros((self.copies, *x.shape))
            for hop in range(len(self.coefficients[0])):
                x = operator @ x if hop else x
                for c, row in enumerate(self.coefficients):
                    if row[hop]:
                        made[c] += row[hop] * x
            out[:, :, start : start + width] = made


@dataclass(frozen=True)
class OneHop(Hops):
    """One hop of any operator."""

    coefficients: tuple[tuple[float, ...], ...] = ((0.0, 1.0),)
    by: Operator = gcn_operator

    @property
    def operator(self) -> Operator:
        return self.by

    @property
    def key(self) -> str:
        # A function's repr holds its address.
        return f"{getattr(self.by, '__qualname__', repr(self.by))} {self.coefficients}"
