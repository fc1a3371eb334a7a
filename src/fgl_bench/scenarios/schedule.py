"""Stragglers: which clients are slow, and how long each trip takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from fgl_bench.errors import SHARE, Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed, generator

if TYPE_CHECKING:
    from fgl_bench.scenarios.simulation import Simulation


@dataclass(frozen=True)
class Schedule:
    """One seed's stragglers.

    Attributes:
        slow: the slow clients, ascending.
        lag: every client's lag in cycles, 1 for a fast one.
        priority: breaks ties between simultaneous arrivals.
        seed: of the durations' jitter.
        jitter: trips last ``lag * (1 + jitter * (2u - 1))`` cycles, u uniform per (client, trip).
        redraw: the range from which slow clients draw a new lag for each trip; None keeps ``lag`` for the run.
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
        """Duration of the trip on the virtual clock, in cycles."""
        if not self.jitter:
            return float(self.cycles(client, trip))
        uniform = derive_seed(self.seed, client, trip) / 2**63
        return self.cycles(client, trip) * (1 + self.jitter * (2 * uniform - 1))


@dataclass
class Stragglers:
    """The keys that all scenarios share, about stragglers (FedSA-GCL: 30 % of the clients are slow, by 2 to 5 cycles).

    Attributes:
        slow_fraction: share of slow clients.
        lag: smallest and largest lag of a slow client, in cycles; a fast client's is 1.
        lag_draw: one lag per run, or a new one per trip.
        jitter: relative half-width of a trip's duration.

    Class attributes:
        name: the scenario's name on the command line.
        contract: the base from which a method must derive to run under the scenario; the scenario calls its hooks.
    """

    name: ClassVar[str]
    contract: ClassVar[type]
    ranges: ClassVar[dict[str, Range]] = {"slow_fraction": SHARE, "lag": at_least(1), "jitter": Range(0, 1, below=True)}

    slow_fraction: float
    lag: list[int]
    lag_draw: Literal["per_run", "per_trip"]
    jitter: float

    @property
    def drops_uploads(self) -> bool:
        """Whether uploads of participating clients may be dropped."""
        return False

    def run(self, sim: Simulation) -> None:
        """Train to the end of the budget and fill ``sim.points``, with one evaluation point every ``sim.eval_every`` trips."""
        raise NotImplementedError  # abstract

    def schedule(self, seed: int, clients: int) -> Schedule:
        """The stragglers of one seed; they are the same for all methods.

        Raises:
            UserError: a key is out of range.
        """
        if not 0 <= self.slow_fraction <= 1:
            raise UserError(f"scenario.slow_fraction={self.slow_fraction} is out of range; allowed: 0 to 1")
        if len(self.lag) != 2 or not 1 <= self.lag[0] <= self.lag[1]:
            raise UserError(f"scenario.lag={list(self.lag)} is no range; allowed: [smallest, largest] with 1 <= smallest <= largest")
        if not 0 <= self.jitter < 1:
            raise UserError(f"scenario.jitter={self.jitter} is out of range; allowed: 0 to below 1")
        low, high = self.lag
        return Schedule.draw(seed, clients, self.slow_fraction, (low, high), self.jitter, self.lag_draw == "per_trip")
