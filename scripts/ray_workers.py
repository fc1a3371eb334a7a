#!/usr/bin/env python3
"""One run by many workers that are actors of a Ray cluster (pip install 'fgl-bench[ray]').

    python scripts/ray_workers.py --workers 4 algorithm=fedgta dataset=cora 'seeds=[0]'
    python scripts/ray_workers.py --workers 4 --gpus 1 --address auto algorithm=fedgta dataset=physics

The arguments behind the options are those of fgl-bench. data_dir, cache_dir and results_dir belong on a file system that all nodes share.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys

import ray

from fgl_bench.utils.processes import end_with


@ray.remote
class Worker:
    """A process that runs the command."""

    def meeting_point(self) -> tuple[str, int]:
        """An address of this node and a free port."""
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def run(self, folder: str, variables: dict[str, str], arguments: list[str]) -> int:
        """The status of ``fgl-bench`` with these arguments in ``folder``."""
        line, dying = [sys.executable, "-m", "fgl_bench", *arguments], end_with(os.getpid()) if sys.platform == "linux" else None
        return subprocess.run(line, cwd=folder, env={**os.environ, **variables}, preexec_fn=dying).returncode


def main() -> int:
    """Start the workers; returns 0 if all of them end well, else the status of the first that does not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=1, help="of each worker")
    parser.add_argument("--gpus", type=int, default=0, help="of each worker, 0 or 1")
    parser.add_argument("--address", help="of a running cluster; auto finds the one of this machine")
    given, arguments = parser.parse_known_args()
    ray.init(address=given.address, logging_level="ERROR")
    kind = Worker.options(num_cpus=given.cpus, num_gpus=given.gpus, scheduling_strategy="SPREAD")
    workers = [kind.remote() for _ in range(given.workers)]
    host, port = ray.get(workers[0].meeting_point.remote())
    variables = {"WORLD_SIZE": str(given.workers), "MASTER_ADDR": host, "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(given.cpus)}
    # Ray shows every actor its own GPUs only, so each is number 0.
    each = [{**variables, "RANK": str(rank), "LOCAL_RANK": "0"} for rank in range(given.workers)]
    waiting = [worker.run.remote(os.getcwd(), own, arguments) for worker, own in zip(workers, each, strict=True)]
    while waiting:
        (done,), waiting = ray.wait(waiting)
        if status := ray.get(done):
            for worker in workers:
                ray.kill(worker)
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
