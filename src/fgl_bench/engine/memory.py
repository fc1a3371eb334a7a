"""How much memory replicas take, and how many to train at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fgl_bench.data.federation import Federation
from fgl_bench.engine.layout import ParameterLayout


@dataclass(frozen=True)
class Plan:
    """Attributes: seeds trained together; clients of them in one program (None: all)."""

    seeds: int
    replicas: int | None


def model_bytes(layout: ParameterLayout, stacks: int, itemsize: int) -> int:
    """Bytes per replica of its flat rows: models, moments and gradient."""
    return stacks * layout.size * itemsize


def activation_bytes(nodes: int, widths: Sequence[int], itemsize: int) -> int:
    """Bytes per replica of one training step's activations, gradients and dropout masks, for n padded nodes."""
    return nodes * sum(widths) * (6 * itemsize + 4)


def available_bytes(device: torch.device) -> int:
    """Memory that a run may use by default: four fifths of what is free on the GPU, half of the machine's on a CPU."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free * 4 // 5
    import os

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

    On a CPU seeds are trained one after another: five at once fall out of the cache and are slower per seed.
    """
    clients = federations[0].num_clients
    nodes = max(client.num_nodes for federation in federations for client in federation.clients)
    rows, active = model_bytes(layout, stacks, itemsize), activation_bytes(nodes, widths, itemsize)
    per_seed = clients * (rows + active)
    seeds = seeds_per_chunk or (1 if device.type == "cpu" else max(1, budget // per_seed))
    seeds = min(seeds, len(federations))
    if seeds * per_seed <= budget:
        return Plan(seeds, None)
    return Plan(seeds, max(1, int((budget - seeds * clients * rows) // max(active, 1))))
