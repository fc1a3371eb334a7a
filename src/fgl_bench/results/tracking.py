"""Logs a run to a tracker: every evaluation point while it trains, and its scores when it is complete.

A tracker gets what ``history.csv`` and ``summary.json`` have. If it fails, the run continues, with a warning, and the same command
logs later from the run directory what is missing.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fgl_bench.errors import UserError
from fgl_bench.results.callbacks import Callback, Callbacks, Report
from fgl_bench.results.scored import of_task
from fgl_bench.results.trackers.base import Log, SeedRun, values_of
from fgl_bench.results.trackers.none import NoTracker
from fgl_bench.utils.masking import without_secrets


def check_installed(tracker: Any) -> None:
    """Raise UserError where a package is missing that the tracker needs."""
    for package in getattr(tracker, "packages", ()):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"tracker={name_of(tracker)} needs {package}, which is not installed: pip install 'fgl-bench[{tracker.extra}]'")


def name_of(tracker: Any) -> str:
    return type(tracker).__name__.lower()


class TrackerCallback(Callback):
    """Logs a run to a tracker.

    Args:
        digest: the hash of the configuration.
        names: what the method, the dataset and the task are called.
        later: what a warning of the tracker's failure says besides.
    """

    pause = 0.05
    reads_points = True

    def __init__(
        self,
        tracker: Any,
        digest: str,
        names: Mapping[str, str],
        config: Mapping[str, Any],
        seeds: Sequence[int],
        later: str = "the run continues, and the same command logs it later",
    ):
        self.tracker, self.live, self.later = tracker, True, later
        title = "-".join([names["algorithm"], names["dataset"], *([names["task"]] if of_task(names) else [])])
        self.seeds = [SeedRun(seed, digest, f"{title}-seed{seed}", config) for seed in seeds]
        self.logs: dict[int, Log] = {}
        self.logged: dict[int, float] = {}  # the last trip by seed

    def run_begin(self) -> None:
        with self.warning():
            self.logs.update({seed.seed: self.tracker.start(seed) for seed in self.seeds})

    def report(self, report: Report) -> None:
        for row in report.points:
            self.point(row)

    def point(self, row: Mapping[str, Any]) -> None:
        """Log an evaluation point, a row of ``history.csv``, unless it was logged before an attempt that ran out of memory."""
        seed, trip = row["seed"], row["trip"]
        if self.live and trip > self.logged.get(seed, -1):
            self.logged[seed] = trip
            with self.warning():
                self.logs[seed].point(trip, values_of(row))

    def run_end(self, folder: Path) -> None:
        """Log what ``history.csv`` and ``summary.json`` of the complete run in ``folder`` have and the tracker has not."""
        if not self.live:
            return
        self.later = f"the run is complete in {folder}"
        with self.warning():
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            for seed, rows in rows_by_seed(folder / "history.csv").items():
                for row in rows:
                    known = row["trip"] <= self.logged.get(seed, -1)  # but bytes and costs
                    values = values_of(row).items()
                    self.logs[seed].point(
                        int(row["trip"]), {name: value for name, value in values if not known or name.startswith(("traffic/", "cost/"))}
                    )
                table = seed_table(summary, seed)
                self.logs[seed].finish({f"selected/{name}/{model}": value for model, name, value in table}, table)
            marker(folder, self.tracker).touch()
            self.live = False

    def close(self) -> None:
        if self.live:  # not finished
            self.later = ""
            for log in self.logs.values():
                with self.warning():
                    log.stop()
            self.live = False

    @contextmanager
    def warning(self) -> Iterator[None]:
        """Warn of a tracker's failure (network, quota, credentials) on stderr, and log no more."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.live = False
            if self.later:
                problem = " ".join(without_secrets(f"{type(error).__name__}: {error}", self.tracker).split())[:300]
                print(f"warning: the tracker failed ({problem}); {self.later}", file=sys.stderr)


def tracker_of(folder: Path, tracker: Any) -> TrackerCallback:
    """The callback of the complete run in ``folder``, to log it later."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    return TrackerCallback(tracker, summary["config_hash"], summary, config, sorted(summary["seeds"]), f"the run is complete in {folder}")


def publish(tracker: Any, folder: Path) -> None:
    """Log the complete run in ``folder``, unless it was logged; a failure is a warning."""
    if not isinstance(tracker, NoTracker) and not marker(folder, tracker).exists():
        with Callbacks([tracker_of(folder, tracker)]) as callbacks:
            callbacks.run_end(folder)


def marker(folder: Path, tracker: Any) -> Path:
    """The file that says that the run in ``folder`` was logged."""
    return folder / f".tracked_{name_of(tracker)}"


def rows_by_seed(path: Path) -> dict[int, list[dict[str, float]]]:
    """The rows of ``history.csv`` of each seed, in order, numbers only (an empty cell is left out)."""
    import pandas as pd

    table = pd.read_csv(path).select_dtypes("number")
    by_seed = {int(seed): table[table["seed"] == seed].drop(columns="seed").iterrows() for seed in table["seed"].unique()}
    return {seed: [row.dropna().to_dict() for _, row in rows] for seed, rows in by_seed.items()}


def seed_table(summary: dict[str, Any], seed: int) -> list[tuple[str, str, float]]:
    """(model, name, value) of one seed: test scores selected and last, the trip of the selection, trips to each target reached."""
    position, table = summary["seeds"].index(seed), []
    for model, stats in summary["test"].items():
        values = {"test": stats["per_seed"], "last_test": stats.get("last", {}).get("per_seed"), "trip": stats.get("selected_trips")}
        targets = summary.get("client_trips", {}).get("to_target", {})
        values |= {f"trips_to_{target}": by_model[model]["per_seed"] for target, by_model in targets.items() if model in by_model}
        table += [(model, name, float(v[position])) for name, v in values.items() if v is not None and v[position] is not None]
    return table
