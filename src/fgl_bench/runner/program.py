"""Programs: seeds that are trained together in one process, several of them side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fgl_bench.algorithms.powers import federated
from fgl_bench.data.federation import Federation
from fgl_bench.engine.hooks import JointTraining
from fgl_bench.engine.shard import ALONE, Shard
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import Outcome
from fgl_bench.models.base import Backbone
from fgl_bench.results.callbacks import Callbacks, Send
from fgl_bench.runner.build import simulation
from fgl_bench.runner.checkpoints import CheckpointCallback, Checkpoints
from fgl_bench.runner.devices import joined
from fgl_bench.runner.early_stopping import EarlyStopping
from fgl_bench.runner.memory import Plan, chunks, network, out_of_memory
from fgl_bench.runner.reporter import Counts, Reporter, history, node_counts
from fgl_bench.runner.selected_models import SelectedModels
from fgl_bench.runner.share import own_part
from fgl_bench.runner.spec import RunSpec
from fgl_bench.runner.unseen import UnseenClients
from fgl_bench.runner.workers import side_by_side
from fgl_bench.scenarios.simulation import Simulation, StepCallback
from fgl_bench.utils.allocator import keep_freed_memory


def simulate(
    spec: RunSpec,
    federations: Sequence[Federation],
    device: torch.device,
    callbacks: Callbacks | None = None,
    plan: Plan | None = None,
    shard: Shard = ALONE,
    checkpoints: Checkpoints | None = None,
) -> Outcome:
    """Train and evaluate every seed: as many together as the plan says, and several such programs side by side on a CPU.

    Workers that share clients run the same programs one after the other.
    """
    weights = node_counts(spec.settings, federations)
    federations = federated(spec.fresh_algorithm(), federations)
    own = [own_part(federation, shard) for federation in federations]
    model = network(spec, own, device)
    plan = plan or chunks(spec, own, device)[1]
    if not shard.alone:
        plan = replace(plan, seeds=min(shard.world.gather(plan.seeds)), programs=1)
    keep_freed_memory()
    parts = [slice(start, start + plan.seeds) for start in range(0, len(federations), plan.seeds)]
    if checkpoints is not None:
        parts = checkpoints.groups([federation.seed for federation in federations], plan.seeds)
    callbacks = callbacks or Callbacks()
    programs = [
        Program(spec, federations[part], weights and weights[part], model, device, plan.replicas, callbacks, shard, checkpoints)
        for part in parts
    ]
    outcomes = side_by_side(programs, plan.programs, plan.threads, callbacks)
    if torch.cuda.is_initialized():  # other processes that share the GPU plan with the free memory
        torch.cuda.empty_cache()
    return joined(outcomes)


@dataclass
class Program:
    """Seeds that are trained together.

    Attributes:
        weights: nodes of the clients of every seed; None if scores are weighted by scored nodes.
        model: the backbone, settled.
        replicas: clients of all seeds that are trained at once; None means all.
        checkpoints: of the run; None means none.
    """

    spec: RunSpec
    federations: Sequence[Federation]
    weights: Sequence[np.ndarray] | None
    model: Backbone
    device: torch.device
    replicas: int | None
    callbacks: Callbacks
    shard: Shard = ALONE
    checkpoints: Checkpoints | None = None

    def __call__(self, send: Send) -> Outcome:
        """Train; if memory runs out, with half as many clients at once.

        Args:
            send: receives the reports.
        """
        joint = isinstance(self.spec.algorithm, JointTraining)
        most, replicas = 1 if joint else sum(federation.num_clients for federation in self.federations), self.replicas
        while True:
            try:
                return self.train(send, replicas)
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                replicas = replicas or most
                if not self.shard.alone:  # a restarted worker would be out of step
                    way = "use a smaller memory_budget_gb, or more workers on other machines"
                    raise UserError(f"memory ran out with {replicas} clients at once; {way}") from error
                if replicas == 1:
                    raise
            replicas //= 2  # outside of the except clause, which keeps the tensors of the failed attempt alive
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            print(f"warning: memory ran out; beginning again with {replicas} clients at once", file=sys.stderr)

    def train(self, send: Send, replicas: int | None) -> Outcome:
        """Train with this number of ``replicas`` at once."""
        spec, keep = self.spec, self.spec.settings.keep_models
        counts = [Counts.of(spec.settings, federation) for federation in self.federations]
        saved = SelectedModels(spec.settings.selection if keep == "best" else None, counts, self.weights)
        callbacks: list[StepCallback] = [Reporter(self.callbacks, send, counts, self.weights)]
        callbacks += [saved] if keep != "none" else []
        unseen = UnseenClients(spec, self.federations, self.model, self.device, replicas)
        callbacks += [unseen] if unseen.federations else []
        with ExitStack() as stack:
            if self.checkpoints is None:
                sim = self.simulation(replicas)
            else:
                checkpoint = CheckpointCallback(self.checkpoints, spec.scenario, [federation.seed for federation in self.federations])
                sim = stack.enter_context(closing(checkpoint)).simulation(partial(self.simulation, replicas))
                callbacks.append(checkpoint)
            sim.callbacks = callbacks
            stack.callback(setattr, sim, "callbacks", ())  # a checkpoint's refers to the simulation
            if spec.settings.patience is not None:  # seeds are trained one by one
                sim.ends = EarlyStopping(spec.settings.patience, counts[0], None if self.weights is None else self.weights[0])
            spec.scenario.run(sim)
            return outcome_of(sim, counts, {} if keep == "none" else saved.parameters(sim), unseen.scores)

    def simulation(self, replicas: int | None) -> Simulation:
        """A simulation that has not run yet."""
        spec = self.spec
        what = (spec.settings, self.federations, self.model, spec.fresh_algorithm(), self.device, spec.rounds, spec.trips)
        how = (replicas, spec.scenario.drops_uploads, spec.optimizer, self.shard, spec.attack, spec.server_rule, spec.schedule)
        sim = simulation(*what, *how)
        sim.models = None if spec.settings.keep_models == "none" else {}
        return sim


def outcome_of(sim: Simulation, counts: Sequence[Counts], models: dict[str, np.ndarray], unseen: list[dict[str, Any]]) -> Outcome:
    """The outcome of a finished simulation, on the host."""
    logs, spent = (sim.log.read(), sim.losses.read()), sim.cost_history
    return Outcome(
        [
            history(seed, counts[s], sim.points[s], logs, sim.warmup_rounds, {name: each[s] for name, each in spent.items()})
            for s, seed in enumerate(sim.setting.seeds)
        ],
        {trips: matrices.cpu().numpy() for trips, matrices in sim.mixing.items()},
        {trips: matrices.cpu().numpy() for trips, matrices in sim.similarity.items()},
        sim.costs,
        sim.exchanged,
        {name: values.cpu().numpy() for name, values in sim.final_state.items()},
        models,
        unseen,
    )
