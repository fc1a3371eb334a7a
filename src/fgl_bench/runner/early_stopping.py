"""Early stopping by the validation score."""

from __future__ import annotations

import numpy as np

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.runner.reporter import Counts, history
from fgl_bench.scenarios.simulation import ScenarioState, Simulation


class EarlyStopping:
    """Ends the training of a seed when the validation scores of both models have not improved for ``patience`` evaluation points.

    Models that are not scored at every point do not count. A point is known when the next round begins, and the round that begins then is
    the last one. The decision follows from the scores only, so that a resumed run takes the same one.

    Args:
        counts, weights: of the seed.
    """

    def __init__(self, patience: int, counts: Counts, weights: np.ndarray | None):
        self.patience, self.counts, self.weights = patience, counts, weights

    def __call__(self, sim: Simulation, state: ScenarioState) -> bool:
        """Return True if the next round is the last one."""
        (points,) = state.points([0])
        if len(points) <= self.patience:
            return False
        logs = sim.log.read(), sim.losses.read()
        seen = history(sim.setting.seeds[0], self.counts, points, logs, sim.warmup_rounds, {})
        if seen.version[-1] <= sim.warmup_rounds:
            return False
        scores = [seen.selectable(model, self.weights) for model in MODELS if seen.always_scored(model)]
        return all(len(each) - 1 - int(np.argmax(each)) >= self.patience for each in scores)
