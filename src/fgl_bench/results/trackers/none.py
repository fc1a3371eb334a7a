"""No tracker."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.results.trackers.base import Log, SeedRun, Tracker


@dataclass(frozen=True)
class NoTracker(Tracker):
    """Keep the results in the run directory only."""

    def start(self, seed: SeedRun) -> Log:
        return Log()
