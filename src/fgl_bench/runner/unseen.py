"""Scores of clients that were left out of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.data.graph import Federation
from fgl_bench.engine import Float
from fgl_bench.engine.mixing import normalize, stacked_product
from fgl_bench.evaluation.metrics import scored_nodes
from fgl_bench.evaluation.summary import mean_of, or_none, spread
from fgl_bench.models.base import Backbone
from fgl_bench.runner.build import simulation
from fgl_bench.runner.spec import RunSpec
from fgl_bench.scenarios.simulation import ScenarioState, Simulation, StepCallback
from fgl_bench.scenarios.states import RoundsState


class UnseenClients(StepCallback):
    """Scores unseen clients after the last round, with the model that they receive and after fine-tuning it on their training nodes.

    An unseen client receives the server's model; where clients receive different ones, their mean weighted by the clients' sizes.

    Args:
        spec, model, device, replicas: of the program that trains the other clients.

    Attributes:
        scores: of every seed: numbers of the unseen clients, their numbers of test nodes (``sizes``), and their test scores with both
            models, NaN without test nodes.
    """

    def __init__(self, spec: RunSpec, federations: Sequence[Federation], model: Backbone, device: torch.device, replicas: int | None):
        self.spec, self.model, self.device, self.replicas = spec, model, device, replicas
        self.federations = [federation.unseen for federation in federations if federation.unseen is not None]
        self.scores: list[dict[str, Any]] = []

    def train_end(self, sim: Simulation, state: ScenarioState) -> None:
        settings = replace(self.spec.settings, local_epochs=self.spec.settings.finetune_epochs, opt_state="reset", cuda_graphs=False)
        what = (settings, self.federations, self.model, FedAvg(), self.device, 1, 1, self.replicas)
        trainer = simulation(*what, optimizer=self.spec.optimizer).trainer
        clients = self.federations[0].num_clients
        received = server_models(sim, cast(RoundsState, state).received).repeat_interleave(clients, 0)
        trips = trainer.trips(None, received, torch.empty_like(received))
        values = {"received": trips.received_score, "fine_tuned": trips.trained_score}
        for s, federation in enumerate(self.federations):
            sizes = scored_nodes(federation.clients, federation.metric)[:, 1]
            each: dict[str, Any] = {"clients": list(federation.unseen_numbers), "sizes": sizes}
            for kind, value in values.items():
                sums = cast(Tensor, value).unflatten(0, (-1, clients))[s, :, 1].double().cpu().numpy()
                each[kind] = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)
            self.scores.append(each)


def server_models(sim: Simulation, received: Float[Tensor, "B P"]) -> Float[Tensor, "S P"]:
    """Return the model of every seed's server: what all clients receive, or the mean of what they receive."""
    weights, shard = normalize(sim.setting.weights), sim.setting.shard
    models = received.unflatten(0, (len(weights), -1))
    if all(shard.world.gather(torch.equal(models, models[:, :1].expand_as(models)))):
        return models[:, 0]
    out = models.new_empty(len(models), 1, models.shape[2])
    return shard.product(weights[:, None].to(models.dtype), models, out, stacked_product)[:, 0]


def unseen_summary(scores: Sequence[dict[str, Any]], epochs: int) -> dict[str, Any]:
    """Return the scores of all seeds' unseen clients for ``summary.json``: means over clients weighted by test nodes."""
    summary: dict[str, Any] = {"clients": [each["clients"] for each in scores], "epochs": epochs}
    for kind in ("received", "fine_tuned"):
        means = [mean_of(each[kind], each["sizes"]) for each in scores]
        summary[kind] = {**spread(means), "per_seed": or_none(means), "per_client": [or_none(each[kind]) for each in scores]}
    return summary
