"""Selects the runs that a question asks for and rejects runs that cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.results.frame import CLIENT, OF_RUN, Result, by_client, value_of
from fgl_bench.results.provenance import on_cpu
from fgl_bench.results.question import ANY, Question, as_text, is_number, matches, short
from fgl_bench.results.scored import DEFAULT_TASK

Values = tuple[str, ...]
GROUPS = {
    "algorithm": "algorithm",
    "task": "task",
    "dataset": "dataset",
    "split": "split",
    "model": "model",
    "optimizer": "optimizer",
    "lr_schedule": "lr_schedule",
    "scenario.sparsity": "sparsity",
    "scenario.noise": "noise",
    "scenario.attack": "attack",
    "aggregator": "aggregator",
    "privacy": "privacy",
    "scenario": "scenario",
}
"""Groups of the configuration and the keys of ``summary.json`` with their choices, inner groups first."""
BEFORE = {
    "optimizer": "adam", "task": DEFAULT_TASK, "lr_schedule": "constant", "noise": "none", "attack": "none", "aggregator": "mean",
    "privacy": "none",
}  # fmt: skip
"""Default choice of a group in summaries without its key."""
BUDGET = ("rounds", "trips", "num_clients", "participation")
"""Keys that determine each other."""
SOURCES = ("code", "data")  # checksums of user files, and corrections
MOST_VALUES = 4  # listed per differing key
UNSCORED = ("targets", "mixing_at", "metrics")  # keys that change no score


class Unlike(UserError):
    """Raised for runs that a question does not distinguish; they differ in ``keys``."""

    def __init__(self, message: str, keys: Iterable[str]):
        super().__init__(message)
        self.keys = tuple(keys)


@dataclass(frozen=True)
class Chosen:
    """Runs by the values of rows and columns.

    Attributes:
        rows, columns: values, in order.
        runs: by (row, column).
        superseded: number of runs left out because a user's class or file was edited later, a class was corrected, or a key was added.
    """

    question: Question
    rows: tuple[Values, ...]
    columns: tuple[Values, ...]
    runs: Mapping[tuple[Values, Values], Result]
    superseded: int = 0


def value(run: Result, key: str) -> Any:
    """Return the run's choice of a group, or the value of a configuration key."""
    if key == CLIENT:
        return run.summary.get(key)
    if key in BEFORE:
        return run.summary.get(key, BEFORE[key])
    return run.summary[key] if key in OF_RUN else value_of(run.summary["config"], key)


def choose(runs: Sequence[Result], question: Question) -> Chosen:
    """Return the runs that a question asks for, by row and column.

    Raises:
        UserError: a key is unknown, or no run matches.
        Unlike: runs differ in a key that the question does not name.
    """
    if CLIENT in question.keys:
        runs = [each for run in runs for each in by_client(run)]
    check_keys(runs, question)
    left = met_by(runs, question.where)
    current = latest(left)
    cells: dict[tuple[Values, Values], Result] = {}
    refuse_tasks(current)
    for run in current:
        cell = (values(run, question.rows), values(run, question.cols))
        if cell in cells:
            refuse_two(cells[cell], run, question, cell)
        cells[cell] = run
    refuse_unlike(current, question)
    rows, columns = (in_order(cell[side] for cell in cells) for side in (0, 1))
    return Chosen(question, rows, columns, cells, len(left) - len(current))


def met_by(runs: Sequence[Result], where: Mapping[str, Sequence[str]]) -> list[Result]:
    """Return the runs that have the allowed values; raises UserError for a value that no run has."""
    left = list(runs)
    for key, allowed in where.items():
        matching = [run for run in left if any(matches(value(run, key), text) for text in allowed)]
        absent = [text for text in allowed if text != ANY and not any(matches(value(run, key), text) for run in left)]
        if absent:
            present = sorted({as_text(value(run, key)) for run in left})
            raise UserError(f"where={key}={short(absent[0])}: no run has it; there are {short(', '.join(present))}")
        left = matching
    return left


def check_keys(runs: Sequence[Result], question: Question) -> None:
    """Refuse keys that no run has."""
    known = {key for run in runs for key, _ in leaves(run.summary["config"])} | {*OF_RUN, *BEFORE, CLIENT}
    for name, keys in (("rows", question.rows), ("cols", question.cols), ("where", question.where)):
        for key in keys:
            if key not in known:
                raise UserError(f"{name}={short(key)}: no run has this key{near(key, known)}")


def near(key: str, known: Iterable[str]) -> str:
    """Suggest the closest key, or name the groups; a configuration has too many keys to list."""
    hint = suggest(key, known).partition(";")[2].partition("allowed:")[0].strip(" ;")
    return f"; {hint}" if hint else f"; allowed: {', '.join(OF_RUN)} and keys of the configuration, such as lr or algorithm.mu"


def values(run: Result, keys: Sequence[str]) -> Values:
    return tuple(as_text(value(run, key)) for key in keys)


def in_order(distinct: Iterable[Values]) -> tuple[Values, ...]:
    """Return the distinct values in order: numbers by size, then strings."""

    def key(one: Values) -> list[tuple[bool, float, str]]:
        return [(False, float(text), "") if is_number(text) else (True, 0.0, text.replace("_", "")) for text in one]

    return tuple(sorted(set(distinct), key=key))


def latest(runs: Sequence[Result]) -> list[Result]:
    """Keep the latest of runs that differ only in the source of a user's class, a correction or the content of a raw file.

    A key that is null counts as absent: an older version may not have had it.
    """
    newest: dict[str, Result] = {}
    for run in runs:
        config = {key: leaf for key, leaf in leaves(run.summary["config"]) if leaf is not None and key.split(".")[0] not in SOURCES}
        what = json.dumps([config, run.summary.get(CLIENT)], sort_keys=True)
        if what not in newest or newest[what].summary["finished"] <= run.summary["finished"]:
            newest[what] = run
    return [run for run in runs if any(run is newest_run for newest_run in newest.values())]


def refuse_tasks(runs: Sequence[Result]) -> None:
    """Raise :class:`Unlike` for runs of several tasks: their scores are not of the same things."""
    tasks = sorted({str(value(run, "task")) for run in runs})
    if len(tasks) > 1:
        raise Unlike(f"these {len(runs)} runs are of task={', '.join(tasks)}; a table has one task: write where=task={tasks[0]}", ["task"])


def refuse_two(one: Result, other: Result, question: Question, position: tuple[Values, Values]) -> None:
    """Raise :class:`Unlike` for two runs in one cell, naming every key that distinguishes them."""
    configs = [one.summary["config"], other.summary["config"]]
    flat = [dict(leaves(config)) for config in configs]
    keys = [key for key in dict.fromkeys((*flat[0], *flat[1])) if flat[0].get(key) != flat[1].get(key)]
    groups = [key for key in OF_RUN if one.summary[key] != other.summary[key]]
    inside = [key for key in keys if key.partition(".")[0] not in groups and key.split(".")[0] not in SOURCES and key not in question.rows]
    named = [*groups, *inside] or keys
    pairs = [f"{key}={listed([value(one, key), value(other, key)])}" for key in named]
    cell = " on ".join(filter(None, (" ".join(position[0]), " ".join(position[1]))))
    raise Unlike(f"two runs are {cell}: they differ in {'; '.join(pairs)}", named)


def refuse_unlike(runs: Sequence[Result], question: Question) -> None:
    """Raise :class:`Unlike` for runs that differ in a key that the question neither names nor determines."""
    refuse_other_content(runs)
    differing = unlike(
        runs, {key for key in question.keys if len(question.where.get(key, (ANY, ANY))) > 1 or question.where[key] == (ANY,)}
    )
    if differing:
        text = "; ".join(f"{key}={listed(each)}" for key, each in differing.items())
        raise Unlike(f"these {len(runs)} runs differ in what neither rows=, cols= nor where= names: {text}", differing)


def listed(values: Iterable[Any]) -> str:
    """Join the distinct values; a long list is cut."""
    texts = [short(as_text(value)) for value in dict.fromkeys(map(as_text, values))]
    return ", ".join(texts[:MOST_VALUES]) + (f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else "")


def refuse_other_content(runs: Sequence[Result]) -> None:
    """Raise UserError if a file of the dataset, split, network or scenario had different contents. Method files may differ."""
    seen: dict[tuple[str, str], tuple[str, Result]] = {}  # (dataset or "", file) to its checksum and its first run
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
                runs_text = f"{older.summary['algorithm']} ({older.folder}) than for {newer.summary['algorithm']} ({newer.folder})"
                raise UserError(
                    f"{key[1].rpartition(':')[2]} was another file for {runs_text}: such runs cannot be compared; make the older ones again"
                )


def unlike(runs: Sequence[Result], varied: set[str]) -> dict[str, list[Any]]:
    """Return the values of every differing key, except the varied keys and those that they determine.

    A varied group explains differences of its keys between its choices, not within one choice. A varied algorithm explains the scenario if
    each method has one scenario. A varied number of clients or budget explains rounds or trips if the other of the two is constant.
    """
    flat = [dict(leaves(run.summary["config"])) for run in runs]
    varied = varied | follows(runs, flat, varied)
    values_of: dict[str, list[Any]] = {}
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
            values_of.setdefault(str(name) if by_choice else key, choices if by_choice else differing)
    return values_of


def follows(runs: Sequence[Result], flat: Sequence[Mapping[str, Any]], varied: set[str]) -> set[str]:
    """Return the keys that the varied keys determine."""
    following: set[str] = set()
    pairs = {(run.summary["algorithm"], run.summary["scenario"]) for run in runs}
    if "algorithm" in varied and len(pairs) == len({algorithm for algorithm, _ in pairs}):
        following.add("scenario")
    for one, other in (("rounds", "trips"), ("trips", "rounds")):
        given = [tuple(config.get(key) for key in (one, "num_clients", "participation")) for config in flat]
        both = {(*known, config.get(other)) for known, config in zip(given, flat, strict=True)}
        following |= {other} if one in varied and len(both) == len(set(given)) else set()
    if varied & set(BUDGET) and min(len({config.get(key) for config in flat}) for key in ("rounds", "trips")) == 1:
        following |= {"rounds", "trips"}
    return following


def differences(runs: Sequence[Result], swept: set[str]) -> list[str]:
    """Find unintended differences between the runs of a sweep, such as ``lr=0.1 (fedavg), 0.2 (fedprox)``.

    Devices, package versions and the commit come last, since earlier runs may be included.

    Args:
        swept: keys with several values, with dots instead of slashes (``algorithm``, ``scenario.sparsity``, ``model.hidden``).
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
        owners.setdefault(as_text(each), []).append(name)
    return f"{key}=" + ", ".join(f"{text} ({', '.join(dict.fromkeys(runs))})" for text, runs in owners.items())


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(key, value)`` of every leaf, keys joined by dots."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
