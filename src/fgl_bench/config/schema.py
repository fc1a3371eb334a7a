"""Types of a choice's keys, read from the source of its class without importing it (and so without loading torch).

The fields of a method's dataclass *are* its hyper-parameters, and its yaml holds their values under ``_target_``. Hydra takes the
yaml with the fields' types, so that it refuses an unknown key or a value of the wrong type by the key's name.
"""

from __future__ import annotations

import ast
import dataclasses
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import MISSING, OmegaConf

from fgl_bench.config.choices import group_of
from fgl_bench.config.settings import Configuration

PACKAGE = Path(__file__).parents[1]

TYPED = ("algorithm", "model", "optimizer", "scenario", "tracker")
EXTRA_FIELDS = {"scenario": {"sparsity": Any}}  # the place where the group scenario/sparsity is put

PRIMITIVES = (int, float, bool, str)
LIST_LIKE = (list, tuple, set, frozenset)
NAMES = {
    **{kind.__name__: kind for kind in (*PRIMITIVES, *LIST_LIKE, dict, Path)},
    "Any": Any,
    "Literal": typing.Literal,
}


def plain_type(hint: Any) -> Any:
    """The nearest type that OmegaConf can check: primitives, Optional, unions of primitives, lists, dicts; else ``Any``."""
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


def make_schema(name: str, fields: dict[str, Any]) -> type:
    """A dataclass called ``name`` with ``_target_`` and the given fields, all without values, for Hydra to check against."""
    columns = [(key, plain_type(hint), dataclasses.field(default=MISSING)) for key, hint in {"_target_": str, **fields}.items()]
    return dataclasses.make_dataclass(name, columns)


def class_fields(cls: type) -> dict[str, Any]:
    """Names and type hints of what the constructor of the imported dataclass ``cls`` takes."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def alternatives(hint: Any) -> tuple:
    """The parts of a union; a hint that is none is the only part."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def class_choices(cls: type) -> dict[str, tuple]:
    """The allowed values of every field of ``cls`` annotated ``Literal[...]`` (None too where it is ``| None``)."""
    found = {}
    for name, hint in class_fields(cls).items():
        parts = alternatives(hint)
        if any(typing.get_origin(part) is typing.Literal for part in parts):
            found[name] = tuple(v for part in parts for v in ((None,) if part is type(None) else typing.get_args(part)))
    return found


@cache
def parse(module: str) -> tuple[dict[str, ast.ClassDef], dict[str, tuple[str, str]]]:
    """The classes of the module ``fgl_bench...``, and (module, name) of what it imports; nothing when there is no such file."""
    place = PACKAGE.joinpath(*(part for part in module.split(".")[1:] if part.isidentifier()))
    path = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
    body = ast.parse(path.read_text(encoding="utf-8")).body if path else []
    imports = [(node.module, alias) for node in body if isinstance(node, ast.ImportFrom) and node.module for alias in node.names]
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    return classes, {alias.asname or alias.name: (origin, alias.name) for origin, alias in imports}


def class_source(module: str, name: str) -> tuple[str, ast.ClassDef] | None:
    """The module and the source of the class that is called ``name`` in ``module``; None where the package defines none."""
    classes, imports = parse(module)
    if name in classes:
        return module, classes[name]
    origin, original = imports.get(name, ("", ""))
    return class_source(origin, original) if origin.startswith("fgl_bench.") else None


def evaluate(annotation: ast.expr) -> Any:
    """The type that an annotation stands for; ``Any`` where it is not a plain one."""
    try:
        return eval(ast.unparse(annotation), {"__builtins__": {}}, NAMES)  # the package's own source
    except (NameError, TypeError):
        return Any


def source_fields(module: str, source: ast.ClassDef) -> dict[str, Any]:
    """Names and types of the constructor's arguments of the dataclass ``source`` in ``module``, those of its bases first."""
    fields: dict[str, Any] = {}
    for base in reversed(source.bases):
        if (inherited := class_source(module, ast.unparse(base))) is not None:
            fields.update(source_fields(*inherited))
    if not any(ast.unparse(decorator).startswith("dataclass") for decorator in source.decorator_list):
        return fields
    for line in source.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if ast.unparse(line.annotation).startswith("ClassVar") or "init=False" in ast.unparse(line):
                fields.pop(line.target.id, None)
            else:
                fields[line.target.id] = evaluate(line.annotation)
    return fields


class TypedFiles(FileConfigSource):
    """yaml files as Hydra reads them, those of the groups ``TYPED`` with the types of the package's class that they name.

    The values of other groups, and of classes from outside the package, are checked when the class is imported.
    """

    def load_config(self, config_path: str) -> ConfigResult:
        result = super().load_config(config_path)
        group = group_of(config_path)
        values = OmegaConf.to_container(result.config) if group in TYPED else None
        target = str(values.get("_target_")) if isinstance(values, dict) else ""
        source = class_source(*target.rsplit(".", 1)) if target.startswith("fgl_bench.") else None
        if source is not None:
            fields = source_fields(*source) | EXTRA_FIELDS.get(group, {}) | {"defaults": Any}  # a list that Hydra takes out
            typed = OmegaConf.merge({group: make_schema(source[1].name, fields)}, {group: result.config})
            result.config = OmegaConf.select(typed, group)
        return result


# A launcher's worker registers Hydra's plugins again; a class of the same name is left in its place, one of another is refused.
TypedFiles.__name__ = FileConfigSource.__name__


def paper_of(experiment: str | None) -> str:
    """The folder of a preset, ``fedsa_gcl`` of ``fedsa_gcl/table3``, below which ``by_dataset`` has what goes with a data set."""
    return (experiment or "").rpartition("/")[0] or "none"


def register_all(store: Any) -> None:
    """Let Hydra check types: of the top-level keys, in its ConfigStore ``store``, and of files; and find what goes with a data set."""
    Plugins.instance()  # registers Hydra's own reader of files
    SourcesRegistry.instance().types[TypedFiles.scheme()] = TypedFiles
    OmegaConf.register_new_resolver("paper_of", paper_of, replace=True)
    store.store(group="schema", name="settings", node=Configuration, provider="fgl-bench")
