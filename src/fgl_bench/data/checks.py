"""Checks shared by the data stage; each failure is a UserError with one line."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fgl_bench.errors import UserError

if TYPE_CHECKING:  # which loads scipy, and the command line checks its keys before any heavy library
    from fgl_bench.data.graph import Graph

METRICS = (
    "accuracy",
    "auc",
    "auc_ovr",
    "macro_f1",
    "micro_f1",
    "ap",
    "mrr",
    "hits@1",
    "hits@3",
    "hits@10",
    "hits@20",
    "hits@50",
    "hits@100",
)


def check_ratios(ratios: Sequence[float], key: str = "split.ratios") -> tuple[float, float, float]:
    """Three numbers in [0, 1] that sum to at most 1, with some training and some test share."""
    allowed = "three numbers [train, val, test] in [0, 1] with train > 0, test > 0 and a sum of at most 1"
    try:
        train, val, test = (float(ratio) for ratio in ratios)
    except (TypeError, ValueError):
        raise UserError(f"{key}={_shown(ratios)}: must be {allowed}") from None
    inside = all(math.isfinite(ratio) and 0 <= ratio <= 1 for ratio in (train, val, test))
    if not (inside and train > 0 and test > 0 and train + val + test <= 1 + 1e-9):
        raise UserError(f"{key}={_shown(ratios)}: must be {allowed}")
    return train, val, test


def _shown(value: object) -> str:
    return str(list(value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def check_num_clients(num_clients: int | None, num_nodes: int) -> int:
    """``num_clients`` if every client can hold at least one node."""
    if num_clients is None or not 1 <= num_clients <= num_nodes:
        raise UserError(f"num_clients={num_clients}: must be between 1 and the number of nodes, {num_nodes}")
    return int(num_clients)


def check_between(key: str, value: float, low: float, high: float) -> None:
    """``low <= value <= high``, both finite or not."""
    if not low <= value <= high:
        raise UserError(f"{key}={value}: must be between {low:g} and {high:g}")


def check_choice(key: str, value: str, allowed: Collection[str]) -> None:
    """``value`` is one of ``allowed``."""
    if value not in allowed:
        raise UserError(f"{key}={value}: must be one of {', '.join(sorted(allowed))}")


def check_graph(graph: Graph, source: str) -> Graph:
    """``graph``, if its parts fit together; ``source`` (a file, a dataset) opens the message."""
    nodes, examples = graph.num_nodes, graph.num_examples
    values = graph.features if isinstance(graph.features, np.ndarray) else graph.features.data
    faults = {
        "it has no nodes": nodes == 0,
        f"{graph.labels.shape[0]} labels for {examples} nodes": graph.labels.shape not in ((examples,), (examples, graph.num_classes)),
        "a feature is not a finite number": not bool(np.isfinite(values).all()),
        "it has no labeled node": not bool((graph.strata >= 0).any()),
        f"a label lies outside -1..{graph.num_classes - 1}": bool(((graph.strata < -1) | (graph.strata >= graph.num_classes)).any()),
        "a label is neither 0 nor 1": graph.labels.ndim > 1 and not bool(np.isin(graph.labels, (0, 1)).all()),
    }
    fault = next((text for text, wrong in faults.items() if wrong), None)
    if fault is not None:
        raise UserError(f"{source}: {fault}")
    return graph
