"""UniFilter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import cos, pi
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, plain_operator
from fgl_bench.engine.derived import Derived, DerivedBlocks
from fgl_bench.engine.dropout import DropoutFunction, no_dropout
from fgl_bench.engine.kernels.column_sum import combined
from fgl_bench.engine.layout import ParameterLayout, uniform
from fgl_bench.engine.linear import linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import dense
from fgl_bench.engine.stacked_optimizers import Rates
from fgl_bench.errors import UserError
from fgl_bench.models.base import Spectral


@dataclass
class UniFilter(Spectral):
    """Huang et al., ICML 2024: ``Z = sum_k gamma_k dropout(b_k)``, then an MLP.

    The basis is ``b_0 = x, b_k = tau P^k x + (1 - tau) u_k`` for every feature column x. The heterophily vectors u have unit length
    and pairwise cosine ``cos(pi / 2 (1 - h))``, where h is the homophily of the edges between training nodes. The basis is computed
    once, in double precision with full orthogonalization, from the client's edges and training labels. The MLP has no biases,
    ReLU and dropout between its layers, and a residual connection around layers of equal width.

    Without dropout before the first weight, ``(sum_k gamma_k b_k) W`` is one pass over the basis and one product. Training does not
    propagate: only the filter and the first weight are applied to the basis.

    Resolutions: equal-angle vectors by the formula (``basis=code``: the released code, whose step length uses b_{k-1}); cosines of
    at least 0.001; ``default_homophily`` without an edge between training nodes; zero vectors once the Krylov space is exhausted; one
    coefficient per order, as in the paper (``per_feature``: one per order and feature, as in the released code and FedGSP's); one
    learning rate and weight decay for filter and MLP, unless the filter has its own, as tuned by the authors.

    Attributes:
        orders: K.
        tau: weight of the homophily part P^k x.
        hidden: width of the hidden layers.
        layers: number of layers of the MLP.
        dropout: probability of zeroing a hidden unit.
        input_dropout: probability of zeroing an entry of Z.
        basis_dropout: probability of zeroing an entry of a b_k.
        basis: ``exact`` or ``code``.
        homophily: h of each ``client``'s own edges, or of the edges of all clients (``global``).
        default_homophily: h if no edge joins two training nodes.
        per_feature: coefficients ``[K + 1, F]`` instead of ``[K + 1]``.
        filter_lr, filter_weight_decay: rates of the coefficients; null takes the top-level keys, as for the MLP.
    """

    orders: int
    tau: float
    hidden: int
    layers: int
    dropout: float
    input_dropout: float
    basis_dropout: float
    basis: Literal["exact", "code"]
    homophily: Literal["client", "global"]
    default_homophily: float
    per_feature: bool
    filter_lr: float | None
    filter_weight_decay: float | None

    def __post_init__(self) -> None:
        if self.orders < 0 or self.layers < 1 or self.hidden < 1:
            raise ValueError(f"orders={self.orders}, layers={self.layers}, hidden={self.hidden}: at least 0, 1 and 1")
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau={self.tau}: must be between 0 and 1")
        if not 0 <= self.default_homophily <= 1:
            raise ValueError(f"default_homophily={self.default_homophily}: must be between 0 and 1")
        if self.filter_lr is not None and not self.filter_lr > 0:
            raise ValueError(f"filter_lr={self.filter_lr}: must be above 0")
        if self.filter_weight_decay is not None and not self.filter_weight_decay >= 0:
            raise ValueError(f"filter_weight_decay={self.filter_weight_decay}: must be at least 0")

    @cached_property
    def build(self) -> UniBasis:
        return UniBasis(self.orders, self.tau, self.basis == "code", self.homophily == "global", self.default_homophily)

    @property
    def scalar(self) -> bool:
        return not self.per_feature

    @property
    def rates(self) -> Mapping[str, Rates]:
        own = Rates(self.filter_lr, self.filter_weight_decay)
        return {} if own == Rates() else {self.coefficients: own}

    @property
    def drops(self) -> bool:
        return bool(self.dropout or self.input_dropout or self.basis_dropout)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        widths = [num_features, *[self.hidden] * (self.layers - 1), num_classes]
        shapes = {f"mlp{i}.weight": shape for i, shape in enumerate(zip(widths, widths[1:], strict=False))}
        return ParameterLayout(shapes | {self.coefficients: self._filter_shape(num_features)}, inputs=("mlp0.weight",))

    def _filter_shape(self, num_features: int) -> tuple[int, ...]:
        return (self.orders + 1, num_features) if self.per_feature else (self.orders + 1,)

    def widest(self, num_features: int, num_classes: int) -> int:
        return max(super().widest(num_features, num_classes), num_features // 2)  # Z; backward reads only rows of training nodes

    def reads_shared_matrices(self, nodes: int, num_features: int, num_classes: int) -> bool:
        if self.per_feature or self.input_dropout or self.basis_dropout:  # every replica then reads the basis separately
            return False
        layout = self.layout(num_features, num_classes)
        return (self.orders + 1) * nodes * num_features > layout.size + nodes * self.widest(num_features, num_classes)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return weights uniform within 1/sqrt(out) and coefficients 1/(K + 1), as in the authors' code."""
        shapes = dict(layout.shapes)
        equal = torch.full(shapes.pop(self.coefficients), 1 / (self.orders + 1), dtype=torch.float64)
        return {name: uniform(shape, shape[-1], generator) for name, shape in shapes.items()} | {self.coefficients: equal}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        weight = _residual(parameters["mlp0.weight"])
        if self.per_feature:
            return linear(combined(batch, self.build, parameters[self.coefficients]), weight)
        return filtered(batch, self.build, parameters[self.coefficients], weight)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        out = first
        if dropout is not no_dropout and (self.input_dropout or self.basis_dropout):
            summed = combined(batch, self.build, parameters[self.coefficients], dropout, self.basis_dropout)
            out = linear(dropout(summed, self.input_dropout), _residual(parameters["mlp0.weight"]))
        hidden = out
        for i in range(1, self.layers):
            hidden = dropout(torch.relu(out))
            out = linear(hidden, _residual(parameters[f"mlp{i}.weight"]))
        return Output(hidden, out)

    def label_basis(self, batch: Batch, labels: Tensor) -> Tensor:
        return signal_basis(batch, self.build, labels)

    def mean_responses(self, batch: Batch) -> Tensor:
        blocks = batch.derived(self.build)
        # Client by client, since a sum in another dtype copies its input.
        sums = torch.stack([values.sum(1, dtype=batch.dtype) for values in blocks.values])[blocks.rows]
        return sums / batch.valid.sum(1).clamp(min=1)[:, None, None]


def _residual(weight: Tensor) -> Tensor:
    """Return the weight of a layer, plus the identity if input and output have the same width (a residual connection)."""
    if weight.shape[1] != weight.shape[2]:
        return weight
    return weight + torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)


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


class _Filtered(torch.autograd.Function):
    """``(sum_j c_j B_j) W``: summing first reads every B once and multiplies once, where ``sum_j c_j (B_j W)`` multiplies J times.

    Inside, replicas of one client lie side by side (``[U, S]`` for U clients and S replicas of each), so that B is read once for
    all of them.
    """

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, weight: Tensor, blocks: DerivedBlocks, batch: Batch, build: Derived) -> Tensor:
        values, times = _shared(blocks)
        summed = _sum(values, _gather(coefficients, times))
        ctx.save_for_backward(summed, weight)
        ctx.values, ctx.times, ctx.batch, ctx.build = values, times, batch, build
        return _scatter(torch.bmm(summed, _gather(weight, times)), times)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (summed, weight), values, times, batch = ctx.saved_tensors, ctx.values, ctx.times, ctx.batch
        reached = gradient.is_cuda or _reaches(gradient, ~batch.train)
        gradient = _gather(gradient, times)
        if not reached and (rows := _training_rows(batch, ctx.build, times)) is not None:
            # Most objectives depend on training nodes only, so the other rows of B are not read.
            values, index, there = rows
            gradient = torch.take_along_dim(gradient, index[..., None], 1) * there[..., None]
            summed = torch.take_along_dim(summed, index[..., None], 1)
        to_weight = _scatter(torch.bmm(summed.mT, gradient), times)
        spread = torch.bmm(gradient, _gather(weight, times).mT)
        unique, copies, nodes, width = values.shape
        to_coefficients = torch.bmm(spread.view(unique, -1, nodes * width), values.view(unique, copies, nodes * width).mT)
        return _scatter(to_coefficients.flatten(0, 1), times), to_weight, None, None, None


def filtered(batch: Batch, build: Derived, coefficients: Tensor, weight: Tensor) -> Tensor:
    """Return ``(sum_j c_j B_j) W`` of every replica, with the matrices B that ``build`` computes for its client.

    Args:
        coefficients: c, ``[k, J]``.
        weight: W, ``[k, F, h]``.

    Returns:
        ``[k, n, h]``.
    """
    blocks, kind = batch.derived(build), weight.dtype
    held = blocks.values.dtype
    return _Filtered.apply(coefficients.to(held), weight.to(held), blocks, batch, build).to(kind)


def _shared(blocks: DerivedBlocks) -> tuple[Tensor, int]:
    """Return ``[U, J, n, F]`` and the number of replicas per client; a copy unless replicas are in seed-major order."""
    return (blocks.values, blocks.times) if blocks.times else (blocks.copied, 1)


def _gather(x: Tensor, times: int) -> Tensor:
    """Reorder ``[S * U, ...]`` to ``[U * S, ...]``."""
    return x if times == 1 else x.unflatten(0, (times, -1)).transpose(0, 1).flatten(0, 1)


def _scatter(x: Tensor, times: int) -> Tensor:
    return x if times == 1 else x.unflatten(0, (-1, times)).transpose(0, 1).flatten(0, 1)


def _sum(values: Tensor, coefficients: Tensor) -> Tensor:
    unique, copies, nodes, width = values.shape
    return torch.bmm(coefficients.view(unique, -1, copies), values.view(unique, copies, nodes * width)).view(-1, nodes, width)


def _reaches(gradient: Tensor, nodes: Tensor) -> bool:
    """Return True if ``gradient [k, n, h]`` has a nonzero row among ``nodes [k, n]`` (bool)."""
    return bool((gradient.ne(0).any(-1) & nodes).any())


def _training_rows(batch: Batch, build: Derived, times: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return B at training nodes ``[U, J, t, F]``, their indices ``[U * S, t]`` and a mask of real ones ``[U * S, t]``; cached.

    None if replicas of one client train on different nodes.
    """
    blocks = batch.derived(build)
    if blocks.training_rows is None:
        train = batch.train[: len(batch.train) // times]
        if not torch.equal(batch.train, train.repeat(times, 1)):
            return None
        most = max(1, int(batch.num_train.max()))
        order = train.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        unique = blocks if times == 1 else DerivedBlocks(blocks.values, range(len(order)))
        index, there = (each.repeat_interleave(times, 0) for each in (order, torch.take_along_dim(train, order, 1)))
        blocks.training_rows = (unique.take(order).values.contiguous(), index, there)
    return blocks.training_rows
