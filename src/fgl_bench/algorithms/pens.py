"""PENS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.mixing import messages, product, self_loops, sized, uniform
from fgl_bench.engine.transfer import put
from fgl_bench.errors import SHARE, Range, UserError, at_least
from fgl_bench.utils.seeding import generator


@dataclass
class PENS(Peers):
    """Gossip with peers whose models perform well on the client's data (Onoszko et al., FL-ICML workshop 2021).

    In the first phase a client samples n_s peers per round, evaluates their models on its own training nodes and averages its model
    with the m models of lowest loss, weighted by size. Its preferred peers are then those selected more often than by chance,
    ``selected_j > m / n_s * sampled_j``; in the second phase it averages with n_g of them per round.

    Resolutions: n_s = min(10, C - 1), m = 2, the first fifth of the rounds (at least one), n_g = m; if m = n_s, all sampled peers are
    preferred; ranks by training loss, ties by index; the owner's size (4 bytes) is sent with a model; all sampled models are
    sent in the first phase. A client without preferred peers, or without training nodes to rank with, does not average. Peers
    are sampled among the scenario's links, by default all.

    Attributes:
        sampled: n_s; null means ten, or all other clients if they are fewer.
        selected: m.
        first_phase: share of the rounds, in [0, 1].
        gossip_peers: n_g; null means m.
        weighting: by client size (``samples``), or ``uniform``.
    """

    by_clients: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "sampled": at_least(1), "selected": at_least(1), "first_phase": SHARE, "gossip_peers": at_least(1),
    }  # fmt: skip

    sampled: int | None
    selected: int
    first_phase: float
    gossip_peers: int | None
    weighting: Literal["samples", "uniform"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        clients, device = setting.num_clients, setting.batch.device
        self._sample = min(10 if self.sampled is None else self.sampled, max(clients - 1, 1))
        if self.selected > self._sample:
            raise UserError(f"algorithm.selected={self.selected} does not fit {self._sample} sampled peers; allowed: 1 to as many")
        able = torch.as_tensor(setting.batch.num_train > 0, device=device)
        self._able = setting.shard.whole(able.view(len(setting.seeds), -1, 1))
        self.times_selected = torch.zeros(len(setting.seeds), clients, clients, dtype=torch.float64, device=device)
        self.times_sampled = torch.zeros_like(self.times_selected)

    @property
    def preferred(self) -> Tensor:
        """Return ``[S, C, C]`` bool, the preferred peers of each client so far."""
        if self.selected == self._sample:
            return self.times_sampled > 0
        return self.times_selected > self.selected / self._sample * self.times_sampled + 1e-9

    def exchange(self, meeting: Meeting) -> Exchange:
        adjacency = meeting.graph(meeting.number) & self._able
        if meeting.number < max(int(self.first_phase * meeting.rounds), self.first_phase > 0):
            received = self._draw(adjacency, self._sample, meeting.number)
            chosen = received & (_rank(self._losses(meeting, received)) < self.selected)
            self.times_sampled += received
            self.times_selected += chosen
        else:
            count = self.selected if self.gossip_peers is None else self.gossip_peers
            received = chosen = self._draw(adjacency & self.preferred, count, meeting.number)
        matrix = sized(chosen, self.setting.weights) if self.weighting == "samples" else uniform(chosen)
        matrix = torch.where(chosen.any(-1, keepdim=True), matrix, self_loops(chosen).double())
        return Exchange(product(matrix, meeting.uploaded, self.setting.shard), matrix, messages(received, self.traffic().bytes[0] + 4))

    def _draw(self, among: Tensor, count: int, number: int) -> Tensor:
        """Return up to ``count`` random peers of each client, ``[S, C, C]`` bool."""
        draws = np.stack([generator(seed, "peers", number).random(among.shape[1:]) for seed in self.setting.seeds])
        order = torch.where(among, put(draws, among.device), torch.inf)
        return among & (_rank(order) < count)

    def _losses(self, meeting: Meeting, received: Tensor) -> Tensor:
        """Return ``[S, C, C]`` float64, the loss of j's model on i's training nodes; infinite if i did not receive it.

        Every client evaluates one of its received models at a time, all clients in parallel.
        """
        shard = self.setting.shard
        uploaded, senders = shard.whole(meeting.uploaded), shard.of(received).to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        losses = torch.full(senders.shape, torch.inf, dtype=torch.float64, device=received.device)
        for slot in range(self._sample):
            sender = senders[..., slot]
            models = uploaded.gather(1, sender[..., None].expand_as(meeting.uploaded))
            losses.scatter_(2, sender[..., None], meeting.losses(models).double()[..., None])
        return torch.where(received, shard.whole(losses), torch.inf)


def _rank(values: Tensor) -> Tensor:
    """Return the rank of every entry in its row, ascending; ties by index."""
    order = values.argsort(dim=-1, stable=True)
    return torch.empty_like(order).scatter_(-1, order, torch.arange(values.shape[-1], device=values.device).expand_as(order))
