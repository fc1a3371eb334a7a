"""Predictions of the servers' models with the first convolution restricted to its training edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._bipartite import Convolutions, Messages
from fgl_bench.algorithms.cross_client._features import Rows
from fgl_bench.algorithms.cross_client._halo import Halo
from fgl_bench.algorithms.cross_client._plan import First, Level, Plan
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.network import Parameters


@dataclass(frozen=True)
class ServerFeatures:
    """The servers' input features, as :meth:`Convolutions.first` multiplies them.

    Attributes:
        alone: ``[S, ra]`` the nodes without neighbors in the first convolution.
        sources: ``[S, c]`` the sources of the other nodes; None without sources.
        rest: features of the sources for the parts of the weight that nodes without neighbors do not need.
    """

    server: Batch
    part: int
    parts: int
    alone: Tensor
    sources: Tensor | None
    rest: Rows | None

    @classmethod
    def of(cls, server: Batch, halo: Halo, first: First) -> ServerFeatures:
        rest = [(first.sources, part) for part in range(halo.parts) if part != halo.part]
        some = first.level is not None
        return cls(
            server,
            halo.part,
            halo.parts,
            halo.table(first.alone),
            halo.table(first.sources) if some else None,
            halo.features.rows(rest, halo.parts) if some and rest else None,
        )

    def products(self, weight: Tensor) -> Sequence[Tensor]:
        """Multiply nodes without neighbors with their part of ``weight [S, F, parts * h]``, and sources of the others with all parts."""
        whole = (self.server.features @ weight.chunk(self.parts, -1)[self.part].contiguous()).flatten(0, 1)
        alone = whole[self.alone]
        if self.sources is None:
            return [alone]
        others = [] if self.rest is None else list(self.rest.products(weight))
        return [alone, *others[: self.part], whole[self.sources], *others[self.part :]]


class OwnEdges:
    """The servers' models on validation and test nodes: the first convolution over edges inside clients, the others over all edges.

    A server's node is in no client and has no neighbors in the first convolution; a client's node has those observed by the client.
    Evaluation then has the same inputs of the first convolution as training.
    """

    def __init__(self, server: Batch, clients: Sequence[ClientGraph], layers: Convolutions):
        self.layers, self.shape = layers, (server.size, server.nodes)
        each = len(clients) // server.size
        own = [client.nodes[client.edges] + i // each * server.nodes for i, client in enumerate(clients)]
        none = [np.zeros((2, 0), dtype=np.int64)] * server.size
        parts = (layers.parts, layers.part)
        halo = Halo(server.clients, none, server.dtype, server.device, *parts, own=np.concatenate(own, 1))
        asked = np.flatnonzero((server.val | server.test).cpu().numpy())
        self.plan: Plan = halo.plan(asked, layers.depth)
        self.features = ServerFeatures.of(server, halo, self.plan.first)
        self.place, self.slots = halo.put(self.plan.place), halo.put(asked)

    def __call__(self, parameters: Parameters) -> Tensor:
        """Return the logits ``[S, N, Y]`` of the models ``[S, ...]``, 0 for training nodes."""
        out = self.layers.forward(self.plan, parameters, _nothing, _all, no_dropout, self.features)
        logits = self.layers.head(parameters, out).flatten(0, 1).index_select(0, self.place)
        whole = logits.new_zeros(self.shape[0] * self.shape[1], logits.shape[1])
        return whole.index_copy_(0, self.slots, logits).unflatten(0, self.shape)


def _all(number: int, level: Level, sent: Messages) -> Tensor:
    return torch.ones_like(level.loop)


def _nothing(number: int) -> Tensor:
    raise AssertionError("a server has no rows of others")
