"""Synchronous rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from fgl_bench.evaluation.history import Point
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.seeding import generator


@dataclass
class Sync:
    """Rounds of download, local epochs, upload and aggregation; the virtual clock counts rounds.

    A fraction ``participation`` of the clients, drawn anew every round, takes part. A method with one global model sends it to
    everybody; a personalised method replaces the models of the participants only.
    """

    name: ClassVar[str] = "sync"

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``: one evaluation point every ``eval_every`` trips (rounded up to whole rounds), and at the ends."""
        trainer, method, setting, log = sim.trainer, sim.algorithm, sim.setting, sim.log
        seeds, clients = len(setting.seeds), setting.num_clients
        up, down, _ = method.traffic().bytes
        count = participants(sim.participation, clients)
        full, every = count == clients, max(1, -(-sim.eval_every // count))
        grid = np.arange(seeds * clients).reshape(seeds, clients)

        received, trained = sim.initial.clone(), sim.initial.clone()
        stack = (seeds, clients, received.shape[1])
        reports: dict[str, torch.Tensor] = {}
        arrived = torch.ones(seeds, clients, dtype=torch.bool, device=received.device)
        rows, index = None, slice(None)
        last = np.zeros_like(grid)  # log positions of the models that clients trained last
        received_at: dict[int, np.ndarray] = {}
        trained_at: dict[int, np.ndarray] = {}

        for number in range(sim.rounds):
            now, next_ = number % every == 0, (number + 1) % every == 0 or number + 1 == sim.rounds
            if not full:
                if now:
                    received_at[number] = log.add(trainer.evaluate(received)) + grid
                rows, arrived = self._draw(setting.seeds, number, count, clients, received.device)
                index = torch.as_tensor(rows, device=received.device)
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

            mixing = method.mix({name: value.unflatten(0, (seeds, clients)) for name, value in reports.items()}, arrived)
            received = mixing.apply(trained.view(stack), received.view(stack), setting.layout).flatten(0, 1)
            done = (number + 1) * count
            if done in sim.mixing_at:
                sim.mixing[done] = mixing.matrix().clone()
            if next_:
                trained_at[number + 1] = last
                sim.progress(seeds * done, partial(sim.accuracy, last))

        received_at[sim.rounds] = log.add(trainer.evaluate(received)) + grid
        trained_at[0] = received_at[0]
        sim.points = [
            [Point(n * count, n, float(n), received_at[n][s], trained_at[n][s], n * count * up, n * count * down) for n in sorted(trained_at)]
            for s in range(seeds)
        ]

    def _draw(self, seeds: Sequence[int], number: int, count: int, clients: int, device: torch.device) -> tuple[list[int], torch.Tensor]:
        """This round's participants of every seed: replica numbers and the ``[S, C]`` mask."""
        arrived = np.zeros((len(seeds), clients), dtype=bool)
        for s, seed in enumerate(seeds):
            arrived[s, generator(seed, "participation", number).permutation(clients)[:count]] = True
        return np.flatnonzero(arrived).tolist(), torch.from_numpy(arrived).to(device)


def participants(participation: float, clients: int) -> int:
    """Clients that take part in a round."""
    return max(1, round(participation * clients))
