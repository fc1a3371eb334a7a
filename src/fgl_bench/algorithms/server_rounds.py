"""What synchronous rounds add to a method: a server that aggregates."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.engine.mixing import Mixing


class ServerRounds(Algorithm):
    """A method under ``scenario=sync``: every round the participants train and upload, and the server aggregates."""

    @abstractmethod
    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """How the round's uploads become the next received models.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
            arrived: ``[S, C]`` bool, the clients that took part in this round.
        """

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        """The server's own step after aggregation: what clients will receive, ``[S, C, P]``; the base takes the aggregated models.

        Args:
            previous: ``[S, C, P]``, what clients had received before this round.
            received: ``[S, C, P]``, the aggregated models.
            uploaded: ``[S, C, P]``, what clients uploaded last: their trained models, unless :meth:`upload` says otherwise.
            arrived: ``[S, C]`` bool, the clients that took part in this round. Where nobody of a seed has, its clients keep ``previous``.
        """
        return received

    @property
    def refines(self) -> bool:
        """Whether :meth:`refine` is more than the base's, so that ``previous`` has to be kept."""
        return type(self).refine is not ServerRounds.refine

    def warmup_rounds(self) -> int:
        """Rounds at the start in which models are not aggregated; best-validation selection leaves their points out."""
        return 0

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        """What each seed's clients have uploaded and downloaded after so many rounds; the base counts :meth:`traffic` once a trip."""
        up, down, _ = self.traffic().bytes
        return [(trips * up, trips * down)] * len(self.setting.seeds)
