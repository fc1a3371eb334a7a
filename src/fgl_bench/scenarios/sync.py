"""Synchronous rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from fgl_bench.evaluation.history import Point
from fgl_bench.scenarios.schedule import Schedule, Stragglers
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.seeding import generator


@dataclass
class Sync(Stragglers):
    """Rounds of download, local epochs, upload and aggregation.

    A fraction ``participation`` of the clients, drawn anew every round, takes part. A method with one global model sends it to
    everybody; a personalised method replaces the models of the participants only. On the virtual clock a round lasts as long
    as its slowest trip: stragglers cost time, not accuracy, unless there is a deadline.

    Attributes:
        deadline: cycles after which the server aggregates without the late uploads; their trips count and they start again
            from the newest model. null waits for everybody.
    """

    name: ClassVar[str] = "sync"

    deadline: float | None

    @property
    def drops_uploads(self) -> bool:
        return self.deadline is not None

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``: one evaluation point every ``eval_every`` trips (rounded up to whole rounds), and at the ends."""
        trainer, method, setting, log = sim.trainer, sim.algorithm, sim.setting, sim.log
        seeds, clients = len(setting.seeds), setting.num_clients
        count = participants(sim.participation, clients)
        full, every = count == clients, max(1, -(-sim.eval_every // count))
        schedules = [self.schedule(seed, clients) for seed in setting.seeds]
        clock = [[0.0] for _ in schedules]
        grid = np.arange(seeds * clients).reshape(seeds, clients)

        received, trained = sim.initial.clone(), sim.initial.clone()
        stack = (seeds, clients, received.shape[1])
        reports: dict[str, torch.Tensor] = {}
        chosen = np.ones((seeds, clients), dtype=bool)
        rows, index = None, slice(None)
        last = np.zeros_like(grid)  # log positions of the models that clients trained last
        received_at: dict[int, np.ndarray] = {}
        trained_at: dict[int, np.ndarray] = {}

        for number in range(sim.rounds):
            graphs = method.regraph(number, trainer.batch, trainer.evaluation)
            if graphs is not None:
                trainer.regraph(*graphs)
            now, next_ = number % every == 0, (number + 1) % every == 0 or number + 1 == sim.rounds
            if not full:
                if now:
                    received_at[number] = log.add(trainer.evaluate(received)) + grid
                chosen = self._draw(setting.seeds, number, count, clients)
                rows = np.flatnonzero(chosen).tolist()
                index = torch.as_tensor(rows, device=received.device)
            arrived = torch.from_numpy(self._wait(schedules, clock, chosen, number)).to(received.device)
            out = trained if full else torch.empty_like(received[index])
            # With everybody taking part, the received models are scored by the first forward pass of the next trip.
            trips = trainer.trips(rows, received[index], out, score=now or next_ or not full)
            if full and now:
                received_at[number] = log.add(trips.received_score) + grid
            if trips.trained_score is not None:
                last = last.copy()
                last.ravel()[list(trips.rows)] = log.add(trips.trained_score) + np.arange(len(trips.rows))
            if not full:
                trained[index] = out
            for name, value in trips.reports.items():
                if name not in reports:
                    reports[name] = value.new_zeros(seeds * clients, *value.shape[1:])
                reports[name][index] = value

            reported = {name: value.unflatten(0, (seeds, clients)) for name, value in reports.items()}
            mixing = method.mix(reported, arrived)
            before = received.view(stack).clone() if self.drops_uploads else None
            received = mixing.apply(trained.view(stack), received.view(stack), setting.layout)
            received = method.refine(received, trained.view(stack), arrived)
            if before is not None:  # a seed of which nobody was in time keeps what it had
                received = torch.where(arrived.any(1)[:, None, None], received, before)
            received = received.flatten(0, 1)
            done = (number + 1) * count
            if done in sim.mixing_at:
                sim.mixing[done] = mixing.matrix().clone()
                similarity = method.similarity(reported)
                if similarity is not None:
                    sim.similarity[done] = similarity.clone()
            if next_:
                trained_at[number + 1] = last
                sim.progress(seeds * done, partial(sim.accuracy, last))

        received_at[sim.rounds] = log.add(trainer.evaluate(received)) + grid
        trained_at[0] = received_at[0]
        for s in range(seeds):
            points = []
            for n in sorted(trained_at):
                done = n * count
                points.append(Point(done, n, clock[s][n], received_at[n][s], trained_at[n][s], *method.bytes_after(n, done)[s]))
            sim.points.append(points)

    def _draw(self, seeds: Sequence[int], number: int, count: int, clients: int) -> np.ndarray:
        """This round's participants, ``[S, C]`` bool."""
        chosen = np.zeros((len(seeds), clients), dtype=bool)
        for s, seed in enumerate(seeds):
            chosen[s, generator(seed, "participation", number).permutation(clients)[:count]] = True
        return chosen

    def _wait(self, schedules: Sequence[Schedule], clock: list[list[float]], chosen: np.ndarray, number: int) -> np.ndarray:
        """Move every seed's clock by the round; returns who arrived in time, ``[S, C]`` bool."""
        arrived = chosen.copy()
        for s, schedule in enumerate(schedules):
            lasts = {int(i): schedule.duration(int(i), number) for i in np.flatnonzero(chosen[s])}
            slowest = max(lasts.values())
            if self.deadline is not None:
                arrived[s, [i for i, duration in lasts.items() if duration > self.deadline]] = False
                slowest = min(slowest, self.deadline)
            clock[s].append(clock[s][-1] + slowest)
        return arrived


def participants(participation: float, clients: int) -> int:
    """Clients that take part in a round."""
    return max(1, round(participation * clients))
