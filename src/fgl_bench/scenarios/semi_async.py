"""Semi-asynchronous federation: an event-driven virtual clock with stragglers, trained in lazy batches."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch

from fgl_bench.algorithms.base import Message, Server, Upload
from fgl_bench.engine.answers import check_kind, check_shape
from fgl_bench.evaluation.history import Point
from fgl_bench.scenarios.schedule import Schedule, Stragglers
from fgl_bench.scenarios.simulation import Simulation


@dataclass
class SemiAsync(Stragglers):
    """Clients train at their own pace; the server steps when K uploads have arrived.

    The event loop is the one of FedSA-GCL's setting: 30 % of the clients lag by 2 to 5 cycles, a cycle being C trips. It stays
    batched by being lazy: a trip depends only on the model that it started from and on its own random stream, so nothing is
    trained until some seed needs an upload that has not been computed; then every trip under way, of every client and seed, is
    trained in one program.

    Attributes:
        lag_unit: ``trips``, a slow upload is released when the server has counted ``lag * C`` further trips (the literal
            reading), or ``time``, the trip lasts ``lag`` on the virtual clock.
    """

    name: ClassVar[str] = "semi_async"

    lag_unit: Literal["trips", "time"]

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``: one evaluation point every ``eval_every`` trips, and at the ends."""
        clients, by_trips = sim.setting.num_clients, self.lag_unit == "trips"
        models = _Models(sim)
        loops = [_Loop(sim, models, s, self.schedule(seed, clients), by_trips) for s, seed in enumerate(sim.setting.seeds)]
        running = {s: loop.events() for s, loop in enumerate(loops)}
        while running:
            # Advance every seed to the first upload that it lacks, then train everything that is under way.
            for s in list(running):
                if next(running[s], True):
                    del running[s]
            if running:
                models.train([s * clients + i for s in running for i in range(clients) if models.pending[s, i]])
            done = sum(loop.trips for loop in loops)
            sim.progress(done, partial(sim.accuracy, np.stack([loop.last for loop in loops])))
        models.finish()
        sim.points = [loop.resolve(models.received_at[s]) for s, loop in enumerate(loops)]
        for at in set.intersection(*(set(loop.pictures) for loop in loops)):
            sim.similarity[at] = torch.stack([loop.pictures[at] for loop in loops])


class _Models:
    """The models of all replicas and what training them reported.

    Attributes:
        base: ``[B, P]``, what the trip under way (or the last one) started from.
        trained: ``[B, P]``, the outcome of that trip once computed.
        inbox: ``[B, P]``, the newest unread message.
        pending: ``[S, C]``, trips that have begun and are not computed.
        received_at, trained_at: ``[s][c]``, log positions of the models that each trip started from and ended with.
        loss_at: likewise, positions of the trips' training losses; empty where there are none.
    """

    def __init__(self, sim: Simulation):
        self.sim = sim
        self.base, self.trained, self.inbox = sim.initial.clone(), sim.initial.clone(), sim.initial.clone()
        # Room for the models of some trips: tensors of ever new sizes would leave holes in the memory.
        self.scratch = self.base.new_empty(2, *self.base.shape)
        seeds, clients = len(sim.setting.seeds), sim.setting.num_clients
        self.pending = np.zeros((seeds, clients), dtype=bool)
        self.received_at: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(seeds)]
        self.trained_at: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(seeds)]
        self.loss_at: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(seeds)]
        self.reports: dict[str, np.ndarray] = {}

    def train(self, rows: list[int]) -> None:
        """Compute the pending trips ``rows``."""
        sim, everyone = self.sim, len(rows) == len(self.base)
        index = torch.as_tensor(rows, device=self.base.device)
        received, out = self.base, self.trained
        if not everyone:
            received, out = self.scratch[:, : len(rows)]
            torch.index_select(self.base, 0, index, out=received)
        trips = sim.trainer.trips(None if everyone else rows, received, out)
        if not everyone:
            self.trained.index_copy_(0, index, out)
        self._note(self.received_at, rows, sim.log.add(trips.received_score))
        self._note(self.trained_at, rows, sim.log.add(trips.trained_score))
        if trips.train_loss is not None:
            self._note(self.loss_at, rows, sim.losses.add(trips.train_loss[:, None]))
        self.pending.ravel()[rows] = False
        for name, value in trips.reports.items():
            host = value.cpu().numpy()
            if name not in self.reports:
                self.reports[name] = np.zeros((len(self.base), *host.shape[1:]), host.dtype)
            self.reports[name][rows] = host

    def finish(self) -> None:
        """Score what the trips still under way started from."""
        rows = np.flatnonzero(self.pending).tolist()
        if rows:
            scores = self.sim.trainer.evaluate(self.base[torch.as_tensor(rows, device=self.base.device)], rows)
            self._note(self.received_at, rows, self.sim.log.add(scores))

    def _note(self, at: list[list[list[int]]], rows: list[int], start: int) -> None:
        clients = self.pending.shape[1]
        for position, row in enumerate(rows, start):
            at[row // clients][row % clients].append(position)


class _Loop:
    """The event loop of one seed, host-side but for the models."""

    def __init__(self, sim: Simulation, models: _Models, s: int, schedule: Schedule, by_trips: bool):
        setting, clients = sim.setting, sim.setting.num_clients
        self.sim, self.models, self.s, self.schedule, self.by_trips = sim, models, s, schedule, by_trips
        self.clients, self.first = clients, s * clients
        self.buffer = sim.algorithm.buffer_size()
        self.up, self.down, self.pushed = sim.algorithm.traffic().bytes
        initial = models.base[self.first]
        remembered = clients if sim.algorithm.remembers else 0
        self.server = Server(
            model=initial.clone(),
            uploads=initial.repeat(remembered, 1),
            known=np.zeros(clients, dtype=bool),
            base_version=np.zeros(clients, dtype=np.int64),
            weights=setting.weights[s].cpu().numpy(),
            reports={},
        )
        self.trips, self.time, self.upload, self.download = 0, 0.0, 0, 0
        self.begun, self.ended = np.zeros(clients, dtype=int), np.zeros(clients, dtype=int)
        self.version, self.waiting = np.zeros(clients, dtype=int), np.zeros(clients, dtype=bool)
        self.inbox: list[tuple[Message, int] | None] = [None] * clients
        self.heap: list[tuple[float, int, int]] = []
        self.held: list[tuple[int, int, int]] = []
        self.queue: list[Upload] = []
        self.staleness: list[int] = []
        self.forced = 0
        self.records: list[tuple] = []
        self.last = np.zeros(clients, dtype=int)
        self.trace: list[tuple[float, int]] = []
        self.pictures: dict[int, torch.Tensor] = {}

    def _start(self, client: int) -> None:
        """Begin a trip from ``models.base``."""
        self.waiting[client] = False
        self.models.pending[self.s, client] = True
        trip = int(self.begun[client])
        self.begun[client] += 1
        priority = self.schedule.priority[client]
        if self.by_trips and client in self.schedule.slow:
            heapq.heappush(self.held, (self.trips + self.schedule.cycles(client, trip) * self.clients, priority, client))
        else:
            heapq.heappush(self.heap, (self.time + self.schedule.duration(client, trip), priority, client))

    def _open(self, client: int, message: Message, version: int, reports: dict[str, float]) -> None:
        """Begin a trip from a message."""
        row = self.first + client
        self.models.base[row] = self.sim.algorithm.begin(message, self.models.trained[row], reports)
        self.version[client] = version
        self._start(client)

    def _next(self) -> int:
        """The client whose upload arrives next; moves the clock."""
        due = []
        while self.held and (self.held[0][0] <= self.trips or not (self.heap or due)):
            # Everyone else waits for the buffer to fill: the earliest slow upload is released before its time.
            self.forced += self.held[0][0] > self.trips
            due.append(heapq.heappop(self.held))
        for _, priority, client in due:
            heapq.heappush(self.heap, (self.time, priority, client))
        self.time, _, client = heapq.heappop(self.heap)
        return client

    def events(self) -> Iterator[bool]:
        """Run to the end of the budget; yields False whenever an upload is needed that has not been computed."""
        sim, models = self.sim, self.models
        for client in range(self.clients):
            self.download += self.down
            self._start(client)
        self._record()
        while self.trips < sim.trips:
            client = self._next()
            if models.pending[self.s, client]:
                yield False
            self._arrive(client)
            if len(self.queue) >= self.buffer:
                self._serve()
            if self.trips in sim.mixing_at:
                self._picture()
            if self.trips % sim.eval_every == 0 or self.trips == sim.trips:
                self._record()

    def _arrive(self, client: int) -> None:
        """Take one upload into the buffer; the client goes on with what is in its inbox, or waits."""
        method, models, row = self.sim.algorithm, self.models, self.first + client
        self.trace.append((self.time, client))
        self.trips += 1
        self.ended[client] += 1
        blocks = method.upload_blocks(self.server)
        self.upload += self._size(self.up, blocks)
        reports = {name: values[row].copy() for name, values in models.reports.items()}
        own = {name: float(value) for name, value in reports.items() if value.ndim == 0}
        waiting_push = self.inbox[client]
        if waiting_push is not None and method.merges_before_upload:
            models.trained[row] = method.begin(waiting_push[0], models.trained[row], own)
            self.inbox[client] = waiting_push = None
        payload = method.payload(models.base[row], models.trained[row])
        check_shape("payload()", payload, {"P": models.base.shape[1]}, "P")
        self.queue.append(Upload(client, payload, int(self.version[client]), 0, reports, blocks))
        self.waiting[client] = True
        if waiting_push is not None:
            self.inbox[client] = None
            self._open(client, *waiting_push, own)
        elif not method.waits:
            self.download += self.down
            self._open(client, Message(client, self.server.model), self.server.version, own)

    def _serve(self) -> None:
        """One server step over the buffered uploads; replies start waiting clients, the rest goes to inboxes."""
        server, method = self.server, self.sim.algorithm
        server.version += 1
        arrivals = [upload._replace(staleness=server.version - 1 - upload.base_version) for upload in self.queue]
        self.queue = []
        for upload in arrivals:
            client = upload.client
            server.known[client], server.base_version[client] = True, upload.base_version
            if method.remembers:
                self.sim.setting.layout.overwrite(server.uploads[client], upload.payload, upload.blocks)
            for name, value in upload.reports.items():
                server.reports.setdefault(name, np.zeros((self.clients, *value.shape), value.dtype))[client] = value
            self.staleness.append(upload.staleness)
        messages = method.serve(server, arrivals)
        check_kind("serve()", messages, Iterable, "a list of messages, [] where nobody is answered")
        for message in messages:
            client = message.client
            check_shape("serve()'s message", message.model, {"P": self.models.base.shape[1]}, "P")
            if not method.waits and message.confidence is None:
                continue
            self.download += self._size(self.down if message.confidence is None else self.pushed, message.blocks)
            if self.waiting[client]:
                self._open(client, message, server.version, {})
            else:
                row = self.first + client
                self.models.inbox[row] = message.model
                self.inbox[client] = (message._replace(model=self.models.inbox[row]), server.version)

    def _picture(self) -> None:
        """Keep how alike the server takes those clients to be that it has heard of."""
        reports = {name: torch.as_tensor(value)[None] for name, value in self.server.reports.items()}
        similarity = self.sim.algorithm.similarity(reports) if self.server.version else None
        if similarity is not None:
            known = torch.as_tensor(self.server.known)
            self.pictures[self.trips] = similarity[0].masked_fill(~(known[:, None] & known), torch.nan)

    def _size(self, whole: int, blocks: tuple[str, ...] | None) -> int:
        """Bytes of a message that carries these parameters only."""
        layout = self.sim.setting.layout
        return whole if blocks is None else whole - 4 * (layout.count - sum(layout.numel(name) for name in blocks))

    def _record(self) -> None:
        """Note an evaluation point; positions of models that are not computed yet are looked up at the end."""
        stale = (float(np.mean(self.staleness)), float(max(self.staleness))) if self.staleness else None
        self.staleness = []
        trained = np.array([at[n - 1] if n else -1 for at, n in zip(self.models.trained_at[self.s], self.ended, strict=True)])
        self.last = np.maximum(trained, 0)
        loss = np.array([at[n - 1] if n and at else -1 for at, n in zip(self.models.loss_at[self.s], self.ended, strict=True)])
        self.records.append((self.trips, self.server.version, self.time, self.begun - 1, trained, self.upload, self.download, stale, loss))

    def resolve(self, received_at: list[list[int]]) -> list[Point]:
        """The evaluation points, once every position is known."""
        points = []
        for trips, version, time, begun, trained, upload, download, stale, loss in self.records:
            received = np.array([at[n] for at, n in zip(received_at, begun, strict=True)])
            initial = np.array([at[0] for at in received_at])
            trained = np.where(trained < 0, initial, trained)
            points.append(Point(trips, version, time, received, trained, upload, download, stale, loss=loss))
        return points
