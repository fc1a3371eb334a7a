"""The source code of classes from outside the package, which is part of a run's identity."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KNOWN = {"", "fgl_bench", *sys.stdlib_module_names}  # packages whose source is no part of a run's identity


def code_sums(config: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 by file of the modules that ``config`` takes classes from, see :func:`files_of`; empty where all are this package's.

    A file is named by its module and its place in the module's folder, such as ``my_method:helpers.py``.
    """
    sums = {}
    for module in outside_modules(config):
        files = files_of(module)
        for path in files:
            sums[f"{module}:{path.relative_to(files[0].parent).as_posix()}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return sums


def outside_modules(config: Mapping[str, Any]) -> list[str]:
    """Modules outside of this package and of Python's library that ``metrics`` or some ``_target_`` in ``config`` is of."""
    modules = {target.rpartition(".")[0] for target in (*targets(config), *config.get("metrics", ()))}
    return sorted(module for module in modules if module.partition(".")[0] not in KNOWN)


def targets(config: Mapping[str, Any]) -> list[str]:
    """Every ``_target_`` in nested mappings and lists."""
    names, waiting = [], list[Any]([config])
    for value in waiting:
        if isinstance(value, dict | Mapping):  # a dictionary first: the check for a mapping is slow
            if isinstance(value.get("_target_"), str):
                names.append(value["_target_"])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return names


def files_of(module: str) -> list[Path]:
    """The module's file, then those of the modules in the same folder that it imports, directly or through one another.

    Imports are read from the source: modules loaded by name at run time are not seen. An installed module that is in no
    package stands alone, since all installed packages lie in its folder.
    """
    origin = origin_of(module)
    if origin is None:
        return []
    start = Path(origin).resolve()
    package = module if start.name == "__init__.py" else module.rpartition(".")[0]
    installed = start.parent in {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    files, waiting = [], [start]
    while waiting:
        path = waiting.pop(0)
        if path in files:
            continue
        files.append(path)
        if path.suffix == ".py" and not installed:
            waiting += [file for name in sorted(neighbors(path, package)) for file in in_folder(start.parent, name)]
    return files


def origin_of(module: str) -> str | None:
    """The path of the module's file; None where it has none."""
    if module == "__main__":  # a script
        return getattr(sys.modules[module], "__file__", None)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None and spec.has_location else None


def neighbors(path: Path, package: str) -> set[str]:
    """Names of modules that the file imports and that may lie in its folder, ``package`` (empty outside of packages)."""
    names = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = ".".join(filter(None, (package if node.level else "", node.module)))
            names += [stem, *(f"{stem}.{alias.name}".lstrip(".") for alias in node.names)]
    prefix = f"{package}." if package else ""
    return {name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)}


def in_folder(folder: Path, name: str) -> list[Path]:
    """The file of the module ``name``, or all files of the package of this name."""
    if (folder / f"{name}.py").is_file():
        return [folder / f"{name}.py"]
    return sorted((folder / name).rglob("*.py")) if name and (folder / name / "__init__.py").is_file() else []
