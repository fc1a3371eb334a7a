"""How many seeds and clients are trained at once: predicted from sizes, or measured on a few clients. See docs/memory.md."""

from __future__ import annotations

import gc
import os
import resource
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fgl_bench.data.federation import Federation, ServerFederation
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.replay import WARM_UP
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone
from fgl_bench.runner.build import DTYPES, simulation
from fgl_bench.runner.spec import RunSpec
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback
from fgl_bench.utils.allocator import keep_freed_memory, return_freed_memory
from fgl_bench.utils.participation import participants

# Elements of a program's largest tensor above which an operation gains from several CPU threads (measured: Cora's size does not,
# CS's and Physics' do).
WIDE = 4_000_000
# Twice the most that a method was seen to take for a byte of what it trains, and what networks of its own may take of small graphs.
CEILING, FLOOR = 60, 2**28
FEW = 16  # clients that are measured; with two, pages and caches would be most of the difference


@dataclass(frozen=True)
class Plan:
    """Attributes: seeds in one program; clients of them trained at once (None: all); most programs side by side; threads in each."""

    seeds: int
    replicas: int | None
    programs: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Need:
    """Memory of one seed, in bytes.

    Attributes:
        clients: C.
        held: graphs, models and reports of all clients.
        step: training of each client that is trained at the same time.
    """

    clients: int
    held: int
    step: int

    def program(self, seeds: int, replicas: int | None = None) -> int:
        """Bytes of ``seeds`` seeds in one program that trains ``replicas`` at once (None: all)."""
        return seeds * self.held + (seeds * self.clients if replicas is None else replicas) * self.step


def available_bytes(device: torch.device) -> int:
    """Memory that a run may use by default: four fifths of what is free on the GPU, half of the machine's on a CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # memory left by an earlier run of this process is free
        free, _ = torch.cuda.mem_get_info(device)
        # Memory freed by earlier runs of this process is available: torch caches it, and the driver counts it as used.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return (free + cached) * 4 // 5
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def budget(spec: RunSpec, device: torch.device) -> int:
    """Bytes that programs may take."""
    return int(spec.settings.memory_budget_gb * 1e9) if spec.settings.memory_budget_gb else available_bytes(device)


def network(spec: RunSpec, federations: Sequence[Federation], device: torch.device) -> Backbone:
    """The configured backbone, settled for these federations and the budget of memory."""
    first, settings = federations[0], spec.settings
    graphs = 1 if first.observed is first.clients else 2
    loaded = 1 if first.observed[0].folder is not None else graphs * first.num_clients  # clients on disk come one at a time
    itemsize = DTYPES[settings.feature_dtype or settings.dtype].itemsize

    def fits(copies: int) -> bool:
        return copies * loaded * largest_client(federations) * first.num_features * itemsize <= budget(spec, device)

    return spec.model.settle(first.observed, first.num_classes, device, spec.rounds * settings.local_epochs, settings.batch_nodes, fits)


def chunks(spec: RunSpec, federations: Sequence[Federation], device: torch.device, *, exact: bool = False) -> tuple[Need, Plan]:
    """The memory that one seed needs, and how many seeds and clients to train together.

    Args:
        exact: measure the memory where a bound shows that everything fits, too.
    """
    model, first, bytes_ = network(spec, federations, device), federations[0], budget(spec, device)
    trained, clients, each = spec.algorithm.backbone(model), first.num_clients, spec.settings.seeds_per_chunk
    most = ceiling(spec, federations, trained)
    seeds = len(federations) if device.type == "cuda" else min(len(federations), 2 * torch.get_num_threads() * (each or 1))  # at once
    if exact or first.observed[0].folder is not None or seeds * most > bytes_:
        need = measured(spec, federations, model, device, FEW + FLOOR * clients // most, 0 if exact else bytes_ // seeds)
    else:
        need = Need(clients, most, 0)
    layout, widest = trained.layout(first.num_features, first.num_classes), trained.widest(first.num_features, first.num_classes)
    return need, plan(federations, layout, widest, need, device, bytes_, each, replicas_at_once(model, federations))


def ceiling(spec: RunSpec, federations: Sequence[Federation], network: Backbone) -> int:
    """More bytes than one seed takes: many times its models, dense features, widest results and pairs of a client's nodes."""
    first, nodes = federations[0], largest_client(federations)
    layout = network.layout(first.num_features, first.num_classes)
    columns = first.num_features + network.widest(first.num_features, first.num_classes)
    server = max((f.server.num_nodes for f in federations if isinstance(f, ServerFederation)), default=0)
    scalars = first.num_clients * (layout.size + nodes * (columns + nodes)) + server * columns
    return FLOOR + CEILING * DTYPES[spec.settings.dtype].itemsize * scalars


def measured(spec: RunSpec, federations: Sequence[Federation], model: Backbone, device: torch.device, few: int, enough: int) -> Need:
    """The memory of the seed with the largest client.

    A short run of that client is measured. Where so much for every client is more than ``enough`` bytes, short runs of the ``few``
    largest clients and of half of them follow: memory grows evenly with the clients, and with those trained at once.
    """
    federation = max(federations, key=lambda f: (largest_client([f]), sum(client.edges.shape[1] for client in f.clients)))
    clients = federation.num_clients
    few = min(few, clients)

    def run(count: int, chunk: int | None = None) -> int:
        return rise(spec, largest(federation, count), model, device, chunk)

    try:
        one = run(1)  # loads libraries, too
        if clients * one <= enough:
            return Need(clients, 0, one)
        single, half, whole = run(few, 1), run(few // 2) if few < clients else 0, run(few)
    except UserError:  # a communication graph that needs more clients
        few, single, half, whole = clients, run(clients, 1), 0, run(clients)
    step = max(0, whole - single) // max(1, few - 1)
    each = max(step, (whole - half) // (few - few // 2))
    return Need(clients, whole + (clients - few) * each - clients * step, step)


def largest(federation: Federation, count: int) -> Federation:
    """The ``count`` clients with most nodes as a federation of their own."""
    if count == federation.num_clients:
        return federation
    chosen = sorted(sorted(range(federation.num_clients), key=lambda i: -federation.clients[i].num_nodes)[:count])
    clients, observed = (tuple(held[i] for i in chosen) for held in (federation.clients, federation.observed))
    observed = clients if federation.observed is federation.clients else observed
    return replace(federation, clients=clients, observed=observed, cross_edges=federation.cross_edges[:, :0])


def rise(spec: RunSpec, federation: Federation, model: Backbone, device: torch.device, chunk: int | None) -> int:
    """Bytes by which a short run raises the memory of this process; ``sys.maxsize`` if memory runs out.

    It makes the first and the last rounds, which show a method's last stage, on a CPU with one local step each. It has an algorithm,
    models and random streams of its own.

    Args:
        chunk: clients trained at once; None means all.
    """
    first = 2 if device.type == "cpu" else WARM_UP + 2  # a GPU captures a step after its first calls
    last, clients, threads = spec.rounds - 1, federation.num_clients, torch.get_num_threads()
    torch.set_num_threads(1)  # for small tensors
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
            before = reset_peak(device)
            what = (spec.settings, [federation], model, spec.fresh_algorithm(), device, spec.rounds, 2 * first * clients)
            sim = simulation(*what, chunk, spec.scenario.drops_uploads, spec.optimizer)
            if device.type == "cpu":
                sim.trainer.local_epochs = 1
            sim.numbers = sorted({*range(min(first, spec.rounds)), max(0, last - 1), last})
            sim.callbacks = [Last(spec.rounds * participants(sim.participation, clients) * sim.stands_for)]
            with suppress(StopIteration):
                spec.scenario.run(sim)
            return max(1, peak(device) - before)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return sys.maxsize
    finally:
        torch.set_num_threads(threads)


class Last(StepCallback):
    """Ends a simulation after ``trips``, before its evaluation points are read: there are none of the rounds that were left out."""

    def __init__(self, trips: int):
        self.trips = trips

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        if state.trips >= self.trips:
            raise StopIteration


def reset_peak(device: torch.device) -> int:
    """Return freed memory to the system and begin to note the peak of :func:`peak`, from the value that is returned."""
    gc.collect()  # steps that are replayed hold themselves
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        keep_freed_memory()
        return_freed_memory()  # what was freed before would be taken again, and not be seen to rise
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak(device)


def peak(device: torch.device) -> int:
    """Most bytes since :func:`reset_peak`: reserved on a GPU, else resident and not of mapped files (outside of Linux since the start)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    fields = dict(line.split(":", 1) for line in lines)
    return 1024 * (int(fields["VmHWM"].split()[0]) - int(fields["RssFile"].split()[0]))


def plan(
    federations: Sequence[Federation],
    layout: ParameterLayout,
    widest: int,
    need: Need,
    device: torch.device,
    budget: int,
    seeds_per_chunk: int | None,
    replicas_at_once: int = 1,
) -> Plan:
    """Seeds first, then clients, until a program fits ``budget`` bytes; the numbers of a run do not depend on it, except for rounding.

    On a CPU every seed is a program of its own, unless ``replicas_at_once`` is larger: five in one fall out of the cache and are
    slower per seed. The threads of a program depend on sizes alone, not on measurements, since sums of several threads round differently.

    Args:
        widest: columns of the widest result of an operation, ``Backbone.widest``.
        together: most seeds in a program on a CPU.
    """
    most = min(replicas_at_once, len(federations)) if device.type == "cpu" else len(federations)
    fitting = (count for count in range(most, 1, -1) if need.program(count) <= budget)
    seeds = min(seeds_per_chunk or next(fitting, 1), len(federations))
    elements = seeds * need.clients * max(layout.size, largest_client(federations) * widest)
    threads = torch.get_num_threads() if elements >= WIDE else 1
    if need.program(seeds) <= budget or not need.step:
        cores = torch.get_num_threads()
        # Oversubscribe only in the last group, if its programs would not gain from another core (see ``workers.groups``).
        side_by_side = 1 if device.type != "cpu" else cores if threads > 1 else 2 * cores - 1
        return Plan(seeds, None, max(1, min(side_by_side, budget // need.program(seeds))), threads)
    most = max(1, seeds * need.clients - 1)  # all of them at once do not fit
    return Plan(seeds, max(1, min(most, (budget - need.program(seeds, 0)) // need.step)), 1, threads)


def replicas_at_once(model: Backbone, federations: Sequence[Federation]) -> int:
    """Seeds for one program on a CPU: a thread's share of them, where they read the same matrices most of the time; else one."""
    first, *others = federations
    sizes = largest_client(federations), first.num_features, first.num_classes
    if first.observed[0].folder is not None or not model.reads_shared_matrices(*sizes):
        return 1
    if not all(same_graph(*pair) for other in others for pair in zip(first.observed, other.observed, strict=True)):
        return 1
    return -(-len(federations) // torch.get_num_threads())


def same_graph(one: ClientGraph, other: ClientGraph) -> bool:
    """Return True if both hold the same arrays and train on the same nodes."""
    return one.features is other.features and one.edges is other.edges and np.array_equal(one.train, other.train)


def largest_client(federations: Sequence[Federation]) -> int:
    """Nodes of the largest client, to which all are padded."""
    return max(client.num_nodes for federation in federations for client in federation.clients)


def out_of_memory(error: BaseException) -> bool:
    """Return True if an operation ran out of memory, on a GPU or in one of the host's allocators."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in ("can't allocate memory", "bad_alloc"))
