"""A fully resolved run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config.choices import NAMED
from fgl_bench.config.groups import build_group, label
from fgl_bench.config.pairing import overrides_of
from fgl_bench.config.settings import Settings, resolve_budget, unseen_count
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.noise import Noise
from fgl_bench.data.sparsity import Sparsity
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.aggregators import Aggregator
from fgl_bench.engine.attacks import Attack
from fgl_bench.engine.privacy import DP, NoPrivacy
from fgl_bench.engine.schedules import Schedule
from fgl_bench.errors import UserError
from fgl_bench.models._mixed import Mixed
from fgl_bench.models.base import Backbone
from fgl_bench.optimizers.base import Optimizer
from fgl_bench.scenarios.schedule import Stragglers
from fgl_bench.tasks.base import Task


@dataclass(frozen=True)
class RunSpec:
    """One run, resolved. Data, model, method, plan and results follow from it; nothing below reads a configuration.

    Attributes:
        settings: the top-level keys; ``num_clients`` without unseen clients.
        rounds, trips: the budget of every seed, resolved.
        model: the network that predicts the labels of the task.
        algorithm: as configured; it is never prepared, see :meth:`fresh_algorithm`.
        names: the name of each group's choice in results.
        overrides: the user's overrides, as arguments of the command line.
        config: the whole configuration, plain.
    """

    settings: Settings
    rounds: int
    trips: int
    task: Task
    dataset: Dataset
    split: Split
    model: Backbone
    algorithm: Algorithm
    optimizer: Optimizer
    schedule: Schedule
    scenario: Stragglers
    sparsity: Sparsity
    noise: Noise
    attack: Attack
    aggregator: Aggregator
    privacy: NoPrivacy | DP
    tracker: Any
    names: Mapping[str, str]
    overrides: tuple[str, ...]
    config: Mapping[str, Any]

    def fresh_algorithm(self) -> Algorithm:
        """A copy of the method for one program: methods keep state."""
        return copy.deepcopy(self.algorithm)

    @property
    def num_clients(self) -> int:
        """The clients that the graph is split into, unseen ones included."""
        return self.config["num_clients"]

    @property
    def server_rule(self) -> Aggregator:
        """The rule by which the server makes one model of the uploads."""
        return self.privacy if isinstance(self.privacy, DP) else self.aggregator

    @property
    def budget(self) -> tuple[int, int]:
        """Rounds and trips."""
        return self.rounds, self.trips


def resolve(cfg: DictConfig) -> RunSpec:
    """The run that a composed configuration describes; :func:`fgl_bench.runner.validation.validate` checks it first.

    Raises:
        UserError: a group's class refuses its keys.
    """
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    rounds, trips = resolve_budget(cfg)
    task = build_group(cfg, "task")
    settings = Settings(**{field.name: config[field.name] for field in fields(Settings)})
    settings.num_clients -= unseen_count(cfg)
    if settings.patience is not None or settings.virtual_time is not None:  # seeds end at different rounds
        settings.seeds_per_chunk = 1
    return RunSpec(
        settings=settings,
        rounds=rounds,
        trips=trips,
        task=task,
        dataset=build_group(cfg, "dataset"),
        split=build_group(cfg, "split"),
        model=network(task, build_group(cfg, "model")),
        algorithm=build_group(cfg, "algorithm"),
        optimizer=build_group(cfg, "optimizer"),
        schedule=build_group(cfg, "lr_schedule"),
        scenario=build_group(cfg, "scenario"),
        sparsity=build_group(cfg, "scenario.sparsity"),
        noise=build_group(cfg, "scenario.noise"),
        attack=build_group(cfg, "scenario.attack"),
        aggregator=build_group(cfg, "aggregator"),
        privacy=build_group(cfg, "privacy"),
        tracker=build_group(cfg, "tracker"),
        names={group: label(cfg, group) for group in NAMED},
        overrides=tuple(overrides_of(cfg)),
        config=config,
    )


def network(task: Task, model: Backbone) -> Backbone:
    """The task's network; raises UserError for a backbone that cannot do without its own head."""
    try:
        return model.each(task.network) if isinstance(model, Mixed) else task.network(model)
    except ValueError as error:
        raise UserError(f"model: task={task.name} has a head of its own, so that model.head=conv: {error}") from error
