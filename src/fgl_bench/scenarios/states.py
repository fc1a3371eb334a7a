"""The complete state of scenarios between two steps: with trainer, method and logs, a run resumes from these records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.evaluation.history import Point


class Transferred(NamedTuple):
    """Bytes sent and received so far: by all clients, and by the busiest one (None in scenarios with a server)."""

    upload: int
    download: int
    busiest: int | None = None


@dataclass
class RoundsState:
    """Rounds, between two of them.

    Attributes:
        each: client trips per round of a seed.
        received, trained: ``[B, P]``, the models that clients train next, and those that they trained last.
        reports: ``[B, ...]`` by name, the last ones that reached the server.
        uploads: ``[B, P]``, the last ones; None where clients upload their trained models.
        clock: of every seed, the virtual time after each number of rounds.
        last: ``[S, C]`` log positions of the models that clients trained last; of received ones where trained ones are not scored.
        lost: ``[S, C]`` positions of the losses of these trips; None where nothing is trained.
        received_at, trained_at: ``[S, C]`` log positions by number of rounds, where there is an evaluation point; -1 for trained models
            that are not scored.
        loss_at: the same of losses.
        scored: numbers of rounds after which there is an evaluation point, both of whose models have been scored.
        number: rounds done.
    """

    each: int
    received: Tensor
    trained: Tensor
    clock: list[list[float]]
    last: np.ndarray
    lost: np.ndarray | None
    loss_at: dict[int, np.ndarray | None]
    received_at: dict[int, np.ndarray] = field(default_factory=dict)
    trained_at: dict[int, np.ndarray] = field(default_factory=dict)
    reports: dict[str, Tensor] = field(default_factory=dict)
    uploads: Tensor | None = None
    scored: list[int] = field(default_factory=list)
    number: int = 0

    @classmethod
    def begin(cls, initial: Tensor, seeds: int, clients: int, each: int, trains: bool) -> RoundsState:
        """Before the first round, from the models ``initial [B, P]``."""
        lost = np.full((seeds, clients), -1) if trains else None
        return cls(
            each,
            initial.clone(),
            initial.clone(),
            clock=[[0.0] for _ in range(seeds)],
            last=np.zeros((seeds, clients), dtype=np.int64),
            lost=lost,
            loss_at={0: lost},
        )

    @property
    def done(self) -> int:
        """Rounds done."""
        return self.number

    @property
    def trips(self) -> int:
        """Client trips done, of all seeds."""
        return len(self.clock) * self.number * self.each

    def state(self) -> RoundsState:
        """The record from which the rounds resume."""
        return self

    def points(self, starts: Sequence[int], sent: Sequence[Sequence[Transferred]] | None = None) -> list[list[Point]]:
        """The scored evaluation points of every seed from the numbers ``starts`` on.

        Args:
            sent: bytes after each of them, by seed; None means that they are not known yet.
        """
        return [
            [
                Point(
                    n * self.each,
                    n,
                    self.clock[s][n],
                    self.received_at[n][s],
                    self.trained_at[n][s],
                    moved.upload,
                    moved.download,
                    busiest=moved.busiest,
                    loss=None if (positions := self.loss_at[n]) is None else positions[s],
                )
                for n, moved in zip(self.scored[start:], sent[s] if sent else repeat(Transferred(0, 0)), strict=sent is not None)
            ]
            for s, start in enumerate(starts)
        ]


@dataclass
class EventState:
    """The events of one seed, between two of them.

    Attributes:
        trips, time: client trips and virtual clock.
        upload, download: bytes.
        begun, ended: ``[C]`` trips of each client.
        version: ``[C]``, of the server when each client's trip began.
        waiting: ``[C]`` bool, clients whose next trip waits for the server.
        inbox: every client's newest unread message and its version.
        newest: where trips are atomic, the newest message and whether it brought the global model.
        heap: trips under way, by their end, priority and client.
        held: the same of slow uploads, by the trip count that releases them.
        due: the client whose upload arrives next, if its trip has yet to be computed.
        queue: the buffer.
        staleness: of the uploads since the last evaluation point.
        forced: slow uploads that were released early.
        records: the known values of every evaluation point.
        last: ``[C]`` log positions of the models that clients had trained at the last of them.
        trace: time and client of every arrival.
        pictures: similarities ``[C, C]`` by trip count.
    """

    server: Server
    begun: np.ndarray
    ended: np.ndarray
    version: np.ndarray
    waiting: np.ndarray
    last: np.ndarray
    inbox: list[tuple[Message, int] | None]
    newest: list[tuple[Message, bool] | None]
    trips: int = 0
    time: float = 0.0
    upload: int = 0
    download: int = 0
    heap: list[tuple[float, int, int]] = field(default_factory=list)
    held: list[tuple[int, int, int]] = field(default_factory=list)
    due: int | None = None
    queue: list[Upload] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    forced: int = 0
    records: list[tuple] = field(default_factory=list)
    trace: list[tuple[float, int]] = field(default_factory=list)
    pictures: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def begin(cls, server: Server, clients: int) -> EventState:
        """Before the first event."""
        return EventState(
            server,
            begun=np.zeros(clients, dtype=int),
            ended=np.zeros(clients, dtype=int),
            version=np.zeros(clients, dtype=int),
            waiting=np.zeros(clients, dtype=bool),
            last=np.zeros(clients, dtype=int),
            inbox=[None] * clients,
            newest=[None] * clients,
        )

    def state(self) -> dict[str, Any]:
        """The fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(EventState)}
