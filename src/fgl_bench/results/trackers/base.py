"""What the trackers have in common: a run for each seed, the values of an evaluation point, and the names under which they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

# Columns of history.csv that are called something else; the others by the beginning or the end of their names, see :func:`name_of`.
NAMES = {
    "round": "progress/round", "time": "progress/virtual_time", "train_loss": "train/loss", "seconds": "system/seconds",
    "memory_mb": "system/memory_mb",
}  # fmt: skip


@dataclass(frozen=True)
class SeedRun:
    """One seed of a run, which trackers keep as a run of its own (a mean would hide the seeds).

    Attributes:
        group: the hash of the configuration, common to the seeds.
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
    """The run of one seed in a tracker, from :meth:`Tracker.start` on."""

    def point(self, trip: int, values: Mapping[str, float]) -> None:
        """Keep the values of an evaluation point, where a reader sees them at once and where they outlive this process."""

    def finish(self, scores: Mapping[str, float], table: Sequence[tuple[str, str, float]]) -> None:
        """The run is complete.

        Args:
            scores: at the selected points, by name.
            table: (model, name, value), the same for reading.
        """

    def stop(self) -> None:
        """The run has failed, or was interrupted."""


class Tracker:
    """Keeps the curves of runs somewhere else. A tracker of your own has :meth:`start`.

    Attributes:
        extra: of this package, which installs ``packages``.
        packages: modules that must be installed.
    """

    extra: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()

    def start(self, seed: SeedRun) -> Log:
        """Begin the run of one seed, again from the start where an earlier one was killed; raises whatever is wrong."""
        raise NotImplementedError  # abstract


def values_of(row: Mapping[str, float | None]) -> dict[str, float]:
    """The values of a row of ``history.csv`` by name, as all trackers call them: ``val/received`` is its column ``val_received``."""
    numbers = {name_of(column): value for column, value in row.items() if column not in ("seed", "trip")}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def name_of(column: str) -> str:
    """``val/received``, ``train/loss``, ``traffic/upload_bytes``: what stands before the slash is a section in the trackers' pages."""
    for start in ("val", "test", "diverged", "staleness"):
        if column.startswith(f"{start}_"):
            return f"{start}/{column.removeprefix(f'{start}_')}"
    return NAMES.get(column) or (f"traffic/{column}" if column.endswith("_bytes") else f"cost/{column}")
