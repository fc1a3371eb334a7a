"""DFed-SST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.powers import Comparing
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.mixing import cosine, messages, normalize, product, self_loops
from fgl_bench.engine.random_numbers import mix, uniform
from fgl_bench.engine.topologies import Links, random_k_in
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, at_least
from fgl_bench.utils.seeding import generator


class Dispersion(NamedTuple):
    """Label statistics of k clients, float64.

    Attributes:
        wlsd: ``[k]``, the weighted label spatial dispersion (eq. 3).
        spread: ``[k, Y]``, the mean distance D of every class (eq. 1).
        embedding: ``[k, Y, Y]``, the class-wise semantic embedding CSE (eqs. 4, 5).
    """

    wlsd: Tensor
    spread: Tensor
    embedding: Tensor


@dataclass
class DFedSST(Peers, Comparing):
    """A communication graph that follows the clients' label dispersion and semantics (Guo et al., DFed-SST, algorithm 1).

    Every ``refresh`` rounds, after training, each client broadcasts WLSD, the mean hop distance between nodes of a class averaged
    over the classes, and CSE, the class-wise mean of predictions over such pairs weighted by distance. Client i then receives from the
    d_i other clients with the most similar CSE, ``d_i = |{j : WLSD_j < WLSD_i}|``, and takes
    ``theta_i <- sum_j alpha_ij theta^_j``, ``alpha_ij`` proportional to ``exp(cos(CSE_i, CSE_j)) WLSD_j``.

    Resolutions: eq. 6 as described in the text (as printed, WLSD_i is compared with itself). The own model is not in its average, as
    printed, unless d_i = 0, where it is kept. True labels on training nodes only, predictions elsewhere. A missing path counts as one
    hop more than the client's longest path; a class of one node has D = 0; if all partners have WLSD 0, weights depend on the
    similarity alone. Per class at most ``sources`` nodes are drawn and paired with all others of the class, the same pairs for both
    statistics. In a client with more than ``landmarks`` nodes only this number of nodes, drawn once, can be sources, and WLSD leaves out a
    class of several nodes without sources. Before the first refresh, at the end of round 0, a client averages uniformly over a random
    half of the others. A client knows only received messages: links that the scenario drops at a refresh are no candidates.

    Attributes:
        refresh: K_topo.
        self_in_aggregation: include the own model with similarity 1.
        label_source: ``train_pred`` (the truth on training nodes, predictions elsewhere), ``train`` nodes alone, or ``pred``.
        unreachable: ``penalty``, or ``ignore`` pairs without a path.
        sources: source nodes drawn per class.
        landmarks: largest number of a client's nodes used as sources of distances.
        degree: d_i from ``wlsd``, or ``half`` of the clients (ablation).
        similarity_of: compare ``cse``, or mean node ``features`` (ablation).
        selection: the most ``similar``, or ``random`` partners (ablation).
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    by_clients: ClassVar[bool] = True
    multilabel: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {"refresh": at_least(1), "sources": at_least(1), "landmarks": at_least(1)}

    refresh: int
    self_in_aggregation: bool
    label_source: Literal["train_pred", "train", "pred"]
    unreachable: Literal["penalty", "ignore"]
    sources: int
    landmarks: int
    degree: Literal["wlsd", "half"]
    similarity_of: Literal["cse", "features"]
    selection: Literal["similar", "random"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, clients = setting.batch, setting.num_clients
        chosen = [self._landmarks(graph.num_nodes, *name) for graph, name in zip(batch.clients, setting.replicas, strict=True)]
        self._hops = stack(batch.clients, chosen, batch.nodes, batch.device)
        self._streams = setting.streams("pairs")
        if self.similarity_of == "features":
            means = np.stack([np.asarray(graph.features.mean(0), dtype=np.float64).ravel() for graph in batch.clients])
            self._features = setting.shard.whole(torch.from_numpy(means).to(batch.device).unflatten(0, (len(setting.seeds), -1)))
        first = [random_k_in(Links(clients, 0, generator(seed, "topology", 0), clients // 2, 0.0)) for seed in setting.seeds]
        self._partners = torch.from_numpy(np.stack(first)).to(batch.device)
        self._similar = torch.ones(self._partners.shape, dtype=torch.float64, device=batch.device)
        self._wlsd = torch.ones(len(setting.seeds), clients, dtype=torch.float64, device=batch.device)
        self._kernel = self._similar  # exp(S); uniform until the first refresh
        self._round = 0

    def _landmarks(self, nodes: int, seed: int, client: int) -> np.ndarray:
        if nodes <= self.landmarks:
            return np.arange(nodes)
        return np.sort(generator(seed, "landmarks", client).choice(nodes, self.landmarks, replace=False))

    def report(self, trips: Trips) -> dict[str, Tensor]:
        if self._round % self.refresh:
            return {}
        dispersion = self.dispersion(trips.batch, torch.softmax(trips.output.logits, -1), self._round // self.refresh)
        return {"wlsd": dispersion.wlsd, "cse": dispersion.embedding}

    def dispersion(self, batch: Batch, soft: Tensor, number: int) -> Dispersion:
        """Return WLSD and CSE of the clients in ``batch``, given predictions ``soft [k, n, Y]``, on the pairs of refresh ``number``."""
        classes, rows = soft.shape[-1], batch.replicas
        known, label = LABELS[self.label_source](batch, soft.argmax(-1))
        member = F.one_hot(label, classes).float() * (known & batch.valid)[..., None]  # [k, n, Y]
        hops = [part if batch.size == len(part) else part[rows] for part in self._hops]
        index, there, distance = hops
        within = index[..., None].expand(-1, -1, classes)
        source = member.gather(1, within) * there[..., None]  # [k, m, Y]
        order = uniform(mix(self._streams[rows] + number), batch.nodes, 1)[..., 0].gather(1, index).argsort(1)[..., None]
        rank = torch.empty_like(source).scatter_(1, order.expand_as(source), source.gather(1, order.expand_as(source)).cumsum(1))
        source = source * (rank <= self.sources)

        # Sums of hops are integers below 2^24, so float32 is exact in any order.
        reached = distance >= 0
        longest = distance.amax((1, 2), keepdim=True)
        length = torch.where(reached, distance, longest + 1 if self.unreachable == "penalty" else 0).float()
        ahead = (source * (length @ member)).double()  # [k, m, Y], hops from a source to its class
        back = (member * (length.mT @ source)).double()  # [k, n, Y], hops to a node from the sources of its class
        if self.unreachable == "penalty":
            pairs = source.double().sum(1) * (member.double().sum(1) - 1)
        else:
            pairs = (source * (reached.float() @ member)).double().sum(1) - source.double().sum(1)
        each = torch.where(pairs > 0, 1 / pairs.clamp(min=1), 0.0)  # [k, Y]
        spread = ahead.sum(1) * each
        count = member.double().sum(1)
        size = torch.log1p(count).masked_fill((count > 1) & (source.sum(1) == 0), 0.0)  # D is unknown without a landmark of this class
        weight = size / size.sum(1, keepdim=True).clamp(min=1e-12)
        y = soft.double()
        embedding = 0.5 * (ahead.mT @ y.gather(1, within) + back.mT @ y) * each[..., None]
        return Dispersion((weight * spread).sum(1), spread, embedding)

    def similarity(self, reports: dict[str, Tensor]) -> Tensor:
        return cosine(self._features if self.similarity_of == "features" else reports["cse"].flatten(2))

    def exchange(self, meeting: Meeting) -> Exchange:
        adjacency = meeting.graph(meeting.number)
        chosen = self._partners & adjacency
        support = chosen | self_loops(adjacency) if self.self_in_aggregation else chosen
        weights = self._kernel * self._wlsd[:, None]
        none = (weights * support).sum(-1, keepdim=True) == 0
        weights = normalize(torch.where(none, self._kernel, weights), support)
        matrix = torch.where(chosen.any(-1, keepdim=True), weights, self_loops(adjacency).double())
        sent = messages(chosen, self.traffic().bytes[0])
        if meeting.number % self.refresh == 0:
            self._renew(meeting.reports, adjacency, meeting.number // self.refresh)
            sent = sent + messages(adjacency, 4 * (self._statistic() + 1))
        self._round = meeting.number + 1
        return Exchange(product(matrix, meeting.uploaded, self.setting.shard), matrix, sent)

    def _renew(self, reports: dict[str, Tensor], adjacency: Tensor, number: int) -> None:
        """Update degrees, partners and weights from broadcasts, for the following rounds."""
        self._wlsd = reports["wlsd"].clone()  # the reports are overwritten in place
        similar = self.similarity(reports)
        self._kernel = torch.exp(torch.where(self_loops(adjacency), 1.0, similar))
        degree = DEGREES[self.degree](self._wlsd, adjacency)
        if self.selection == "random":
            draws = [generator(seed, "partners", number).random(adjacency.shape[1:]) for seed in self.setting.seeds]
            similar = put(np.stack(draws), adjacency.device)
        order = torch.where(adjacency, similar, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        position = torch.arange(adjacency.shape[-1], device=adjacency.device).expand_as(order)
        rank = torch.empty_like(order).scatter_(-1, order, position)
        self._partners = adjacency & (rank < degree[..., None])

    def _statistic(self) -> int:
        """Return the number of scalars that describe a client, without its WLSD."""
        if self.similarity_of == "features":
            return self._features.shape[-1]
        return self.setting.num_classes**2


def _rank(wlsd: Tensor, adjacency: Tensor) -> Tensor:
    return ((wlsd[:, None, :] < wlsd[:, :, None]) & adjacency).sum(-1)


def _half(wlsd: Tensor, adjacency: Tensor) -> Tensor:
    return torch.full_like(wlsd, wlsd.shape[1] // 2, dtype=torch.int64)


LABELS = {
    "train_pred": lambda batch, predicted: (batch.valid, torch.where(batch.train, batch.labels, predicted)),
    "train": lambda batch, predicted: (batch.train, batch.labels),
    "pred": lambda batch, predicted: (batch.valid, predicted),
}
DEGREES = {"wlsd": _rank, "half": _half}


UNREACHABLE = -1


class Distances(NamedTuple):
    """Distances from the m sources of each of k clients.

    Attributes:
        sources: ``[k, m]`` int64 nodes, ascending; 0 in padding.
        there: ``[k, m]`` bool, False in padding.
        distance: ``[k, m, n]`` int16, -1 without a path and in padding.
    """

    sources: Tensor
    there: Tensor
    distance: Tensor


@lru_cache(maxsize=128)
def _search(nodes: int, edges: bytes, sources: bytes) -> np.ndarray:
    row, column = np.frombuffer(edges, dtype=np.int64).reshape(2, -1)
    matrix = sp.csr_matrix((np.ones(row.size), (row, column)), shape=(nodes, nodes))
    distances = shortest_path(matrix, "D", directed=True, unweighted=True, indices=np.frombuffer(sources, dtype=np.int64))
    return np.where(np.isfinite(distances), distances, UNREACHABLE).astype(np.int16)


def hops(client: ClientGraph, sources: np.ndarray) -> np.ndarray:
    """Return the number of hops ``[m, n]`` int16 from each of the ``sources``; -1 without a path. Results are cached."""
    edges, sources = (np.ascontiguousarray(part, dtype=np.int64) for part in (client.edges, sources))
    return _search(client.num_nodes, edges.tobytes(), sources.tobytes())


def stack(clients: Sequence[ClientGraph], sources: Sequence[np.ndarray], nodes: int, device: torch.device) -> Distances:
    """Return the distances of every client from its own sources, padded to ``nodes``."""
    most = max(each.size for each in sources)
    distance = np.full((len(clients), most, nodes), UNREACHABLE, dtype=np.int16)
    index, there = np.zeros((len(clients), most), dtype=np.int64), np.zeros((len(clients), most), dtype=bool)
    for i, (client, each) in enumerate(zip(clients, sources, strict=True)):
        distance[i, : each.size, : client.num_nodes] = hops(client, each)
        index[i, : each.size], there[i, : each.size] = each, True
    return Distances(*(torch.from_numpy(part).to(device) for part in (index, there, distance)))
