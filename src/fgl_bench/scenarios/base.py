"""The loop of synchronous rounds, with a server or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.powers import Comparing, FinalState, Regraphing, Staging
from fgl_bench.engine.hooks import check_like, check_shape
from fgl_bench.engine.shard import Shard
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import Trips, of_all
from fgl_bench.scenarios.schedule import Schedule, Stragglers
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.states import RoundsState, Transferred
from fgl_bench.utils.participation import participants
from fgl_bench.utils.seeding import generator


@dataclass(frozen=True)
class Participants:
    """The clients of a round.

    Attributes:
        chosen: ``[S, C]`` bool, on the host: clients that train.
        arrived: the same, without those whose messages arrive too late to count.
        everybody: ``[S, C]``, true, on the device.
    """

    chosen: np.ndarray
    arrived: np.ndarray
    everybody: Tensor

    def of(self, shard: Shard) -> Participants:
        """Those of this worker, ``[S, c]``."""
        return Participants(shard.of(self.chosen), shard.of(self.arrived), shard.of(self.everybody))

    @property
    def all(self) -> bool:
        """Return True if every client trains."""
        return bool(self.chosen.all())

    @property
    def mask(self) -> Tensor:
        """``arrived`` on the device; copied there only where somebody is missing, because a copy interrupts the host."""
        return self.everybody if self.arrived.all() else put(self.arrived, self.everybody.device)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the k replicas that train."""
        return tuple(np.flatnonzero(self.chosen).tolist())

    @cached_property
    def index(self) -> Tensor:
        """The same on the device."""
        return put(self.rows, self.everybody.device, torch.int64)

    def update(self, known: Tensor | None, fresh: Tensor) -> Tensor:
        """The last message of every replica, ``[S * C, ...]``: ``known`` (None: zeros), with ``fresh [k, ...]`` where that arrived."""
        known = fresh.new_zeros(self.chosen.size, *fresh.shape[1:]) if known is None else known
        if self.arrived.all():
            return known.copy_(fresh)
        if (self.arrived == self.chosen).all():
            return known.index_copy_(0, self.index, fresh)
        arrived = put(np.flatnonzero(self.arrived), known.device)
        return known.index_copy_(0, arrived, fresh.index_select(0, put(np.flatnonzero(self.arrived[self.chosen]), known.device)))


class Trained(NamedTuple):
    """A round whose clients have trained, before aggregation.

    Attributes:
        number: of the round, from 0.
        reports: ``[S, C, ...]`` by name, the last report of every client.
        arrived: ``[S, C]`` bool, the clients whose training counts.
        uploaded: ``[S, C, P]``, the clients' last uploads; ``trained`` itself, unless the method uploads something else.
        trained, received: ``[S, C, P]``; ``received`` holds the models before training, and may be overwritten.

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
        """Return True if the round ends without waiting for a trip of ``duration`` cycles."""
        return False

    def longest(self, slowest: float) -> float:
        """Duration of a round whose slowest trip lasts ``slowest`` cycles."""
        return slowest

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``: one evaluation point every ``eval_every`` trips (rounded up to whole rounds), and at the ends."""
        seeds, clients, method = len(sim.setting.seeds), sim.setting.num_clients, sim.algorithm
        count = participants(sim.participation, clients)
        each = count * sim.stands_for  # client trips a round
        schedules, everybody = self.schedules(sim), torch.ones(seeds, clients, dtype=torch.bool, device=sim.initial.device)
        state: RoundsState = sim.resumed or RoundsState.begin(sim.initial, seeds, clients, each, method.trains)

        if state.clock[0][-1] >= sim.virtual_time:  # resumed after the last round
            sim.end = state.number
        for number in (number for number in sim.numbers if state.number <= number < sim.end):
            last = sim.ends is not None and sim.ends(sim, state)
            chosen = self.draw(sim.setting.seeds, number, count, clients)
            who = Participants(chosen, self._wait(schedules, state.clock, chosen, number), everybody)
            if last or state.clock[0][-1] >= sim.virtual_time:
                sim.end = number + 1
            self._replace(sim, state, number, who)
            if sim.rate is not None:
                sim.trainer.set_rate(sim.rate(number))
            trips = self._train(sim, state, number, who)
            self._record(sim, state, number, trips)
            done = self._collect(sim, state, number, who, trips)
            mixed, matrix = self.aggregate(sim, done)
            state.received, state.number = mixed.flatten(0, 1), number + 1
            if state.number * each in sim.mixing_at:
                self._picture(sim, state.number * each, matrix(), done.reports)
            del trips, done  # the models before the aggregation; the next round needs the memory
            sim.step_end(state)

        state.received_at[sim.end] = sim.score(state.received)
        state.trained_at.setdefault(0, state.received_at[0])  # in case there was no round
        state.scored.append(sim.end)
        sim.train_end(state)
        final = method.final_state(sim.trainer.finished(state.trained)) if isinstance(method, FinalState) else {}
        sim.final_state = {name: value.unflatten(0, (seeds, clients)) for name, value in final.items()}
        sim.points = state.points([0] * seeds, self.transferred(sim, state.scored, count))

    def draw(self, seeds: Sequence[int], number: int, count: int, clients: int) -> np.ndarray:
        """The ``count`` participants of a round, ``[S, C]`` bool."""
        chosen = np.ones((len(seeds), clients), dtype=bool)
        if count < clients:
            for own, seed in zip(chosen, seeds, strict=True):
                own[generator(seed, "participation", number).permutation(clients)[count:]] = False
        return chosen

    def _wait(self, schedules: Sequence[Schedule], clock: list[list[float]], chosen: np.ndarray, number: int) -> np.ndarray:
        """Advance every seed's clock by the round; returns the clients that arrived in time, ``[S, C]`` bool."""
        arrived = chosen.copy()
        for s, schedule in enumerate(schedules):
            lasts = {i: schedule.duration(i, number) for i in np.flatnonzero(chosen[s]).tolist()}
            arrived[s, [i for i, duration in lasts.items() if self.late(duration)]] = False
            clock[s].append(clock[s][-1] + self.longest(max(lasts.values())))
        return arrived

    def _replace(self, sim: Simulation, state: RoundsState, number: int, who: Participants) -> None:
        """Take the graphs and the network that the method has from this round on.

        Received models are scored by the previous network. Where everybody trains the same network on, the first forward pass of the
        trips does it.
        """
        method, trainer = sim.algorithm, sim.trainer
        graphs = method.regraph(number, trainer.batch, trainer.evaluation) if isinstance(method, Regraphing) else None
        if graphs is not None:
            trainer.regraph(*graphs)
        stage = method.stage(number, state.received) if isinstance(method, Staging) else None
        if due(sim, number) and (stage is not None or not who.all):
            state.received_at[number] = sim.score(state.received)
        if stage is not None:
            trainer.remodel(stage.model, stage.layout)
            state.received, state.trained, state.reports, state.uploads = stage.models, stage.models.clone(), {}, None

    def _train(self, sim: Simulation, state: RoundsState, number: int, who: Participants) -> Trips:
        """The trips of the participants, those of other workers included."""
        shard = sim.setting.shard
        score = due(sim, number) or due(sim, number + 1) or not who.all
        if who.all:
            trips = sim.trainer.trips(None, state.received, state.trained, score=score)
        else:  # whole rows: on a CPU indexing takes five times as long
            own = who.of(shard)
            received = state.received.index_select(0, own.index)
            trips = sim.trainer.trips(own.rows, received, torch.empty_like(received), score=score)
            state.trained.index_copy_(0, own.index, trips.trained)
        return of_all(trips, who.chosen, shard, sim.algorithm.own_reports)

    def _record(self, sim: Simulation, state: RoundsState, number: int, trips: Trips) -> None:
        """Note where the logs have the scores and losses of the evaluation points before and after the round."""
        before, after, unscored = due(sim, number), due(sim, number + 1), np.full_like(state.last, -1)
        if before:
            state.scored.append(number)
            if number not in state.received_at:
                start = sim.scored(cast(Tensor, trips.received_score), None, trips.received)
                state.received_at[number] = _moved(state.last, trips.rows, start)
        always = sim.score_trained in (None, "every")
        scored = always or (sim.score_trained == "final" and number + 1 == sim.end)
        if number == 0:  # clients that have not trained yet have the initial model
            state.last = state.received_at[0]
            state.trained_at[0] = state.last if always else unscored
        if trips.trained_score is not None:
            state.last = _moved(state.last, trips.rows, sim.scored(trips.trained_score, trips.rows, trips.trained))
        elif sim.score_trained is not None and scored and after:
            state.last = sim.score(state.trained, trained=True)
        elif not scored and before:
            state.last = state.received_at[number]
        if trips.train_loss is not None and state.lost is not None:
            state.lost = _moved(state.lost, trips.rows, sim.losses.add(trips.train_loss[:, None]))
        if after:
            state.trained_at[number + 1] = state.last if scored else unscored
            state.loss_at[number + 1] = state.lost

    def _collect(self, sim: Simulation, state: RoundsState, number: int, who: Participants, trips: Trips) -> Trained:
        """Take in the reports and uploads that have arrived in time."""
        method, own, seeds = sim.algorithm, who.of(sim.setting.shard), len(who.chosen)
        for name, value in trips.reports.items():
            state.reports[name] = (own if name in method.own_reports else who).update(state.reports.get(name), value)
        received, trained = trips.received, trips.trained
        sent = trained if sim.forge is None else sim.forge(own.rows, received, trained, number)
        uploads = method.upload(own.rows, received, sent) if own.rows else sent  # a worker may have no participant
        check_shape("upload()", uploads, {"k": len(trained), "P": trained.shape[1]}, "k P")
        check_like("upload()", uploads, trained)
        if uploads is not trained or state.uploads is not None:
            state.uploads = own.update(state.uploads, uploads)
        reports = {name: value.unflatten(0, (seeds, -1)) for name, value in state.reports.items()}
        models = (state.trained if state.uploads is None else state.uploads, state.trained, state.received)
        return Trained(number, reports, who.mask, *(each.unflatten(0, (seeds, -1)) for each in models))

    def _picture(self, sim: Simulation, trips: int, matrix: Tensor, reports: dict[str, Tensor]) -> None:
        """Store the mixing matrices and the method's similarities for plots."""
        sim.mixing[trips] = matrix.clone()
        similarity = sim.algorithm.similarity(reports) if isinstance(sim.algorithm, Comparing) else None
        if similarity is not None:
            sim.similarity[trips] = similarity.clone()


def due(sim: Simulation, number: int) -> bool:
    """Return True if there is an evaluation point after ``number`` rounds."""
    trips = participants(sim.participation, sim.setting.num_clients) * sim.stands_for  # a round
    return number % max(1, -(-sim.eval_every // trips)) == 0 or number == sim.end


def _moved(positions: np.ndarray, rows: Sequence[int], start: int) -> np.ndarray:
    """``positions [S, C]`` in a log, where those of the replicas ``rows`` are now the ones from ``start`` on."""
    moved = positions.copy()
    moved.ravel()[list(rows)] = start + np.arange(len(rows))
    return moved
