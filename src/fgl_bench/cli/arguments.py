"""Preprocessing of command-line arguments: order, and mistakes that Hydra would accept silently."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, QuotedString, RangeSweep
from hydra.core.plugins import Plugins
from hydra.errors import HydraException

from fgl_bench.config.choices import FILE, GROUPS, choices, own_file
from fgl_bench.config.settings import MOST_SEEDS
from fgl_bench.config.values import check_lengths
from fgl_bench.errors import UserError

VALUED = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd", "--experimental-rerun")
MOST_RUNS = 100_000  # per sweep


def scan_plugins() -> None:
    """Import Hydra's plugins now, except from the current folder, whose code must not run unasked."""
    current, package = Path.cwd().resolve(), Path(__file__).resolve().parents[2]
    before = list(sys.path)
    sys.path[:] = [entry for entry in before if Path(entry or current).resolve() != current or current == package]
    try:
        Plugins.instance()
    finally:
        sys.path[:] = before


def import_from_here() -> None:
    """Let ``algorithm._target_=my_module.MyMethod`` find ``my_module.py`` in the current folder, after installed modules."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def options_first(arguments: list[str]) -> list[str]:
    """Move ``key=value`` arguments to the end; argparse rejects options between them (``a=1 -m b=2,3``)."""
    values = {i + 1 for i, text in enumerate(arguments) if text in VALUED}
    overrides = [i for i, text in enumerate(arguments) if i not in values and not text.startswith("-")]
    return [text for i, text in enumerate(arguments) if i not in overrides] + [arguments[i] for i in overrides]


def keys_of_swept_groups(arguments: list[str]) -> list[str]:
    """Rewrite keys of a swept group (``-m algorithm=a,b algorithm.mu=1``) as sweeps over one value.

    Hydra applies plain keys to the default choice before a sweep, which may not have them; swept keys are applied in the jobs.
    """
    if not {"-m", "--multirun"} & set(arguments):
        return arguments
    swept = {text.partition("=")[0] for text in arguments if re.match(r"[\w/]+=[^\[{(]*,", text)} & set(GROUPS)
    below = tuple(f"{group.replace('/', '.')}." for group in swept)
    matches = [re.fullmatch(r"([\w.]+)=((?!\w+\().+)", text) if text.startswith(below) else None for text in arguments]
    return [f"{key[1]}=choice({key[2]})" if key else text for key, text in zip(matches, arguments, strict=True)]


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parse Hydra's options; raises UserError for unknown and unsupported ones."""
    parser = get_args_parser()

    def fail(message: str) -> NoReturn:
        raise UserError(f"{message}; see fgl-bench --help")

    parser.error = fail  # type: ignore[method-assign]
    options = parser.parse_args(arguments)
    if options.experimental_rerun is not None:
        raise UserError("--experimental-rerun is not supported: it would run what a pickle holds; use the config.yaml of the run's folder")
    return options


def check_overrides(options: argparse.Namespace) -> None:
    """Reject arguments that Hydra would misread.

    Raises:
        UserError: several values without -m, several or unknown choices of a group, an empty sweep, or too many runs.
    """
    check_lengths(options.overrides)
    for text in options.overrides:
        if text.lstrip("+").startswith("hydra.sweeper.params"):
            raise UserError("hydra.sweeper.params: not supported; write -m KEY=a,b")
        if text == "~experiment":
            raise UserError("~experiment: cannot be removed; write experiment=null")
    try:
        overrides = OverridesParser.create().parse_overrides(options.overrides)
    except HydraException:
        return  # Hydra reports it in detail
    folders = [Path(options.config_dir)] if options.config_dir else []
    count = 1
    for override in overrides:
        if override.is_sweep_override() and not options.multirun:
            key, _, text = str(override.input_line).partition("=")
            sweep = override.value()
            raise UserError(f"{override.input_line}: several values; add -m to run each{as_one(key, text, sweep)}")
        values = swept(override, folders)
        count *= len(values)
        if not values:
            raise UserError(f"{override.input_line}: there is nothing to sweep over")
        if count > MOST_RUNS:
            raise UserError(f"{override.input_line}: more than {MOST_RUNS} runs; sweep over less")
        if "/" in override.key_or_group or override.package is not None or override.key_or_group in GROUPS:
            for value in values:
                check_choice(override, value)


def as_one(key: str, text: str, sweep: Any) -> str:
    """Suggest how to pass a value that Hydra reads as several, if possible."""
    if isinstance(sweep, RangeSweep) and key == "seeds" and 0 < length(sweep) <= MOST_SEEDS:
        step = int(sweep.step)
        values = range(int(sweep.start or 0), int(sweep.start or 0) + step * length(sweep), step)
        return f", or write {key}=[{','.join(map(str, values))}] for a list"
    if not (isinstance(sweep, ChoiceSweep) and sweep.simple_form) or key in GROUPS:
        return ""
    if key == "dataset.path" or key.endswith("_dir"):
        return f", or write '{key}=\"{text}\"' for a name with a comma"
    return f", or write {key}=[{text}] for a list"


def swept(override: Override, folders: Sequence[Path]) -> Sequence[Any]:
    """Return the value of an override as a list, or the values of its sweep."""
    sweep = override.value()
    if isinstance(sweep, ChoiceSweep):
        return sweep.list
    if isinstance(sweep, RangeSweep):
        return range(length(sweep))
    if isinstance(sweep, Glob):
        return sweep.filter(choices(override.key_or_group, folders)) if override.key_or_group in GROUPS else [override.input_line]
    if isinstance(sweep, IntervalSweep):
        raise UserError(f"{override.input_line}: an interval has no list of values to sweep over; use range(), or fgl-bench tune")
    return [sweep]


def length(sweep: RangeSweep) -> int:
    """Return the number of values of a ``range()``."""
    start, stop, step = (float(number or 0) for number in (sweep.start, sweep.stop, sweep.step))
    if not step or not all(abs(number) < 1e15 for number in (start, stop, step)):
        raise UserError("range(): must have finite ends, and a step that is not 0")
    return max(0, int(min(-(-(stop - start) // step), MOST_RUNS + 1)))


def check_choice(override: Override, value: Any) -> None:
    """Raise UserError unless ``value`` is a valid name of a choice."""
    group = override.key_or_group
    if isinstance(value, list | dict):
        raise UserError(f"{override.input_line}: {group} takes one choice; to compare several: fgl-bench -m {group}=first,second")
    name = value.text if isinstance(value, QuotedString) else value
    named = isinstance(name, str) and "${" not in name and not name.endswith((".yaml", ".yml"))
    named = named and (FILE.fullmatch(name) is not None or all(part not in ("", ".", "..") for part in name.split("/")))
    if not override.is_delete() and not named and value is not None:
        how = own_file(group, str(name)) or "; a group takes the name of one, see fgl-bench --help"
        raise UserError(f"{override.input_line}: {name!r} is no choice of {group}{how}")


def config_dirs(arguments: list[str]) -> tuple[list[str], list[Path]]:
    """Return the arguments without ``--config-dir DIR``, and these folders."""
    words, folders, rest = [], [], iter(arguments)
    for text in rest:
        option, given, folder = text.partition("=")
        if option in ("--config-dir", "-cd"):
            folders.append(Path(os.path.expanduser(folder if given else next(rest, ""))))
        else:
            words.append(text)
    return words, folders
