"""How much memory replicas take, and how many to train at once."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fgl_bench.data.federation import Federation
from fgl_bench.engine.layout import ParameterLayout


# Elements of a program's largest tensor above which an operation gains from several CPU threads (measured: Cora's size does not,
# CS's and Physics' do).
WIDE = 4_000_000


@dataclass(frozen=True)
class Plan:
    """Attributes: seeds in one program; clients of them trained at once (None: all); programs side by side; threads in each."""

    seeds: int
    replicas: int | None
    programs: int = 1
    threads: int = 1


def model_bytes(layout: ParameterLayout, stacks: int, itemsize: int) -> int:
    """Bytes per replica of its flat rows: models, moments and gradient."""
    return stacks * layout.size * itemsize


def activation_bytes(nodes: int, widths: Sequence[int], itemsize: int) -> int:
    """Bytes per replica of one training step's activations, gradients and dropout masks, for n padded nodes."""
    return nodes * sum(widths) * (6 * itemsize + 4)


def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep what is freed (elsewhere: nothing).

    By default it returns every large gradient to the system and faults the same pages in again at the next step, which costs a
    quarter of a step at Physics' size.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_max, 0)


def available_bytes(device: torch.device) -> int:
    """Memory that a run may use by default: four fifths of what is free on the GPU, half of the machine's on a CPU."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free * 4 // 5
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def plan(
    federations: Sequence[Federation],
    layout: ParameterLayout,
    widths: Sequence[int],
    stacks: int,
    itemsize: int,
    device: torch.device,
    budget: int,
    seeds_per_chunk: int | None,
) -> Plan:
    """Seeds first, then clients, until a program fits ``budget`` bytes; the numbers of a run do not depend on it.

    On a CPU every seed is a program of its own: five in one fall out of the cache and are slower per seed.
    """
    clients = federations[0].num_clients
    nodes = max(client.num_nodes for federation in federations for client in federation.clients)
    rows, active = model_bytes(layout, stacks, itemsize), activation_bytes(nodes, widths, itemsize)
    per_seed = clients * (rows + active)
    seeds = seeds_per_chunk or (1 if device.type == "cpu" else max(1, budget // per_seed))
    seeds = min(seeds, len(federations))
    elements = seeds * clients * max(layout.size, nodes * max(widths))
    threads = torch.get_num_threads() if elements >= WIDE else 1
    if seeds * per_seed <= budget:
        side_by_side = torch.get_num_threads() if device.type == "cpu" else 1
        return Plan(seeds, None, max(1, min(side_by_side, budget // (seeds * per_seed))), threads)
    return Plan(seeds, max(1, int((budget - seeds * clients * rows) // max(active, 1))), 1, threads)
