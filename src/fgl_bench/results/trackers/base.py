"""Base of the trackers: one tracker run per seed, and the names of logged values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

# Renamed columns of history.csv; other names follow from prefix or suffix, see :func:`name_of`.
NAMES = {
    "round": "progress/round", "time": "progress/virtual_time", "train_loss": "train/loss", "seconds": "system/seconds",
    "memory_mb": "system/memory_mb",
}  # fmt: skip


@dataclass(frozen=True)
class SeedRun:
    """One seed of a run, logged as a separate tracker run.

    Attributes:
        group: the configuration hash, shared by the seeds.
        config: the resolved configuration.
    """

    seed: int
    group: str
    name: str
    config: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.group}-{self.seed}"


class Log:
    """The tracker run of one seed, returned by :meth:`Tracker.start`."""

    def point(self, trip: int, values: Mapping[str, float]) -> None:
        """Log the values of an evaluation point; they must be visible at once and survive this process."""

    def finish(self, scores: Mapping[str, float], table: Sequence[tuple[str, str, float]]) -> None:
        """Log the final scores of a complete run.

        Args:
            scores: scores at the selected points, by name.
            table: the same scores as (model, name, value).
        """

    def stop(self) -> None:
        """Mark the run as failed or interrupted."""


class Tracker:
    """Logs the curves of runs to an external service. A custom tracker implements :meth:`start`.

    Attributes:
        extra: the extra of this package that installs ``packages``.
        packages: required modules.
    """

    extra: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()

    def start(self, seed: SeedRun) -> Log:
        """Start the run of one seed, replacing an interrupted one; raises any error of the tracker."""
        raise NotImplementedError  # abstract


def values_of(row: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values of a row of ``history.csv`` by tracker name; ``val/received`` is column ``val_received``."""
    numbers = {name_of(column): value for column, value in row.items() if column not in ("seed", "trip")}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def name_of(column: str) -> str:
    """Return a name such as ``val/received`` or ``traffic/upload_bytes``; the part before the slash is a section in trackers."""
    for start in ("val", "test", "diverged", "staleness"):
        if column.startswith(f"{start}_"):
            return f"{start}/{column.removeprefix(f'{start}_')}"
    return NAMES.get(column) or (f"traffic/{column}" if column.endswith("_bytes") else f"cost/{column}")
