"""The groups of the configuration, their choices and the files of these."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.errors import UserError

GROUPS = ("algorithm", "dataset", "split", "model", "optimizer", "scenario", "scenario/sparsity", "tracker", "experiment")


def config_folder() -> Path:
    """``conf/``: inside the package when installed from a wheel, at the project's root in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parents[1] / "conf"


def check_readable() -> None:
    """Raise UserError if this user cannot read a folder of the configuration: Hydra takes such a one for absent."""
    base = config_folder()
    folders = [base, *(Path(parent, name) for parent, names, _ in os.walk(base) for name in names)]
    closed = next((folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK)), None)
    if closed:
        raise UserError(f"{closed}: this user cannot read the folder; whoever installed fgl-bench can: chmod -R a+rX {base}")


def group_of(path: str) -> str:
    """The group of ``algorithm/fedprox``, or of what lies in a folder of it; empty where there is none."""
    return max((group for group in GROUPS if path.startswith(f"{group}/")), key=len, default="")


def choices(group: str, folders: Iterable[Path] = ()) -> list[str]:
    """The choices of a group, those in folders of it too (``experiment=<paper>/<table>``): the package's and those in ``folders``.

    A file whose name begins with an underscore is shared data, not a choice.
    """
    found = set()
    for base in (folder / group for folder in (config_folder(), *folders)):
        found |= {path.relative_to(base).with_suffix("").as_posix() for path in base.rglob("[!_]*.yaml")}
    return sorted(name for name in found if f"{group}/{name.partition('/')[0]}" not in GROUPS)


def path_of(group: str, choice: str, folders: Sequence[Path]) -> Path:
    """The file of a choice: the package's, or else that of the first folder that has it."""
    paths = [folder / group / f"{choice}.yaml" for folder in (config_folder(), *folders)]
    return next(path for path in paths if path.is_file())


def file_of(name: str, folders: Sequence[Path] = ()) -> tuple[str, str, Path]:
    """(group, choice, file) of ``algorithm/fedprox``, ``algorithm=fedprox`` or, where only one group has it, ``fedprox``.

    Args:
        folders: groups of the user's own (``--config-dir``).

    Raises:
        UserError: there is no such choice, or several groups have it.
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
    """The top-level keys of a choice of the package, and of the choices that it is made from."""
    own = yaml.safe_load((config_folder() / group / f"{choice}.yaml").read_text(encoding="utf-8")) or {}
    parents = [entry for entry in own.pop("defaults", ()) if isinstance(entry, str) and entry != "_self_"]
    inherited = (content(group, parent.removeprefix(f"/{group}/")) for parent in parents)
    return {key: value for keys in (*inherited, own) for key, value in keys.items()}


def own_file(group: str, name: str) -> str:
    """Return the advice for a user's own graph file that was given as a dataset's name; empty if ``name`` is no such file."""
    return f"; a graph of your own is dataset=custom dataset.path={name}" if group == "dataset" and name.endswith((".npz", ".pt")) else ""


def suggest(name: str, allowed: Iterable[str]) -> str:
    """``; did you mean x? allowed: a, b, x`` as far as there is something to say."""
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"; did you mean {near[0]}?" if near else ";" if names else "") + (f" allowed: {', '.join(names)}" if names else "")


def key_lines(text: str) -> list[tuple[str, str, str]]:
    """(key, value, comment) of every top-level ``key: value # comment`` of a yaml text."""
    return re.findall(r"^(\w+): (\S.*?) # (.*)$", text, flags=re.MULTILINE)
