"""Finished runs as tables: a row for every run, seed and kind of model."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgl_bench.evaluation.summary import MODELS, over_seeds
from fgl_bench.results.console import table
from fgl_bench.results.selection import selected
from fgl_bench.results.store import run_folder

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
        """What the command line was given that made the run; None of a run of version 1.0, which does not say."""
        if "command" in self.summary:
            return tuple(shlex.split(self.summary["command"])[1:])
        return None if "overrides" not in self.summary else tuple(self.summary["overrides"])

    @property
    def results_dir(self) -> Path:
        """The ``results_dir`` that the run was made with, if it still lies where it was written; else the folder above the run's."""
        names, whole = self.summary, Path(os.path.abspath(self.folder))
        scenario, algorithm, digest = names["scenario"], names["algorithm"].rpartition(":")[2], names["config_hash"]
        inside = run_folder(Path(), names["dataset"], names["split"], names["num_clients"], scenario, algorithm, digest)
        depth = len(inside.parts)
        if whole.parts[-depth:] != inside.parts:
            return self.folder.parent
        return self.folder.parents[depth - 1] if len(self.folder.parts) >= depth else whole.parents[depth - 1]

    def scores(self) -> DataFrame:
        """A row for every seed and kind of model (``received`` from the server, ``trained`` by the client).

        ``score`` is the test score at the point ``trip`` with the best validation score of the whole federation; both are missing
        if the seed diverged before. ``macro_score`` is the unweighted mean over clients at this point, ``client_score`` and
        ``client_macro_score`` are the means where every client is at its own best validation point (missing in older runs).
        ``last_score`` is the test score at the end. Scores are in [0, 1].
        """
        import pandas as pd

        summary, rows = self.summary, []
        for model in MODELS:
            test, absent = summary["test"][model], [None] * len(summary["seeds"])  # in older cells
            last = test.get("last", {}).get("per_seed", absent)
            columns = (summary["seeds"], test["per_seed"], test.get("selected_trips", absent), last)
            for seed, score, trip, last in zip(*columns, strict=True):
                rows.append({"seed": seed, "evaluated": model, "score": score, "trip": trip, "last_score": last})
            for name, choice in OTHERWISE.items():
                each = selected(test, *choice)
                for number, row in enumerate(rows[-len(summary["seeds"]) :]):
                    row[name] = each["per_seed"][number] if each else None
        found = pd.DataFrame(rows).astype({"score": float, "last_score": float, "trip": "Int64", **dict.fromkeys(OTHERWISE, float)})
        for position, name in enumerate(OF_RUN):
            found.insert(position, name, summary[name])
        return found.assign(
            client_trips=summary["client_trips"]["total"],
            upload_bytes=summary["bytes"]["upload"],
            download_bytes=summary["bytes"]["download"],
            seconds=summary["seconds"]["total"],
            config_hash=summary["config_hash"],
            folder=str(self.folder),
        )

    def curve(self) -> DataFrame:
        """``history.csv``: a row for every seed and evaluation point, with scores, training loss and bytes."""
        import pandas as pd

        return pd.read_csv(self.folder / "history.csv")

    def clients(self) -> DataFrame:
        """A row for every seed, client and kind of model: the test score at the selected point, missing where a client has no test node."""
        import pandas as pd

        rows = [
            {"seed": seed, "client": client, "evaluated": model, "score": score}
            for model in MODELS
            for seed, scores in zip(self.summary["seeds"], self.summary["test"][model]["per_client"], strict=True)
            for client, score in enumerate(scores)
        ]
        return pd.DataFrame(rows).astype({"score": float})


def trips_to(run: Result, target: float) -> dict[str, dict[str, Any]]:
    """Client trips to a validation score, from ``history.csv``: as ``client_trips.to_target`` in ``summary.json``.

    Models that were not scored at every point are left out.
    """
    curve, summary = run.curve(), run.summary
    late = curve[curve["round"] > summary.get("warmup_rounds", -1)]
    found = {}
    for model in MODELS:
        if (curve[f"val_{model}"].isna() & (curve.get(f"diverged_{model}", 0) == 0)).any():
            continue
        first = late[late[f"val_{model}"] >= target].groupby("seed")["trip"].min()
        counts = [int(first[seed]) if seed in first.index else None for seed in summary["seeds"]]
        found[model] = over_seeds(counts, summary["config"]["trips"])
    return found


def value_of(config: Any, key: str) -> Any:
    """The value of ``algorithm.mu`` in nested mappings; None where there is none."""
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config
