"""Finished runs as data frames: one row per run, seed and kind of model."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgl_bench.errors import UserError, printable
from fgl_bench.evaluation.summary import MODELS, over_seeds
from fgl_bench.results.cells import NAME, read_cells
from fgl_bench.results.console import table
from fgl_bench.results.question import short
from fgl_bench.results.scored import selected
from fgl_bench.results.store import Untrusted, read_summary, run_folder

if TYPE_CHECKING:
    from pandas import DataFrame

OTHERWISE = {
    "macro_score": ("federation", "macro"), "client_score": ("client", "weighted"), "client_macro_score": ("client", "macro"),
}  # fmt: skip
OF_RUN = ("dataset", "split", "num_clients", "sparsity", "scenario", "algorithm", "model", "metric")


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        folder: the run's folder.
        summary: ``summary.json``.
    """

    folder: Path
    summary: dict[str, Any]

    def __repr__(self) -> str:
        return f"Result(folder={str(self.folder)!r})"

    def __str__(self) -> str:
        return table(self.summary)

    @property
    def overrides(self) -> tuple[str, ...] | None:
        """The command-line overrides of the run; None for version 1.0, which did not store them."""
        if "command" in self.summary:
            return tuple(shlex.split(self.summary["command"])[1:])
        return None if "overrides" not in self.summary else tuple(self.summary["overrides"])

    @property
    def results_dir(self) -> Path:
        """The run's ``results_dir`` if the run is still in it, else the parent of the run's folder."""
        names, whole = self.summary, Path(os.path.abspath(self.folder))
        scenario, algorithm, digest = names["scenario"], names["algorithm"].rpartition(":")[2], names["config_hash"]
        inside = run_folder(Path(), names["dataset"], names["split"], names["num_clients"], scenario, algorithm, digest)
        depth = len(inside.parts)
        if whole.parts[-depth:] != inside.parts:
            return self.folder.parent
        return self.folder.parents[depth - 1] if len(self.folder.parts) >= depth else whole.parents[depth - 1]

    def scores(self) -> DataFrame:
        """One row per seed and kind of model (``received`` from the server, ``trained`` by the client).

        ``score`` is the test score at the point ``trip`` with the best validation score of the whole federation. Both are missing if
        the seed diverged before. ``macro_score`` is the unweighted mean over clients at this point. ``client_score`` and
        ``client_macro_score`` are the means with every client at its own best validation point (missing in older runs).
        ``last_score`` is the test score at the end. Scores are in [0, 1]. Every metric of ``metrics=`` has a column of its name.
        """
        import pandas as pd

        summary, rows = self.summary, []
        for model in MODELS:
            test, absent = summary["test"][model], [None] * len(summary["seeds"])  # missing in older cells
            last = test.get("last", {}).get("per_seed", absent)
            columns = (summary["seeds"], test["per_seed"], test.get("selected_trips", absent), last)
            for seed, score, trip, last in zip(*columns, strict=True):
                rows.append({"seed": seed, "evaluated": model, "score": score, "trip": trip, "last_score": last})
            for name, by_model in summary.get("metrics", {}).items():
                for row, score in zip(rows[-len(summary["seeds"]) :], by_model[model]["per_seed"], strict=True):
                    row[name] = score
            for name, choice in OTHERWISE.items():
                each = selected(test, *choice)
                for number, row in enumerate(rows[-len(summary["seeds"]) :]):
                    row[name] = each["per_seed"][number] if each else None
        table = pd.DataFrame(rows).astype({"score": float, "last_score": float, "trip": "Int64", **dict.fromkeys(OTHERWISE, float)})
        for position, name in enumerate(OF_RUN):
            table.insert(position, name, summary[name])
        costs = {"client_trips": summary["client_trips"]["total"]}
        costs |= {f"{name}_bytes": summary["bytes"][name] for name in ("upload", "download")}
        if "rounds_trained" in summary and (self.folder / "history.csv").is_file():  # seeds ended at different points
            last = self.curve().groupby("seed").last().rename(columns={"trip": "client_trips"})
            costs = {name: table["seed"].map(last[name]) for name in costs}
        other = {"seconds": summary["seconds"]["total"], "config_hash": summary["config_hash"], "folder": str(self.folder)}
        return table.assign(**costs, **other)

    def curve(self) -> DataFrame:
        """``history.csv``: one row per seed and evaluation point, with scores, training loss and bytes."""
        import pandas as pd

        return pd.read_csv(self.folder / "history.csv")

    def clients(self) -> DataFrame:
        """One row per seed, client and kind of model: the test score at the selected point, missing if a client has no test node."""
        import pandas as pd

        rows = [
            {"seed": seed, "client": client, "evaluated": model, "score": score}
            for model in MODELS
            for seed, scores in zip(self.summary["seeds"], self.summary["test"][model]["per_client"], strict=True)
            for client, score in enumerate(scores)
        ]
        return pd.DataFrame(rows).astype({"score": float})


def trips_to(run: Result, target: float) -> dict[str, dict[str, Any]]:
    """Return client trips to a validation score from ``history.csv``, as ``client_trips.to_target`` in ``summary.json``.

    Models that were not scored at every point are left out.
    """
    counts = cost_to(run, target, "trip")
    return {
        model: over_seeds([None if n is None else int(n) for n in each], run.summary["config"]["trips"]) for model, each in counts.items()
    }


def cost_to(run: Result, target: float, cost: str) -> dict[str, list[float | None]]:
    """Return the ``cost`` of every seed at its first evaluation point with a validation score of ``target``; None if it has no such point.

    Models that were not scored at every point are left out.

    Args:
        cost: a column of ``history.csv`` that never decreases, or ``bytes``, up and down.
    """
    curve = run.curve().assign(bytes=lambda table: table["upload_bytes"] + table["download_bytes"])
    late = curve[curve["round"] > run.summary.get("warmup_rounds", -1)]
    by_model = {}
    for model in MODELS:
        if not (curve[f"val_{model}"].isna() & (curve.get(f"diverged_{model}", 0) == 0)).any():
            first = late[late[f"val_{model}"] >= target].groupby("seed")[cost].min()
            by_model[model] = [float(first[seed]) if seed in first.index else None for seed in run.summary["seeds"]]
    return by_model


CLIENT = "client"
"""A key of rows and columns of which a run has all its clients as values."""


def by_client(run: Result) -> list[Result]:
    """Return the run once per client, with that client's scores alone.

    Raises:
        UserError: the stored result has no scores of clients.
    """
    test = run.summary["test"]
    if any("per_client" not in test[model] for model in MODELS):
        raise UserError(f"{run.folder}: the stored result of {run.summary['algorithm']} has no scores of clients; give a folder of runs")
    own = [
        {model: {"per_seed": [seed[client] for seed in test[model]["per_client"]]} for model in MODELS}
        for client in range(run.summary["num_clients"])
    ]
    return [replace(run, summary={**run.summary, "test": scores, CLIENT: client}) for client, scores in enumerate(own)]


def value_of(config: Any, key: str) -> Any:
    """Return the value at a dotted key such as ``algorithm.mu`` in nested mappings; None if it is absent."""
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def read_runs(folder: str | Path) -> list[Result]:
    """Return the complete runs below a folder, or its stored cells (``results/cells``) if it has no runs.

    Damaged runs and runs of other versions are left out with a warning on stderr.

    Raises:
        UserError: the folder does not exist or has no runs.
    """
    where = folder_of(folder)
    runs = complete_runs(where) or stored_cells(where)
    if not runs:
        raise UserError(f"{where}: there is no complete run in it")
    return runs


def only_run(folder: str | Path) -> Result:
    """Return the one complete run below a folder; raises UserError if there is none, or several."""
    runs = complete_runs(folder_of(folder))
    if len(runs) != 1:
        raise UserError(f"{folder}: has {len(runs)} complete runs; give the folder of one run")
    return runs[0]


def load_results(folder: str | Path, keys: Sequence[str] = ()) -> DataFrame:
    """Return :meth:`Result.scores` of all complete runs below ``folder``, or of its stored cells (``results/cells``) if it has no runs.

    Damaged runs and runs of other versions are left out with a warning on stderr.

    Args:
        keys: configuration keys to add as columns, such as ``lr`` or ``algorithm.mu``; missing if a run has no such key.

    Raises:
        UserError: the folder does not exist.
    """
    import pandas as pd

    where, tables = folder_of(folder), []
    for run in complete_runs(where) or stored_cells(where):
        scores = run.scores()
        tables.append(scores.assign(**{key: [value_of(run.summary["config"], key)] * len(scores) for key in keys}))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*OF_RUN, "seed", "evaluated", "score", *keys])


def stored_cells(where: Path) -> list[Result]:
    """Return the stored cells below a folder; folders of runs have none."""
    cells = [Result(path.parent, cell) for path in sorted(where.rglob(NAME)) for cell in read_cells(path.parent)]
    return list({cell.summary["config_hash"]: cell for cell in cells}.values())


def folder_of(text: str | Path) -> Path:
    """Return the path of a folder; raises UserError if it does not exist."""
    where = Path(os.path.expanduser(text))
    if "\0" in str(text) or not where.is_dir():
        raise UserError(f"{short(str(text))}: there is no such folder; give the one that results_dir= named (by default results/runs)")
    return where


def complete_runs(where: Path) -> list[Result]:
    """Return the complete runs below a folder; others are left out with a warning on stderr."""
    complete = []
    for path in sorted(where.rglob("summary.json")):
        if any(part.startswith(".") for part in path.relative_to(where).parts):  # an unfinished run
            continue
        try:
            summary = read_summary(path.parent)
        except Untrusted as reason:
            print(printable(f"warning: {path.parent} is left out: {reason}"), file=sys.stderr)
            continue
        if summary is not None and isinstance(summary.get("config"), dict):
            complete.append(Result(path.parent, summary))
    if len({run.summary["schema_version"] for run in complete}) > 1:
        print(f"note: some of these runs are of version 1.0; to compare them: python -m fgl_bench.results.migrate {where}", file=sys.stderr)
    return with_unique_names(complete)


def with_unique_names(runs: Sequence[Result]) -> list[Result]:
    """Prefix method names that occur in several files with the file, such as ``a.py:mine`` and ``b.py:mine``."""
    modules = [str(value_of(run.summary["config"], "algorithm._target_")).rpartition(".")[0] for run in runs]
    of_name: dict[str, set[str]] = {}
    for run, module in zip(runs, modules, strict=True):
        of_name.setdefault(run.summary["algorithm"], set()).add(module)

    def called(name: str, module: str) -> str:
        return name if len(of_name[name]) < 2 or module.startswith("fgl_bench.") else f"{module.replace('.', '/')}.py:{name}"

    changed = zip(runs, modules, strict=True)
    return [replace(run, summary={**run.summary, "algorithm": called(run.summary["algorithm"], module)}) for run, module in changed]
