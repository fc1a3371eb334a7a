"""Scores of a pooled federation by client, or of its server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.federation import Federation
from fgl_bench.data.pooling import Pooled, PooledServed
from fgl_bench.engine import Float
from fgl_bench.engine.batch import Batch, ScoredNodes
from fgl_bench.engine.trips import Score


class _Nodes(NamedTuple):
    """Masks and labels of the members' nodes for a score, ``[k * C, n]`` (multi-label data: labels ``[k * C, n, Y]``)."""

    labels: Tensor
    val: Tensor
    test: Tensor

    @property
    def scored(self) -> ScoredNodes:
        return ScoredNodes.of(self.val, self.test, torch.get_default_dtype())


class ByMember:
    """Score every member from pooled predictions, ``[S, N, Y]`` to ``[S, 2 C]``: validation and test per member."""

    def __init__(self, score: Score, federations: Sequence[Pooled], device: torch.device):
        self.score, self.count = score, len(federations[0].members)
        most = max(member.num_nodes for f in federations for member in f.members)
        stack: dict[str, list[np.ndarray]] = {name: [] for name in ("positions", "labels", "val", "test")}
        for federation in federations:
            (whole,) = federation.clients
            for member in federation.members:
                positions = np.searchsorted(whole.nodes, member.nodes)
                for name, values in {"positions": positions, **{n: getattr(member, n) for n in ("labels", "val", "test")}}.items():
                    padded = np.zeros((most, *values.shape[1:]), dtype=values.dtype)
                    padded[: member.num_nodes] = np.maximum(values, 0) if name == "labels" else values
                    stack[name].append(padded)
        shape = (len(federations), self.count)
        stacked = {name: torch.from_numpy(np.stack(rows)).to(device).unflatten(0, shape) for name, rows in stack.items()}
        self.positions, self.nodes = stacked.pop("positions"), _Nodes(**stacked)

    def __call__(self, logits: Float[Tensor, "S N Y"], batch: Batch) -> Float[Tensor, "S 2C"]:
        rows = batch.replicas
        positions = self.positions[rows].flatten(1)
        by_member = logits.gather(1, positions[..., None].expand(-1, -1, logits.shape[2])).unflatten(1, self.positions.shape[1:])
        nodes = _Nodes(*(part[rows].flatten(0, 1) for part in self.nodes))
        return self.score(by_member.flatten(0, 1), cast(Batch, nodes)).view(len(rows), -1)  # a score reads nothing else of a batch


def scoring(score: Score, federations: Sequence[Federation], device: torch.device) -> Score:
    """Return ``score`` by member for pooled federations. With a server, every member gets the server's score."""
    if isinstance(federations[0], PooledServed):
        count = len(federations[0].members)
        return lambda logits, batch: score(logits, batch).repeat(1, count)
    pooled = [federation for federation in federations if isinstance(federation, Pooled)]
    return ByMember(score, pooled, device) if pooled else score
