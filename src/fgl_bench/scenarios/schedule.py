"""Stragglers: which clients are slow, and how long each trip takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fgl_bench.errors import SHARE, Range, UserError, at_least, check_ranges
from fgl_bench.scenarios.devices import Device, device
from fgl_bench.utils.seeding import derive_seed, generator

if TYPE_CHECKING:
    from fgl_bench.scenarios.simulation import Simulation

Bytes = float | np.ndarray  # of all clients, or of each ``[C]``


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
        pace: seconds that each client's device computes in a cycle; None where the clock counts cycles.
        travel: seconds that each client's messages take in a trip.
    """

    slow: tuple[int, ...]
    lag: tuple[int, ...]
    priority: tuple[int, ...]
    seed: int
    jitter: float
    redraw: tuple[int, int] | None = None
    pace: tuple[float, ...] | None = None
    travel: tuple[float, ...] = ()

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
        """Duration of the trip on the virtual clock, in cycles, or in seconds where clients have devices."""
        lasts = float(self.cycles(client, trip))
        if self.jitter:
            uniform = derive_seed(self.seed, client, trip) / 2**63
            lasts = self.cycles(client, trip) * (1 + self.jitter * (2 * uniform - 1))
        return lasts if self.pace is None else self.pace[client] * lasts + self.travel[client]

    def on_devices(self, devices: Sequence[Device], cycle_seconds: float, sent: tuple[Bytes, Bytes]) -> Schedule:
        """The same stragglers, each client with one of these classes of devices, drawn alike often.

        Args:
            cycle_seconds: seconds that a trip of a fast client takes on the fastest class.
            sent: bytes up and down of a trip, of all clients or of each.
        """
        clients = len(self.lag)
        drawn = [devices[i] for i in generator(self.seed, "devices").integers(len(devices), size=clients)]
        up, down = (np.broadcast_to(np.asarray(part, dtype=float), (clients,)) for part in sent)
        travel = tuple(each.travel(float(u), float(d)) for each, u, d in zip(drawn, up, down, strict=True))
        return replace(self, pace=tuple(cycle_seconds * each.slowdown for each in drawn), travel=travel)


@dataclass
class Stragglers:
    """The keys that all scenarios share, about stragglers (FedSA-GCL: 30 % of the clients are slow, by 2 to 5 cycles).

    Attributes:
        slow_fraction: share of slow clients.
        lag: smallest and largest lag of a slow client, in cycles; a fast client's is 1.
        lag_draw: one lag per run, or a new one per trip.
        jitter: relative half-width of a trip's duration.
        devices: classes of devices (``scenarios/devices.csv``), of which each client has one. The virtual clock then counts seconds of
            computing and of sending, and so does a deadline; without devices it counts cycles.
        cycle_seconds: with devices, seconds that a trip of a fast client takes on the fastest class.

    Class attributes:
        name: the scenario's name on the command line.
        contract: the base from which a method must derive to run under the scenario; the scenario calls its hooks.
    """

    name: ClassVar[str]
    contract: ClassVar[type]
    ranges: ClassVar[dict[str, Range]] = {
        "slow_fraction": SHARE, "lag": at_least(1), "jitter": Range(0, 1, below=True), "cycle_seconds": Range(0, 1e9, above=True),
    }  # fmt: skip

    slow_fraction: float
    lag: list[int]
    lag_draw: Literal["per_run", "per_trip"]
    jitter: float
    devices: list[str] = field(default_factory=list, kw_only=True)
    cycle_seconds: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_ranges(self, "scenario")
        for name in self.devices:
            device(name)

    @property
    def drops_uploads(self) -> bool:
        """Return True if uploads of participating clients may be dropped."""
        return False

    def run(self, sim: Simulation) -> None:
        """Train to the end of the budget and fill ``sim.points``, with one evaluation point every ``sim.eval_every`` trips."""
        raise NotImplementedError  # abstract

    def trip_bytes(self, sim: Simulation, seed: int) -> tuple[Bytes, Bytes]:
        """Bytes that a client sends and receives in a trip."""
        up, down, _ = sim.algorithm.traffic().bytes
        return up, down

    def schedules(self, sim: Simulation) -> list[Schedule]:
        """The stragglers of every seed, on their devices where they have some."""
        drawn = [self.schedule(seed, sim.setting.num_clients) for seed in sim.setting.seeds]
        if not self.devices:
            return drawn
        devices = [device(name) for name in self.devices]
        parts = [self.trip_bytes(sim, seed) for seed in sim.setting.seeds]
        return [each.on_devices(devices, self.cycle_seconds, part) for each, part in zip(drawn, parts, strict=True)]

    def schedule(self, seed: int, clients: int) -> Schedule:
        """The stragglers of one seed, in cycles; they are the same for all methods.

        Raises:
            UserError: ``lag`` is no range.
        """
        if len(self.lag) != 2 or not 1 <= self.lag[0] <= self.lag[1]:
            raise UserError(f"scenario.lag={list(self.lag)} is no range; allowed: [smallest, largest] with 1 <= smallest <= largest")
        low, high = self.lag
        return Schedule.draw(seed, clients, self.slow_fraction, (low, high), self.jitter, self.lag_draw == "per_trip")
