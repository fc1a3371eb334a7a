"""S2FGL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, mean_operator
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.kernels.routing import unit
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.random_numbers import step_key, uniform
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import SHARE, Range, above, at_least
from fgl_bench.utils.seeding import derive_seed

TIES = 1e-4  # sets equal eigenvalues apart
NEARER = 1e-6  # of two equally near nodes the first is nearer by up to this cosine


@dataclass
class S2FGL(FedAvg):
    """FedAvg with a repository of class knowledge and an alignment of frequencies (Tan et al., ICML 2025).

    A node i matters by ``max over training nodes j of P_ij + alpha sum over j of P_ij`` with
    ``P = (I - (1 - alpha) D^-1 A)^-1``. After training, a client uploads for each class the number of its training nodes among the
    share ``important`` of its nodes that matter most, and the sum of their representations. The server draws a share ``sampled`` of the
    round's clients for each of ``slots`` slots; the repository has the mean representation of every class in every slot. From the second
    round on, two terms are added to the cross-entropy. With representations h of the model in training and g of the received model:

    * ``repository_weight`` times the mean over nodes of ``KL(softmax(cos(g_i, r) / temperature) || softmax(cos(h_i, r) / temperature))``
      over all entries r of the repository;
    * ``alignment_weight`` times ``sum over k of MSE(v_k v_k^T h, u_k u_k^T g)`` on the share ``aligned`` of the nodes that matter most. The
      v_k are eigenvectors of the Laplacian of the graph that joins every h with its ``neighbors`` nearest by cosine, u_k those of the g's
      graph: the ``eigenvectors`` lowest and highest.

    Resolutions: the authors' code also uses labels of important validation and test nodes; here those of training nodes only. It
    passes an asymmetric matrix to a solver of symmetric ones; here the matrix is ``(W + W^T) / 2``. Equal eigenvalues, such as the zeros of
    several components, leave eigenvectors open: node i of n has ``1e-4 i / n`` more on the diagonal, and of equally near nodes the first
    counts. ``projections=space`` compares projections on all lowest (highest) eigenvectors together, as FedGB does. A class without node
    in a slot is a zero row.
    Representations are those before the last layer, without dropout for the received model and the upload.

    Attributes:
        repository_weight, temperature: of the first term.
        slots, sampled: number of entries per class, and share of the clients in each.
        important, alpha: share of the nodes for the repository; 1 - alpha is the probability that a walk continues.
        alignment_weight: of the second term.
        aligned, neighbors, eigenvectors: share of the nodes, nearest nodes, and vectors at either end of the spectrum.
        projections: ``pairs`` or ``space``.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    by_clients: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False
    multilabel: ClassVar[bool] = False
    rebuilt: ClassVar[tuple[str, ...]] = ("streams", "important_nodes", "aligned_nodes", "count", "teacher", "projected")
    ranges: ClassVar[dict[str, Range]] = {
        "repository_weight": at_least(0), "temperature": above(0), "slots": at_least(1), "sampled": SHARE, "important": SHARE,
        "alpha": Range(0, 1, above=True), "alignment_weight": at_least(0), "aligned": SHARE, "neighbors": at_least(1),
        "eigenvectors": at_least(1),
    }  # fmt: skip

    repository_weight: float
    temperature: float
    slots: int
    sampled: float
    important: float
    alpha: float
    alignment_weight: float
    aligned: float
    neighbors: int
    eigenvectors: int
    projections: Literal["pairs", "space"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, self.round = setting.batch, 0
        self.repository: Tensor | None = None  # [S, slots * Y, h]
        self.streams = torch.tensor([derive_seed(seed, "s2fgl") for seed in setting.seeds], device=batch.device)
        ranked = [np.argsort(-importance(client, self.alpha), kind="stable") for client in batch.clients]
        counts = np.array([int(self.aligned * len(order)) for order in ranked])
        important, aligned = np.zeros((batch.size, batch.nodes), dtype=bool), np.zeros((batch.size, max(1, counts.max())), dtype=np.int64)
        for row, (order, count) in enumerate(zip(ranked, counts, strict=True)):
            important[row, order[: int(self.important * len(order))]] = True
            # Padding repeats no node: gradients are then summed in no order.
            rest = np.setdiff1d(np.arange(batch.nodes), order[:count])
            aligned[row] = np.concatenate([order[:count], rest])[: aligned.shape[1]]
        self.important_nodes, self.aligned_nodes, self.count = (
            torch.from_numpy(part).to(batch.device) for part in (important, aligned, counts)
        )
        blank = batch.select([0])
        views = setting.layout.views(torch.zeros(1, setting.layout.size, dtype=batch.dtype, device=batch.device))
        self.width = setting.model.forward(views, blank, setting.model.first(views, blank), no_dropout).hidden.shape[2]

    # ---- repository

    def report(self, trips: Trips) -> dict[str, Tensor]:
        batch = trips.batch
        chosen = batch.truth(self.setting.num_classes) * self.important_nodes[batch.replicas][..., None]
        return {"sums": chosen.mT @ trips.output.hidden, "counts": chosen.sum(1)}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        number = torch.full_like(self.streams, self.round)
        draws = [uniform(step_key(self.streams, number, slot), arrived.shape[1], 1) for slot in range(self.slots)]
        rank = torch.cat(draws, 2).mT.masked_fill(~arrived[:, None], 2.0).argsort(-1).argsort(-1)
        most = (self.sampled * arrived.sum(1)).long().clamp(min=1)
        taken = ((rank < most[:, None, None]) & arrived[:, None]).to(reports["sums"].dtype)  # [S, slots, C]
        sums, counts = torch.einsum("sqc,scyh->sqyh", taken, reports["sums"]), torch.einsum("sqc,scy->sqy", taken, reports["counts"])
        fresh = (sums / counts.clamp(min=1)[..., None]).flatten(1, 2)
        if self.repository is not None:  # nobody came: the old one stays
            fresh = torch.where(arrived.any(1)[:, None, None], fresh, self.repository)
        self.repository, self.round = fresh, self.round + 1
        return super().mix(reports, arrived)

    def traffic(self) -> Traffic:
        model, classes = super().traffic(), self.setting.num_classes
        return Traffic(
            upload={**model.upload, "sums": classes * self.width, "counts": classes},
            download={**model.download, "repository": self.slots * classes * self.width},
        )

    # ---- local objective

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        if self.repository is None or not (self.repository_weight or self.alignment_weight):
            return None
        batch, hidden = step.batch, step.output.hidden
        if step.epoch == 0:
            # The parameters are still those of the received model.
            with torch.no_grad():
                self.teacher = self.setting.model.forward(step.parameters, batch, step.first.detach(), no_dropout).hidden
                self.projected = self._projections(self._aligned(self.teacher, batch), batch)
        terms = []
        if self.repository_weight:
            terms.append(self.repository_weight * self._knowledge(hidden, batch))
        if self.alignment_weight:
            vectors, parts = self._projections(self._aligned(hidden, batch), batch)
            distance = DISTANCES[self.projections](vectors, parts, *self.projected)
            terms.append(self.alignment_weight * distance / (self.count[batch.replicas].clamp(min=1) * hidden.shape[2]))
        return sum(terms[1:], terms[0])

    def _knowledge(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the mean divergence ``[k]`` from the repository."""
        assert self.repository is not None
        each = self.setting.batch.size // len(self.repository)
        entries = unit(self.repository)[batch.replicas // each].mT
        own, wanted = ((unit(x) @ entries / self.temperature).log_softmax(-1) for x in (hidden, self.teacher))
        divergence = (wanted.exp() * (wanted - own)).sum(-1) * self.temperature**2
        return (divergence * batch.valid).sum(1) / batch.valid.sum(1)

    def _aligned(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the aligned nodes' rows ``[k, m, h]``, zeros in padding."""
        index = self.aligned_nodes[batch.replicas]
        start = torch.arange(batch.size, device=batch.device)[:, None] * batch.nodes
        rows = hidden.flatten(0, 1).index_select(0, (index + start).flatten()).view(*index.shape, -1)
        return rows * self._known(batch)[..., None]

    def _known(self, batch: Batch) -> Tensor:
        return torch.arange(self.aligned_nodes.shape[1], device=batch.device) < self.count[batch.replicas][:, None]

    def _projections(self, rows: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return eigenvectors ``[k, 2, m, E]``, lowest and highest, and what they take from the rows ``[k, m, h]``, ``[k, 2, E, h]``."""
        known = self._known(batch)
        with torch.no_grad():
            vectors = ends(laplacian(rows, known, self.neighbors), self.count[batch.replicas], self.eigenvectors).to(rows.dtype)
            vectors = vectors * known[:, None, :, None]
        return vectors, vectors.mT @ rows[:, None]


def importance(client: ClientGraph, alpha: float, block: int = 1 << 10) -> np.ndarray:
    """Return how much every node matters, ``[n]``."""
    walk, train = (1 - alpha) * mean_operator(client), np.flatnonzero(client.train)
    largest, total = np.zeros(client.num_nodes), np.zeros(client.num_nodes)
    for i in range(0, train.size, block):
        part = train[i : i + block]
        start = np.zeros((client.num_nodes, part.size))
        start[part, np.arange(part.size)] = 1
        columns, step = start.copy(), start
        while step.max(initial=0) > 1e-12:
            step = walk @ step
            columns += step
        largest, total = np.maximum(largest, columns.max(1)), total + columns.sum(1)
    return largest + alpha * total


def laplacian(rows: Tensor, known: Tensor, neighbors: int) -> Tensor:
    """Return ``D - (W + W^T) / 2`` of the nearest rows by cosine (each row itself among them), float64 ``[k, m, m]``.

    Padded nodes have no neighbors and the largest entries on the diagonal.
    """
    direction = unit(rows.double())
    both = known[:, :, None] & known[:, None]
    similarity = (direction @ direction.mT).masked_fill(~both, -2.0)
    nodes = similarity.shape[2]
    order = torch.arange(nodes, dtype=torch.float64, device=rows.device) / known.sum(1).clamp(min=1)[:, None]
    index = (similarity - NEARER * order[:, None]).topk(min(neighbors + 1, nodes), -1).indices
    weights = torch.zeros_like(similarity).scatter(2, index, similarity.gather(2, index)) * both
    weights = (weights + weights.mT) / 2
    degree, apart = weights.sum(-1), TIES * order
    beyond = 4.0 * (neighbors + nodes)  # no eigenvalue of the others is as large
    return torch.diag_embed(torch.where(known, degree, beyond) + apart) - weights


def ends(matrix: Tensor, count: Tensor, number: int) -> Tensor:
    """Return the lowest and the highest eigenvectors of the first ``count [k]`` nodes, ``[k, 2, m, E]``; zeros where there are fewer."""
    vectors = torch.linalg.eigh(matrix).eigenvectors
    first = torch.arange(min(number, matrix.shape[2]), device=matrix.device).expand(len(matrix), -1)
    last = count[:, None] - 1 - first
    chosen = torch.stack([first, last], 1)  # [k, 2, E]
    inside = (chosen >= 0) & (chosen < count[:, None, None])
    index = chosen.clamp(0, matrix.shape[2] - 1)[:, :, None].expand(-1, -1, matrix.shape[1], -1)
    return vectors[:, None].expand(-1, 2, -1, -1).gather(3, index) * inside[:, :, None]


def _pairs(vectors: Tensor, parts: Tensor, other: Tensor, wanted: Tensor) -> Tensor:
    """Return ``sum_k |v_k a_k^T - u_k b_k^T|^2``, ``[k]``."""
    overlap = (vectors * other).sum(2)[..., None]
    return (parts**2 + wanted**2 - 2 * overlap * parts * wanted).sum((1, 2, 3))


def _space(vectors: Tensor, parts: Tensor, other: Tensor, wanted: Tensor) -> Tensor:
    """Return ``|V a - U b|^2`` of the lowest and of the highest, added, ``[k]``."""
    return ((vectors @ parts - other @ wanted) ** 2).sum((1, 2, 3))


DISTANCES = {"pairs": _pairs, "space": _space}
