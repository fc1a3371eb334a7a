"""Rounds that perturb the state of absent clients, to detect effects on other clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.cli.check.cases import Broken
from fgl_bench.scenarios.base import Trained
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.sync import Sync

CLOSE = 1e-9


@dataclass
class Undisturbed(Sync):
    """Synchronous rounds that record what every client receives.

    Class attributes:
        rounds: by round, what every client receives ``[S, C, P]``.
    """

    rounds: ClassVar[list[Tensor]] = []

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        received, matrix = super().aggregate(sim, done)
        self.rounds.append(received.clone())
        return received, matrix


@dataclass
class Disturbed(Sync):
    """The same rounds; during aggregation, all absent clients except one have perturbed models, uploads and labels.

    Absent clients do not take part in the round, or are late. Their last uploads and reports do not change. The model that an absent client
    receives may depend on its own model, so it continues with the model of the unperturbed round.
    """

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        disturbed, labels = others(done.arrived, done.number), sim.setting.batch.labels
        before, rows = labels.clone(), disturbed.flatten()
        labels[rows] = 1 - labels[rows] if labels.ndim > 2 else (labels[rows] + 1) % sim.setting.num_classes
        uploaded, trained = (torch.where(disturbed[..., None], models + 1, models) for models in (done.uploaded, done.trained))
        try:
            received, matrix = super().aggregate(sim, done._replace(uploaded=uploaded, trained=trained))
        finally:
            labels.copy_(before)
        expected = Undisturbed.rounds[done.number]
        off = (received - expected).abs().amax(-1)
        changed = ~disturbed & ~(off <= CLOSE * expected.abs().amax(-1).clamp(min=1))
        if changed.any():
            seed, client = changed.nonzero()[0].tolist()
            raise Broken(
                f"client {client} of seed {sim.setting.seeds[seed]} receives state of absent clients in round {done.number + 1} "
                f"(off by {off[seed, client]:.2g}); see `arrived`"
            )
        return torch.where(disturbed[..., None], expected, received), matrix


def others(arrived: Tensor, number: int) -> Tensor:
    """Return the absent clients, ``[S, C]`` bool. Of several, one is left out, a different one per round."""
    absent = ~arrived
    for row in absent:
        away = row.nonzero()[:, 0]
        if len(away) > 1:
            row[away[number % len(away)]] = False
    return absent
