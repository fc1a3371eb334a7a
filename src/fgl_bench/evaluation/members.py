"""Scores of a pooled federation, client by client, or of its server."""

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
    """The masks and labels that a score reads of the members' nodes: ``[k * C, n]`` (labels of several kinds a node: ``[k * C, n, Y]``)."""

    labels: Tensor
    val: Tensor
    test: Tensor

    @property
    def scored(self) -> ScoredNodes:
        return ScoredNodes.of(self.val, self.test, torch.get_default_dtype())


class ByMember:
    """A score of every member from the predictions for all of them, ``[S, N, Y]`` to ``[S, 2 C]``: validation, test, and so on in turn."""

    def __init__(self, score: Score, federations: Sequence[Pooled], device: torch.device):
        self.score, self.count = score, len(federations[0].members)
        most = max(member.num_nodes for f in federations for member in f.members)
        stack: dict[str, list[np.ndarray]] = {name: [] for name in ("place", "labels", "val", "test")}
        for federation in federations:
            (whole,) = federation.clients
            for member in federation.members:
                place = np.searchsorted(whole.nodes, member.nodes)
                for name, values in {"place": place, **{n: getattr(member, n) for n in ("labels", "val", "test")}}.items():
                    padded = np.zeros((most, *values.shape[1:]), dtype=values.dtype)
                    padded[: member.num_nodes] = np.maximum(values, 0) if name == "labels" else values
                    stack[name].append(padded)
        shape = (len(federations), self.count)
        made = {name: torch.from_numpy(np.stack(rows)).to(device).unflatten(0, shape) for name, rows in stack.items()}
        self.place, self.nodes = made.pop("place"), _Nodes(**made)

    def __call__(self, logits: Float[Tensor, "S N Y"], batch: Batch) -> Float[Tensor, "S 2C"]:
        rows = batch.replicas
        place = self.place[rows].flatten(1)
        apart = logits.gather(1, place[..., None].expand(-1, -1, logits.shape[2])).unflatten(1, self.place.shape[1:])
        nodes = _Nodes(*(part[rows].flatten(0, 1) for part in self.nodes))
        return self.score(apart.flatten(0, 1), cast(Batch, nodes)).view(len(rows), -1)  # all that a score reads of a batch


def scoring(score: Score, federations: Sequence[Federation], device: torch.device) -> Score:
    """``score``, member by member where the federations are pooled; with a server every member has the server's."""
    if isinstance(federations[0], PooledServed):
        count = len(federations[0].members)
        return lambda logits, batch: score(logits, batch).repeat(1, count)
    pooled = [federation for federation in federations if isinstance(federation, Pooled)]
    return ByMember(score, pooled, device) if pooled else score
