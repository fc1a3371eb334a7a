"""The commands that make the runs that a table lacks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from fgl_bench.config.choices import choices
from fgl_bench.config.compose import Composer
from fgl_bench.config.settings import resolve_budget
from fgl_bench.config.values import shown
from fgl_bench.errors import UserError
from fgl_bench.results.frame import Result
from fgl_bench.results.runs import SOURCES, Chosen, Values
from fgl_bench.results.runs import value as value_in
from fgl_bench.results.store import identity
from fgl_bench.results.unlike import BUDGET, GROUPS, leaves

Compose = Callable[[tuple[str, ...]], dict[str, Any]]
CHOICES = {name: group.replace(".", "/") for group, name in GROUPS.items()}
"""Groups of the command line by their names in summaries."""
BASES = {"algorithm": "fedavg", "model": "gcn", "dataset": "csbm", "split": "metis", "scenario": "sync", "sparsity": "none"}
"""Choices whose keys a user's own class takes the place of."""
DEFAULT_FOLDER = Path("results/runs")


def missing_commands(chosen: Chosen, folder: Path, missing: Sequence[tuple[Values, Values]]) -> list[str]:
    """A command for every missing (row, column)."""
    if not missing:
        return []
    known = composing(Composer())
    return [command(chosen, folder, place, known) for place in missing]


def composing(composer: Composer) -> Compose:
    """The values by key of what arguments compose, with the budget worked out; the same arguments are composed once."""

    @cache
    def composed(given: tuple[str, ...]) -> dict[str, Any]:
        cfg = composer(given)
        return dict(leaves(identity(cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True)), *resolve_budget(cfg))))

    return composed


def command(chosen: Chosen, folder: Path, place: tuple[Values, Values], compose: Compose) -> str:
    """What makes the run at ``place``: with the keys of the rows as in a run of its row, all else as in a run of its column.

    An algorithm brings its scenario along.
    """
    beside = next(run for (row, _), run in chosen.runs.items() if row == place[0])
    above = next(run for (_, column), run in chosen.runs.items() if column == place[1])
    of_row = set(chosen.question.rows) | ({"scenario"} if "algorithm" in chosen.question.rows else set())
    of_row |= {*BUDGET} if of_row & {*BUDGET} else set()
    names = {name: value_in(beside if name in of_row else above, name) for name in CHOICES}
    wanted = {key: value for key, value in leaves_of(above, of_row, inside=False)} | dict(leaves_of(beside, of_row, inside=True))
    return line(overrides(names, wanted, compose), folder)


def command_of(run: Result, folder: Path, compose: Compose) -> str:
    """What makes a run again."""
    names = {name: value_in(run, name) for name in CHOICES}
    return line(overrides(names, dict(leaves_of(run, set(), inside=False)), compose), folder)


def line(words: Sequence[str], folder: Path) -> str:
    return shlex.join(["fgl-bench", *words, *([] if folder == DEFAULT_FOLDER else [f"results_dir={folder}"])])


def leaves_of(run: Result, keys: set[str], inside: bool) -> Iterator[tuple[str, Any]]:
    """The values of a run's configuration below the keys (``inside``), or those that are not."""
    for key, value in leaves(run.summary["config"]):
        group = next((name for prefix, name in GROUPS.items() if key.startswith(f"{prefix}.")), None)
        if (key in keys or group in keys) is inside and key.partition(".")[0] not in SOURCES:
            yield key, value


known_choices = cache(choices)


def overrides(names: Mapping[str, str], wanted: Mapping[str, Any], compose: Compose) -> list[str]:
    """Arguments that compose the wanted values, as few as there can be.

    Args:
        names: choices by the names of groups in summaries; those that are no choice are told by their class.
        wanted: values by key.
    """
    own = {name for name, choice in names.items() if choice not in known_choices(CHOICES[name])}
    given = [f"{CHOICES[name]}={BASES.get(name, choice) if name in own else choice}" for name, choice in names.items()]
    given = without_defaults([text for text in given if not text.endswith("=")], compose)
    base = compose(tuple(given))
    inside = tuple(f"{group}." for group, name in GROUPS.items() if name in own)
    added = [f"~{key}" for key in base if key not in wanted and key.startswith(inside) and inside]
    for key, value in wanted.items():
        if key in ("rounds", "trips") or base.get(key, ...) == value:
            continue
        added.append(f"{'' if key in base else '+'}{key}={shown_plainly(value)}")
    budget = [f"{key}={wanted[key]}" for key in ("rounds", "trips") if key in wanted]
    for few in ([], *([each] for each in budget), budget):
        with suppress(UserError):  # rounds and trips that contradict each other
            now = compose((*given, *added, *few))
            if all(now.get(key) == wanted.get(key) for key in ("rounds", "trips")):
                return [*given, *added, *few]
    return [*given, *added, *budget]


def without_defaults(given: Sequence[str], compose: Compose) -> list[str]:
    """The choices that are not what is composed without them; the first three are always said."""
    said = [text for text in given if text.startswith(("algorithm=", "dataset=", "split="))]
    base = compose(tuple(said))
    return said + [text for text in given if text not in said and compose((*said, text)) != base]


def shown_plainly(value: Any) -> str:
    """As Hydra reads it, without quotes where there need be none."""
    text = str(value)
    plain = isinstance(value, str) and text.replace("_", "").replace(".", "").isalnum() and text.lower() not in ("null", "true", "false")
    return text if plain and not text[0].isdigit() else shown(value)
