#!/usr/bin/env python3
"""Two workers against one process of two threads, at Physics' size; the table of docs/many_workers.md.

    python scripts/bench_workers.py [--repeats 4] [--rounds 20]

Every run is a process of its own, as a user starts it. The runs of a line are made in turn, so that other load on the machine
falls on all of them; the table has client trips a second, training and evaluation, of the fastest run of each kind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from blocks import filled

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "many_workers.md"
WAYS = {"one process": (1, "auto"), "workers, seeds": (2, "seeds"), "workers, clients": (2, "clients")}
LINES = [(method, seeds) for method in ("fedavg", "fedgta") for seeds in ("[0,1]", "[0]")]


def trips_a_second(workers: int, shard: str, method: str, seeds: str, rounds: int, folder: Path) -> tuple[float, float]:
    """Client trips a second, and megabytes a round from worker to worker."""
    keys = [f"algorithm={method}", "dataset=csbm_physics", "num_clients=10", f"seeds={seeds}", f"rounds={rounds}", "device=cpu"]
    keys += [f"shard={shard}", f"threads={2 // workers}", f"results_dir={folder / 'runs'}", f"cache_dir={folder / 'cache'}"]
    keys += ["progress=false"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={workers}", f"--master-port={port}"] if workers > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": str(2 // workers)}
    subprocess.run([sys.executable, *launcher, "-m", "fgl_bench", *keys], check=True, stdout=subprocess.DEVNULL, env=environment)
    (path,) = (folder / "runs").rglob("summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    shutil.rmtree(folder / "runs")
    trips = summary["client_trips"]["total"] * len(summary["seeds"])
    return trips / summary["seconds"]["train"], summary["worker_bytes"] / rounds / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for method, seeds in LINES:
            ways = {way: what for way, what in WAYS.items() if seeds != "[0]" or what[1] != "seeds"}
            measured: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for _ in range(given.repeats):
                for way, (workers, shard) in ways.items():
                    measured[way].append(trips_a_second(workers, shard, method, seeds, given.rounds, Path(name)))
                    print(method, seeds, way, measured[way][-1], flush=True)
            alone, *fastest = (max(measured[way])[0] if way in measured else None for way in WAYS)
            cells = ["-" if speed is None else f"{speed:.1f} ({speed / alone:.2f})" for speed in fastest]
            rows.append([method, str(len(json.loads(seeds))), f"{alone:.1f}", *cells, f"{measured['workers, clients'][0][1]:.1f}"])
    columns = ["method", "seeds", "one process, 2 threads", "2 workers, shard=seeds", "2 workers, shard=clients", "MB a round by clients"]
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    when = f"{datetime.now(UTC):%d %B %Y}, {os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[2]:.0f}"
    how = f"Client trips a second; in brackets the ratio to one process. {given.rounds} rounds, the fastest of {given.repeats}; {when}."
    lines = [*table, "", how]
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), "measured", lambda _: ["", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
