"""Bases of UniFilter: orthonormal Krylov vectors, adapted to the client's homophily. P = D^-1/2 A D^-1/2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import cos, pi
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.derived import Derived, DerivedBlocks
from fgl_bench.engine.propagation import dense
from fgl_bench.errors import UserError

COLUMNS = 128  # columns of the features processed at a time, so that their vectors stay in the cache


def agreeing_edges(client: ClientGraph) -> tuple[int, int]:
    """Return the numbers of directed edges between training nodes: within a class, and in total."""
    source, target = client.edges[:, client.train[client.edges].all(0)]
    return int((client.labels[source] == client.labels[target]).sum()), source.size


def krylov(matrix: sp.csr_matrix, signal: np.ndarray, orders: int) -> np.ndarray:
    """Return an orthonormal basis of span(x, P x, ..., P^K x) per column x: ``[n, f]`` to ``[K + 1, n, f]`` float64.

    Every vector is orthogonalized twice against all earlier vectors, because the three-term recurrence loses orthogonality in
    floating point. The remaining vectors are zero once the space is exhausted (a new direction shorter than 1e-6).
    """
    basis = np.zeros((orders + 1, *signal.shape))
    basis[0] = signal / np.maximum(np.linalg.norm(signal, axis=0), 1e-8)
    for k in range(1, orders + 1):
        new = matrix @ basis[k - 1]
        for _ in range(2):
            for old in basis[:k]:
                new -= old * np.einsum("nf,nf->f", old, new)
        size = np.linalg.norm(new, axis=0)
        np.divide(new, size, out=basis[k], where=size > 1e-6)
    return basis


def unibasis(matrix: sp.csr_matrix, signal: np.ndarray, orders: int, tau: float, cosine: float, previous: bool = False) -> np.ndarray:
    """Return UniFilter's basis ``b_0 = x, b_k = tau P^k x + (1 - tau) u_k`` per column, ``[n, f]`` to ``[K + 1, n, f]`` float64.

    The heterophily vectors start from ``u_0 = x / |x|``; with the Krylov vectors v and ``s`` the mean of the earlier u,
    ``u_k = (s + t v_k) / |.|`` and ``t = sqrt((<s, u_{k-1}> / c)^2 - ((k - 1) c + 1) / k)``, after which any two of them have the
    cosine c.

    Args:
        previous: use b_{k-1} instead of u_{k-1} in t, as in the released code; the angles then differ.
    """
    out = np.zeros((orders + 1, *signal.shape))
    out[0] = signal
    for k in range(1, orders + 1):
        out[k] = matrix @ out[k - 1]
    if tau == 1:  # no rotation needed
        return out
    vectors = krylov(matrix, signal, orders)
    last, total = vectors[0], vectors[0].copy()
    for k in range(1, orders + 1):
        mean = total / k
        along = np.einsum("nf,nf->f", mean, out[k - 1] if previous else last) / cosine
        step = np.sqrt(np.maximum(along**2 - ((k - 1) * cosine + 1) / k, 0))
        turned = mean + step * vectors[k]
        last = turned / np.maximum(np.linalg.norm(turned, axis=0), 1e-8)
        total += last
        out[k] = tau * out[k] + (1 - tau) * last
    return out


@dataclass(frozen=True)
class _Rated(ClientGraph):
    """A client with the homophily of its federation."""

    homophily: float = 0.5


@dataclass(frozen=True)
class UniBasis(Derived):
    """UniFilter's basis of every feature column (:func:`unibasis`), adapted to the client's homophily.

    The angle between heterophily vectors is ``pi / 2 (1 - h)`` with a cosine of at least 0.001. The homophily h is the share of
    edges within a class among the edges between training nodes.

    Attributes: as for :func:`unibasis`; ``pooled`` counts the edges of all clients of a federation; ``default`` is h without edges.
    """

    orders: int
    tau: float
    previous: bool
    pooled: bool = False
    default: float = 0.5

    @property
    def copies(self) -> int:
        return self.orders + 1

    def among(self, clients: Sequence[ClientGraph], per_federation: int | None) -> Sequence[ClientGraph]:
        if any(client.labels.ndim > 1 for client in clients):
            raise UserError("model=unifilter: its basis needs one label a node, and this data set has several")
        if not self.pooled:
            return clients
        if per_federation is None:
            raise UserError(
                "model.homophily=global: not known on graphs that a method has made, nor where workers share the clients of a seed; "
                "use model.homophily=client"
            )
        rated = []
        for start in range(0, len(clients), per_federation):
            group = clients[start : start + per_federation]
            same, count = map(sum, zip(*map(agreeing_edges, group), strict=True))
            for client in group:
                held = {field.name: getattr(client, field.name) for field in fields(client)}
                rated.append(_Rated(**held, homophily=self.share(same, count)))
        return rated

    def share(self, same: int, count: int) -> float:
        return same / count if count else self.default

    def cosine(self, client: ClientGraph) -> float:
        homophily = client.homophily if isinstance(client, _Rated) else self.share(*agreeing_edges(client))
        return max(cos(pi / 2 * (1 - homophily)), 1e-3)

    def sources(self, client: ClientGraph) -> tuple[object, ...]:
        return client.features, client.edges, self.cosine(client)

    def fill(self, client: ClientGraph, out: np.ndarray) -> None:
        features: Any = client.features.tocsc() if sp.issparse(client.features) else client.features
        matrix, cosine = plain_operator(client), self.cosine(client)
        used = np.unique(features.nonzero()[1])  # the basis of a column of zeros is zero
        for start in range(0, used.size, COLUMNS):
            part = used[start : start + COLUMNS]
            out[..., part] = unibasis(matrix, dense(features[:, part]), self.orders, self.tau, cosine, self.previous)


def signal_basis(batch: Batch, build: Derived, signal: Tensor) -> Tensor:
    """Return the basis of ``signal [k, n, w]`` instead of the features, ``[k, L, n, w]``; not cached."""
    host = signal.double().cpu().numpy()
    clients = build.among(batch.clients, batch.per_federation)
    clients = [replace(client, features=host[i, : client.num_nodes]) for i, client in enumerate(clients)]
    return DerivedBlocks.of(build, clients, batch.nodes, batch.dtype, batch.device).stacked()
