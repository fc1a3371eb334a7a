"""The models of semi-asynchronous trips, at their start and at their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.records import Message
from fgl_bench.engine.transfer import copy_, put, to_host
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import Point
from fgl_bench.scenarios.simulation import Simulation

CARRIED = ("trained", "received", "pending", "received_at", "trained_at", "loss_at", "reports")  # of TripModels


class Start:
    """The start of a trip: ``share`` times ``model [P]``, and the rest of the model that the client trained last."""

    def __init__(self, model: torch.Tensor, share: float = 1.0):
        self.model, self.share, self.version = model, share, model._version


def overrides(hook: Callable[..., Any], default: Callable[..., Any]) -> bool:
    """Return True if a method overrides the hook."""
    return getattr(hook, "__func__", None) is not default


def shares_memory(model: torch.Tensor, *others: torch.Tensor) -> bool:
    """Return True if ``model`` shares memory with one of the others."""
    address = model.untyped_storage().data_ptr()
    return any(address == other.untyped_storage().data_ptr() for other in others)


def resolved(records: Sequence[tuple], received_at: Sequence[Sequence[int]], start: int) -> list[Point]:
    """The evaluation points of a seed from number ``start`` on whose models have all been scored by now.

    Args:
        records: the records of the event loop.
        received_at: ``[c]``, :attr:`TripModels.received_at` of the seed; a received model is scored when the trip from it is trained.
    """
    points = []
    for trips, version, time, begun, trained, upload, download, stale, loss in records[start:]:
        if any(len(at) <= n for at, n in zip(received_at, begun, strict=True)):
            break
        received = np.array([at[n] for at, n in zip(received_at, begun, strict=True)])
        initial = np.array([at[0] for at in received_at])
        trained = np.where(trained < 0, initial, trained)
        points.append(Point(trips, version, time, received, trained, upload, download, stale, loss=loss))
    return points


class TripModels:
    """The models of all replicas and the reports of their training.

    A trip that is not computed yet has no copy of the model that it starts from, only a reference to the message that brought it.

    Attributes:
        trained: ``[B, P]``, the result of every replica's last computed trip.
        received: ``[B, P]``, the models that these started from, where uploads are made of them; else None.
        rows: the rows ``[P]`` of ``trained``.
        pending: ``[S, C]``, trips that have begun but are not computed yet.
        received_at, trained_at: ``[s][c]``, log positions of the models that each trip started from and ended with.
        loss_at: ``[s][c]``, log positions of the trips' training losses; empty if there are none.
    """

    def __init__(self, sim: Simulation):
        self.sim = sim
        self.trained = sim.initial.clone()
        made = overrides(sim.algorithm.upload, Algorithm.upload) or sim.forge is not None
        self.received = sim.initial.clone() if made else None
        self.rows = list(self.trained.unbind())
        # A buffer for the models of some trips: tensors of changing sizes would fragment the memory.
        self.scratch = self.trained.new_empty(2, *self.trained.shape)
        self.starts = [Start(model) for model in sim.initial.unbind()]
        self.copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        seeds, clients = len(sim.setting.seeds), sim.setting.num_clients
        self.pending = np.zeros((seeds, clients), dtype=bool)
        self.received_at: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(seeds)]
        self.trained_at: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(seeds)]
        self.loss_at: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(seeds)]
        self.reports: dict[str, np.ndarray] = {}

    def state(self) -> dict[str, Any]:
        """The state that future trips depend on."""
        self.flush()
        return {name: getattr(self, name) for name in CARRIED} | {"starts": [(start.model, start.share) for start in self.starts]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state`."""
        for name in CARRIED:
            setattr(self, name, state[name])
        self.rows = list(self.trained.unbind())
        self.starts = [Start(model, share) for model, share in state["starts"]]

    def train(self, rows: list[int]) -> None:
        """Compute the pending trips ``rows``."""
        sim, everyone = self.sim, len(rows) == len(self.trained)
        self.flush()
        received, out = self._received(rows), self.trained if everyone else self.scratch[1, : len(rows)]
        trips = sim.trainer.trips(None if everyone else rows, received, out)
        if not everyone:
            copy_([self.rows[row] for row in rows], out.unbind())
        if self.received is not None:
            self.received.index_copy_(0, put(rows, received.device), received)
        scored = (self.received_at, trips.received_score, received), (self.trained_at, trips.trained_score, out)
        for at, scores, models in scored:
            self._note(at, rows, sim.scored(cast(torch.Tensor, scores), rows, models))
        if trips.train_loss is not None:
            self._note(self.loss_at, rows, sim.losses.add(trips.train_loss[:, None]))
        self.pending.ravel()[rows] = False
        for name, host in to_host(trips.reports).items():
            if name not in self.reports:
                self.reports[name] = np.zeros((len(self.trained), *host.shape[1:]), host.dtype)
            self.reports[name][rows] = host

    def keep(self, target: torch.Tensor, row: int) -> None:
        """Copy a trained model to ``target [P]`` before it is trained further, together with others."""
        self.copies.append((target, self.rows[row]))

    def keep_pushes(self, inbox: list[tuple[Message, int] | None], version: int) -> None:
        """Copy pushed models of step ``version`` that no client has taken yet: they may be rows of a large block, or be written to."""
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for client, push in enumerate(inbox):
            if push is not None and push[1] == version:
                model = push[0].model
                address = model.data_ptr()
                if address not in copies:  # one copy for all that were sent this model
                    copies[address] = torch.empty_like(model), model
                inbox[client] = (push[0]._replace(model=copies[address][0]), version)
        self.copies += copies.values()

    def flush(self) -> None:
        """Make the copies that were asked for."""
        if self.copies:
            copy_(*zip(*self.copies, strict=True))
            self.copies = []

    def finish(self) -> None:
        """Score the models from which the unfinished trips started."""
        rows = np.flatnonzero(self.pending).tolist()
        if rows:
            received = self._received(rows)
            scores = self.sim.trainer.evaluate(received, rows)
            self._note(self.received_at, rows, self.sim.scored(scores, rows, received))

    def _received(self, rows: list[int]) -> torch.Tensor:
        """The models ``[k, P]`` that trips start from."""
        out, starts = self.scratch[0, : len(rows)], [self.starts[row] for row in rows]
        torch.stack([start.model for start in starts], out=out)
        for row, start in zip(rows, starts, strict=True):
            if start.model._version != start.version:
                client = row % self.pending.shape[1]
                raise UserError(f"serve(): the model sent to client {client} was changed after it was sent; send a copy")
        merged = [i for i, start in enumerate(starts) if start.share != 1]
        if merged:
            shares = [starts[i].share for i in merged]
            models = [model for i, model in enumerate(out.unbind()) if starts[i].share != 1]
            own = torch._foreach_mul([self.rows[rows[i]] for i in merged], [1 - share for share in shares])
            torch._foreach_mul_(models, shares)
            torch._foreach_add_(models, own)
        for row in rows:
            self.starts[row] = Start(self.rows[row])  # lets go of the message
        return out

    def _note(self, at: list[list[list[int]]], rows: list[int], start: int) -> None:
        clients = self.pending.shape[1]
        for position, row in enumerate(rows, start):
            at[row // clients][row % clients].append(position)
