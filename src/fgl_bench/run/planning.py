"""How much of a run is computed at once: the backbone settled for the data, the memory that it needs, and the chunks that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from omegaconf import DictConfig

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config.groups import build
from fgl_bench.config.settings import resolve_budget
from fgl_bench.data.federation import Federation
from fgl_bench.models.base import Backbone
from fgl_bench.run.memory import Need, Plan, available_bytes, plan, seed_bytes

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def budget(cfg: DictConfig, device: torch.device) -> int:
    """Bytes that programs may take."""
    return int(cfg.memory_budget_gb * 1e9) if cfg.memory_budget_gb else available_bytes(device)


def network(cfg: DictConfig, federations: Sequence[Federation], device: torch.device) -> Backbone:
    """The configured backbone, settled for these federations and the budget of memory."""
    rounds, _ = resolve_budget(cfg)

    def fits(model: Backbone) -> bool:
        need = needed(cfg, federations, device, model)
        return min(need.program(1), need.program(1, 1)) <= budget(cfg, device)  # a chunk has its graph once more

    first, steps = federations[0], rounds * cfg.local_epochs
    return build(cfg.model).settle(first.observed, first.num_classes, device, steps, cfg.batch_nodes, fits)


def needed(cfg: DictConfig, federations: Sequence[Federation], device: torch.device, model: Backbone) -> Need:
    """The memory that one seed needs with this backbone."""
    method: Algorithm = build(cfg.algorithm)
    model, first = method.backbone(model), federations[0]
    layout, activations = model.layout(first.num_features, first.num_classes), model.activations(first.num_features, first.num_classes)
    stacks, copies = build(cfg.scenario).keeps(cfg.participation, method)
    stacks += method.stacks + (2 if method.trains else 0)  # Adam's two moments
    itemsize, operators = DTYPES[cfg.dtype].itemsize, model.operators + method.operators
    held = DTYPES[cfg.feature_dtype or cfg.dtype].itemsize
    need = seed_bytes(federations, layout, activations, stacks, itemsize, device, operators, copies, model.copies(), held, method.divides)
    nodes = max(client.num_nodes for federation in federations for client in federation.clients)
    kept, working = method.node_bytes(nodes, first.num_features, first.num_classes, itemsize)
    whole = max(method.federation_bytes(federation, model, itemsize) for federation in federations)
    return replace(need, kept=need.kept + kept, step=max(need.step, working), whole=need.whole + whole)


def chunks(cfg: DictConfig, federations: Sequence[Federation], device: torch.device) -> tuple[Need, Plan]:
    """The memory that one seed needs, and how many seeds and clients to train together."""
    model = network(cfg, federations, device)
    need, first = needed(cfg, federations, device, model), federations[0]
    model = build(cfg.algorithm).backbone(model)
    layout, widest = model.layout(first.num_features, first.num_classes), model.activations(first.num_features, first.num_classes).passing
    return need, plan(federations, layout, widest, need, device, budget(cfg, device), cfg.seeds_per_chunk)
