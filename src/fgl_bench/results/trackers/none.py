"""No tracker."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.results.trackers.base import Log, SeedRun, Tracker


@dataclass(frozen=True)
class NoTracker(Tracker):
    """Store results only in the run directory."""

    def start(self, seed: SeedRun) -> Log:
        return Log()
