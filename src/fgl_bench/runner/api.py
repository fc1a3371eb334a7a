"""Python interface to the runs of ``fgl-bench``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.config.compose import as_command
from fgl_bench.config.groups import COMMAND, ROLES
from fgl_bench.config.values import plain, shown
from fgl_bench.config.wording import explain
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.own import keep
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone
from fgl_bench.optimizers.base import Optimizer
from fgl_bench.results.frame import Result
from fgl_bench.runner.one import run_one
from fgl_bench.runner.workers import within_python
from fgl_bench.scenarios.hooks import supported
from fgl_bench.tasks.base import Task
from fgl_bench.utils.sources import files_of


def run(
    algorithm: str | Algorithm | None = None,
    dataset: str | Dataset | Mapping[str, Any] | Any | None = None,
    *,
    task: str | Task | None = None,
    split: str | Split | None = None,
    model: str | list[str] | Backbone | None = None,
    optimizer: str | Optimizer | None = None,
    scenario: str | None = None,
    experiment: str | None = None,
    config_dir: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> Result:
    """Make a run and return its result; a complete run is read.

    Groups take the name of a choice, as on the command line, or an object of a class of your own, a dataclass. Omitted settings have
    the command line's defaults.

    A graph of your own is a dictionary of arrays, a PyG ``Data`` or a networkx graph whose nodes have ``x`` and ``y``; it is kept in a file
    below ``cache_dir``, named by its content, and results call it ``custom``, or what ``dataset__name`` says (see docs/data.md).

    Args:
        dataset: the name of a choice, an object of a class of your own, or a graph of your own.
        algorithm: runs in the scenario that its choice names; an object in the first one whose base it derives from.
        model: of all clients; a list of names is dealt over the clients.
        experiment: a paper's setting, such as ``"fedgta/table3"``.
        config_dir: a folder with groups of your own.
        progress: whether to draw a bar on stderr.
        settings: top-level keys (``num_clients=10``), keys of groups after two underscores (``algorithm__mu=0.1``), and choices of
            groups below groups (``scenario__sparsity="label"``, ``scenario__noise="label"``).

    Raises:
        UserError: something cannot be run; the message names the key and what is allowed.

    Examples:
        >>> from fgl_bench import run
        >>> tiny = {"dataset__num_nodes": 120, "dataset__num_edges": 300}
        >>> tiny |= {"num_clients": 3, "rounds": 2, "seeds": [0, 1]}
        >>> result = run("fedprox", "csbm", algorithm__mu=0.1, **tiny)
        >>> result.scores()[["algorithm", "seed", "evaluated"]].to_string(index=False).splitlines()[1].split()
        ['fedprox', '0', 'received']

        An object takes the place of a choice, and of the keys that the choice would have:

        >>> from fgl_bench.algorithms.fedprox import FedProx
        >>> str(run(FedProx(mu=0.1), "csbm", **tiny)) == str(result)
        True

        A graph of your own:

        >>> import networkx
        >>> clique = networkx.complete_graph(60)
        >>> nodes = {node: {"x": [node / 60, 1.0], "y": "high" if node > 29 else "low"} for node in clique}
        >>> networkx.set_node_attributes(clique, nodes)
        >>> small = {"num_clients": 2, "split": "iid", "rounds": 1, "seeds": [0]}
        >>> run("fedavg", clique, dataset__name="clique", **small).scores()["dataset"][0]
        'clique'
    """
    if isinstance(model, list) and all(isinstance(name, str) for name in model):
        model = f"[{','.join(model)}]"
    choices = {"algorithm": algorithm, "task": task, "dataset": dataset, "split": split, "model": model, "optimizer": optimizer}
    objects = {group: choice for group, choice in choices.items() if choice is not None and not isinstance(choice, str)}
    own_graph = None
    if dataset is not None and not isinstance(dataset, str) and not dataclasses.is_dataclass(dataset):
        own_graph, choices["dataset"] = objects.pop("dataset"), "custom"
    if scenario is None and isinstance(algorithm, Algorithm):
        scenario = next(iter(supported(type(algorithm))), None)
    names = {"experiment": experiment, **choices, "scenario": scenario}
    for group, choice in names.items():
        if not (choice is None or isinstance(choice, str) or (group in objects and is_instance(choice))):
            more = ", or an object of a dataclass" if group in objects else ""
            raise UserError(f"{group}={choice!r}: must be the name of a choice{more}")
    if config_dir is not None and not (isinstance(config_dir, str | Path) and Path(config_dir).is_dir()):
        raise UserError(f"config_dir={config_dir}: there is no such folder")
    if "algorithm" in objects:
        names["algorithm"] = "fedavg"  # the rest of the configuration is composed around some method
    overrides = [f"{group}={name}" for group, name in names.items() if isinstance(name, str)]
    for name, value in {**settings, "progress": progress}.items():
        key = name.replace("__", ".")
        if key.partition(".")[0] in objects:
            raise UserError(f"{name}: {key.partition('.')[0]} is an object here; give it the value")
        overrides.append(f"{key.replace('.', '/')}={value}" if key in ROLES else f"{key}={shown(value)}")
    try:
        with within_python(), as_command(overrides, [Path(config_dir)] if config_dir is not None else [], objects) as cfg:
            options = place(cfg, objects)
            if own_graph is not None:
                cfg.dataset.path = keep(own_graph, cfg.cache_dir)
                options.append(f"dataset.path={shown(cfg.dataset.path)}")
            COMMAND.get().overrides.task.extend(options)
            finished = run_one(cfg)
    except UserError:
        raise
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        raise UserError(message) from error
    return Result(finished.folder, finished.summary)


def place(cfg: DictConfig, objects: Mapping[str, Any]) -> list[str]:
    """Put objects in the places of their groups' choices; returns the overrides that do so.

    A class that no file defines (in a notebook, at the prompt) may have changed since its run, so that run is made again, from the start.
    """
    options: list[str] = []
    if objects:
        OmegaConf.set_struct(cfg, False)
    for group, value in objects.items():
        node, base = node_of(group, value), cfg[group]
        options += [f"~{group}.{key}" for key in base if key not in node]
        options += [f"{'' if key in base else '+'}{group}.{key}={plain(each)}" for key, each in node.items() if base.get(key, ...) != each]
        cfg[group] = node
        if not files_of(type(value).__module__):
            cfg.overwrite, cfg.checkpoint_minutes = True, None
    return options


def node_of(key: str, value: Any) -> Any:
    """The configuration of an object: its class and its fields; raises UserError where it cannot be one."""
    if not is_instance(value):
        return value
    cls = type(value)
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        raise UserError(f"{key}: {cls.__qualname__} is no class at the top of a module; programs in other processes could not find it")
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return {"_target_": f"{cls.__module__}.{cls.__qualname__}", **{name: node_of(f"{key}.{name}", each) for name, each in fields.items()}}


def is_instance(value: Any) -> bool:
    """Return True for an object of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
