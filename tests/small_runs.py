"""Running the engine on small federations and recording every trip, for comparison with the reference loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.powers import federated
from fgl_bench.data.graph import Federation
from fgl_bench.evaluation.history import History
from fgl_bench.evaluation.metrics import scored_nodes
from fgl_bench.models.gcn import GCN
from fgl_bench.optimizers.adam import DEFAULT
from fgl_bench.optimizers.base import Optimizer
from fgl_bench.runner.build import reported, simulation
from fgl_bench.scenarios.semi_async import SemiAsync
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.sync import Sync

OPTIMIZER = DEFAULT
DEFAULTS = {
    "dtype": "float64",
    "feature_dtype": None,
    "cuda_graphs": False,
    "agg_weight": "train",
    "local_epochs": 1,
    "batch_nodes": None,
    "clip_gradient": None,
    "virtual_time": None,
    "lr": 0.01,
    "weight_decay": 5e-4,
    "opt_state": "persist",
    "participation": 1.0,
    "eval_every": None,
    "mixing_at": (),
    "metrics": (),
}


@dataclass
class Recorded:
    """A finished simulation; ``trips[replica]`` are (received, trained) rows ``[P]`` in order."""

    sim: Simulation
    histories: list[History]
    trips: list[list[tuple[torch.Tensor, torch.Tensor]]]

    def named(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        layout = self.sim.setting.layout
        return {name: view[0] for name, view in layout.views(row[None]).items()}


def semi_async(**changes: Any) -> SemiAsync:
    """FedSA-GCL's stragglers."""
    return SemiAsync(**{"slow_fraction": 0.3, "lag": [2, 5], "lag_unit": "trips", "lag_draw": "per_run", "jitter": 0.1,
                        "fast_trips": "concurrent", "staleness_from": "base", **changes})  # fmt: skip


def synchronous(**changes: Any) -> Sync:
    """Rounds without stragglers."""
    return Sync(**{"slow_fraction": 0.0, "lag": [2, 5], "lag_draw": "per_run", "jitter": 0.0, "deadline": None, **changes})


def simulate(
    federations: Sequence[Federation],
    algorithm: Algorithm,
    scenario: Any,
    *,
    rounds: int = 3,
    trips: int | None = None,
    model: Any = None,
    chunk: int | None = None,
    optimizer: Optimizer | None = None,
    **settings: Any,
) -> Recorded:
    """Run ``algorithm`` on all federations (seeds) together, float64 and without dropout unless told otherwise."""
    federations = federated(algorithm, federations)
    cfg = SimpleNamespace(**{**DEFAULTS, **settings})
    model = model or GCN(hidden=4, layers=2, dropout=0.0)
    budget = rounds * federations[0].num_clients if trips is None else trips
    what = (cfg, federations, model, algorithm, torch.device("cpu"), rounds, budget, chunk, scenario.drops_uploads)
    sim = simulation(*what, optimizer or OPTIMIZER)
    recorded: list[list] = [[] for _ in range(len(sim.initial))]
    report = algorithm.report

    def recording(done):
        for i, row in enumerate(done.rows):
            recorded[row].append((done.received[i].clone(), done.trained[i].clone()))
        return report(done)

    algorithm.report = recording
    scenario.run(sim)
    scores = sim.log.read()
    histories = []
    for f, points in zip(federations, sim.points, strict=True):
        first, *others = ((name, scored_nodes(f.scored, name)) for name in reported(cfg, f))
        histories.append(History.of(f.seed, points, scores, first[1], 0, dict(others)))
    return Recorded(sim, histories, recorded)


def counts(history: History, model: str, point: int) -> list[tuple[int, int]]:
    """(validation, test) correct counts per client."""
    return [(int(v), int(t)) for v, t in np.round(history.scores[model][point])]
