"""How much of a run is computed at once: the backbone settled for the data, the memory that it needs, and the chunks that follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fgl_bench.data.federation import Federation
from fgl_bench.data.graph import ClientGraph
from fgl_bench.models.base import Backbone
from fgl_bench.runner.build import DTYPES
from fgl_bench.runner.memory import Need, Plan, available_bytes, largest_client, plan
from fgl_bench.runner.rehearsal import ceiling, measured
from fgl_bench.runner.spec import RunSpec


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
        exact: measure the memory where a ceiling shows that everything fits, too.
    """
    model, first, bytes_ = network(spec, federations, device), federations[0], budget(spec, device)
    trained = spec.algorithm.backbone(model)
    seeds = len(federations) if device.type == "cuda" else 2 * torch.get_num_threads() * (spec.settings.seeds_per_chunk or 1)  # at once
    most = ceiling(spec, federations, trained)
    if exact or first.observed[0].folder is not None or min(len(federations), seeds) * most > bytes_:
        need = measured(spec, federations, model, device, bytes_)
    else:
        need = Need(first.num_clients, most, most, 1)
    layout, widest = trained.layout(first.num_features, first.num_classes), trained.widest(first.num_features, first.num_classes)
    return need, plan(federations, layout, widest, need, device, bytes_, spec.settings.seeds_per_chunk, together(model, federations))


def together(model: Backbone, federations: Sequence[Federation]) -> int:
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
