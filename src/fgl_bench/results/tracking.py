"""Tells a tracker of a run: every evaluation point while it trains, and its scores when it is complete.

A tracker is told what ``history.csv`` and ``summary.json`` have. If it fails, the run goes on, with a warning, and the same command
tells it later from the run directory what is missing.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fgl_bench.errors import UserError
from fgl_bench.results.trackers.base import Log, SeedRun, values_of
from fgl_bench.results.trackers.none import NoTracker
from fgl_bench.utils.masking import without_secrets

MARKER = ".tracked"
LATER = "the run goes on, and the same command tells it later"


def check_installed(tracker: Any) -> None:
    """Raise UserError where a package is missing that the tracker needs."""
    for package in getattr(tracker, "packages", ()):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"tracker={name_of(tracker)} needs {package}, which is not installed: pip install 'fgl-bench[{tracker.extra}]'")


def name_of(tracker: Any) -> str:
    return type(tracker).__name__.lower()


class Tracking(AbstractContextManager):
    """A run while a tracker is told of it.

    Args:
        digest: the hash of the configuration.
        names: what the method and the dataset are called.
    """

    def __init__(self, tracker: Any, digest: str, names: Mapping[str, str], config: Mapping[str, Any], seeds: Sequence[int]):
        self.tracker, self.live = tracker, not isinstance(tracker, NoTracker)
        title = f"{names['algorithm']}-{names['dataset']}"
        self.seeds = [SeedRun(seed, digest, f"{title}-seed{seed}", config) for seed in seeds]
        self.logs: dict[int, Log] = {}
        self.told: dict[int, int] = {}  # the last trip by seed

    def __enter__(self) -> Tracking:
        if self.live:
            self._try(lambda: self.logs.update({seed.seed: self.tracker.start(seed) for seed in self.seeds}))
        return self

    def point(self, row: Mapping[str, Any]) -> None:
        """Tell an evaluation point, a row of ``history.csv``; one that was told before is passed over (memory ran out, a new beginning)."""
        seed, trip = row["seed"], row["trip"]
        if self.live and trip > self.told.get(seed, -1):
            self.told[seed] = trip
            self._try(lambda: self.logs[seed].point(trip, values_of(row)))

    def finish(self, folder: Path) -> None:
        """Tell the rest of the complete run in ``folder``."""
        if self.live and self._try(lambda: tell(folder, self.logs, self.told), f"the run is complete in {folder}"):
            self.live = False
            mark(folder, self.tracker)

    def __exit__(self, *_: object) -> None:
        if self.live:  # not finished
            for log in self.logs.values():
                self._try(log.stop, "")
            self.live = False

    def _try(self, call: Callable[[], Any], then: str = LATER) -> bool:
        """Whether ``call`` succeeded; else warn (unless ``then`` is empty), and tell no more."""
        try:
            call()
        except (Exception, SystemExit) as error:  # a tracker's trouble (network, quota, credentials) is not the run's
            self.live = False
            if then:
                warn(error, self.tracker, then)
            return False
        return True


def publish(tracker: Any, folder: Path) -> None:
    """Tell ``tracker`` of the complete run in ``folder``, unless it was told; on any failure warn on stderr and go on."""
    if isinstance(tracker, NoTracker) or marker(folder, tracker).exists():
        return
    try:
        logs = {seed.seed: tracker.start(seed) for seed in seed_runs(folder)}
        tell(folder, logs, {})
        mark(folder, tracker)
    except (Exception, SystemExit) as error:
        warn(error, tracker, f"the run is complete in {folder}")


def tell(folder: Path, logs: Mapping[int, Log], told: Mapping[int, int]) -> None:
    """Tell what ``history.csv`` and ``summary.json`` have and the logs have not, and finish them.

    Args:
        told: by seed the trip up to which all was told but bytes and costs.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for seed, rows in sorted(rows_by_seed(folder / "history.csv").items()):
        for row in rows:
            values = values_of(row)
            if row["trip"] <= told.get(seed, -1):
                values = {name: value for name, value in values.items() if name.startswith(("traffic/", "cost/"))}
            logs[seed].point(int(row["trip"]), values)
        table = seed_table(summary, seed)
        logs[seed].finish({f"selected/{name}/{model}": value for model, name, value in table}, table)


def marker(folder: Path, tracker: Any) -> Path:
    return folder / f"{MARKER}_{name_of(tracker)}"


def mark(folder: Path, tracker: Any) -> None:
    """Note that the run was told."""
    marker(folder, tracker).touch()


def seed_runs(folder: Path) -> Iterator[SeedRun]:
    """The seeds of a complete run."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    config: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))  # type: ignore[assignment]
    for seed in sorted(summary["seeds"]):
        yield SeedRun(seed, str(summary["config_hash"]), f"{summary['algorithm']}-{summary['dataset']}-seed{seed}", config)


def rows_by_seed(path: Path) -> dict[int, list[dict[str, float]]]:
    """The rows of ``history.csv`` of each seed, in order, numbers only (an empty cell is left out)."""
    found: dict[int, list[dict[str, float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {key: number for key, text in row.items() if key != "seed" and (number := to_number(text)) is not None}
            found.setdefault(int(row["seed"]), []).append(numbers)
    return found


def to_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def seed_table(summary: dict[str, Any], seed: int) -> list[tuple[str, str, float]]:
    """(model, name, value) of one seed: test scores selected and last, the trip of the selection, trips to each target reached."""
    position, table = summary["seeds"].index(seed), []
    for model, stats in summary["test"].items():
        values = {"test": stats["per_seed"], "last_test": stats.get("last", {}).get("per_seed"), "trip": stats.get("selected_trips")}
        targets = summary.get("client_trips", {}).get("to_target", {})
        values |= {f"trips_to_{target}": by_model[model]["per_seed"] for target, by_model in targets.items() if model in by_model}
        table += [(model, name, float(v[position])) for name, v in values.items() if v is not None and v[position] is not None]
    return table


def warn(error: BaseException, tracker: Any, then: str) -> None:
    problem = " ".join(without_secrets(f"{type(error).__name__}: {error}", tracker).split())[:300]
    print(f"warning: the tracker failed ({problem}); {then}", file=sys.stderr)
