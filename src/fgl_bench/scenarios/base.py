"""The loop of synchronous rounds, with a server or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fgl_bench.evaluation.history import Point
from fgl_bench.scenarios.schedule import Schedule, Stragglers
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.seeding import generator


class Moved(NamedTuple):
    """Bytes that have travelled: sent and received by all clients, and by the busiest one (None where a server is at one end)."""

    upload: int
    download: int
    busiest: int | None = None


@dataclass
class Rounds(Stragglers):
    """Rounds of local training followed by an aggregation; a scenario says what the aggregation is and what it costs.

    A fraction ``participation`` of the clients, drawn anew every round, takes part. On the virtual clock a round lasts as long as
    its slowest trip: stragglers cost time, not accuracy, unless a scenario does not wait for them.
    """

    def aggregate(
        self, sim: Simulation, number: int, reports: dict[str, Tensor], arrived: Tensor, trained: Tensor, received: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor]]:
        """What clients receive after round ``number``, ``[S, C, P]``, and a function that gives the mixing matrices ``[S, C, C]``.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
            arrived: ``[S, C]`` bool, the clients whose training counts.
            trained, received: ``[S, C, P]``; ``received`` is what clients had before, and may be overwritten.
        """
        raise NotImplementedError  # abstract

    def moved(self, sim: Simulation, rounds: Sequence[int], count: int) -> list[list[Moved]]:
        """What has travelled after each of these numbers of rounds of ``count`` clients, by seed."""
        raise NotImplementedError  # abstract

    def late(self, duration: float) -> bool:
        """Whether the round does not wait for a trip of so many cycles."""
        return False

    def longest(self, slowest: float) -> float:
        """How long a round lasts whose slowest trip lasts ``slowest`` cycles."""
        return slowest

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``: one evaluation point every ``eval_every`` trips (rounded up to whole rounds), and at the ends."""
        trainer, method, setting, log = sim.trainer, sim.algorithm, sim.setting, sim.log
        seeds, clients = len(setting.seeds), setting.num_clients
        count = participants(sim.participation, clients)
        each = count * sim.stands_for  # client trips a round
        full, every = count == clients, max(1, -(-sim.eval_every // each))
        schedules = [self.schedule(seed, clients) for seed in setting.seeds]
        clock = [[0.0] for _ in schedules]
        grid = np.arange(seeds * clients).reshape(seeds, clients)

        received, trained = sim.initial.clone(), sim.initial.clone()
        stack = (seeds, clients, received.shape[1])
        reports: dict[str, torch.Tensor] = {}
        chosen = np.ones((seeds, clients), dtype=bool)
        everybody = torch.ones(seeds, clients, dtype=torch.bool, device=received.device)
        rows, index = None, slice(None)
        last = np.zeros_like(grid)  # log positions of the models that clients trained last
        lost = np.full_like(grid, -1) if method.trains else None  # of the losses of these trips
        # By round; where the models were not scored, not used.
        received_at, trained_at = (np.zeros((sim.rounds + 1, seeds, clients), dtype=np.int64) for _ in range(2))
        loss_at = {0: lost}
        numbers = [0]

        for number in sim.numbers:
            graphs = method.regraph(number, trainer.batch, trainer.evaluation)
            if graphs is not None:
                trainer.regraph(*graphs)
            now, next_ = number % every == 0, (number + 1) % every == 0 or number + 1 == sim.rounds
            stage = method.stage(number, received)
            if now and (stage is not None or not full):
                received_at[number] = log.add(trainer.evaluate(received)) + grid
            if stage is not None:
                trainer.remodel(stage.model, stage.layout)
                received, trained, reports = stage.models, stage.models.clone(), {}
                stack = (seeds, clients, received.shape[1])
            if not full:
                chosen = self._draw(setting.seeds, number, count, clients)
                rows = np.flatnonzero(chosen).tolist()
                index = torch.as_tensor(rows, device=received.device)
            in_time = self._wait(schedules, clock, chosen, number)
            # Copying a mask to a GPU waits for it: where everybody arrives, one mask serves all rounds.
            arrived = everybody if in_time.all() else torch.from_numpy(in_time).to(received.device)
            sent, out = received, trained
            if not full:  # whole rows: indexing takes a CPU five times as long
                sent = received.index_select(0, index)
                out = torch.empty_like(sent)
            # With everybody taking part, the received models are scored by the first forward pass of the next trip.
            trips = trainer.trips(rows, sent, out, score=now or next_ or not full)
            if full and now and stage is None:
                received_at[number] = log.add(trips.received_score) + grid
            if trips.trained_score is not None:
                last = last.copy()
                last.ravel()[list(trips.rows)] = log.add(trips.trained_score) + np.arange(len(trips.rows))
            if trips.train_loss is not None:
                lost = lost.copy()
                lost.ravel()[list(trips.rows)] = sim.losses.add(trips.train_loss[:, None]) + np.arange(len(trips.rows))
            if not full:
                trained.index_copy_(0, index, out)
            for name, value in trips.reports.items():
                if name not in reports:
                    reports[name] = value.new_zeros(seeds * clients, *value.shape[1:])
                if (in_time != chosen).any():  # who is late is not heard
                    heard = arrived.flatten()[index].view(-1, *[1] * (value.ndim - 1))
                    value = torch.where(heard, value, reports[name][index])
                reports[name][index] = value

            reported = {name: value.unflatten(0, (seeds, clients)) for name, value in reports.items()}
            received, matrix = self.aggregate(sim, number, reported, arrived, trained.view(stack), received.view(stack))
            received = received.flatten(0, 1)
            done = (number + 1) * each
            if done in sim.mixing_at:
                sim.mixing[done] = matrix().clone()
                similarity = method.similarity(reported)
                if similarity is not None:
                    sim.similarity[done] = similarity.clone()
            if next_:
                trained_at[number + 1], loss_at[number + 1] = last, lost
                numbers.append(number + 1)
            sim.progress(seeds * done, partial(sim.accuracy, last))

        received_at[sim.rounds] = log.add(trainer.evaluate(received)) + grid
        kept = method.portrait(trainer.finished(trained))
        sim.portrait = {name: value.unflatten(0, (seeds, clients)) for name, value in kept.items()}
        trained_at[0] = received_at[0]
        moved = self.moved(sim, numbers, count)
        for s in range(seeds):
            sim.points.append(
                [
                    Point(
                        n * each,
                        n,
                        clock[s][n],
                        received_at[n][s],
                        trained_at[n][s],
                        sent.upload,
                        sent.download,
                        busiest=sent.busiest,
                        loss=None if lost is None else loss_at[n][s],
                    )
                    for n, sent in zip(numbers, moved[s], strict=True)
                ]
            )

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
            arrived[s, [i for i, duration in lasts.items() if self.late(duration)]] = False
            clock[s].append(clock[s][-1] + self.longest(slowest))
        return arrived


def participants(participation: float, clients: int) -> int:
    """Clients that take part in a round."""
    return max(1, round(participation * clients))
