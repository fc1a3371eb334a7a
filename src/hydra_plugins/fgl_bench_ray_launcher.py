"""Hydra launcher that makes every job of a sweep a task of Ray: ``hydra/launcher=ray``.

Written on Ray's core, since the launcher on the package index pins versions of cloudpickle that others cannot live with. A job's
results come from the run directory that it writes, so the nodes share a file system; nothing but success or failure travels back.
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
        address: of a cluster; None starts an instance on this machine and ends it after the sweep.
        num_cpus, num_gpus: what one job takes.
        retries: how often a job is begun again whose worker died.
    """

    def __init__(self, address: str | None, num_cpus: float, num_gpus: float, retries: int) -> None:
        self.address, self.num_cpus, self.num_gpus, self.retries = address, num_cpus, num_gpus, retries

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; a job whose worker died is reported as failed, like one that raised."""
        try:
            import ray
        except ImportError as error:
            raise ImportError("hydra/launcher=ray needs Ray: pip install 'fgl-bench[ray]'") from error

        setup_globals()
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        begun = not ray.is_initialized()
        if begun:
            # Workers see this process's modules and variables; Ray's dashboard and its usage report stay off.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(address=self.address, include_dashboard=None if self.address else False, log_to_driver=False, logging_level="error")
        try:
            task = ray.remote(num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_retries=self.retries)(_job)
            here = (self.hydra_context, self.task_function, self.config, Singleton.get_state(), os.getcwd(), _variables())
            shared = ray.put(here)
            waiting = [task.remote(shared, initial_job_idx + i, list(overrides)) for i, overrides in enumerate(job_overrides)]
            return [_result(ray, reference, list(overrides)) for reference, overrides in zip(waiting, job_overrides, strict=True)]
        finally:
            if begun:
                ray.shutdown()


def _variables() -> dict[str, str]:
    """What decides where the package looks for data and caches."""
    return {key: value for key, value in os.environ.items() if key.startswith(("FGL_BENCH", "HYDRA", "OMP_NUM_THREADS"))}


def _job(shared: tuple[Any, ...], number: int, overrides: list[str]) -> JobReturn:
    """One job in a worker, as Hydra's own launchers run it."""
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
    """What a job returned, or its failure as Hydra words one."""
    try:
        return ray.get(reference)
    except Exception as error:  # the worker died, or what it raised cannot be sent
        failed = JobReturn(overrides=list(filter_overrides(overrides)), status=JobStatus.FAILED)
        failed.return_value = error
        return failed
