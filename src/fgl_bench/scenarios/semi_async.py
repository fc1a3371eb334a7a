"""Semi-asynchronous federation: an event-driven virtual clock with stragglers, trained in lazy batches."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch

from fgl_bench.algorithms.base import Algorithm, SemiAsyncServer
from fgl_bench.algorithms.powers import Comparing
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.engine.hooks import check_kind, check_shape
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import Point
from fgl_bench.scenarios.schedule import Schedule, Stragglers
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.states import EventState
from fgl_bench.scenarios.trip_models import Start, TripModels, overrides, resolved, shares_memory


@dataclass
class SemiAsync(Stragglers):
    """Clients train at their own pace; the server takes a step when K uploads have arrived.

    The event loop follows FedSA-GCL's setting: 30 % of the clients lag by 2 to 5 cycles, where a cycle is C trips. Training is
    lazy, and therefore batched: a trip depends only on the model that it started from and on its own random stream. Nothing is
    trained until some seed needs an upload that has not been computed; then all trips in progress, of all clients and seeds, are
    trained in one program.

    Attributes:
        lag_unit: ``trips``, a slow upload is released when the server has counted ``lag * C`` further trips (the literal
            reading), or ``time``, the trip lasts ``lag`` on the virtual clock.
        fast_trips: ``concurrent``, a fast client trains from what it received when its trip began; or ``atomic``, since only slow
            ones lag, from its newest message when it uploads, or from the server's model where the reply was that.
            Its trips after the first are then trained one at a time, which takes longer.
        staleness_from: what staleness counts server steps from: the version that a trip started from (``base``), or the step that took
            the client's last upload in (``upload``), so that arrivals are fresh; for methods that mix older uploads too.
    """

    name: ClassVar[str] = "semi_async"
    contract: ClassVar[type] = SemiAsyncServer

    lag_unit: Literal["trips", "time"]
    fast_trips: Literal["concurrent", "atomic"]
    staleness_from: Literal["base", "upload"]

    def run(self, sim: Simulation) -> None:
        """Fill ``sim.points``, one every ``eval_every`` trips and at the ends; UserError where a key means nothing for the method."""
        clients, method = sim.setting.num_clients, cast(SemiAsyncServer, sim.algorithm)
        if sim.participation != 1:
            raise UserError(f"participation={sim.participation} needs rounds; allowed with scenario=semi_async: 1")
        if self.staleness_from == "upload" and not (method.keeps_uploads and method.reads_staleness):
            raise UserError("scenario.staleness_from=upload: this method mixes new uploads only, or dates old ones itself; use base")
        models = TripModels(sim)
        loops = [_Loop(sim, models, s, schedule, self) for s, schedule in enumerate(self.schedules(sim))]
        state = _Events(models, loops)
        if sim.resumed is not None:
            state.load(sim.resumed)
        running = dict(enumerate(loops))
        while running:
            # Advance every seed to its first missing upload, then train all trips in progress.
            running = {s: loop for s, loop in running.items() if not loop.advance()}
            if running:
                models.train([s * clients + i for s in running for i in range(clients) if models.pending[s, i]])
            sim.step_end(state)
        models.finish()
        sim.train_end(state)
        sim.points = state.points([0] * len(loops))
        for at in set.intersection(*(set(loop.pictures) for loop in loops)):
            sim.similarity[at] = torch.stack([loop.pictures[at] for loop in loops])


@dataclass
class _Events:
    """The event loops of all seeds, between two batches of trips; a :class:`~fgl_bench.scenarios.simulation.ScenarioState`."""

    models: TripModels
    loops: list[_Loop]

    @property
    def trips(self) -> int:
        return sum(loop.trips for loop in self.loops)

    done = trips

    @property
    def last(self) -> np.ndarray:
        return np.stack([loop.last for loop in self.loops])

    def points(self, starts: Sequence[int]) -> list[list[Point]]:
        received_at = self.models.received_at
        return [resolved(loop.records, received_at[s], start) for s, (loop, start) in enumerate(zip(self.loops, starts, strict=True))]

    def state(self) -> dict[str, Any]:
        return {"models": self.models.state(), "loops": [loop.state() for loop in self.loops]}

    def load(self, record: dict[str, Any]) -> None:
        """Continue from a record of :meth:`state`."""
        self.models.load(record["models"])
        for loop, fields in zip(self.loops, record["loops"], strict=True):
            vars(loop).update(fields)


class _Loop(EventState):
    """The event loop of one seed; only the models are on the device."""

    def __init__(self, sim: Simulation, models: TripModels, s: int, schedule: Schedule, keys: SemiAsync):
        setting, clients, self.algorithm = sim.setting, sim.setting.num_clients, cast(SemiAsyncServer, sim.algorithm)
        self.sim, self.models, self.s, self.schedule, self.by_trips = sim, models, s, schedule, keys.lag_unit == "trips"
        self.atomic, self.from_upload = keys.fast_trips == "atomic", keys.staleness_from == "upload"
        self.clients, self.first = clients, s * clients
        self.buffer = self.algorithm.buffer_size()
        self.up, self.down, self.pushed = self.algorithm.traffic().bytes
        self.plain_uploads = not overrides(self.algorithm.upload, Algorithm.upload) and sim.forge is None
        self.plain_starts = not overrides(self.algorithm.begin, SemiAsyncServer.begin)
        initial = sim.initial[self.first]
        remembered = clients if self.algorithm.keeps_uploads else 0
        server = Server(
            model=initial.clone(),
            uploads=initial.repeat(remembered, 1),
            known=np.zeros(clients, dtype=bool),
            base_version=np.zeros(clients, dtype=np.int64),
            weights=setting.weights[s].cpu().numpy(),
            reports={},
        )
        super().__init__(**vars(EventState.begin(server, clients)))

    def _start(self, client: int, ends: bool = False) -> None:
        """Begin a trip from ``models.starts``; one that ``ends`` as it begins needs no event."""
        self.waiting[client] = False
        self.models.pending[self.s, client] = True
        trip = int(self.begun[client])
        self.begun[client] += 1
        priority = self.schedule.priority[client]
        if ends:
            return
        if self.by_trips and client in self.schedule.slow:
            heapq.heappush(self.held, (self.trips + self.schedule.cycles(client, trip) * self.clients, priority, client))
        else:
            heapq.heappush(self.heap, (self.time + self.schedule.duration(client, trip), priority, client))

    def _take(self, client: int, message: Message, version: int, reports: dict[str, float]) -> None:
        """Begin a trip from a message; a fast client's atomic trip at its end."""
        if not self.atomic or client in self.schedule.slow:
            self._open(client, message, version, reports)
            return
        if self.newest[client] is None:
            self.waiting[client] = False
            due = self.time + self.schedule.duration(client, int(self.begun[client]))
            heapq.heappush(self.heap, (due, self.schedule.priority[client], client))
        global_model = message.model is self.server.model
        copy = message if global_model else message._replace(model=message.model.clone())
        self.newest[client] = (copy, global_model)

    def _download(self, client: int) -> None:
        """Begin the atomic trip that is due."""
        if (newest := self.newest[client]) is not None:
            message, global_model = newest
            last = {name: values[self.first + client] for name, values in self.models.reports.items()}
            own = {name: float(value) for name, value in last.items() if value.ndim == 0}
            self.newest[client] = None
            message = message._replace(model=self.server.model) if global_model else message
            self._open(client, message, self.server.version, own, ends=True)

    def _open(self, client: int, message: Message, version: int, reports: dict[str, float], ends: bool = False) -> None:
        """Begin a trip from a message."""
        row, models, method = self.first + client, self.models, self.algorithm
        if self.plain_starts and message.blocks is None:
            models.starts[row] = Start(self._own(message.model), method.message_share(message, reports))
        else:
            model = method.begin(message, models.rows[row], reports)
            check_shape("begin()", model, {"P": models.trained.shape[1]}, "P")
            models.starts[row] = Start(self._own(model))
        self.version[client] = version
        self._start(client, ends)

    def _next(self) -> int:
        """The client whose upload arrives next; moves the clock."""
        due: list[tuple[int, int, int]] = []
        while self.held and (self.held[0][0] <= self.trips or not (self.heap or due)):
            # All other clients wait for the buffer to fill: release the earliest slow upload early.
            self.forced += self.held[0][0] > self.trips
            due.append(heapq.heappop(self.held))
        for _, priority, client in due:
            heapq.heappush(self.heap, (self.time, priority, client))
        self.time, _, client = heapq.heappop(self.heap)
        return client

    def advance(self) -> bool:
        """Run to the first upload that has yet to be computed, or to the end of the budget: returns whether that is reached."""
        sim, models = self.sim, self.models
        if not self.records:
            for client in range(self.clients):
                self.download += self.down
                self._start(client)
            self._record()
        while self.trips < sim.trips and self.time < sim.virtual_time:
            if self.due is None:
                self.due = self._next()
                self._download(self.due)
            if models.pending[self.s, self.due]:
                return False
            client, self.due = self.due, None
            self._arrive(client)
            if len(self.queue) >= self.buffer:
                self._serve()
            if self.trips in sim.mixing_at:
                self._picture()
            if self.trips % sim.eval_every == 0 or self.trips == sim.trips:
                self._record()
        if self.records[-1][0] != self.trips:  # the time was over before the trips
            self._record()
        return True

    def _arrive(self, client: int) -> None:
        """Add one upload to the buffer; the client continues with the message in its inbox, or waits."""
        method, models, row = self.algorithm, self.models, self.first + client
        self.trace.append((self.time, client))
        self.trips += 1
        self.ended[client] += 1
        blocks = method.upload_blocks(self.server)
        self.upload += self._size(self.up, blocks)
        reports = {name: values[row].copy() for name, values in models.reports.items()}
        own = {name: float(value) for name, value in reports.items() if value.ndim == 0}
        waiting_push = self.inbox[client]
        if waiting_push is not None and method.merges_before_upload:
            models.flush()
            models.trained[row] = method.begin(waiting_push[0], models.rows[row], own)
            self.inbox[client] = waiting_push = None
        self.queue.append(Upload(client, self._payload(client, blocks), int(self.version[client]), 0, reports, blocks))
        self.waiting[client] = True
        if waiting_push is not None:
            self.inbox[client] = None
            self._take(client, *waiting_push, own)
        elif not method.waits:
            self.download += self.down
            self._take(client, Message(client, self.server.model), self.server.version, own)

    def _payload(self, client: int, blocks: tuple[str, ...] | None) -> torch.Tensor:
        """The client's upload ``[P]``; if whole models are stored, it is stored in the client's row."""
        method, models, row = self.algorithm, self.models, self.first + client
        if self.plain_uploads:
            again = [number for number, upload in enumerate(self.queue) if upload.client == client]
            for number in again:  # the server keeps one upload of a client, the buffer may hold two
                models.flush()
                self.queue[number] = self.queue[number]._replace(payload=self.queue[number].payload.clone())
            if method.keeps_uploads and blocks is None and not again:
                models.keep(self.server.uploads[client], row)
                return self.server.uploads[client]
            return models.rows[row].clone()  # the next trip overwrites it while it waits in the buffer
        received, trained = cast(torch.Tensor, models.received), models.trained[row : row + 1]
        if self.sim.forge is not None:
            trained = self.sim.forge((row,), received[row : row + 1], trained, int(self.ended[client]))
        upload = method.upload((row,), received[row : row + 1], trained)
        check_shape("upload()", upload, {"k": 1, "P": received.shape[1]}, "k P")
        return upload[0].clone() if shares_memory(upload, received, models.trained) else upload[0]

    def _own(self, model: torch.Tensor) -> torch.Tensor:
        """``model [P]``, a copy where it lies in memory that is written to: later steps and trips must not change a sent message."""
        return model.clone() if shares_memory(model, self.server.model, self.server.uploads, self.models.trained) else model

    def _serve(self) -> None:
        """One server step over the buffered uploads; replies start waiting clients, other messages go to inboxes."""
        server, method = self.server, self.algorithm
        fresh, server.version = server.version, server.version + 1
        self.staleness += [fresh - upload.base_version for upload in self.queue]
        arrivals = [upload._replace(staleness=0 if self.from_upload else fresh - upload.base_version) for upload in self.queue]
        self.queue = []
        self.models.keep_pushes(self.inbox, fresh)
        self.models.flush()
        for upload in arrivals:
            client = upload.client
            server.known[client], server.base_version[client] = True, fresh - upload.staleness
            if method.keeps_uploads and not shares_memory(upload.payload, server.uploads):
                self.sim.setting.layout.overwrite(server.uploads[client], upload.payload, upload.blocks)
            for name, value in upload.reports.items():
                server.reports.setdefault(name, np.zeros((self.clients, *value.shape), value.dtype))[client] = value
        messages = method.serve(server, arrivals)
        check_kind("serve()", messages, Iterable, "a list of messages, [] where nobody is answered")
        for message in messages:
            client = message.client
            check_shape("serve()'s message", message.model, {"P": self.models.trained.shape[1]}, "P")
            if not method.waits and message.confidence is None:
                continue
            self.download += self._size(self.down if message.confidence is None else self.pushed, message.blocks)
            if self.waiting[client] or self.newest[client] is not None:
                self._take(client, message, server.version, {})
            else:
                self.inbox[client] = (message._replace(model=self._own(message.model)), server.version)

    def _picture(self) -> None:
        """Store the similarities between the clients that have reported."""
        reports = {name: torch.as_tensor(value)[None] for name, value in self.server.reports.items()}
        method = self.algorithm
        similarity = method.similarity(reports) if isinstance(method, Comparing) and self.server.version else None
        if similarity is not None:
            known = torch.as_tensor(self.server.known)
            self.pictures[self.trips] = similarity[0].masked_fill(~(known[:, None] & known), torch.nan)

    def _size(self, whole: int, blocks: tuple[str, ...] | None) -> int:
        """Bytes of a message that carries these parameters only."""
        layout = self.sim.setting.layout
        return whole if blocks is None else whole - 4 * (layout.count - sum(layout.numel(name) for name in blocks))

    def _record(self) -> None:
        """Record an evaluation point; positions of models that are not computed yet are resolved at the end."""
        stale = (float(np.mean(self.staleness)), float(max(self.staleness))) if self.staleness else None
        self.staleness = []
        trained = np.array([at[n - 1] if n else -1 for at, n in zip(self.models.trained_at[self.s], self.ended, strict=True)])
        self.last = np.maximum(trained, 0)
        loss = np.array([at[n - 1] if n and at else -1 for at, n in zip(self.models.loss_at[self.s], self.ended, strict=True)])
        self.records.append((self.trips, self.server.version, self.time, self.begun - 1, trained, self.upload, self.download, stale, loss))
