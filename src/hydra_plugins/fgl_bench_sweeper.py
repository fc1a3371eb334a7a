"""Hydra's own grid sweeper, which says at the end in what the runs differ besides what was swept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.utils import JobReturn, JobStatus


class GridSweeper(BasicSweeper):
    """Every combination of the values given; jobs return their run directories, wherever a launcher has run them."""

    def sweep(self, arguments: list[str]) -> Any:
        launch, runs = self.launcher.launch, []

        def collecting(job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
            results = launch(job_overrides, initial_job_idx=initial_job_idx)
            runs.extend(result.return_value for result in results if result.status is JobStatus.COMPLETED)
            return results

        self.launcher.launch = collecting
        try:
            return super().sweep(arguments)
        finally:
            tell([Path(run) for run in runs if run], [overrides for batch in self.overrides or [] for overrides in batch])


def tell(runs: Sequence[Path], jobs: Sequence[Sequence[str]]) -> None:
    """Print in what the runs differ besides the keys that vary between the jobs' overrides; nothing where that is all."""
    from fgl_bench.reporting.store import Untrusted, read_summary
    from fgl_bench.reporting.unlike import differences

    values: dict[str, set[str]] = {}
    for override in (text for job in jobs for text in job):
        key, _, value = override.lstrip("+").partition("=")
        values.setdefault(key.replace("/", "."), set()).add(value)
    swept = {key for key, given in values.items() if len(given) > 1}
    summaries = []
    for run in dict.fromkeys(runs):
        try:
            summaries.append(read_summary(run))
        except Untrusted:  # taken away since
            continue
    found = differences([summary for summary in summaries if summary], swept)
    if found:
        print(f"note: these runs differ in more than {', '.join(sorted(swept))}: {'; '.join(found)}", file=sys.stderr)
