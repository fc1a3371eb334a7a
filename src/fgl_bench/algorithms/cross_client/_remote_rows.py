"""What clients hold of each other's nodes: rows that are fetched, and what fetching them costs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._bipartite import Convolutions, Messages
from fgl_bench.algorithms.cross_client._halo import Halo, Level, Plan
from fgl_bench.algorithms.cross_client._moved import Moved
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Spending
from fgl_bench.engine.dropout import no_dropout


class RemoteRows(FedAvg, Spending):
    """FedAvg whose clients keep rows of representations that other clients have computed.

    Attributes:
        store: of every convolution but the first the rows, ``[R, width]``.
        stamp: ``[R]``, the step in which each was fetched last, -1 for never.
        chosen: ``[M]`` bool, which edges those convolutions use.
        moved: rows and bytes that were sent.
        seconds: measured, of computing.
    """

    halo: Halo
    layers: Convolutions
    link_mbps: float
    link_seconds: float
    _narrow: bool

    def _open(self) -> None:
        """Allocate empty rows."""
        dtype, device = self.halo.dtype, self.halo.device
        entries = max(1, self.halo.owner.size)  # what edges inside clients point at must be there
        self.store = [torch.zeros(entries, width, dtype=dtype, device=device) for width in self.layers.widths]
        self.stamp = [torch.full((entries,), -1, dtype=torch.int64, device=device) for _ in self.layers.widths]
        self.chosen = [torch.zeros(self.halo.target.size, dtype=torch.bool, device=device) for _ in self.layers.widths]
        self.moved = Moved(self.halo, len(self.setting.seeds), self.setting.num_clients)
        self.seconds = 0.0

    @torch.no_grad()
    def _fetch(self, views: dict[str, Tensor], plan: Plan, step: int) -> None:
        """Owners answer with their models as they are; only rows that were asked for are written and counted."""
        for number, level in enumerate(plan.levels[1:], 1):
            every = self._asked(number, level)
            entries = level.held[every.numpy()[level.held]] if self._narrow else level.held
            if not entries.size:
                continue
            held, (owners, inverse) = self.halo.put(entries), np.unique(self.halo.owner[entries], return_inverse=True)
            asked, answer = every[held], self.halo.plan(owners, number)
            rows = self.layers.activate(self.layers.forward(answer, views, self._stored, self._known, no_dropout)).flatten(0, 1)
            kept = self.store[number - 1].index_select(0, held)
            self.store[number - 1][held] = torch.where(asked[:, None], rows.index_select(0, self.halo.put(answer.place[inverse])), kept)
            self.stamp[number - 1][held] = torch.where(asked, step, self.stamp[number - 1][held])
            sent = torch.zeros(owners.size, dtype=torch.int64, device=held.device)
            sent.scatter_reduce_(0, self.halo.put(inverse), asked.long(), "amax")
            self.moved.count(entries, asked.long(), owners, sent, 4 * self.layers.widths[number - 1])

    def _asked(self, number: int, level: Level) -> Tensor:
        """``[R]`` bool, the entries behind the chosen edges of ``level``."""
        used = (self.chosen[number - 1][level.number] & level.remote).to(torch.int8)
        asked = torch.zeros(len(self.stamp[number - 1]), dtype=torch.int8, device=used.device)
        return asked.scatter_reduce_(0, level.entry, used, "amax") > 0

    def _known(self, number: int, level: Level, sent: Messages) -> Tensor:
        """All edges inside a client, and those whose row has been fetched."""
        if number == 0:
            return torch.ones_like(level.loop)
        return ~level.remote | (self.stamp[number - 1][level.entry] >= 0)

    def _stored(self, number: int, level: Level) -> Tensor:
        entries = level.entries  # selected by rows: indexing takes a CPU five times as long
        return self.store[number - 1].index_select(0, entries.flatten()).unflatten(0, entries.shape)

    # ---- costs

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        up, down, _ = self.traffic().bytes
        sums = self.moved.client_bytes()[:rounds].sum((0, 2))
        return [(trips * up + int(sent), trips * down + int(received)) for sent, received in sums]

    def exchanged(self) -> np.ndarray | None:
        """Bytes by edge of the client graph; ids go the other way and are counted with the rows that answer them."""
        clients = self.setting.num_clients
        return self.moved.bytes.cpu().numpy().reshape(-1, clients, clients) if self.moved.by_round else None

    def costs(self) -> dict[str, list[float]]:
        """By seed: rows fetched, bytes of the embeddings, synchronisations, seconds on the wire and measured seconds of computing."""
        course, seeds = self.cost_history(), len(self.setting.seeds)
        if not course:
            return {}
        return {
            "rows": self.moved.rows.view(seeds, -1).sum(1).tolist(),
            **{name: spent[:, -1].tolist() for name, spent in course.items()},
            "computation_seconds": [self.seconds / seeds] * seeds,
        }

    def cost_history(self) -> dict[str, np.ndarray]:
        up, down, _ = self.traffic().bytes
        return self.moved.course(up + down, self.link_mbps, self.link_seconds) if self.moved.by_round else {}
