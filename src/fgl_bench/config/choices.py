"""The groups of the configuration, their choices and files."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.errors import UserError

GROUPS = (
    "algorithm", "task", "dataset", "split", "model", "optimizer", "lr_schedule", "scenario", "scenario/sparsity", "scenario/noise",
    "scenario/attack", "aggregator", "privacy", "tracker", "experiment",
)  # fmt: skip
NAMED = tuple(group for group in GROUPS if group not in ("tracker", "experiment"))  # in results

SHORT = 20  # names that are listed although one is near
FILE = re.compile(r"[^,\[\]\s'\"]+\.py(?::\w+)?(?![\w.])")
"""A class in a user's file, ``my_method.py`` or ``my_method.py:MyMethod``, as a choice of a group."""


def config_folder() -> Path:
    """Return ``conf/``: in the package if installed from a wheel, in the root of a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parents[1] / "conf"


def check_readable() -> None:
    """Raise UserError if a configuration folder is not readable: Hydra would treat it as absent."""
    base = config_folder()
    folders = [base, *(Path(parent, name) for parent, names, _ in os.walk(base) for name in names)]
    closed = next((folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK)), None)
    if closed:
        raise UserError(f"{closed}: this user cannot read the folder; the user who installed fgl-bench can fix it: chmod -R a+rX {base}")


def group_of(path: str) -> str:
    """Return the group of a path such as ``algorithm/fedprox``, also in subfolders; empty without a group."""
    return max((group for group in GROUPS if path.startswith(f"{group}/")), key=len, default="")


def choices(group: str, folders: Iterable[Path] = ()) -> list[str]:
    """Return the choices of a group in the package and in ``folders``, including subfolders (``experiment=<paper>/<table>``).

    A file whose name begins with an underscore is shared data, not a choice.
    """
    names = set()
    for base in (folder / group for folder in (config_folder(), *folders)):
        names |= {path.relative_to(base).with_suffix("").as_posix() for path in base.rglob("[!_]*.yaml")}
    return sorted(name for name in names if f"{group}/{name.partition('/')[0]}" not in GROUPS)


def path_of(group: str, choice: str, folders: Sequence[Path]) -> Path:
    """Return the file of a choice, from the package or else the first folder that has it."""
    paths = [folder / group / f"{choice}.yaml" for folder in (config_folder(), *folders)]
    return next(path for path in paths if path.is_file())


def file_of(name: str, folders: Sequence[Path] = ()) -> tuple[str, str, Path]:
    """Return (group, choice, file) of ``algorithm/fedprox``, ``algorithm=fedprox`` or ``fedprox`` if only one group has it.

    Args:
        folders: folders of user groups (``--config-dir``).

    Raises:
        UserError: the choice does not exist, or several groups have it.
    """
    name = name.removesuffix(".yaml").replace("=", "/", 1)
    fitting = [group for group in GROUPS if name.startswith(f"{group}/") and name[len(group) + 1 :] in choices(group, folders)]
    if fitting:
        group = max(fitting, key=len)
        return group, name[len(group) + 1 :], path_of(group, name[len(group) + 1 :], folders)
    groups = [group for group in GROUPS if name in choices(group, folders)]
    if len(groups) > 1:
        raise UserError(f"{name}: in several groups; write {' or '.join(f'{group}/{name}' for group in groups)}")
    if not groups:
        known = [f"{group}/{choice}" for group in GROUPS for choice in choices(group, folders)]
        group = name.rpartition("/")[0]
        near = [text for text in known if text.startswith(f"{group}/")] if group in GROUPS else []
        raise UserError(f"{name}: there is no such choice{suggest(name, near)}" if near else f"{name}: no such choice; see fgl-bench ls")
    return groups[0], name, path_of(groups[0], name, folders)


def content(group: str, choice: str) -> dict[str, Any]:
    """Return the top-level keys of a choice of the package, including its defaults."""
    own = yaml.safe_load((config_folder() / group / f"{choice}.yaml").read_text(encoding="utf-8")) or {}
    parents = [entry for entry in own.pop("defaults", ()) if isinstance(entry, str) and entry != "_self_"]
    inherited = (content(group, parent.removeprefix(f"/{group}/")) for parent in parents)
    return {key: value for keys in (*inherited, own) for key, value in keys.items()}


def own_file(group: str, name: str) -> str:
    """Return advice for the file of a graph given as a dataset; empty if ``name`` is not such a file."""
    if group == "dataset" and name.endswith((".csv", ".graphml", ".gml", ".json")):
        return "; fgl-bench import makes a graph of tables and of networkx files, see fgl-bench import --help"
    return f"; a graph of your own is dataset=custom dataset.path={name}" if group == "dataset" and name.endswith((".npz", ".pt")) else ""


def suggest(name: str, allowed: Iterable[str]) -> str:
    """Return ``; did you mean x, y or z?``, of the nearest names, and ``allowed: a, b, x`` if none is near or the list is short."""
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names)
    guess = "; did you mean " + " or ".join(filter(None, (", ".join(near[:-1]), near[-1]))) + "?" if near else ";" if names else ""
    return guess + (f" allowed: {', '.join(names)}" if names and not (near and len(names) > SHORT) else "")


def key_lines(text: str) -> list[tuple[str, str, str]]:
    """Return (key, value, comment) of every top-level ``key: value # comment`` in YAML text."""
    return re.findall(r"^(\w+): (\S.*?) # (.*)$", text, flags=re.MULTILINE)
