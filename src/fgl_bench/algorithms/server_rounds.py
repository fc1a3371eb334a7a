"""Base of methods with synchronous rounds: a server that aggregates."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.engine.mixing import Mixing


class ServerRounds(Algorithm):
    """A method under ``scenario=sync``: every round the participants train and upload, and the server aggregates."""

    @abstractmethod
    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """Return the mixing of the round's uploads into the next received models.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
            arrived: ``[S, C]`` bool, the participants of this round.
        """

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        """Return the models that clients receive, ``[S, C, P]``: a server step after aggregation, by default none.

        Args:
            previous: ``[S, C, P]``, the models received before this round.
            received: ``[S, C, P]``, the aggregated models.
            uploaded: ``[S, C, P]``, each client's last upload: the trained models, unless :meth:`upload` is overridden.
            arrived: ``[S, C]`` bool, the participants of this round. Clients of a seed without participants keep ``previous``.
        """
        return received

    @property
    def refines(self) -> bool:
        """Return True if :meth:`refine` is overridden, so that ``previous`` must be stored."""
        return type(self).refine is not ServerRounds.refine

    def warmup_rounds(self) -> int:
        """Return the number of initial rounds without aggregation; best-validation selection ignores their points."""
        return 0

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        """Return bytes uploaded and downloaded per seed after ``rounds`` rounds; the base counts :meth:`traffic` once per trip."""
        up, down, _ = self.traffic().bytes
        return [(trips * up, trips * down)] * len(self.setting.seeds)
