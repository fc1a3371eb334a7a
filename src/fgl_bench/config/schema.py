"""Types of a choice's keys, from the fields of its class, for OmegaConf."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from fgl_bench.config.settings import Configuration

PRIMITIVES = (int, float, bool, str)
LIST_LIKE = (list, tuple, set, frozenset)


def plain_type(hint: Any) -> Any:
    """Return the nearest type that OmegaConf can check: primitives, Optional, unions of primitives, lists, dicts; else ``Any``."""
    if hint in (*PRIMITIVES, Path, Any):
        return hint
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = {plain_type(part) for part in arguments if part is not type(None)}
        if len(kinds) > 1 and not kinds <= set(PRIMITIVES):
            return Any
        inner: Any = typing.Union[tuple(sorted(kinds, key=str))]  # noqa: UP007 (built at run time)
        return typing.Optional[inner] if type(None) in arguments and inner is not Any else inner  # noqa: UP045
    if origin is typing.Literal:
        kinds = {type(value) for value in arguments}
        return kinds.pop() if len(kinds) == 1 else Any
    if origin in LIST_LIKE or hint in LIST_LIKE:
        return types.GenericAlias(list, plain_type(arguments[0]) if arguments else Any)
    if origin is dict or hint is dict:
        return types.GenericAlias(dict, (str, plain_type(arguments[1]) if len(arguments) == 2 else Any))
    return Any


@cache
def class_fields(cls: type) -> dict[str, Any]:
    """Return names and type hints of the constructor arguments of the dataclass ``cls``."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


@cache
def schema_of(cls: type) -> DictConfig:
    """Return an OmegaConf schema with ``_target_`` and the fields of ``cls``, all missing; ``OmegaConf.merge`` leaves it as it is."""
    hints = {"_target_": str, **class_fields(cls)}
    fields = [(key, plain_type(hint), dataclasses.field(default=MISSING)) for key, hint in hints.items()]
    return OmegaConf.structured(dataclasses.make_dataclass(cls.__name__, fields))


def alternatives(hint: Any) -> tuple:
    """Return the parts of a union; another hint is its only part."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


@cache
def class_choices(cls: type) -> dict[str, tuple]:
    """Return the allowed values of every ``Literal[...]`` field of ``cls`` (with None for ``| None``)."""
    allowed = {}
    for name, hint in class_fields(cls).items():
        parts = alternatives(hint)
        if any(typing.get_origin(part) is typing.Literal for part in parts):
            allowed[name] = tuple(v for part in parts for v in ((None,) if part is type(None) else typing.get_args(part)))
    return allowed


def paper_of(experiment: str | None) -> str:
    """Return the folder of a preset (``fedsa_gcl`` of ``fedsa_gcl/table3``), which names its dataset settings in ``by_dataset``."""
    return (experiment or "").rpartition("/")[0] or "none"


def register_all(store: Any) -> None:
    """Register the types of the top-level keys in Hydra's ConfigStore ``store``, and the resolver of dataset settings."""
    OmegaConf.register_new_resolver("paper_of", paper_of, replace=True)
    store.store(group="schema", name="settings", node=Configuration, provider="fgl-bench")
