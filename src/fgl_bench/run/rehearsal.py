"""What a run takes of memory, measured on a few steps of it before it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from fgl_bench.data.federation import Federation
from fgl_bench.data.served import Served
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.models.base import Backbone
from fgl_bench.run.memory import Need, largest_client, out_of_memory, widest
from fgl_bench.run.program import DTYPES, simulation
from fgl_bench.run.spec import RunSpec
from fgl_bench.run.workers import apart
from fgl_bench.scenarios.base import Rounds, participants
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.live_bytes import DeviceBytes, LiveBytes

# What a CPU's resident memory rises by for a byte that is alive: freed blocks between others are too small for what comes next.
# The median over the rows of results/bench/memory.md.
HOLES = 1.2
# Twice the most that a method was seen to take for a byte of what it trains, and what networks of its own may take of small graphs.
CEILING, FLOOR = 60, 2**28


class _Enough(Exception):
    """The rehearsal has seen what it has to."""


def ceiling(federations: Sequence[Federation], layout: ParameterLayout, itemsize: int) -> int:
    """More bytes than one seed takes: many times its models, dense features, widest results and pairs of a client's nodes."""
    first, nodes = federations[0], largest_client(federations)
    columns = first.num_features + widest(layout)
    server = max((f.server.num_nodes for f in federations if isinstance(f, Served)), default=0)
    return FLOOR + CEILING * itemsize * (first.num_clients * (layout.size + nodes * (columns + nodes)) + server * columns)


def measured(spec: RunSpec, federations: Sequence[Federation], model: Backbone, device: torch.device, budget: int) -> Need:
    """What the seed with the largest client takes: all clients at once where that fits ``budget`` bytes, else also one and two."""
    federation = max(federations, key=lambda f: (largest_client([f]), sum(client.edges.shape[1] for client in f.clients)))
    clients, together = federation.num_clients, min(spec.settings.seeds_per_chunk or 1, len(federations))
    network = spec.algorithm.backbone(model)
    layout = network.layout(federation.num_features, federation.num_classes)
    row = clients * layout.size * DTYPES[spec.settings.dtype].itemsize

    def rehearsed(chunk: int | None, limit: int | None = None) -> int:
        return apart(lambda: rehearse(spec, federation, model, device, chunk, limit))

    if spec.algorithm.lock_step:  # all clients at once, whatever the chunk
        whole = rehearsed(None)
        return Need(clients, whole, whole, 1, row)
    try:
        whole = rehearsed(None, budget // together)
        if together * whole <= budget:
            return Need(clients, whole, whole, 1, row)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        whole = budget // together + 1
    single = rehearsed(1)
    step = max(1, rehearsed(2) - single) if clients > 1 and single < budget else single
    return Need(clients, max(whole, single + (clients - 1) * step), single, step, row)


def rehearse(
    spec: RunSpec, federation: Federation, model: Backbone, device: torch.device, chunk: int | None = None, limit: int | None = None
) -> int:
    """Bytes that a program of this seed takes at most: it is built, run for the first and the last rounds with one local step, and dropped.

    Args:
        chunk: replicas trained at once; None means all.
        limit: bytes above which it stops.

    Raises:
        MemoryError: more than ``limit`` (on a GPU torch's own error, where there is no more).
    """
    on_cpu = device.type == "cpu"
    counter = LiveBytes(None if limit is None else int(limit / HOLES)) if on_cpu else DeviceBytes(device)
    with torch.random.fork_rng(enabled=on_cpu), counter:
        made, drops = spec.fresh_algorithm(), spec.scenario.drops_uploads
        sim = simulation(spec.settings, [federation], model, made, device, spec.rounds, spec.trips, chunk, drops)
        sim.trainer.local_epochs = 1
        sim.progress = _until(_shorten(sim, isinstance(spec.scenario, Rounds)))
        try:
            spec.scenario.run(sim)
        except _Enough:
            pass
        del sim, made
    return int(HOLES * counter.peak) if on_cpu else counter.peak


def _shorten(sim: Simulation, in_rounds: bool) -> int:
    """Leave out the rounds in the middle; returns the trips after which nothing new is to be seen.

    Where some clients take part, graphs are cut out for them and kept, up to two copies (``Trainer.part``); that fills up first.
    """
    clients = sim.setting.num_clients
    if not in_rounds:
        return 4 * clients
    first = 2 if sim.participation == 1 else 1 + math.ceil(2 / sim.participation)
    last = sim.rounds - 1
    sim.numbers = sorted({*range(min(first, sim.rounds)), max(0, last - 1), last})
    return sim.rounds * participants(sim.participation, clients) * sim.stands_for


def _until(trips: int) -> Callable[[int, Callable[[], float]], None]:
    def progress(done: int, accuracy: Callable[[], float]) -> None:
        if done >= trips:
            raise _Enough

    return progress
