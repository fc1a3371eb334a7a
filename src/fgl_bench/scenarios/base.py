"""The loop of synchronous rounds, with a server or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.powers import Comparing, FinalState, Regraphing, Staging
from fgl_bench.engine.answers import check_like, check_shape
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import of_all
from fgl_bench.scenarios.schedule import Schedule, Stragglers
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.states import RoundsState, Transferred
from fgl_bench.utils.participation import participants
from fgl_bench.utils.seeding import generator


class Trained(NamedTuple):
    """A round whose clients have trained, before aggregation.

    Attributes:
        number: of the round, from 0.
        reports: ``[S, C, ...]`` by name, the last report of every client.
        arrived: ``[S, C]`` bool, the clients whose training counts.
        uploaded: ``[S, C, P]``, what clients uploaded last; ``trained`` itself, unless the method uploads something else.
        trained, received: ``[S, C, P]``; ``received`` is what clients had before, and may be overwritten.

    Where workers share the clients of a seed, the models are those of this worker's clients, and so are the method's ``own_reports``.
    """

    number: int
    reports: dict[str, Tensor]
    arrived: Tensor
    uploaded: Tensor
    trained: Tensor
    received: Tensor


@dataclass
class Rounds(Stragglers):
    """Rounds of local training followed by an aggregation; subclasses define the aggregation and its cost.

    In every round a random fraction ``participation`` of the clients takes part. On the virtual clock a round lasts as long as
    its slowest trip: stragglers cost time, not accuracy, unless the scenario does not wait for them.
    """

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        """The models that clients receive after a round, ``[S, C, P]``, and a function that returns the mixing matrices ``[S, C, C]``."""
        raise NotImplementedError  # abstract

    def transferred(self, sim: Simulation, rounds: Sequence[int], count: int) -> list[list[Transferred]]:
        """Bytes transferred after each of these numbers of rounds with ``count`` clients, by seed."""
        raise NotImplementedError  # abstract

    def late(self, duration: float) -> bool:
        """Whether the round ends without waiting for a trip of ``duration`` cycles."""
        return False

    def longest(self, slowest: float) -> float:
        """Duration of a round whose slowest trip lasts ``slowest`` cycles."""
        return slowest

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``: one evaluation point every ``eval_every`` trips (rounded up to whole rounds), and at the ends."""
        seeds, clients = len(sim.setting.seeds), sim.setting.num_clients
        count = participants(sim.participation, clients)
        each = count * sim.stands_for  # client trips a round
        schedules = self.schedules(sim)
        # Copying a mask to a GPU synchronizes: if all clients arrive, one mask serves all rounds.
        everybody = torch.ones(seeds, clients, dtype=torch.bool, device=sim.initial.device)
        state: RoundsState = sim.resumed or RoundsState.begin(sim.initial, seeds, clients, sim.algorithm.trains)
        sim.scored_points = partial(state.points, each)

        for number in (number for number in sim.numbers if number >= state.number):
            self._round(sim, state, number, schedules, everybody)
            state.number = number + 1
            sim.progress(seeds * state.number * each, partial(sim.accuracy, state.last))
            sim.settle()
            sim.keep(state.number, lambda: state)

        state.received_at[sim.rounds] = sim.score(state.received)
        state.trained_at.setdefault(0, state.received_at[0])  # in case there was no round
        state.scored.append(sim.rounds)
        sim.progress(seeds * sim.rounds * each, partial(sim.accuracy, state.last))
        method = sim.algorithm
        kept = method.final_state(sim.trainer.finished(state.trained)) if isinstance(method, FinalState) else {}
        sim.final_state = {name: value.unflatten(0, (seeds, clients)) for name, value in kept.items()}
        sim.points = state.points(each, [0] * seeds, self.transferred(sim, state.scored, count))

    def _round(self, sim: Simulation, state: RoundsState, number: int, schedules: Sequence[Schedule], everybody: Tensor) -> None:
        """One round; ``everybody [S, C]`` is true."""
        trainer, method, setting = sim.trainer, sim.algorithm, sim.setting
        seeds, clients = len(setting.seeds), setting.num_clients
        count = participants(sim.participation, clients)
        full, every = count == clients, max(1, -(-sim.eval_every // (count * sim.stands_for)))
        grid = np.arange(seeds * clients).reshape(seeds, clients)

        graphs = method.regraph(number, trainer.batch, trainer.evaluation) if isinstance(method, Regraphing) else None
        if graphs is not None:
            trainer.regraph(*graphs)
        now, next_ = number % every == 0, (number + 1) % every == 0 or number + 1 == sim.rounds
        stage = method.stage(number, state.received) if isinstance(method, Staging) else None
        if now and (stage is not None or not full):
            state.received_at[number] = sim.score(state.received)
        if stage is not None:
            trainer.remodel(stage.model, stage.layout)
            state.received, state.trained, state.reports, state.uploads = stage.models, stage.models.clone(), {}, None
        received, trained = state.received, state.trained
        shard, size = setting.shard, received.shape[1]
        chosen, rows, index = np.ones((seeds, clients), dtype=bool), None, None  # the index is on the device
        if not full:
            chosen = self._draw(setting.seeds, number, count, clients)
            rows = np.flatnonzero(shard.of(chosen)).tolist()
            index = put(rows, received.device, torch.int64)
        in_time = self._wait(schedules, state.clock, chosen, number)
        arrived = everybody if in_time.all() else put(in_time, received.device)
        sent, out = received, trained
        if index is not None:  # whole rows: on a CPU indexing takes five times as long
            sent = received.index_select(0, index)
            out = torch.empty_like(sent)
        # With full participation, the first forward pass of the next trip scores the received models.
        trips = trainer.trips(rows, sent, out, score=now or next_ or not full)
        upload = method.upload(trips.rows, sent, out) if trips.rows else out  # a worker may have no participant
        check_shape("upload()", upload, {"k": len(sent), "P": size}, "k P")
        check_like("upload()", upload, sent)
        trips = of_all(trips, chosen, shard, method.own_reports)
        if full and now and stage is None and trips.received_score is not None:
            state.received_at[number] = sim.scored(trips.received_score, None, received) + grid
        if now:
            state.scored.append(number)
        always = sim.score_trained in (None, "every")
        scored = always or (sim.score_trained == "final" and number + 1 == sim.rounds)
        unscored = np.full((seeds, clients), -1)
        if number == 0:  # who has not trained yet has what everybody began with
            state.last = state.received_at[0]
            state.trained_at[0] = state.last if always else unscored
        if trips.trained_score is not None:
            state.last = state.last.copy()
            state.last.ravel()[list(trips.rows)] = sim.scored(trips.trained_score, trips.rows, out) + np.arange(len(trips.rows))
        if trips.train_loss is not None and state.lost is not None:
            state.lost = state.lost.copy()
            state.lost.ravel()[list(trips.rows)] = sim.losses.add(trips.train_loss[:, None]) + np.arange(len(trips.rows))
        if index is not None:
            trained.index_copy_(0, index, out)
        if sim.score_trained is not None and scored and next_:
            state.last = sim.score(trained, trained=True)
        elif not scored and now:
            state.last = state.received_at[number]
        everywhere = index if shard.alone or full else put(trips.rows, received.device)
        punctual = (in_time == chosen).all()  # late messages do not count
        heard = None if punctual else _of(everywhere, arrived.flatten())
        heard_here = None if punctual else _of(index, shard.of(arrived).flatten())
        for name, value in trips.reports.items():
            whose = (len(trained), index, heard_here) if name in method.own_reports else (grid.size, everywhere, heard)
            state.reports[name] = _latest(state.reports.get(name), value, *whose)
        if upload is not out or state.uploads is not None:
            state.uploads = _latest(state.uploads, upload, len(trained), index, heard_here)

        reported = {name: value.unflatten(0, (seeds, -1)) for name, value in state.reports.items()}
        models = (part.view(seeds, -1, size) for part in (trained if state.uploads is None else state.uploads, trained, received))
        mixed, matrix = self.aggregate(sim, Trained(number, reported, arrived, *models))
        state.received = mixed.flatten(0, 1)
        done = (number + 1) * count * sim.stands_for
        if done in sim.mixing_at:
            sim.mixing[done] = matrix().clone()
            similarity = method.similarity(reported) if isinstance(method, Comparing) else None
            if similarity is not None:
                sim.similarity[done] = similarity.clone()
        if next_:
            state.trained_at[number + 1] = state.last if scored else unscored
            state.loss_at[number + 1] = state.lost

    def _draw(self, seeds: Sequence[int], number: int, count: int, clients: int) -> np.ndarray:
        """This round's participants, ``[S, C]`` bool."""
        chosen = np.zeros((len(seeds), clients), dtype=bool)
        for s, seed in enumerate(seeds):
            chosen[s, generator(seed, "participation", number).permutation(clients)[:count]] = True
        return chosen

    def _wait(self, schedules: Sequence[Schedule], clock: list[list[float]], chosen: np.ndarray, number: int) -> np.ndarray:
        """Advance every seed's clock by the round; returns the clients that arrived in time, ``[S, C]`` bool."""
        arrived = chosen.copy()
        for s, schedule in enumerate(schedules):
            lasts = {int(i): schedule.duration(int(i), number) for i in np.flatnonzero(chosen[s])}
            slowest = max(lasts.values())
            arrived[s, [i for i, duration in lasts.items() if self.late(duration)]] = False
            clock[s].append(clock[s][-1] + self.longest(slowest))
        return arrived


def _of(index: Tensor | None, values: Tensor) -> Tensor:
    return values if index is None else values[index]


def _latest(known: Tensor | None, fresh: Tensor, count: int, index: Tensor | None, heard: Tensor | None) -> Tensor:
    """The last message of each of ``count`` replicas (zeros before the first), updated by ``fresh [k, ...]`` of the replicas ``index``.

    Args:
        index: None means all.
        heard: ``[k]`` bool, the messages that have arrived; None means all.
    """
    if known is None:
        known = fresh.new_zeros(count, *fresh.shape[1:])
    if heard is not None:
        fresh = torch.where(heard.view(-1, *[1] * (fresh.ndim - 1)), fresh, _of(index, known))
    known[slice(None) if index is None else index] = fresh
    return known
