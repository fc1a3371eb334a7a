"""Hydra launcher that runs every job of a sweep as a Ray task: ``hydra/launcher=ray``.

It uses Ray's core, since the launcher on the package index pins incompatible versions of cloudpickle. Results are read from the run
directory, so nodes must share a file system; a job only returns success or failure.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class RayLauncher(Launcher):
    """Runs jobs on a Ray cluster.

    Args:
        address: address of a cluster; None starts a local instance for the sweep.
        num_cpus, num_gpus: resources of one job.
        retries: number of restarts of a job whose worker died.
    """

    def __init__(self, address: str | None, num_cpus: float, num_gpus: float, retries: int) -> None:
        self.address, self.num_cpus, self.num_gpus, self.retries = address, num_cpus, num_gpus, retries

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; a job whose worker died counts as failed."""
        try:
            import ray
        except ImportError as error:
            raise ImportError("hydra/launcher=ray needs Ray: pip install 'fgl-bench[ray]'") from error

        setup_globals()
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        begun = not ray.is_initialized()
        if begun:
            # Workers inherit modules and variables of this process; Ray's dashboard and usage reports are off.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(address=self.address, include_dashboard=None if self.address else False, log_to_driver=False, logging_level="error")
        try:
            task = ray.remote(num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_retries=self.retries)(_job)
            context = (self.hydra_context, self.task_function, self.config, Singleton.get_state(), os.getcwd(), _variables())
            shared = ray.put(context)
            waiting = [task.remote(shared, initial_job_idx + i, list(overrides)) for i, overrides in enumerate(job_overrides)]
            return [_result(ray, reference, list(overrides)) for reference, overrides in zip(waiting, job_overrides, strict=True)]
        finally:
            if begun:
                ray.shutdown()


def _variables() -> dict[str, str]:
    """Return the environment variables for data, caches and threads."""
    return {key: value for key, value in os.environ.items() if key.startswith(("FGL_BENCH", "HYDRA", "OMP_NUM_THREADS"))}


def _job(shared: tuple[Any, ...], number: int, overrides: list[str]) -> JobReturn:
    """Run one job in a worker, like Hydra's launchers."""
    context, function, config, state, folder, variables = shared
    os.environ.update(variables)
    os.chdir(folder)
    Singleton.set_state(state)
    setup_globals()
    sweep = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(sweep):
        sweep.hydra.job.id, sweep.hydra.job.num = f"ray_{number}", number
    return run_job(
        hydra_context=context, task_function=function, config=sweep, job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir"
    )


def _result(ray: Any, reference: Any, overrides: list[str]) -> JobReturn:
    """Return the result of a job, or its failure as Hydra represents it."""
    try:
        return ray.get(reference)
    except Exception as error:  # the worker died, or its exception cannot be pickled
        failed = JobReturn(overrides=list(filter_overrides(overrides)), status=JobStatus.FAILED)
        failed.return_value = error
        return failed
