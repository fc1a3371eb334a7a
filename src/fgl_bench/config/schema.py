"""Hydra schemas read from the source of the package's dataclasses, without importing (and so without loading torch).

The fields of a method's dataclass *are* its hyper-parameters. Its yaml names the schema in the defaults list and holds the values::

    defaults: [/schema/algorithm/fedprox@_here_, _self_]

so that Hydra refuses an unknown key or a value of the wrong type by the key's name. The naming rule:

* one module per class: ``/schema/<group>/<module>``, for the groups algorithm, model, dataset, split and scenario. In a module with
  several public dataclasses the one whose name spells the module's (``FedSaGcl`` in ``fedsa_gcl.py``) has it, and every
  one is also ``/schema/<group>/<module>_<class in lower case>``;
* many classes in one module: ``/schema/scenario/sparsity/<class in lower case>`` and ``/schema/tracker/<class in lower case>``.

Nothing is registered by hand: a new file is found by walking the folders below.
"""

from __future__ import annotations

import ast
import dataclasses
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from fgl_bench.config.settings import Configuration

PACKAGE = Path(__file__).parents[1]

ONE_CLASS_PER_MODULE = {
    "algorithm": "algorithms",
    "model": "models",
    "dataset": "data/datasets",
    "split": "data/splits",
    "scenario": "scenarios",
}
MANY_CLASSES_IN_ONE = {"scenario/sparsity": "data/sparsity", "tracker": "reporting/tracking"}

EXTRA_FIELDS = {"scenario": {"sparsity": Any}}  # the place where the group scenario/sparsity is put

PRIMITIVES = (int, float, bool, str)
LIST_LIKE = (list, tuple, set, frozenset)
NAMES = {
    **{kind.__name__: kind for kind in (*PRIMITIVES, *LIST_LIKE, dict, Path)},
    **{name: getattr(typing, name) for name in ("Any", "Literal", "Optional", "Union", "List", "Tuple", "Dict")},
    "Sequence": list,
    "Mapping": dict,
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


def class_choices(cls: type) -> dict[str, tuple]:
    """The allowed values of every field of ``cls`` annotated ``Literal[...]`` (None too where it is ``| None``)."""
    found = {}
    for name, hint in class_fields(cls).items():
        parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        if any(typing.get_origin(part) is typing.Literal for part in parts):
            found[name] = tuple(v for part in parts for v in ((None,) if part is type(None) else typing.get_args(part)))
    return found


@dataclasses.dataclass(frozen=True)
class Source:
    """A parsed module: its classes and what it imports from where."""

    classes: dict[str, ast.ClassDef]
    imports: dict[str, tuple[str, str]]


@cache
def parse(module: str) -> Source:
    """The classes of the module ``fgl_bench...``, read without running it; empty when there is no such file."""
    parts = module.split(".")[1:]
    candidates = (PACKAGE.joinpath(*parts).with_suffix(".py"), PACKAGE.joinpath(*parts, "__init__.py"))
    path = next((path for path in candidates if path.is_file()), None)
    body = ast.parse(path.read_text(encoding="utf-8")).body if path and parts else []
    imports = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    return Source({node.name: node for node in body if isinstance(node, ast.ClassDef)}, imports)


def is_dataclass_source(node: ast.ClassDef) -> bool:
    """Whether the class is decorated with ``dataclass``, in whatever spelling."""
    calls = (decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list)
    return any(ast.unparse(call).split(".")[-1] == "dataclass" for call in calls)


def evaluate(annotation: ast.expr) -> Any:
    """The type that an annotation of this package's own source stands for; ``Any`` where it is not a plain one."""
    text = annotation.value if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str) else ast.unparse(annotation)
    try:
        return eval(text.replace("typing.", ""), {"__builtins__": {}}, dict(NAMES))  # the package's own source
    except (NameError, TypeError, AttributeError):
        return Any


def source_fields(module: str, name: str) -> dict[str, Any]:
    """Names and types of the constructor's arguments of the dataclass ``name`` in ``module``, those of its bases first."""
    source = parse(module)
    if "." in name:
        alias, name = name.rsplit(".", 1)
        return source_fields(".".join(source.imports.get(alias, (alias,))), name)
    if name not in source.classes:
        return source_fields(*source.imports[name]) if source.imports.get(name, ("",))[0].startswith("fgl_bench") else {}
    fields: dict[str, Any] = {}
    for base in reversed(source.classes[name].bases):
        fields.update(source_fields(module, ast.unparse(base).split("[")[0]))
    if not is_dataclass_source(source.classes[name]):
        return fields
    for line in source.classes[name].body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        written, default = ast.unparse(line.annotation), ast.unparse(line.value) if line.value else ""
        if "ClassVar" in written or "init=False" in default:
            fields.pop(line.target.id, None)
        else:
            fields[line.target.id] = evaluate(line.annotation)
    return fields


def canonical(target: str) -> str:
    """The name of a class that does not depend on the folder in which its group keeps the module; other names stay as they are.

    Stored results know classes by this name: ``fgl_bench.algorithms.cross_client.fedaas.FedAAS`` is ``fgl_bench.algorithms.fedaas.FedAAS``.
    """
    for folder in ONE_CLASS_PER_MODULE.values():
        start = f"fgl_bench.{folder.replace('/', '.')}."
        if target.startswith(start):
            return start + ".".join(target.removeprefix(start).split(".")[-2:])
    return target


def canonical_names(value: Any) -> Any:
    """``value`` with every ``_target_`` in it by its :func:`canonical` name."""
    if isinstance(value, dict):
        plain = {key: canonical_names(inner) for key, inner in value.items()}
        return {**plain, "_target_": canonical(plain["_target_"])} if isinstance(plain.get("_target_"), str) else plain
    return [canonical_names(inner) for inner in value] if isinstance(value, list) else value


def public_dataclasses(module: str) -> list[str]:
    """The names of the dataclasses that ``module`` defines, private ones left out."""
    classes = parse(module).classes
    return [name for name, node in classes.items() if not name.startswith("_") and is_dataclass_source(node)]


def walk() -> Iterator[tuple[str, str, str, str]]:
    """Every schema of the package as (group, schema name, module, class)."""
    for group, folder in ONE_CLASS_PER_MODULE.items():
        for path in sorted((PACKAGE / folder).rglob("[!_]*.py")):
            if path.stem == "base":  # what a group's classes share
                continue
            module = ".".join(("fgl_bench", *path.relative_to(PACKAGE).with_suffix("").parts))
            names = public_dataclasses(module)
            own = [name for name in names if name.lower() == path.stem.replace("_", "")]
            for name in own or (names if len(names) == 1 else []):
                yield group, path.stem, module, name
            if len(names) > 1:
                yield from ((group, f"{path.stem}_{name.lower()}", module, name) for name in names)
    for group, folder in MANY_CLASSES_IN_ONE.items():
        paths = [PACKAGE / f"{folder}.py", *sorted((PACKAGE / folder).glob("*.py"))]
        for path in (path for path in paths if path.is_file()):
            stem = () if path.stem == "__init__" else (path.stem,)
            module = ".".join(("fgl_bench", *path.relative_to(PACKAGE).parent.parts, *stem))
            yield from ((group, name.lower(), module, name) for name in public_dataclasses(module))


def register_all(store: Any) -> None:
    """Register every schema of the package in Hydra's ConfigStore ``store``, once, and the top-level one as ``/schema/settings``."""
    if "settings.yaml" in store.repo.get("schema", {}):
        return
    seen: dict[tuple[str, str], str] = {}
    for group, name, module, cls in walk():
        other = seen.setdefault((group, name), f"{module}.{cls}")
        if other != f"{module}.{cls}":
            raise RuntimeError(f"two classes claim /schema/{group}/{name}: {other} and {module}.{cls}")
        fields = source_fields(module, cls) | EXTRA_FIELDS.get(group, {})
        store.store(group=f"schema/{group}", name=name, node=make_schema(cls, fields), provider="fgl-bench")
    store.store(group="schema", name="settings", node=Configuration, provider="fgl-bench")
