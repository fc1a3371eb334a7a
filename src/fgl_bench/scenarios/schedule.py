"""Who is slow, by how much, and how long each trip takes."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.seeding import derive_seed, generator


@dataclass(frozen=True)
class Schedule:
    """One seed's stragglers.

    Attributes:
        slow: the slow clients, ascending.
        lag: every client's lag in cycles, 1 for a fast one.
        priority: breaks ties between simultaneous arrivals.
        seed: of the durations' jitter.
        jitter: trips last ``lag * (1 + jitter * (2u - 1))`` cycles, u uniform per (client, trip).
        redraw: the range of lags that slow clients draw from anew at each trip; None keeps ``lag`` for the run.
    """

    slow: tuple[int, ...]
    lag: tuple[int, ...]
    priority: tuple[int, ...]
    seed: int
    jitter: float
    redraw: tuple[int, int] | None = None

    @classmethod
    def draw(cls, seed: int, clients: int, slow_fraction: float, lag: tuple[int, int], jitter: float, redraw: bool = False) -> Schedule:
        """The schedule of the repetition ``seed``: ``round(slow_fraction * C)`` slow clients with lags uniform on ``lag``."""
        rng = generator(seed, "stragglers")
        slow = set(rng.choice(clients, round(slow_fraction * clients), replace=False).tolist())
        lags = [int(rng.integers(lag[0], lag[1] + 1)) if i in slow else 1 for i in range(clients)]
        priority = rng.permutation(clients).tolist()
        return cls(tuple(sorted(slow)), tuple(lags), tuple(priority), derive_seed(seed, "durations"), jitter, lag if redraw else None)

    def cycles(self, client: int, trip: int) -> int:
        """The client's lag at this trip."""
        if self.redraw is None or client not in self.slow:
            return self.lag[client]
        low, high = self.redraw
        return low + derive_seed(self.seed, "lag", client, trip) % (high - low + 1)

    def duration(self, client: int, trip: int) -> float:
        """How long the trip takes on the virtual clock, in cycles."""
        uniform = derive_seed(self.seed, client, trip) / 2**63
        return self.cycles(client, trip) * (1 + self.jitter * (2 * uniform - 1))
