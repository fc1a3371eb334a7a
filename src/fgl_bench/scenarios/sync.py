"""Synchronous rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds
from fgl_bench.algorithms.powers import Spending
from fgl_bench.engine.aggregators import Aggregated
from fgl_bench.engine.hooks import JointTraining, check_like, check_shape
from fgl_bench.engine.mixing import Mixing, checked
from fgl_bench.engine.transfer import put
from fgl_bench.errors import Range, UserError, above
from fgl_bench.scenarios.base import Rounds, Trained
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.states import Transferred
from fgl_bench.utils.seeding import derive_seed


@dataclass
class Sync(Rounds):
    """Rounds of download, local epochs, upload and aggregation by a server.

    A method with one global model sends it to everybody; a personalized method replaces the models of the participants only.

    Attributes:
        deadline: cycles after which the server aggregates without the late uploads. Late trips count, and late clients start again
            from the newest model; nobody is late where nothing travels. null waits for all clients.
    """

    name: ClassVar[str] = "sync"
    contract: ClassVar[type] = ServerRounds
    ranges: ClassVar[dict[str, Range]] = {"deadline": above(0)}

    deadline: float | None

    @property
    def drops_uploads(self) -> bool:
        return self.deadline is not None

    def late(self, duration: float) -> bool:
        return self.deadline is not None and duration > self.deadline

    def longest(self, slowest: float) -> float:
        return slowest if self.deadline is None else min(slowest, self.deadline)

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        method, received, arrived = cast(ServerRounds, sim.algorithm), done.received, done.arrived
        mixing = checked(method.mix(done.reports, arrived), arrived).without(method.frozen, sim.trainer.layout)
        if sim.aggregator is not None and (mixing.communicates or not done.number):  # a later stage may train without the server
            mixing = aggregated(mixing, sim, done)
        # Mixing may overwrite the received models.
        previous = received.clone() if self.drops_uploads or method.refines else received
        received = mixing.apply(done.uploaded, received, sim.trainer.layout, done.trained, sim.setting.shard)
        if method.refines:
            hidden = sim.aggregator is not None and sim.aggregator.hides
            received = method.refine(previous, received, received if hidden else done.uploaded, arrived)
            check_shape("refine()", received, dict(zip("SCP", done.trained.shape, strict=True)), "S C P")
            check_like("refine()", received, done.trained)
        if self.drops_uploads and mixing.communicates:  # a seed without arrivals keeps its models
            received = torch.where(arrived.any(1)[:, None, None], received, previous)
        return received, mixing.matrix

    def transferred(self, sim: Simulation, rounds: Sequence[int], count: int) -> list[list[Transferred]]:
        method = cast(ServerRounds, sim.algorithm)
        each = [method.bytes_after(number, number * count) for number in rounds]
        return [[Transferred(*bytes_) for bytes_ in seed] for seed in zip(*each, strict=True)]


def aggregated(mixing: Mixing, sim: Simulation, done: Trained) -> Mixing:
    """Return ``mixing`` with the simulation's aggregator instead of the mean.

    Raises:
        UserError: the server does not average all uploads into one model; or it must see nothing else, and receives more.
    """
    method, aggregator = sim.algorithm, sim.aggregator
    assert aggregator is not None
    named = f"{aggregator.key}: {type(aggregator).__name__}"
    if type(mixing) is not Mixing or mixing.weights.shape[1] != 1:
        why = f"makes one model of all uploads, and the server of {type(method).__name__} does not"
        raise UserError(f"{named} {why}; use {aggregator.default}")
    if aggregator.hides and (done.reports or uploads_more(cast(ServerRounds, method)) or isinstance(method, Spending | JointTraining)):
        why = f"covers the models that clients upload, and those of {type(method).__name__} send more"
        raise UserError(f"{named} {why}; use {aggregator.default}")
    key = put([derive_seed(seed, "aggregator", done.number) for seed in sim.setting.seeds], done.trained.device)
    return Aggregated(mixing.weights, mixing.receivers, mixing.shared, rule=aggregator, key=key)


def uploads_more(method: ServerRounds) -> bool:
    """Return True if clients upload more than models, in every trip or once."""
    clients, traffic = method.setting.num_clients, method.traffic()
    return len(traffic.upload) > 1 or any(sent > clients * traffic.bytes[0] for sent, _ in method.bytes_after(1, clients))
