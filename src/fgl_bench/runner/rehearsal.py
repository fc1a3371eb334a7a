"""Memory of a run, measured on a few of its steps before it begins."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch

from fgl_bench.data.federation import Federation
from fgl_bench.data.served import Served
from fgl_bench.engine.hooks import JointTraining
from fgl_bench.engine.replay import WARM_UP
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone
from fgl_bench.runner.build import DTYPES, simulation
from fgl_bench.runner.memory import Need, largest_client, out_of_memory
from fgl_bench.runner.spec import RunSpec
from fgl_bench.runner.workers import Died, apart, forks
from fgl_bench.scenarios.base import Rounds
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback
from fgl_bench.utils.allocator import keep_freed_memory
from fgl_bench.utils.live_bytes import DeviceBytes, LiveBytes, ResidentBytes
from fgl_bench.utils.participation import participants

# What a CPU's resident memory rises by for a byte that is alive: freed blocks between others are too small for what comes next. The
# median over backbones and methods, from 1.0 to 2.2.
HOLES = 1.2
# Twice the most that a method was seen to take for a byte of what it trains, and what networks of its own may take of small graphs.
CEILING, FLOOR = 60, 2**28

FEW = 16
"""Clients in files that are rehearsed with; a rehearsal with all of them would read all files many times."""


class _Enough(Exception):
    """Ends a rehearsal early."""


def ceiling(spec: RunSpec, federations: Sequence[Federation], network: Backbone) -> int:
    """More bytes than one seed takes: many times its models, dense features, widest results and pairs of a client's nodes."""
    first, nodes = federations[0], largest_client(federations)
    layout = network.layout(first.num_features, first.num_classes)
    columns = first.num_features + network.widest(first.num_features, first.num_classes)
    server = max((f.server.num_nodes for f in federations if isinstance(f, Served)), default=0)
    scalars = first.num_clients * (layout.size + nodes * (columns + nodes)) + server * columns
    return FLOOR + CEILING * DTYPES[spec.settings.dtype].itemsize * scalars


def measured(spec: RunSpec, federations: Sequence[Federation], model: Backbone, device: torch.device, budget: int) -> Need:
    """Memory of the seed with the largest client: all clients at once if that fits ``budget`` bytes, else also one and two.

    On a CPU the rise of a forked process' resident memory has the holes between blocks in it. It varies between calls, so the memory
    of a second client is its live bytes, times the ratio of rise to live bytes with one client. Where forks are not
    allowed, live bytes are multiplied by :data:`HOLES`.
    """
    federation = max(federations, key=lambda f: (largest_client([f]), sum(client.edges.shape[1] for client in f.clients)))
    if federation.observed[0].folder is not None and federation.num_clients > FEW and not isinstance(spec.algorithm, JointTraining):
        with suppress(UserError):  # a communication graph that needs more clients
            return told_by_few(spec, federation, model, device)
    clients, together = federation.num_clients, min(spec.settings.seeds_per_chunk or 1, len(federations))
    layout = spec.algorithm.backbone(model).layout(federation.num_features, federation.num_classes)
    row = clients * layout.size * DTYPES[spec.settings.dtype].itemsize
    alive, taken = counts_of(spec, federation, model, device)
    if isinstance(spec.algorithm, JointTraining):  # all clients at once, for any chunk
        whole = taken(None)
        return Need(clients, whole, whole, 1, row)
    try:
        whole = taken(None, budget // together)
        if together * whole <= budget:
            return Need(clients, whole, whole, 1, row)
    except (MemoryError, Died):
        whole = budget // together + 1
    single = taken(1)
    counts = [alive(chunk) for chunk in range(1, min(3, clients) + 1)]
    step = step_of(counts, single)
    return Need(clients, max(whole, single + (clients - 1) * step), single, step, row)


def told_by_few(spec: RunSpec, federation: Federation, model: Backbone, device: torch.device) -> Need:
    """Memory of a seed of many clients in files, from rehearsals with the largest :data:`FEW` and with half of them.

    Training memory is that of the largest client. Each further client, not trained at the same time, adds models, moments and reports.

    Raises:
        UserError: the run cannot be made of this few clients.
    """
    clients, layout = federation.num_clients, spec.algorithm.backbone(model).layout(federation.num_features, federation.num_classes)
    alive, taken = counts_of(spec, largest(federation, FEW), model, device)
    single, counts = taken(1), [alive(chunk) for chunk in (1, 2, 3)]
    fewer, _ = counts_of(spec, largest(federation, FEW // 2), model, device)
    kept = max(0, counts[0] - fewer(1)) / (FEW - FEW // 2)
    step = step_of(counts, single)
    single += int((clients - FEW) * kept * single / counts[0])
    row = clients * layout.size * DTYPES[spec.settings.dtype].itemsize
    return Need(clients, single + (clients - 1) * step, single, step, row)


def largest(federation: Federation, count: int) -> Federation:
    """The clients with most nodes as a federation of their own."""
    chosen = sorted(sorted(range(federation.num_clients), key=lambda i: -federation.clients[i].num_nodes)[:count])
    clients, observed = (tuple(held[i] for i in chosen) for held in (federation.clients, federation.observed))
    observed = clients if federation.observed is federation.clients else observed
    return replace(federation, clients=clients, observed=observed, cross_edges=federation.cross_edges[:, :0])


def step_of(counts: Sequence[int], single: int) -> int:
    """Memory per further client trained at the same time: ``single`` is that of one, ``counts`` are live bytes of one, two and three.

    The larger of two steps: a program of one client at a time may need more than one of two, because it holds many small parts.
    """
    rises = [after - before for before, after in pairwise(counts)]
    return max(1, max(rises) * single // counts[0]) if rises else single


def counts_of(
    spec: RunSpec, federation: Federation, model: Backbone, device: torch.device
) -> tuple[Callable[[int], int], Callable[..., int]]:
    """Live bytes and memory for numbers of clients trained at once (None: all clients; a limit may be given)."""
    at_once = partial(rehearse, spec, federation, model, device)

    def alive(chunk: int) -> int:
        return apart(lambda: at_once(chunk, DeviceBytes(device) if device.type == "cuda" else LiveBytes()))

    def taken(chunk: int | None, limit: int | None = None) -> int:
        if device.type == "cuda":  # a fork would break its driver; its limit is what it has
            return at_once(chunk, DeviceBytes(device))
        if forks():
            return apart(lambda: at_once(chunk, ResidentBytes(limit)))
        return int(HOLES * at_once(chunk, LiveBytes(None if limit is None else int(limit / HOLES))))

    return alive, taken


def rehearse(
    spec: RunSpec,
    federation: Federation,
    model: Backbone,
    device: torch.device,
    chunk: int | None,
    counter: LiveBytes | ResidentBytes | DeviceBytes,
) -> int:
    """Peak of ``counter`` while a program of this seed is built and runs its first and last rounds, with one local step each.

    Args:
        chunk: replicas trained at once; None means all.

    Raises:
        MemoryError: it takes more than the counter's limit, or than there is.
    """
    try:
        with counter, torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
            if device.type == "cpu":
                keep_freed_memory()
            _first_and_last(spec, federation, model, device, chunk)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise MemoryError(str(error)) from None  # wherever it was
    return counter.peak


def _first_and_last(spec: RunSpec, federation: Federation, model: Backbone, device: torch.device, chunk: int | None) -> None:
    made, drops = spec.fresh_algorithm(), spec.scenario.drops_uploads
    sim = simulation(spec.settings, [federation], model, made, device, spec.rounds, spec.trips, chunk, drops, spec.optimizer)
    if device.type == "cpu":  # on a GPU steps are captured, each with memory of its own
        sim.trainer.local_epochs = 1
    sim.callbacks = [_Until(_shorten(sim, isinstance(spec.scenario, Rounds)))]
    try:
        spec.scenario.run(sim)
    except _Enough:
        pass


def _shorten(sim: Simulation, in_rounds: bool) -> int:
    """Leave out the rounds in the middle; returns the trips after which nothing new is to be seen.

    Where some clients take part, graphs are cut out for them and kept, up to two copies (``Trainer.part``); that fills up first. A GPU
    captures a step after its first calls.
    """
    clients, first = sim.setting.num_clients, 2 if sim.trainer.batch.device.type == "cpu" else WARM_UP + 2
    if not in_rounds:
        return 2 * first * clients
    if sim.participation < 1:
        first = max(first, 1 + math.ceil(2 / sim.participation))
    last = sim.rounds - 1
    sim.numbers = sorted({*range(min(first, sim.rounds)), max(0, last - 1), last})
    return sim.rounds * participants(sim.participation, clients) * sim.stands_for


class _Until(StepCallback):
    """Ends a rehearsal after a number of trips."""

    def __init__(self, trips: int):
        self.most = trips

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        if state.trips >= self.most:
            raise _Enough
