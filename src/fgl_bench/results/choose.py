"""Runs of a folder: those that a question chooses, refused where they cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.results.frame import OF_RUN, Result, value_of
from fgl_bench.results.provenance import on_cpu
from fgl_bench.results.question import ANY, Question, is_number, matches, said, short

if TYPE_CHECKING:
    pass

Values = tuple[str, ...]
GROUPS = {
    "algorithm": "algorithm",
    "dataset": "dataset",
    "split": "split",
    "model": "model",
    "optimizer": "optimizer",
    "scenario.sparsity": "sparsity",
    "scenario": "scenario",
}
"""Groups of the configuration and the keys of ``summary.json`` that name their choices, the inner group first."""
BEFORE = {"optimizer": "adam"}
"""What the choice of a group was before summaries named it."""
BUDGET = ("rounds", "trips", "num_clients", "participation")
"""Keys that follow from each other."""
SOURCES = ("code", "data")  # of a configuration: sums of a user's own files, and corrections
MOST_VALUES = 4  # of a key that runs differ in
UNSCORED = ("targets", "mixing_at", "metrics")  # keys that change no score


class Unlike(UserError):
    """Runs that a question does not tell apart; ``keys`` are those in which they differ."""

    def __init__(self, message: str, keys: Iterable[str]):
        super().__init__(message)
        self.keys = tuple(keys)


@dataclass(frozen=True)
class Chosen:
    """Runs by the values of rows and columns.

    Attributes:
        rows, columns: values, in order.
        runs: by (row, column).
        superseded: runs that are left out because a class or a file of the user's has been edited since, or a class corrected.
    """

    question: Question
    rows: tuple[Values, ...]
    columns: tuple[Values, ...]
    runs: Mapping[tuple[Values, Values], Result]
    superseded: int = 0


def value(run: Result, key: str) -> Any:
    """What a run has under a key: the name of a group's choice, or a value of its configuration."""
    if key in BEFORE:
        return run.summary.get(key, BEFORE[key])
    return run.summary[key] if key in OF_RUN else value_of(run.summary["config"], key)


def choose(runs: Sequence[Result], question: Question) -> Chosen:
    """The runs that a question asks for, by row and column.

    Raises:
        UserError: a key is unknown, or nothing is left.
        Unlike: runs differ in something that the question does not name.
    """
    check_keys(runs, question)
    left = met_by(runs, question.where)
    current = latest(left)
    placed: dict[tuple[Values, Values], Result] = {}
    for run in current:
        place = (values(run, question.rows), values(run, question.cols))
        if place in placed:
            refuse_two(placed[place], run, question, place)
        placed[place] = run
    refuse_unlike(current, question)
    rows, columns = (in_order(place[side] for place in placed) for side in (0, 1))
    return Chosen(question, rows, columns, placed, len(left) - len(current))


def met_by(runs: Sequence[Result], where: Mapping[str, Sequence[str]]) -> list[Result]:
    """The runs that have the allowed values; raises UserError for a value that no run has."""
    left = list(runs)
    for key, allowed in where.items():
        kept = [run for run in left if any(matches(value(run, key), text) for text in allowed)]
        absent = [text for text in allowed if text != ANY and not any(matches(value(run, key), text) for run in left)]
        if absent:
            there = sorted({said(value(run, key)) for run in left})
            raise UserError(f"where={key}={short(absent[0])}: no run has it; there are {short(', '.join(there))}")
        left = kept
    return left


def check_keys(runs: Sequence[Result], question: Question) -> None:
    """Refuse keys that no run has."""
    known = {key for run in runs for key, _ in leaves(run.summary["config"])} | {*OF_RUN, *BEFORE}
    for name, keys in (("rows", question.rows), ("cols", question.cols), ("where", question.where)):
        for key in keys:
            if key not in known:
                raise UserError(f"{name}={short(key)}: no run has this key{near(key, known)}")


def near(key: str, known: Iterable[str]) -> str:
    """The likely key, and the names of groups; a configuration has too many keys to list."""
    said_ = suggest(key, known).partition(";")[2].partition("allowed:")[0].strip(" ;")
    return f"; {said_}" if said_ else f"; allowed: {', '.join(OF_RUN)} and keys of the configuration, such as lr or algorithm.mu"


def values(run: Result, keys: Sequence[str]) -> Values:
    return tuple(said(value(run, key)) for key in keys)


def in_order(found: Iterable[Values]) -> tuple[Values, ...]:
    """Each once; numbers by size, before texts."""

    def key(one: Values) -> list[tuple[bool, float, str]]:
        return [(False, float(text), "") if is_number(text) else (True, 0.0, text.replace("_", "")) for text in one]

    return tuple(sorted(set(found), key=key))


def latest(runs: Sequence[Result]) -> list[Result]:
    """Of runs that differ only in the source of a user's own class, in a correction or in the content of a raw file, the last one."""
    newest: dict[str, Result] = {}
    for run in runs:
        what = json.dumps({key: inner for key, inner in run.summary["config"].items() if key not in SOURCES}, sort_keys=True)
        if what not in newest or newest[what].summary["finished"] <= run.summary["finished"]:
            newest[what] = run
    return [run for run in runs if any(run is kept for kept in newest.values())]


def refuse_two(one: Result, other: Result, question: Question, place: tuple[Values, Values]) -> None:
    """Refuse two runs in a cell, with every key by which one of them can be chosen."""
    configs = [one.summary["config"], other.summary["config"]]
    flat = [dict(leaves(config)) for config in configs]
    keys = [key for key in dict.fromkeys((*flat[0], *flat[1])) if flat[0].get(key) != flat[1].get(key)]
    groups = [key for key in OF_RUN if one.summary[key] != other.summary[key]]
    inside = [key for key in keys if key.partition(".")[0] not in groups and key.split(".")[0] not in SOURCES and key not in question.rows]
    named = [*groups, *inside] or keys
    pairs = [f"{key}={listed([value(one, key), value(other, key)])}" for key in named]
    cell = " on ".join(filter(None, (" ".join(place[0]), " ".join(place[1]))))
    raise Unlike(f"two runs are {cell}: they differ in {'; '.join(pairs)}", named)


def refuse_unlike(runs: Sequence[Result], question: Question) -> None:
    """Refuse runs that differ in a key that the question does not name and that does not follow from those that it does."""
    refuse_other_content(runs)
    found = unlike(runs, {key for key in question.keys if len(question.where.get(key, (ANY, ANY))) > 1 or question.where[key] == (ANY,)})
    if found:
        text = "; ".join(f"{key}={listed(each)}" for key, each in found.items())
        raise Unlike(f"these {len(runs)} runs differ in what neither rows=, cols= nor where= names: {text}", found)


def listed(values: Iterable[Any]) -> str:
    """Different values, the first few of many."""
    texts = [short(said(value)) for value in dict.fromkeys(map(said, values))]
    return ", ".join(texts[:MOST_VALUES]) + (f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else "")


def refuse_other_content(runs: Sequence[Result]) -> None:
    """Refuse runs on the same dataset, split, network or scenario whose files had another content; methods may be of any file."""
    seen: dict[tuple[str, str], tuple[str, Result]] = {}  # by the dataset, for raw files, and the file: its sum, and the first run on it
    for run in runs:
        config = run.summary["config"]
        dataset = json.dumps(config.get("dataset"), sort_keys=True)
        modules = {(config.get(group) or {}).get("_target_", "").rpartition(".")[0] for group in ("dataset", "split", "model", "scenario")}
        sums = {(dataset, name): total for name, total in (config.get("data") or {}).items()}
        sums |= {("", name): total for name, total in (config.get("code") or {}).items() if name.partition(":")[0] in modules}
        for key, total in sums.items():
            known, other = seen.setdefault(key, (total, run))
            if known != total:
                older, newer = sorted([other, run], key=lambda each: each.summary["finished"])
                of_whom = f"{older.summary['algorithm']} ({older.folder}) than for {newer.summary['algorithm']} ({newer.folder})"
                raise UserError(
                    f"{key[1].rpartition(':')[2]} was another file for {of_whom}: such runs cannot be compared; make the older ones again"
                )


def unlike(runs: Sequence[Result], varied: set[str]) -> dict[str, list[Any]]:
    """The values of every key in which runs differ, apart from the varied ones and what follows from them.

    A varied group explains its keys between its choices, not among runs of one choice. A varied algorithm explains the scenario, which
    a method chooses, where each has one. A varied number of clients or budget explains rounds or trips, where the other one stays.
    """
    flat = [dict(leaves(run.summary["config"])) for run in runs]
    varied = varied | follows(runs, flat, varied)
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for config in flat for key in config):
        if key in varied or key in UNSCORED or key.partition(".")[0] in SOURCES:
            continue
        name = next((name for group, name in GROUPS.items() if key.startswith(f"{group}.")), None)
        choices = [value(run, name) if name else None for run in runs]
        among: dict[Any, list[Any]] = {}
        for choice, config in zip(choices, flat, strict=True):
            among.setdefault(choice if name in varied else None, []).append(config.get(key))
        differing = [each for values in among.values() if any(each != values[0] for each in values) for each in values]
        if differing:
            by_choice = name is not None and name not in varied and len(set(choices)) > 1
            found.setdefault(str(name) if by_choice else key, choices if by_choice else differing)
    return found


def follows(runs: Sequence[Result], flat: Sequence[Mapping[str, Any]], varied: set[str]) -> set[str]:
    """Keys that the varied ones decide."""
    found: set[str] = set()
    pairs = {(run.summary["algorithm"], run.summary["scenario"]) for run in runs}
    if "algorithm" in varied and len(pairs) == len({algorithm for algorithm, _ in pairs}):
        found.add("scenario")
    for one, other in (("rounds", "trips"), ("trips", "rounds")):
        given = [tuple(config.get(key) for key in (one, "num_clients", "participation")) for config in flat]
        both = {(*known, config.get(other)) for known, config in zip(given, flat, strict=True)}
        found |= {other} if one in varied and len(both) == len(set(given)) else set()
    if varied & set(BUDGET) and min(len({config.get(key) for config in flat}) for key in ("rounds", "trips")) == 1:
        found |= {"rounds", "trips"}
    return found


def differences(runs: Sequence[Result], swept: set[str]) -> list[str]:
    """What tells the runs of a sweep apart besides the swept keys, such as ``lr=0.1 (fedavg), 0.2 (fedprox)``.

    Devices, versions of packages and the commit come last, since a run of before may be among them.

    Args:
        swept: keys that the user gave several values, with dots for slashes (``algorithm``, ``scenario.sparsity``, ``model.hidden``).
    """
    if "experiment" in swept:
        return []
    summaries, names = [run.summary for run in runs], [run.summary["algorithm"] for run in runs]
    varied = {GROUPS.get(key, key) for key in swept}
    differing = {key: [value(run, key) for run in runs] for key in ("scenario" not in varied) * ["scenario"] + [*unlike(runs, varied)]}
    differing["device"] = ["CPU" if on_cpu(summary) else summary["device"] for summary in summaries]
    for package in dict.fromkeys(name for summary in summaries for name in summary.get("versions", {})):
        differing[f"version of {package}"] = [summary.get("versions", {}).get(package) for summary in summaries]
    differing["commit"] = [str((summary.get("code") or {}).get("commit"))[:12] for summary in summaries]
    return [with_owners(key, values, names) for key, values in differing.items() if any(value != values[0] for value in values)]


def with_owners(key: str, values: Sequence[Any], names: Sequence[str]) -> str:
    """``key=value (algorithms), value (algorithms)``."""
    owners: dict[str, list[str]] = {}
    for each, name in zip(values, names, strict=True):
        owners.setdefault(said(each), []).append(name)
    return f"{key}=" + ", ".join(f"{text} ({', '.join(dict.fromkeys(runs))})" for text, runs in owners.items())


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``(key, value)`` of every leaf, keys joined by dots."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
