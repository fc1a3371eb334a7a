"""FedGL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms._composition import Composed
from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.powers import Regraphing
from fgl_bench.engine.batch import Batch, Operator
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, Unsuited, at_least

UNFIT = "needs a backbone that uses no more of a graph than products with it, or algorithm.pseudo_graph=0"
BLOCK = 1 << 24  # similarities in memory at a time


@dataclass
class FedGL(Composed, Regraphing):
    """FedAvg with global pseudo labels and a global pseudo graph (Chen et al., Information Sciences 657, 2024).

    After training, client i uploads its predictions p_i(v) for all its nodes. For every node v of the whole graph, the server fuses
    the predictions of the clients that have it, ``q_v = sum_i r_i thr(p_i(v)) / sum_i r_i``, where thr drops entries below
    ``confidence`` and r_i is the client's share of the round's training nodes; if any entry is left, the pseudo label of v is the
    largest entry of q_v. The objective of the next trips is
    ``CE(training nodes) + weight CE(pseudo-labeled other nodes, pseudo labels)``; both terms are means (0 without such nodes).

    With ``pseudo_graph`` (beta) above 0 the hidden representations e_v are uploaded and fused too: the ``neighbours`` largest of
    ``max(e_v . e_u, 0)`` in every row, scaled to sum one, a diagonal of one, then ``D^-1/2 S D^-1/2``. A client propagates, in
    training and evaluation, with its operator plus beta times the rows and columns of S that belong to its nodes.

    Resolutions (only OpenFGL's port is public): pseudo labels of the last refresh, not of the first; no label for a node without
    confident predictions; beta S is added to the backbone's own operator, not to the raw adjacency. A node that no client uploaded
    in a round keeps its previous values. Labels and masks are never fused directly.

    Attributes:
        weight: weight of the pseudo labels in the objective (lambda_s).
        confidence: entries below this probability are ignored (pi); above 1 there are no pseudo labels.
        fusion: r_i: ``samples``, or ``uniform``.
        refresh: rounds between two fusions.
        pseudo_graph: beta; 0 disables the pseudo graph.
        neighbours: number of entries per row of the pseudo graph.
    """

    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    multilabel: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "weight": at_least(0), "confidence": at_least(0), "refresh": at_least(1), "pseudo_graph": at_least(0), "neighbours": at_least(1),
    }  # fmt: skip

    weight: float
    confidence: float
    fusion: Literal["samples", "uniform"]
    refresh: int
    pseudo_graph: float
    neighbours: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, self.round = setting.batch, 0
        self.union = Union(batch, len(setting.seeds))
        self.sizes = batch.num_nodes.reshape(len(setting.seeds), -1)
        self.fused: dict[str, Tensor] = {}
        self.labels: Tensor | None = None  # [B, n]
        self.entries: list[Tensor] = []  # [S] of every refresh
        self._plain: tuple[Batch, Batch] | None = None
        self._graph: PseudoEdges | None = None

    # ---- uploads

    @property
    def refreshes(self) -> bool:
        """Return True if the current round ends with a fusion."""
        return self.round % self.refresh == 0

    def report(self, trips: Trips) -> dict[str, Tensor]:
        reports = super().report(trips)
        if self.weight and self.refreshes:
            reports["predictions"] = torch.softmax(trips.output.logits, -1)
        if self.pseudo_graph and self.refreshes:
            reports["representations"] = trips.output.hidden
        return reports

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        if self.refreshes:
            weights = FUSIONS[self.fusion](self.setting.weights) * arrived
            if self.weight:
                seen = reports["predictions"]
                self._label(self._fuse("predictions", torch.where(seen >= self.confidence, seen, 0.0), weights))
            if self.pseudo_graph:
                self._graph = self._edges(self._fuse("representations", reports["representations"], weights))
        self.round += 1
        return super().mix(reports, arrived)

    def _fuse(self, name: str, values: Tensor, weights: Tensor) -> Tensor:
        """Return weighted means over the clients with each node, ``[S, C, n, w]`` to ``[S, N, w]``; previous values without an upload."""
        weights = weights.to(values.dtype)[..., None, None].expand(*values.shape[:3], 1)
        total = self.union.gather(weights)
        mean = self.union.gather(weights * values) / torch.where(total > 0, total, 1.0)
        self.fused[name] = torch.where(total > 0, mean, self.fused[name]) if name in self.fused else mean
        return self.fused[name]

    # ---- pseudo labels

    def _label(self, fused: Tensor) -> None:
        """Set the pseudo labels of each client's nodes, and which of them enter its loss."""
        batch = self.setting.batch
        self.labels = self.union.scatter(fused.argmax(-1))
        known = self.union.scatter(fused.sum(-1) > 0) & batch.valid & ~batch.train
        self.share = known.to(batch.dtype) / known.sum(1, keepdim=True).clamp(min=1)

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        penalty = super().local_penalty(step)
        if not self.weight or self.labels is None:
            return penalty
        labels, share = (part[step.batch.replicas] for part in (self.labels, self.share))
        each = F.cross_entropy(step.output.logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        term = self.weight * (each * share).sum(1)
        return term if penalty is None else penalty + term

    # ---- pseudo graph

    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Any, Any] | None:
        if self._plain is None:
            self._plain = batch, evaluation
        if self._graph is None:
            return None
        batch, evaluation = self._plain
        graph, self._graph = self._graph, None
        extended = Extended(batch, graph)
        return extended, extended if evaluation is batch else Extended(evaluation, graph)

    def _edges(self, fused: Tensor) -> PseudoEdges:
        """Return S restricted to each client's nodes, times beta."""
        near, value = nearest(fused, min(self.neighbours, fused.shape[1]))
        graph = self.union.restrict(near, self.pseudo_graph * value)
        self.entries.append((graph.value != 0).flatten(1).sum(1).view(len(self.sizes), -1).sum(1))
        return graph

    # ---- traffic

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        """Add to the strategy's bytes: node ids once; predictions and representations up, labels and masks (and edges) down per fusion.

        Assumes that clients participate equally often.
        """
        strategy, clients = super().bytes_after(rounds, trips), self.sizes.shape[1]
        ups, downs = -(-rounds // self.refresh), -(-max(rounds - 1, 0) // self.refresh)
        share = trips / max(rounds, 1) / clients
        a_node = (self.setting.num_classes if self.weight else 0) + (self._width() if self.pseudo_graph else 0)
        # Only columns and values are sent; the row of an edge is that of its node.
        edges = torch.stack(self.entries).cpu().numpy()[:downs].sum(0) if self.entries else np.zeros(len(self.sizes))
        totals = []
        for (up, down), nodes, more in zip(strategy, self.sizes.sum(1), edges, strict=True):
            once = nodes if a_node and rounds else 0
            labels = 2 * nodes if self.weight else 0
            totals.append((up + int(4 * (once + share * ups * nodes * a_node)), down + int(4 * share * (downs * labels + 2 * more))))
        return totals

    def _width(self) -> int:
        return self.fused["representations"].shape[2] if "representations" in self.fused else 0


FUSIONS = {"samples": lambda sizes: sizes, "uniform": torch.ones_like}


def nearest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the pseudo graph of ``rows [S, N, h]``: columns and values ``[S, N, count + 1]`` of its entries, the diagonal last."""
    seeds, nodes, _ = rows.shape
    size = max(1, BLOCK // (seeds * nodes))
    parts = [torch.relu(rows[:, i : i + size] @ rows.mT).topk(count) for i in range(0, nodes, size)]
    column, value = torch.cat([part.indices for part in parts], 1), torch.cat([part.values for part in parts], 1)
    value = value / value.sum(-1, keepdim=True).clamp(min=1e-12)
    itself = torch.arange(nodes, device=rows.device)[:, None].expand(seeds, -1, 1)
    value = torch.cat([torch.where(column == itself, 0.0, value), torch.ones_like(value[..., :1])], 2)
    column = torch.cat([column, itself], 2)
    scale = value.sum(-1).rsqrt()
    return column, scale[..., None] * value * scale.gather(1, column.flatten(1)).view_as(column)


class PseudoEdges(NamedTuple):
    """Entries of k matrices ``[n, n]``, row by row: columns (int64) and values, ``[k, n, m]``."""

    column: Tensor
    value: Tensor

    def select(self, index: Tensor) -> PseudoEdges:
        return PseudoEdges(self.column[index], self.value[index])

    def __matmul__(self, x: Tensor) -> Tensor:
        """Multiply with ``x [k, n, h]``; differentiable in ``x``."""
        k, n, m = self.column.shape
        start = torch.arange(k, device=x.device)[:, None, None] * n
        rows = (self.column + start).view(k * n, m)
        weights = self.value.view(k * n, m).to(x.dtype)
        return F.embedding_bag(rows, x.reshape(k * n, -1), mode="sum", per_sample_weights=weights).view(k, n, -1)


class Union:
    """The map from clients' nodes to nodes of the whole graph, for every seed.

    Attributes:
        union_node: ``[S, C, n]`` number in the whole graph of each client's node, N in padding and for absent nodes.
    """

    def __init__(self, batch: Batch, seeds: int):
        self.seeds, self.clients = seeds, batch.size // seeds
        held = [c.nodes if c.present is None else np.where(c.present, c.nodes, -1) for c in batch.clients]
        ids = [np.unique(np.concatenate(held[s * self.clients : (s + 1) * self.clients])) for s in range(seeds)]
        ids = [each[each >= 0] for each in ids]
        self.nodes = max(each.size for each in ids)
        index = np.full((batch.size, batch.nodes), self.nodes, dtype=np.int64)
        slot = np.full((batch.size, self.nodes + 1), -1, dtype=np.int64)
        for row, nodes in enumerate(held):
            here = np.flatnonzero(nodes >= 0)
            index[row, here] = np.searchsorted(ids[row // self.clients], nodes[here])
            slot[row, index[row, here]] = here
        self.union_node, self.slot = (torch.from_numpy(part).to(batch.device) for part in (index, slot))
        flat = index.reshape(seeds, -1)
        blocks = []
        for local in flat:
            (there,) = np.nonzero(local < self.nodes)
            blocks.append(sp.csr_matrix((np.ones(there.size), (local[there], there)), shape=(self.nodes, local.size)))
        self.holders = BlockSparse.stack(blocks, self.nodes, flat.shape[1], batch.dtype, batch.device)

    def gather(self, values: Tensor) -> Tensor:
        """Sum over the clients with each node, ``[S, C, n, w]`` to ``[S, N, w]``."""
        return self.holders.multiply(values.flatten(1, 2))

    def scatter(self, values: Tensor) -> Tensor:
        """Return the value of each client's node, ``[S, N]`` to ``[B, n]``; 0 (False) for absent nodes."""
        padded = torch.cat([values, torch.zeros_like(values[:, :1])], 1)
        return padded.gather(1, self.union_node.view(self.seeds, -1)).view_as(self.union_node)

    def restrict(self, column: Tensor, value: Tensor) -> PseudoEdges:
        """Return the entries between nodes of one client, of matrices ``[N, N]`` given by columns and values ``[S, N, m]``."""
        m = column.shape[2]
        index = self.union_node.clamp(max=self.nodes - 1).view(self.seeds, -1, 1).expand(-1, -1, m)
        column, value = (part.gather(1, index).view(*self.union_node.shape, m) for part in (column, value))
        local = self.slot.gather(1, column.flatten(1)).view_as(column)
        inside = (local >= 0) & (self.union_node < self.nodes)[..., None]
        return PseudoEdges(local.clamp(min=0), torch.where(inside, value, 0.0))


class Extended:
    """Stand-in for a batch with pseudo edges: beta S is added to every operator.

    Not a :class:`Batch`, so that backbones propagate at every step and do not use precomputed matrices.
    """

    def __init__(self, batch: Batch, graph: PseudoEdges):
        self._batch, self._graph = batch, graph

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._batch, name)

    def derived(self, build: Any) -> NoReturn:
        raise Unsuited(UNFIT)

    def operator(self, build: Operator) -> _Sum:
        return _Sum(self._batch.operator(build), self._graph)

    def select(self, rows: Any) -> Extended:
        part = self._batch.select(rows)
        return Extended(part, self._graph.select(put(rows, part.device)))


class _Sum:
    def __init__(self, own: BlockSparse, graph: PseudoEdges):
        self.own, self.graph = own, graph

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.own @ x + self.graph @ x

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsuited(UNFIT)
