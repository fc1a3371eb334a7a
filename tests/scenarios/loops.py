"""Watching event loops from inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from fgl_bench.engine.training import Trainer
from fgl_bench.scenarios.schedule import Schedule
from fgl_bench.scenarios.semi_async import SemiAsync, _Loop
from tests.engine.graphs import federation, make_client
from tests.small_runs import semi_async


@contextmanager
def watched_loops() -> Iterator[list[_Loop]]:
    """The loops of every seed of the runs inside; each has the extra attribute ``steps``, a list of (version, time, uploads)
    of its server steps, uploads being (client, base version, staleness)."""
    loops, begin, serve = [], _Loop.__init__, _Loop._serve

    def beginning(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.steps = []
        loops.append(self)

    def serving(self):
        queue = list(self.queue)
        serve(self)
        version = self.server.version
        uploads = [(u.client, u.base_version, version - 1 - u.base_version) for u in queue]
        self.steps.append((version, self.time, uploads))
        assert not self.waiting.any(), "a client still waits after a server step"
        assert all(staleness >= 0 for *_, staleness in uploads)

    with patch.object(_Loop, "__init__", beginning), patch.object(_Loop, "_serve", serving):
        yield loops


@contextmanager
def counted_batches() -> Iterator[list[int]]:
    """How many trips each training batch of the runs inside had."""
    sizes, trips = [], Trainer.trips

    def counting(self, rows, *args, **kwargs):
        sizes.append(len(self.everyone) if rows is None else len(rows))
        return trips(self, rows, *args, **kwargs)

    with patch.object(Trainer, "trips", counting):
        yield sizes


def fixed(lags: tuple[int, ...], **changes) -> SemiAsync:
    """A scenario with these lags, ties broken by client number, no jitter."""
    scenario = semi_async(jitter=0.0, **changes)
    slow = tuple(i for i, lag in enumerate(lags) if lag > 1)
    scenario.schedule = lambda seed, clients: Schedule(slow, lags, tuple(range(clients)), seed, 0.0)
    return scenario


def tiny(clients: int, seeds=(0,)):
    """Federations of the smallest clients that can train."""
    return [federation([make_client(4, edges=0.6, seed=i) for i in range(clients)], seed=s) for s in seeds]
