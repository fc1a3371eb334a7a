"""Traffic between clients during training, as counted by FedAAS (Li et al., SIGMOD 2024): rows, bytes, seconds of transfer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._halo import Halo

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
