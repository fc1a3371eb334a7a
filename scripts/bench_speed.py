"""Time federated jobs twice: by plain per-client loops over PyTorch Geometric models, and by the engine as a user runs it.

    python scripts/bench_speed.py                         FedAvg on the graphs of Cora's and Physics' size (minutes)
    python scripts/bench_speed.py --slow                  the methods that take longest, at Cora's size, against their loops where there are
    python scripts/bench_speed.py --all                   every method, size and number of clients, and growth (hours)
    python scripts/bench_speed.py --methods fedgta --sizes cora pubmed --clients 20 100
    python scripts/bench_speed.py --growth                time and memory against clients, seeds, nodes and rounds

Results go to results/bench: bench.json (everything measured; a later run replaces the cells that it repeats), bench.md and
growth.png. docs/benchmark.md says what the figures mean; the least time that a round can take is derived in bench_floor.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import bench_floor  # noqa: E402
from bench_jobs import ROOT, measure  # noqa: E402
from bench_loops import LOOPS, METHODS, SLOW  # noqa: E402
from bench_report import SIZES, read, table, write  # noqa: E402

CLIENTS = (20, 100)
# Rounds that are timed on the engine's side and on the loops': equal, or the accuracies would compare different training.
ROUNDS = {"cora": (60, 60), "pubmed": (20, 20), "computers": (20, 20), "physics": (12, 12), "arxiv": (8, 8)}
WARM_UP = 3
REPEATS = 5
SLOW_ROUNDS, SLOW_REPEATS = 9, 3
QUICK = {"dataset.num_nodes": 240, "dataset.num_edges": 600, "dataset.num_features": 50, "dataset.words_per_node": 6.0,
         "dataset.communities_per_class": 2}  # fmt: skip
GROWTH = {"clients": (5, 10, 20, 50, 100), "seeds": (1, 2, 5), "nodes": (1000, 3000, 10_000, 30_000, 50_000), "rounds": (10, 20, 50, 100)}
GROWTH_QUICK = {"clients": (2, 4), "seeds": (1, 2), "nodes": (200, 400), "rounds": (4, 8)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every method, size and number of clients, the profiles and growth")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["fedavg"])
    parser.add_argument("--slow", action="store_true", help="the methods that take longest, at Cora's size, in few rounds")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["cora", "physics"], help="whose counts the generated graph has")
    parser.add_argument("--clients", nargs="+", type=positive, default=[20])
    parser.add_argument("--devices", nargs="+", default=["auto"], help="cpu, cuda; auto: both where there is a GPU")
    parser.add_argument("--seeds", type=positive, default=5, help="repetitions of the engine")
    parser.add_argument("--loop-seeds", type=positive, default=1, help="repetitions of the loops, the first of the engine's")
    parser.add_argument("--threads", type=positive, default=os.cpu_count() or 1, help="CPU threads of the engine, most of the loop")
    parser.add_argument("--growth", action="store_true", help="also measure growth")
    parser.add_argument("--profile", action="store_true", help="also measure where the engine's time goes")
    parser.add_argument("--no-loops", action="store_true", help="the engine only")
    parser.add_argument("--quick", action="store_true", help="tiny graphs and budgets, to try the suite itself")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(json.loads(options.child))))
        return
    if options.all:
        options.methods, options.sizes, options.clients = METHODS, list(SIZES), list(CLIENTS)
        options.growth = options.profile = True
    if options.slow:
        options.methods, options.sizes = list(SLOW), ["cora"]
    results = read(options.out / "bench.json")
    results["machine"] = machine(options)
    with tempfile.TemporaryDirectory(prefix="bench-speed-") as scratch:
        suite = Suite(options, scratch)
        for device in devices(options.devices):
            for name, cell in suite.cells(device):
                results["cells"][name] = cell
                write(options.out, results)
                print(f"\n{name}\n{table({name: cell})}", flush=True)
            if options.growth:
                results["growth"][device] = suite.growth(device)
                write(options.out, results)
    print(f"\nwrote {options.out / 'bench.md'}")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def devices(names: Sequence[str]) -> list[str]:
    if list(names) != ["auto"]:
        return list(names)
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def in_a_process(job: dict) -> dict:
    """:func:`bench_jobs.measure` in a fresh process, so that peak memory is the job's own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench_speed: the {job['kind']} side failed with {job.get('algorithm', 'no method')} on {job.get('dataset', 'no data')}")
    return json.loads(done.stdout.splitlines()[-1])


class Suite:
    """The jobs of one call."""

    def __init__(self, options: argparse.Namespace, scratch: str):
        self.options, self.scratch, self.rates = options, scratch, {}
        self.tries = sorted({1, options.threads})

    def cells(self, device: str):
        """Name and measurements of each cell."""
        for size in self.options.sizes:
            for clients in self.options.clients:
                for method in self.options.methods:
                    yield f"{method}/csbm_{size}/{clients}/{device}", self.cell(method, size, clients, device)

    def job(self, method: str, size: str, clients: int, device: str, rounds: int, **more) -> dict:
        quick = self.options.quick
        changes = {**(QUICK if quick else {}), **SLOW.get(method, {})}
        if quick and size == "arxiv":
            changes.pop("dataset.words_per_node")
        return {
            "algorithm": method, "dataset": f"csbm_{size}", "clients": clients, "device": device, "threads": self.options.threads,
            "seeds": list(range(self.options.seeds)), "rounds": WARM_UP + (4 if quick else rounds), "warm_up": WARM_UP,
            "repeats": 2 if quick else SLOW_REPEATS if method in SLOW else REPEATS, "cache_dir": self.scratch, "changes": changes, **more,
        }  # fmt: skip

    def cell(self, method: str, size: str, clients: int, device: str) -> dict:
        """All sides of one cell; the machine's rates are measured with the first."""
        rounds, loop_rounds = ROUNDS[size]
        if method in SLOW and method not in bench_floor.EXTRAS:
            rounds = loop_rounds = min(rounds, SLOW_ROUNDS)
        job = self.job(method, size, clients, device, rounds)
        if device not in self.rates:
            small = {"size": 4_000_000, "n": 256, "budget": 0.02} if self.options.quick else {}
            self.rates[device] = in_a_process({"kind": "rates", "device": device, "threads": self.options.threads, **small})
        cell = {"rates": self.rates[device], "device": device, "seeds": job["seeds"], "clients": clients, **stamp()}
        cell["engine"] = in_a_process({**job, "kind": "engine", "rates": self.rates[device]})
        if method != "fedsa_gcl" and method in LOOPS:  # there every trip is scored as it is trained
            cell["training"] = in_a_process({**job, "kind": "engine", "rates": self.rates[device], "evaluate": False})
        if not self.options.no_loops and method in LOOPS:
            loop = self.job(method, size, clients, device, loop_rounds, seeds=job["seeds"][: self.options.loop_seeds], tries=self.tries)
            for side in ("loop", "loop_sparse"):
                if size == "arxiv" and side == "loop_sparse":  # dense features: there is nothing to store sparsely
                    continue
                cell[side] = in_a_process({**loop, "kind": side})
        if self.options.profile:
            cell["profile"] = in_a_process({**job, "kind": "profile", "rounds": WARM_UP + 10, "threads": 1})["shares"]
        return cell

    def growth(self, device: str) -> dict:
        """Seconds and bytes of FedAvg on generated graphs, along one axis at a time; rounds and seeds counted whole."""
        axes, fits = (GROWTH_QUICK if self.options.quick else GROWTH), {}
        for axis, values in axes.items():
            points = []
            for value in values:
                clients = value if axis == "clients" else 4 if self.options.quick else 20
                rounds = value if axis == "rounds" else 10
                job = self.job("fedavg", "cora", clients, device, rounds, seeds=list(range(value if axis == "seeds" else 1)), repeats=3)
                job["rounds"] = WARM_UP + rounds
                if axis == "nodes":
                    job["changes"] = {**job["changes"], "dataset.num_nodes": value, "dataset.num_edges": 2 * value,
                                      "dataset.num_features": 50 if self.options.quick else 500}  # fmt: skip
                engine = in_a_process({**job, "kind": "engine"})
                seconds = float(np.median(engine["seconds"])) * rounds * len(job["seeds"])
                points.append({"at": value, "seconds": seconds, "bytes": engine["increase"], "predicted": engine["predicted"]})
                print(f"growth with {axis} = {value}: {seconds:.3f} s, {engine['increase'] / 1e6:.0f} MB", flush=True)
            fits[axis] = {
                "points": points,
                "slope": {name: slope([p["at"] for p in points], [p[name] for p in points]) for name in ("seconds", "bytes")},
            }
        return fits


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of the straight line through log y against log x: 1 is proportional growth."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-12)), 1)[0])


def stamp() -> dict:
    from fgl_bench.results.provenance import code_state, versions

    return {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "code": code_state(), "versions": versions()}


def machine(options: argparse.Namespace) -> dict:
    """Describe the kind of machine, with nothing that identifies it."""
    model = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    facts = {"cpu": f"{os.cpu_count()}-core CPU ({model})", "threads": options.threads}
    if "cuda" in devices(options.devices):
        import torch

        facts["gpu"] = torch.cuda.get_device_name()
    return facts


if __name__ == "__main__":
    main()
