"""How much of a run is computed at once: the backbone settled for the data, the memory that it needs, and the chunks that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.data.federation import Federation
from fgl_bench.models.base import Backbone
from fgl_bench.runner.memory import Need, Plan, available_bytes, plan, seed_bytes
from fgl_bench.runner.spec import RunSpec

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def budget(spec: RunSpec, device: torch.device) -> int:
    """Bytes that programs may take."""
    return int(spec.settings.memory_budget_gb * 1e9) if spec.settings.memory_budget_gb else available_bytes(device)


def network(spec: RunSpec, federations: Sequence[Federation], device: torch.device) -> Backbone:
    """The configured backbone, settled for these federations and the budget of memory."""

    def fits(model: Backbone) -> bool:
        need = needed(spec, federations, device, model)
        return min(need.program(1), need.program(1, 1)) <= budget(spec, device)  # a chunk has its graph once more

    first, steps = federations[0], spec.rounds * spec.settings.local_epochs
    return spec.model.settle(first.observed, first.num_classes, device, steps, spec.settings.batch_nodes, fits)


def needed(spec: RunSpec, federations: Sequence[Federation], device: torch.device, model: Backbone) -> Need:
    """The memory that one seed needs with this backbone."""
    method: Algorithm = spec.algorithm
    model, first = method.backbone(model), federations[0]
    layout, activations = model.layout(first.num_features, first.num_classes), model.activations(first.num_features, first.num_classes)
    stacks, copies = spec.scenario.keeps(spec.settings.participation, method)
    stacks += method.stacks + (2 if method.trains else 0)  # Adam's two moments
    itemsize, operators = DTYPES[spec.settings.dtype].itemsize, model.operators + method.operators
    held = DTYPES[spec.settings.feature_dtype or spec.settings.dtype].itemsize
    need = seed_bytes(federations, layout, activations, stacks, itemsize, device, operators, copies, model.copies(), held, method.divides)
    nodes = max(client.num_nodes for federation in federations for client in federation.clients)
    kept, working = method.node_bytes(nodes, first.num_features, first.num_classes, itemsize)
    whole = max(method.federation_bytes(federation, model, itemsize) for federation in federations)
    return replace(need, kept=need.kept + kept, step=max(need.step, working), whole=need.whole + whole)


def chunks(spec: RunSpec, federations: Sequence[Federation], device: torch.device) -> tuple[Need, Plan]:
    """The memory that one seed needs, and how many seeds and clients to train together."""
    model = network(spec, federations, device)
    need, first = needed(spec, federations, device, model), federations[0]
    model = spec.algorithm.backbone(model)
    layout, widest = model.layout(first.num_features, first.num_classes), model.activations(first.num_features, first.num_classes).passing
    return need, plan(federations, layout, widest, need, device, budget(spec, device), spec.settings.seeds_per_chunk)
