"""Choices of the config groups: their names in results, class checks, and construction of objects."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ValidationError

from fgl_bench.config.choices import FILE, config_folder
from fgl_bench.config.identity import canonical
from fgl_bench.config.schema import alternatives, class_choices, class_fields, schema_of
from fgl_bench.config.values import plain
from fgl_bench.config.wording import one_line, wrong_type
from fgl_bench.errors import UserError, check_range, one_of, raised_by_user, ranges_of, require_choice

COMMAND: ContextVar[Any] = ContextVar("COMMAND", default=None)
"""Hydra's config group of the current command: its overrides and choices. Each thread has its own value."""

ROLES = {  # required method of a class in a group, and the base class of its objects
    "task": ("a task", "network", "fgl_bench.tasks.base.Task"),
    "dataset": ("a dataset", "load", "fgl_bench.data.datasets.base.Dataset"),
    "split": ("a split", "assign", "fgl_bench.data.splits.base.Split"),
    "model": ("a backbone", "layout", "fgl_bench.models.base.Backbone"),
    "algorithm": ("a method", "report", "fgl_bench.algorithms.base.Algorithm"),
    "optimizer": ("an optimizer", "start", "fgl_bench.optimizers.base.Optimizer"),
    "lr_schedule": ("a schedule", "factor", "fgl_bench.engine.schedules.Schedule"),
    "scenario": ("a scenario", "run", "fgl_bench.scenarios.schedule.Stragglers"),
    "scenario.sparsity": ("a sparsity", "apply", "builtins.object"),
    "scenario.noise": ("a noise", "apply", "fgl_bench.data.noise.Noise"),
    "scenario.attack": ("an attack", "compromise", "fgl_bench.engine.attacks.Attack"),
    "aggregator": ("an aggregator", "combine", "fgl_bench.engine.aggregators.Aggregator"),
    "privacy": ("a privacy", "combine", "builtins.object"),
    "tracker": ("a tracker", "start", "builtins.object"),
}

SEVERAL = ("lr_schedule", "sparsity", "noise", "attack", "aggregator", "privacy", "tracker")  # groups with several classes in one module


def label(cfg: DictConfig, group: str) -> str:
    """Return the reported name of a group's choice (``fedprox``, ``cora``, ``semi_async``).

    The name is its ``name`` key if present, else the choice on the command line. For configurations without a command, and for an
    overridden ``_target_``, it is the module name of a class of this package, or the class name of another one. A nested
    method is appended: ``fedsage_plus+fedgta``.

    Args:
        group: one of ``choices.GROUPS``, including those below ``scenario``.
    """
    inner = OmegaConf.select(cfg, group.replace("/", ".")).get("strategy")
    return chosen(cfg, group) + (f"+{class_label(inner, group)}" if is_object(inner) else "")


def chosen(cfg: DictConfig, group: str) -> str:
    """Return :func:`label` without nested objects."""
    node = OmegaConf.select(cfg, group.replace("/", "."))
    name = node.get("name")
    if isinstance(name, str):
        return name
    key = f"{group.replace('/', '.')}._target_"
    if (hydra := COMMAND.get()) is not None:
        overridden = key in [text.lstrip("+").partition("=")[0] for text in hydra.overrides.task]
        choice = hydra.runtime.choices.get(group.replace(".", "/"))
        if isinstance(choice, str) and not overridden and not FILE.fullmatch(choice):
            return choice.rpartition("/")[2]  # without subfolders
    return class_label(node, group)


def class_label(node: DictConfig, group: str) -> str:
    """Return the name of an object of the group from its class."""
    target = node.get("_target_")
    module, _, cls = canonical(target if isinstance(target, str) else "").rpartition(".")
    if not cls:
        raise UserError(f"{key_of(node)}._target_{missing_class(target)}")
    leaf = re.split(r"[./]", group)[-1]
    if not module.startswith("fgl_bench."):
        return cls.lower()
    if leaf in SEVERAL:  # NoSparsity, LabelSparsity, Wandb
        return re.sub("^no$", "none", re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.removesuffix(leaf.capitalize())).lower())
    if (config_folder() / group / f"{cls.lower()}.yaml").is_file():  # FedAAS1 is in the module of FedAAS
        return cls.lower()
    return module.rpartition(".")[2].rstrip("_")  # global_


def missing_class(target: Any) -> str:
    """Return the reason why a ``_target_`` is not a class."""
    return f"{' is missing' if not target else f'={target}'}: it must name a class, such as my_package.my_module.MyClass"


def key_of(node: DictConfig) -> str:
    return str(node._get_full_key(None)) or "config"


def own_keys(node: DictConfig, cls: Any) -> list[str]:
    """Return the keys of ``node`` that are arguments of ``cls``, without ``_target_`` and nested groups that the class does not take."""
    above = f"{key_of(node)}."
    nested = {group.rpartition(".")[2] for group in ROLES if group.startswith(above)}
    return [str(key) for key in node if key != "_target_" and key not in nested - getattr(cls, "__dataclass_fields__", {}).keys()]


def is_object(value: Any) -> bool:
    """Return True if a key's value describes an object (``algorithm.strategy``)."""
    return OmegaConf.is_dict(value) and "_target_" in value


def imported(key: str, target: Any, what: str = "") -> Any:
    """Import the class (or function) in ``<key>._target_``, or in ``what`` for messages; raises UserError if it does not exist."""
    if not isinstance(target, str):
        raise UserError(f"{key}._target_{missing_class(target)}")
    what = what or f"{key}._target_={target}"
    try:
        module, _, name = target.rpartition(".")
        cls = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # a user's module can raise anything on import
        raise UserError(f"{what}: cannot be imported ({raised_by_user(error) or one_line(error)})") from error
    if not callable(cls):
        raise UserError(f"{what}: is a {type(cls).__name__}, not a class")
    return cls


def check_role(group: str, node: DictConfig, cls: Any = None) -> Any:
    """Apply :func:`check_node`, unless ``cls`` is given, and check that the class suits the group; returns the class."""
    cls, (role, method, _) = cls or check_node(node)[0], ROLES[group]
    if isinstance(cls, type) and not callable(getattr(cls, method, None)):
        raise UserError(f"{group}._target_={node._target_}: is not {role}, which has a method {method}()")
    return cls


def check_node(node: DictConfig) -> tuple[Any, DictConfig]:
    """Import the class ``node._target_`` and check the node's keys and values against its fields.

    For user classes, this is the only validation.

    Returns:
        The class (or function), and the node with values of the types of a dataclass's fields.

    Raises:
        UserError: the import fails, or a key is unknown, missing, of the wrong type, not an allowed value or out of range.
    """
    key = key_of(node)
    cls = imported(key, node.get("_target_"))
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        return cls, node
    fields, given = class_fields(cls), own_keys(node, cls)
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise UserError(f"{key}.{unknown[0]}: unknown key; {cls.__name__} has {one_of(fields) or 'no keys'}")
    required = (f.name for f in dataclasses.fields(cls) if f.init and f.default is f.default_factory is dataclasses.MISSING)
    absent = [name for name in required if name not in given]
    if absent:
        raise UserError(f"{key}.{absent[0]} is missing; {cls.__name__} has {one_of(fields)}")
    typed_node = typed(node, cls, given)
    for name in given:
        if is_object(node[name]):
            check_node(node[name])
    for name, allowed in class_choices(cls).items():
        if name in given:
            require_choice(f"{key}.{name}", node[name], allowed)
    for name, limits in ranges_of(cls).items():
        if name in given:
            check_range(f"{key}.{name}", node[name], limits)
    return cls, typed_node


def typed(node: DictConfig, cls: Any, names: Iterable[str]) -> DictConfig:
    """Convert the values of ``names`` to the types of the dataclass's fields (5 to "5" for a string); raises UserError for a wrong type."""
    try:
        return cast(DictConfig, OmegaConf.merge(schema_of(cls), {name: node[name] for name in names}))
    except ValidationError as error:
        name = re.split(r"[.\[]", str(error.full_key))[0]
        raise UserError(f"{key_of(node)}.{name}={plain(node[name])}: {wrong_type(error)}") from error


def build(node: DictConfig, **extra: Any) -> Any:
    """Build the object of a group's node: call ``_target_`` with the node's keys and ``extra``.

    Lists and dictionaries are passed as plain Python objects; nested nodes are built first.

    Raises:
        UserError: a key does not fit the class, or the class raises an error; the message starts with the group's key.
    """
    cls, typed_node = check_node(node)
    names = own_keys(node, cls)
    objects = {name: build(node[name]) for name in names if is_object(node[name])}
    for name, inner in objects.items() if dataclasses.is_dataclass(cls) else ():
        kinds = alternatives(class_fields(cls)[name])
        if all(isinstance(kind, type) and kind is not Any for kind in kinds) and not isinstance(inner, kinds):
            wanted = one_of(kind.__name__ for kind in kinds if kind is not type(None))
            raise UserError(f"{key_of(node[name])}._target_={node[name]._target_}: gives a {type(inner).__name__}, not a {wanted}")
    values = {name: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v := typed_node[name]) else v for name in names}
    try:
        return cls(**values | objects, **extra)
    except (ValueError, TypeError) as error:
        raise UserError(f"{key_of(node)}: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError) or getattr(cls, "__module__", "").startswith("fgl_bench."):
            raise
        raise UserError(f"{key_of(node)}._target_={node._target_}: {raised_by_user(error) or one_line(error)}") from error


def build_group(cfg: DictConfig, group: str) -> Any:
    """Build the object of a group (``scenario.sparsity``).

    Raises:
        UserError: see :func:`build`; or the object is not of the group's kind.
    """
    node, (role, method, base) = OmegaConf.select(cfg, group), ROLES[group]
    check_role(group, node, imported(key_of(node), node.get("_target_")))
    built = build(node)
    if not isinstance(built, imported(group, base)) or not callable(getattr(built, method, None)):
        name = base.rpartition(".")[2]
        raise UserError(f"{group}._target_={node._target_}: gives a {type(built).__name__}, not {role} (derived from fgl_bench's {name})")
    return built
