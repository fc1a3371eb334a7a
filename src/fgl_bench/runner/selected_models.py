"""The models that a run saves: those of its last evaluation point, or of the best one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgl_bench.evaluation.history import Point
from fgl_bench.evaluation.summary import MODELS, chosen_points
from fgl_bench.runner.reporter import Counts, history
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback


class SelectedModels(StepCallback):
    """Drops the scored models of a simulation (``Simulation.models``) that will not be saved.

    Args:
        selection: of the best point (``federation`` or ``client``); None keeps the final models.
        counts, weights: of every seed.
    """

    def __init__(self, selection: str | None, counts: Sequence[Counts], weights: Sequence[np.ndarray] | None):
        self.selection, self.counts, self.weights = selection, counts, weights
        self.seen = [-1] * len(counts)

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        models, clients = sim.models, sim.setting.num_clients
        assert models is not None
        by_seed = state.points([0] * len(self.counts))
        if [len(points) for points in by_seed] == self.seen:
            return
        self.seen = [len(points) for points in by_seed]
        needed: set[int] = set()
        first = np.zeros(len(self.counts) * clients, dtype=np.int64)  # the oldest position that a later point may name
        for s, points in enumerate(by_seed):
            if points:
                received, trained = points[-1].received, points[-1].trained
                first[s * clients : (s + 1) * clients] = np.where(trained < 0, received, np.minimum(received, trained))
                needed |= {int(at) for kind in MODELS for at in self._positions(sim, s, points, kind) if at >= 0}
        for position in [at for at, (replica, _, _) in models.items() if at < first[replica] and at not in needed]:
            del models[position]

    def _positions(self, sim: Simulation, s: int, points: list[Point], kind: str) -> np.ndarray:
        """Log position of the selected model of each client, ``[C]``; -1 if it has none."""
        if self.selection is None:
            return getattr(points[-1], kind)
        logs = sim.log.read(), sim.losses.read()
        seen = history(sim.setting.seeds[s], self.counts[s], points, logs, sim.warmup_rounds, {})
        together, alone = chosen_points(seen, kind, None if self.weights is None else self.weights[s])
        named = np.stack([getattr(point, kind) for point in points])
        by_client = self.selection == "client" and len(alone) == named.shape[1]
        at = alone if by_client else together[: named.shape[1]]  # one model of pooled clients
        return np.where(at >= 0, named[np.maximum(at, 0), np.arange(len(at))], -1)

    def parameters(self, sim: Simulation) -> dict[str, np.ndarray]:
        """The parameters of the kept models of a finished simulation, by name.

        Where workers share the clients, worker 0 has those of all of them, and the others have none.
        """
        arrays: dict[str, np.ndarray] = {}
        assert sim.models is not None
        clients, shard = sim.setting.num_clients, sim.setting.shard
        own = range(clients)[shard.own]
        for s, points in enumerate(sim.points):
            initial = sim.initial.unflatten(0, (len(sim.points), -1))[s]
            for kind in MODELS:
                for client, at in enumerate(self._positions(sim, s, points, kind)):
                    if at < 0 or client not in own:
                        continue
                    unchanged = sim.setting.layout, initial[client - own.start]
                    replica, layout, row = sim.models.get(int(at), (-1, *unchanged))
                    if replica != s * clients + client:  # it has not trained yet
                        layout, row = unchanged
                    for name, view in layout.of(s * len(initial) + client - own.start).views(row[None].cpu()).items():
                        arrays[f"{sim.setting.seeds[s]}/{client}/{kind}/{name}"] = np.ascontiguousarray(view[0].numpy())
        return {name: value for part in shard.world.collect(arrays) for name, value in part.items()}
