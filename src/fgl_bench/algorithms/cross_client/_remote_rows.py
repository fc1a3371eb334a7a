"""Rows of remote nodes that clients fetch, and their costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._active_rows import Products
from fgl_bench.algorithms.cross_client._bipartite import Convolutions, Messages
from fgl_bench.algorithms.cross_client._features import distinct, padded_index
from fgl_bench.algorithms.cross_client._halo import Halo, Level, Plan
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Spending
from fgl_bench.engine.dropout import no_dropout

# Slots (ascending) and their activated result of the first convolution, ``[k, r, h]``.
ComputedRows = tuple[np.ndarray, Tensor]
# Maps a plan to the current models and, if already computed, to the products of its input features.
Current = Callable[[Plan], tuple[dict[str, Tensor], Products | None]]
PIECE = 256  # rows copied to the store at a time, while they are in the cache


class RemoteRows(FedAvg, Spending):
    """FedAvg whose clients store rows of representations computed by other clients.

    Attributes:
        store: the rows ``[R, width]`` of every convolution except the first.
        stamp: ``[R]``, the step in which each row was last fetched, -1 for never.
        chosen: ``[M]`` bool, the edges that these convolutions use.
        moved: counts of rows and bytes sent.
        seconds: measured computing time.
    """

    halo: Halo
    layers: Convolutions
    link_mbps: float
    link_seconds: float
    _narrow: bool

    def _open(self) -> None:
        """Allocate empty stores."""
        dtype, device = self.halo.dtype, self.halo.device
        entries = max(1, self.halo.owner.size)  # entry 0, to which edges inside clients refer, must exist
        self.store = [torch.zeros(entries, width, dtype=dtype, device=device) for width in self.layers.widths]
        self.stamp = [torch.full((entries,), -1, dtype=torch.int64, device=device) for _ in self.layers.widths]
        self.chosen = [torch.zeros(self.halo.target.size, dtype=torch.bool, device=device) for _ in self.layers.widths]
        self.moved = Transfers(self.halo, len(self.setting.seeds), self.setting.num_clients)
        self.seconds = 0.0

    @torch.no_grad()
    def _fetch(self, current: Current, plan: Plan, step: int, computed: ComputedRows | None = None) -> None:
        """Fetch rows computed by their owners' current models; only requested rows are written and counted.

        Args:
            computed: rows already computed by the current models.
        """
        for number, level in enumerate(plan.levels, 1):
            every = self._asked(number, level)
            entries = level.held[every.numpy()[level.held]] if self._narrow else level.held
            if not entries.size:
                continue
            held, (owners, inverse) = self.halo.put(entries), distinct(self.halo.owner[entries], self.halo.size * self.halo.nodes)
            asked, each = every[held], self.halo.put(inverse)
            self._write(number, held, self._answers(current, number, owners, computed), each, asked, step)
            sent = torch.zeros(owners.size, dtype=torch.int64, device=held.device)
            sent.scatter_reduce_(0, each, asked.long(), "amax")
            self.moved.count(entries, asked.long(), owners, sent, 4 * self.layers.widths[number - 1])

    def _answers(self, current: Current, number: int, owners: np.ndarray, computed: ComputedRows | None) -> Tensor:
        """Return the activated rows ``[A, h]`` of ``owners`` (ascending) after ``number`` convolutions."""
        halo, width = self.halo, self.layers.widths[number - 1]
        slots, known = (owners[:0], self.store[0]) if computed is None or number > 1 else computed
        there = np.isin(owners, slots, assume_unique=True)
        rows = torch.empty(owners.size, width, dtype=halo.dtype, device=halo.device)
        if there.any():
            index, _ = padded_index(slots, halo.size, halo.nodes)
            positions = halo.put(index[np.searchsorted(slots, owners[there])])
            rows.index_copy_(0, halo.put(np.flatnonzero(there)), known.view(-1, width).index_select(0, positions))
        if not there.all():
            answer = halo.plan(owners[~there], number)
            views, features = current(answer)
            new = self.layers.forward(answer, views, self._stored, self._known, no_dropout, features)
            new = self.layers.activate(new).flatten(0, 1).index_select(0, halo.put(answer.index))
            rows.index_copy_(0, halo.put(np.flatnonzero(~there)), new)
        return rows

    def _write(self, number: int, held: Tensor, rows: Tensor, each: Tensor, asked: Tensor, step: int) -> None:
        """Store ``rows[each]`` for the entries ``held`` that were ``asked`` for."""
        store, stamp = self.store[number - 1], self.stamp[number - 1]
        if self._narrow:  # all held entries were requested
            for piece, index in zip(held.split(PIECE), each.split(PIECE), strict=True):
                store.index_copy_(0, piece, rows.index_select(0, index))
            stamp[held] = step
            return
        store[held] = torch.where(asked[:, None], rows.index_select(0, each), store.index_select(0, held))
        stamp[held] = torch.where(asked, step, stamp[held])

    def _asked(self, number: int, level: Level) -> Tensor:
        """Return the entries of the chosen edges of ``level``, ``[R]`` bool."""
        used = (self.chosen[number - 1][level.number] & level.remote).to(torch.int8)
        asked = torch.zeros(len(self.stamp[number - 1]), dtype=torch.int8, device=used.device)
        return asked.scatter_reduce_(0, level.entry, used, "amax") > 0

    def _known(self, number: int, level: Level, sent: Messages) -> Tensor:
        """Return True for edges inside a client, and for edges whose row has been fetched."""
        if number == 0:
            return torch.ones_like(level.loop)
        return ~level.remote | (self.stamp[number - 1][level.entry] >= 0)

    def _taken(self, number: int, edges: np.ndarray) -> np.ndarray:
        """Return the edges that convolution ``number`` uses, read on the host."""
        known = (self.halo.kind[edges] < 2) | (self.stamp[number - 1].numpy()[self.halo.entry[edges]] >= 0)
        return (self.halo.kind[edges] == 0) | (self.chosen[number - 1].numpy()[edges] & known)

    def _stored(self, number: int) -> Tensor:
        return self.store[number - 1]

    # ---- costs

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        up, down, _ = self.traffic().bytes
        sums = self.moved.client_bytes()[:rounds].sum((0, 2))
        return [(trips * up + int(sent), trips * down + int(received)) for sent, received in sums]

    def exchanged(self) -> np.ndarray | None:
        """Return bytes between clients; ids are counted with the rows sent in reply."""
        clients = self.setting.num_clients
        return self.moved.bytes.cpu().numpy().reshape(-1, clients, clients) if self.moved.by_round else None

    def costs(self) -> dict[str, list[float]]:
        """Return per seed: rows fetched, bytes of embeddings, synchronizations, seconds of transfer and measured computing seconds."""
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


ID = 8  # bytes of a node's id


class Transfers:
    """Counts of S seeds with C clients each, over all replicas B = S * C.

    Attributes:
        rows, bytes: cumulative rows sent to a client by another client of its seed, and their bytes including ids, ``[B, C]`` int64.
        by_round: per round, bytes that a client has sent and received besides models, ``[B, 2]``.
        syncs: per round, synchronizations ``[S]``.
    """

    def __init__(self, halo: Halo, seeds: int, clients: int):
        self.halo, self.seeds, self.clients = halo, seeds, clients
        self._pair = halo.put(halo.holder * clients + halo.owner // halo.nodes % clients)
        self.rows, self.bytes = (torch.zeros(halo.size, clients, dtype=torch.int64, device=halo.device) for _ in range(2))
        self.by_round: list[Tensor] = []
        self.syncs: list[np.ndarray] = []

    def open(self) -> None:
        """Start a round."""
        self.by_round.append(torch.zeros(self.halo.size, 2, dtype=torch.int64, device=self.halo.device))
        self.syncs.append(np.zeros(self.seeds, dtype=np.int64))

    def count(self, held: np.ndarray, asked: Tensor, owners: np.ndarray, sent: Tensor, size: int) -> None:
        """Count an exchange via the server: ids to the owners, rows of ``size`` bytes back to the requesting clients.

        Args:
            held: host, entries of the halo; ``asked``, of the same length, is 1 for requested entries, else 0.
            owners: host, distinct slots; ``sent``, of the same length, is 1 for slots whose row was sent, else 0.
        """
        halo, moved = self.halo, self.by_round[-1]
        holder, owner = halo.put(halo.holder[held]), halo.put(halo.owner[held] // halo.nodes)
        pair = self._pair[halo.put(held)]
        self.rows.view(-1).index_add_(0, pair, asked)
        self.bytes.view(-1).index_add_(0, pair, (ID + size) * asked)
        moved[:, 0].index_add_(0, holder, ID * asked).index_add_(0, halo.put(owners // halo.nodes), size * sent)
        moved[:, 1].index_add_(0, owner, ID * asked).index_add_(0, holder, size * asked)

    def client_bytes(self) -> np.ndarray:
        """Return the bytes that every client sent and received in every round besides models, ``[rounds, S, C, 2]``."""
        shape = (-1, self.seeds, self.clients, 2)
        return torch.stack(self.by_round).cpu().numpy().reshape(shape) if self.by_round else np.zeros((0, *shape[1:]), dtype=np.int64)

    def course(self, model_bytes: int, link_mbps: float, link_seconds: float) -> dict[str, np.ndarray]:
        """Return cumulative costs of each seed by round, ``[S, rounds]`` by name: bytes, synchronizations, seconds of transfer.

        Args:
            model_bytes: bytes of a client's model, upload plus download.
        """
        moved, syncs = self.client_bytes(), np.stack(self.syncs)
        busiest = (moved.sum(3) + model_bytes).max(2)
        each = {
            "embedding_upload": moved[..., 0].sum(2),
            "embedding_download": moved[..., 1].sum(2),
            "synchronisations": syncs,
            "communication_seconds": busiest * 8e-6 / link_mbps + 2 * link_seconds * (1 + syncs),
        }
        return {name: spent.cumsum(0).T for name, spent in each.items()}
