"""FedGNN, adapted to node classification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.scaffold import of_replicas
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.linear import linear
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.random_numbers import step_key, uniform
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import Range, Unsuited, above, at_least
from fgl_bench.models.base import Around, Backbone
from fgl_bench.models.gcn import GCN


@dataclass
class FedGNN(FedAvg):
    """FedAvg on subgraphs expanded by embeddings of nodes with the same neighborhood elsewhere (after Wu et al., arXiv 2102.04925, 2021).

    The original recommends items to users; this is the node-classification baseline of FED-PUB, FedIIH and FedSSA, described in
    a single sentence (``fedgnn (adapted)``). With the received model every client computes the output r_v of the first convolution
    for its nodes and sends it with a key, the hash of the sorted global ids of v's neighbors. A matching service returns r_u of up to
    ``matches`` nodes u of other clients with the same key and a different id. They are additional neighbors in the second
    convolution, without gradients: ``1 / sqrt(d'_v d'_u)`` with ``d' = degree + 1 + number received``.

    Without overlap no two clients share a neighbor, and the method is exactly FedAvg.

    Resolutions: d' is in all weights of the
    second convolution, also between own nodes; of more than ``matches`` matches the first are used, by client and global id;
    nodes without neighbors have no key. With ``ldp`` clients train on gradients clipped to ``[-clip, clip]`` with Laplace noise
    of scale ``2 lr clip / (sqrt(training nodes) epsilon)``, the original's protection; its pseudo-interacted items have no counterpart.

    Attributes:
        matches: m, largest number of embeddings that a node receives; 0 is FedAvg.
        expand_every: rounds between exchanges of embeddings.
        ldp: local differential privacy of gradients.
        clip, epsilon: its delta and epsilon.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    ranges: ClassVar[dict[str, Range]] = {"matches": at_least(0), "expand_every": at_least(1), "clip": above(0), "epsilon": above(0)}

    matches: int
    expand_every: int
    ldp: bool
    clip: float
    epsilon: float

    def backbone(self, model: Backbone) -> Backbone:
        if not isinstance(model, GCN) or model.layers < 2:
            raise Unsuited("needs model=gcn with at least two layers: neighbors are put into the second graph convolution")
        return Expanded(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, clients = setting.batch, setting.num_clients
        self.number, self.network = 0, cast(Expanded, setting.model)
        self.streams = setting.streams("fedgnn").view(len(setting.seeds), clients)
        groups = [batch.clients[i : i + clients] for i in range(0, batch.size, clients)]
        matrices = [matching(group, batch.nodes, self.matches) for group in groups]
        # Number of embeddings that each client sends and receives per exchange, by seed.
        self.sent = batch.num_nodes.reshape(len(groups), -1).sum(1).tolist()
        self.got = [matrix.nnz for matrix in matrices]
        counts = np.stack([np.diff(matrix.indptr) for matrix in matrices])
        count = torch.from_numpy(counts).to(batch.device, batch.dtype).view(batch.size, batch.nodes)
        self.network.expand(count, any(self.got))
        size = clients * batch.nodes
        self.service = BlockSparse.stack(matrices, size, size, batch.dtype, batch.device) if any(self.got) else None

    def initialize(self, initial: Tensor) -> Tensor:
        self._exchange(initial, None)
        return initial

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        self.number += 1
        if self.number % self.expand_every == 0:
            self._exchange(received.flatten(0, 1), arrived.any(1))
        return received

    @torch.no_grad()
    def _exchange(self, models: Tensor, seeds: Tensor | None) -> None:
        """Replace the messages by those of the clients' ``models [B, P]``, for the ``seeds [S]`` (bool; None: all)."""
        if self.service is None:
            return
        setting, network = self.setting, self.network
        batch, parameters = setting.batch, setting.layout.views(models)
        own = torch.relu(network.first(parameters, batch)) * network.scale(batch)[..., None]
        messages = self.service.multiply(own.view(len(setting.seeds), -1, own.shape[2])).view_as(own) * network.scale(batch)[..., None]
        if seeds is not None:
            there = seeds.repeat_interleave(setting.num_clients)[:, None, None]
            assert network.messages is not None  # set from the initial models
            messages = torch.where(there, messages, network.messages)
        network.messages = messages

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        if not self.ldp:
            return gradient
        batch, layout = step.batch, step.layout
        key = step_key(of_replicas(self.streams, batch), torch.tensor(self.number), step.epoch)
        draws = uniform(key, 1, layout.size)[:, 0] - 0.5
        nodes = batch.train.sum(1, keepdim=True).clamp(min=1)
        scale = 2 * self.setting.lr * self.clip / (nodes.double().sqrt() * self.epsilon)
        noise = (-scale * draws.sign() * torch.log1p(-2 * draws.abs())).to(gradient.dtype)
        for name in layout.shapes:
            layout.view(gradient, name).clamp_(-self.clip, self.clip).add_(layout.view(noise, name))
        return gradient

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        # Assumes that clients participate equally often; a key is one number.
        exchanges = -(-rounds // self.expand_every)
        share, width = exchanges * (trips // max(rounds, 1)), self.setting.layout.shapes["conv0.bias"][0]
        models = super().bytes_after(rounds, trips)
        extra = [(4 * sent * (1 + width), 4 * got * width) for sent, got in zip(self.sent, self.got, strict=True)]
        clients = self.setting.num_clients
        return [(up + share * a // clients, down + share * b // clients) for (up, down), (a, b) in zip(models, extra, strict=True)]


class Expanded(Around):
    """A GCN whose second convolution adds messages from other clients.

    Attributes:
        messages: ``[B, n, h]``, the weighted sum of each node's received embeddings.
    """

    inner: GCN
    messages: Tensor | None = None

    def expand(self, count: Tensor, has_messages: bool) -> None:
        """Set the number of messages per node, ``count [B, n]``, and whether there are any (``has_messages``)."""
        self.count, self.has_messages = count, has_messages

    def scale(self, batch: Batch) -> Tensor:
        """Return ``1 / sqrt(d')``, ``[k, n]``."""
        return (batch.degree + 1 + self.count[batch.replicas]).rsqrt()

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        if not self.has_messages:
            return self.inner.forward(parameters, batch, first, dropout)
        assert self.messages is not None  # there are messages
        propagate, messages = batch.operator(gcn_operator), self.messages
        if batch.size != len(messages):
            messages = messages[batch.replicas]
        # Exactly one for nodes without messages.
        ratio = (1 + self.count[batch.replicas] / (batch.degree + 1)).rsqrt()[..., None]
        hidden, weight = dropout(torch.relu(first)), parameters["conv1.weight"]
        if weight.shape[2] < weight.shape[1]:  # the sparse product uses the narrower side
            out = ratio * (propagate @ (ratio * linear(hidden, weight))) + linear(messages, weight)
        else:
            out = linear(ratio * (propagate @ (ratio * hidden)) + messages, weight)
        out = out + parameters["conv1.bias"][:, None]
        for i in range(2, self.inner.layers):
            hidden = dropout(torch.relu(out))
            out = propagate @ linear(hidden, parameters[f"conv{i}.weight"]) + parameters[f"conv{i}.bias"][:, None]
        if "head.weight" in parameters:
            hidden = dropout(torch.relu(out))
            out = linear(hidden, parameters["head.weight"]) + parameters["head.bias"][:, None]
        return Output(hidden, out)


def matching(clients: Sequence[ClientGraph], nodes: int, most: int) -> sp.csr_matrix:
    """Return the matches ``[C * nodes, C * nodes]`` (0/1): up to ``most`` senders for node v of client i (row ``i * nodes + v``)."""
    holders: dict[bytes, list[tuple[int, int, int]]] = defaultdict(list)
    keys = {}
    for i, client in enumerate(clients):
        matrix = sp.csr_matrix((np.ones(client.edges.shape[1]), tuple(client.edges)), shape=(client.num_nodes,) * 2)
        for v in np.flatnonzero(np.diff(matrix.indptr)):
            near = np.sort(client.nodes[matrix.indices[matrix.indptr[v] : matrix.indptr[v + 1]]])
            keys[i, v] = near.astype(np.int64).tobytes()
            holders[keys[i, v]].append((i, int(client.nodes[v]), int(v)))
    rows, columns = [], []
    for (i, v), key in keys.items() if most else ():
        count = 0
        for j, name, u in holders[key]:
            if count == most:
                break
            if j != i and name != clients[i].nodes[v]:
                rows.append(i * nodes + v)
                columns.append(j * nodes + u)
                count += 1
    size = len(clients) * nodes
    matrix = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    matrix.sort_indices()
    return matrix
