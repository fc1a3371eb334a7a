"""A class in a user's file as a choice: ``algorithm=my_method.py``, or ``my_method.py:MyMethod`` where the file has several."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from fgl_bench.config.choices import FILE, choices, content
from fgl_bench.config.groups import ROLES, imported
from fgl_bench.config.wording import one_line
from fgl_bench.errors import UserError, raised_by_user

BASES = {group: base for group, (_, _, base) in ROLES.items() if not base.startswith("builtins.")}
USUAL = {"split": "iid", "dataset": "custom"}
"""Choices whose values the fields of a group's base class have."""


def own_choices(arguments: Iterable[str]) -> list[str]:
    """Return the arguments; every ``GROUP=FILE.py[:Class]`` in them is a choice of Hydra afterwards.

    Its keys are the fields of the class, with their defaults. A method names its first scenario, as the method's yaml would.

    Raises:
        UserError: the file does not have such a class.
    """
    written = list(arguments)
    for text in written:
        group, _, value = text.partition("=")
        for name in FILE.findall(value) if group.replace("/", ".") in BASES else ():
            folder, _, file = name.rpartition("/")
            where = "/".join(filter(None, (group, *folder.split("/"))))
            try:
                node = node_of(class_in(name, [imported(group, BASES[group.replace("/", ".")])]), group)
            except UserError as error:
                raise UserError(f"{group}={error}") from error
            ConfigStore.instance().store(group=where, name=file, node=node, package=group.replace("/", "."), provider="fgl-bench")
    return written


def node_of(cls: type, group: str) -> dict[str, Any]:
    """Return the configuration of a class: its fields with their defaults, ``???`` where there is none."""
    usual = inherited(cls, group)
    node: dict[str, Any] = {"_target_": f"{cls.__module__}.{cls.__qualname__}"}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value is dataclasses.MISSING:
            value = usual.get(field.name, MISSING)
        if field.init and plain(value):
            node[field.name] = value
    scenario = next(iter(imported(group, "fgl_bench.scenarios.hooks.supported")(cls)), None) if group == "algorithm" else None
    return {"defaults": [*[{"override /scenario@_global_.scenario": scenario}] * bool(scenario), "_self_"], **node}


def inherited(cls: type, group: str) -> dict[str, Any]:
    """Return the values of the fields that a class has from a class of the package: of its choice, else of the usual one."""
    for parent in cls.__mro__:
        choice = parent.__module__.rpartition(".")[2].rstrip("_")
        own = content(group, choice) if parent.__module__.startswith("fgl_bench.") and choice in choices(group) else {}
        if str(own.get("_target_")).rpartition(".")[2] == parent.__name__ and dataclasses.is_dataclass(parent):
            break
    else:
        parent, own = imported(group, BASES[group.replace("/", ".")]), content(group, USUAL[group]) if group in USUAL else {}
    names = {field.name for field in dataclasses.fields(parent)} if own else set()
    return {name: value for name, value in (own | {"name": cls.__name__.lower()}).items() if name in names}


def plain(value: Any) -> bool:
    """Return True for a value that a configuration can hold; the class itself fills in others."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, str | int | float | None | Mapping | list | tuple) and all(map(plain, inner))


def class_in(name: str, kinds: Sequence[type]) -> type:
    """Return the class in ``FILE.py:Class``; without a name the only one that derives from the first of ``kinds`` that has one.

    Raises:
        UserError: the file cannot be imported, or has no such class, or several.
    """
    file, _, wanted = name.partition(":")
    module = module_of(file)
    classes = {key: value for key, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__}
    by_kind = [{key: value for key, value in classes.items() if issubclass(value, kind)} for kind in kinds]
    known = {key: value for entries in by_kind for key, value in entries.items()}
    derived = f"no class derived from {' or '.join(kind.__name__ for kind in kinds)}"
    if wanted and wanted not in known:
        raise UserError(f"{name}: no such class in it; it defines {', '.join(known) or derived}")
    candidates = {wanted: known[wanted]} if wanted else next(filter(None, by_kind), {})
    if not candidates:
        raise UserError(f"{file}: defines {derived}" + (f", but {', '.join(classes)}" if classes else ""))
    if len(candidates) > 1:
        raise UserError(f"{file}: defines {', '.join(candidates)}; name one as {file}:CLASS")
    return next(iter(candidates.values()))


def module_of(file: str) -> ModuleType:
    """Import a user's file, whose folder is then searched for modules.

    Raises:
        UserError: there is no such file, or it cannot be imported.
    """
    path = Path(os.path.expanduser(file)).resolve()
    if not path.is_file():
        raise UserError(f"{file}: there is no such file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        module = importlib.import_module(path.stem)
    except (Exception, SystemExit) as error:  # a user's module can raise anything while it is imported
        raise UserError(f"{file}: cannot be imported ({raised_by_user(error) or one_line(error)})") from error
    if Path(str(module.__file__)).resolve() != path:
        raise UserError(f"{file}: another module is called {path.stem} ({module.__file__}); give the file another name")
    return module
