"""The hooks by which others watch the seeds that are trained together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fgl_bench.evaluation.history import Point

if TYPE_CHECKING:
    from fgl_bench.scenarios.simulation import Simulation


class ScenarioState(Protocol):
    """The state of a scenario between two of its steps."""

    @property
    def done(self) -> int:
        """Rounds done; client trips of all seeds in a scenario without rounds."""

    @property
    def trips(self) -> int:
        """Client trips done, of all seeds."""

    @property
    def last(self) -> np.ndarray:
        """``[S, C]`` positions in the score log of the models that clients trained last."""

    def points(self, starts: Sequence[int]) -> list[list[Point]]:
        """The evaluation points of every seed from the numbers ``starts`` on, as far as both models are scored by now.

        Their bytes are 0: some methods know them only at the end.
        """

    def state(self) -> Any:
        """The record from which the scenario resumes (``Simulation.resumed``)."""


class StepCallback:
    """Watches a simulation, in the process that trains it. Hooks do nothing by default."""

    def step_end(self, sim: Simulation, state: ScenarioState) -> None:
        """A round, or a batch of client trips, has ended. An exception ends the simulation."""

    def train_end(self, sim: Simulation, state: ScenarioState) -> None:
        """The last models are scored."""
