"""The keys of a choice of conf/: their defaults, types, allowed numbers and meanings."""

from __future__ import annotations

import importlib
import logging
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.choices import config_folder, path_of
from fgl_bench.config.schema import class_fields
from fgl_bench.config.values import shown as as_yaml
from fgl_bench.errors import ranges_of

log = logging.getLogger("mkdocs.plugins.pages")


@dataclass(frozen=True)
class Key:
    """A key of a choice: its default as the file has it, the type in words, the numbers allowed, and what it means."""

    name: str
    default: str
    kind: str
    meaning: str


def class_of(path: Path) -> type:
    module, _, name = target_of(path).rpartition(".")
    return getattr(importlib.import_module(module), name)


def target_of(path: Path) -> str:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["_target_"]


def identifier(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def keys_of(group: str, path: Path) -> list[Key]:
    """The keys of a choice, those of the choices that it is made from first."""
    cls = class_of(path)
    hints = class_fields(cls)
    allowed, meanings, defaults = ranges_of(cls), attributes(cls), values_of(group, path)
    keys = []
    for name, (default, comment) in defaults.items():
        kind = kind_of(hints.get(name, Any)) + (f", {allowed[name]}" if name in allowed else "")
        keys.append(Key(name, default, kind.removeprefix(", "), without_values(comment or meanings.get(name, ""), kind)))
        if not keys[-1].meaning:
            log.warning("%s: nothing says what %s means", path.relative_to(config_folder()), name)  # an error, as every warning
    return keys


def without_values(meaning: str, kind: str) -> str:
    """Return a comment without its list of allowed values (``a | b: ...``), where the column of values has them."""
    values = re.match(r"(\w+(?: \| \w+)+)(?:: |; |$)", meaning)
    return meaning[values.end() :] or meaning if values and all(f"`{value}`" in kind for value in values[1].split(" | ")) else meaning


def values_of(group: str, path: Path) -> dict[str, tuple[str, str]]:
    """(default, comment) of every key of a file."""
    text = path.read_text(encoding="utf-8")
    values: dict[str, tuple[str, str]] = {}
    for entry in (yaml.safe_load(text) or {}).get("defaults", []):
        if isinstance(entry, str) and entry != "_self_" and not entry.startswith("/"):
            values |= values_of(group, path_of(group, entry, ()))
    for name, value, comment in re.findall(r"^(\w+): (\S.*?)(?: # (.*))?$", text, re.MULTILINE):
        if name not in ("_target_", "defaults"):
            values[name] = (value, comment or values.get(name, ("", ""))[1])
    return values


def attributes(cls: type) -> dict[str, str]:
    """Return the descriptions of attributes in the docstrings of a class and its bases."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = (base.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        for names, text in re.findall(r"^ {8}(\w[\w, ]*): (.*(?:\n {9,}.*)*)", section, re.MULTILINE):
            meanings |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return meanings


def kind_of(hint: Any) -> str:
    """A type in words."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return " or ".join([*map(kind_of, parts), *["null"] * (len(parts) < len(typing.get_args(hint)))])
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(f"`{value}`" for value in typing.get_args(hint))
    if typing.get_origin(hint) in (list, tuple):
        return f"list of {kind_of(typing.get_args(hint)[0])}s"
    return {int: "integer", float: "number", bool: "true or false", str: "string", Any: ""}.get(hint, getattr(hint, "__name__", str(hint)))


def listed(values: Sequence[Any]) -> str:
    """Allowed values, as yaml writes them."""
    return " or ".join(f"`{as_yaml(value)}`".replace("'", "") for value in values)


def key_table(prefix: str, keys: Sequence[Key]) -> list[str]:
    if not keys:
        return ["It has no keys.", ""]
    lines = ["| key | default | values | meaning |", "|---|---|---|---|"]
    lines += [f"| `{prefix}{key.name}` | `{key.default}` | {cell(key.kind)} | {cell(key.meaning)} |" for key in keys]
    return [*lines, ""]


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    text = text.replace("|", r"\|")
    return text if "`" in text else text.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")
