"""A fully resolved run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config.groups import build_group, label
from fgl_bench.config.pairing import overrides_of
from fgl_bench.config.settings import Settings, resolve_budget
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.sparsity import Sparsity
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import UserError
from fgl_bench.models._mixed import Mixed
from fgl_bench.models.base import Backbone
from fgl_bench.optimizers.base import Optimizer
from fgl_bench.scenarios.schedule import Stragglers
from fgl_bench.tasks.base import Task

NAMED = ("task", "dataset", "split", "scenario", "algorithm", "model", "optimizer", "scenario/sparsity")


@dataclass(frozen=True)
class RunSpec:
    """One run, resolved. Data, model, method, plan and results follow from it; nothing below reads a configuration.

    Attributes:
        settings: the top-level keys.
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
    scenario: Stragglers
    sparsity: Sparsity
    tracker: Any
    names: Mapping[str, str]
    overrides: tuple[str, ...]
    config: Mapping[str, Any]

    def fresh_algorithm(self) -> Algorithm:
        """A copy of the method for one program: methods keep state."""
        return copy.deepcopy(self.algorithm)

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
    return RunSpec(
        settings=Settings(**{field.name: config[field.name] for field in fields(Settings)}),
        rounds=rounds,
        trips=trips,
        task=task,
        dataset=build_group(cfg, "dataset"),
        split=build_group(cfg, "split"),
        model=network(task, build_group(cfg, "model")),
        algorithm=build_group(cfg, "algorithm"),
        optimizer=build_group(cfg, "optimizer"),
        scenario=build_group(cfg, "scenario"),
        sparsity=build_group(cfg, "scenario.sparsity"),
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
