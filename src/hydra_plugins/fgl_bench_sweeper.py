"""Hydra's grid sweeper, with invalid runs first and a final table of the runs.

It also reports unintended differences between the runs.
"""

from __future__ import annotations

import pickle
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

if TYPE_CHECKING:
    from fgl_bench.results.frame import Result


class GridSweeper(BasicSweeper):
    """Runs every combination of the given values; jobs return their run directories, with any launcher.

    Invalid runs come first, so that a mistake shows at once and not after hours of other runs.
    """

    def validate_batch_is_legal(self, batch: list[Sequence[str]]) -> None:
        """Compose every run, as Hydra does here, and move invalid ones to the front.

        A launcher that runs them in this process takes these configurations: composing one takes 0.1 s.
        """
        from fgl_bench.config.groups import COMMAND
        from fgl_bench.runner.one import refused

        current, loader, composed = HydraConfig.instance(), self.hydra_context.config_loader, dict[tuple[str, ...], bytes]()
        ours, bad = current.cfg, set()
        for overrides in batch:
            whole = type(loader).load_sweep_config(loader, self.config, list(overrides))
            composed[tuple(overrides)] = pickle.dumps(whole)
            current.set_config(whole)
            before = COMMAND.set(current.cfg.hydra)
            if refused(OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])):
                bad.add(tuple(overrides))
            COMMAND.reset(before)
        current.cfg = ours
        batch.sort(key=lambda overrides: tuple(overrides) not in bad)
        if isinstance(self.launcher, BasicLauncher):  # others pickle the loader
            loader.load_sweep_config = lambda _, overrides: pickle.loads(composed[tuple(overrides)])

    def sweep(self, arguments: list[str]) -> Any:
        launch, runs = self.launcher.launch, []

        def collecting(job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
            from fgl_bench.results.sweep_notes import Sweep

            with Sweep(job_overrides, elsewhere=not isinstance(self.launcher, BasicLauncher)):
                results = launch(job_overrides, initial_job_idx=initial_job_idx)
            runs.extend(result.return_value for result in results if result.status is JobStatus.COMPLETED)
            for result in results:
                if result.status is JobStatus.FAILED:  # already reported; Hydra would repeat it
                    raise result._return_value
            return results

        self.launcher.launch = collecting
        try:
            return super().sweep(arguments)
        finally:
            report_sweep([Path(run) for run in runs if run], [overrides for batch in self.overrides or [] for overrides in batch])


def report_sweep(runs: Sequence[Path], jobs: Sequence[Sequence[str]]) -> None:
    """Print the runs as a table over the swept keys, and their unintended differences."""
    from fgl_bench.results.choose import differences
    from fgl_bench.results.frame import Result
    from fgl_bench.results.store import Untrusted, read_summary

    values: dict[str, set[str]] = {}
    for override in (text for job in jobs for text in job):
        key, _, value = override.lstrip("+").partition("=")
        values.setdefault(key.replace("/", "."), set()).add(value)
    swept = [key for key, given in values.items() if len(given) > 1]
    results = []
    for run in dict.fromkeys(runs):
        try:
            summary = read_summary(run)
        except Untrusted:  # removed meanwhile
            continue
        results += [Result(run, summary)] if summary else []
    different = differences(results, set(swept))
    if different:
        print(f"note: these runs differ in more than {', '.join(sorted(swept))}: {'; '.join(different)}", file=sys.stderr)
    folders = {result.results_dir for result in results}
    if len(results) > 1 and len(folders) == 1:
        show(results, swept, folders.pop())


def show(runs: Sequence[Result], swept: Sequence[str], folder: Path) -> None:
    """Record the sweep in its ``results_dir`` and print its table, or the reason for none."""
    from fgl_bench.errors import UserError
    from fgl_bench.results.console import line_width
    from fgl_bench.results.result_table import of_sweep
    from fgl_bench.results.sweeps import question_of, record
    from fgl_bench.utils.masking import masked

    question = question_of(swept) if swept and "experiment" not in swept else None
    try:
        number = record(folder, [run.folder for run in runs], masked(shlex.join(["fgl-bench", *sys.argv[1:]])), question)
    except OSError as error:
        print(f"note: {folder} does not record this sweep ({error.strerror})", file=sys.stderr)
        return
    if question is None:
        return
    try:
        print(of_sweep(runs, question, folder, number, line_width()), flush=True)
    except UserError as reason:
        print(f"note: no table of this sweep: {reason}", file=sys.stderr)
