"""Time the runs that will take longest, for a few rounds each, so that the plan's hours are those of a core of this machine.

    python scripts/measure_rates.py                    those that make up 80 % of the plan's hours
    python scripts/measure_rates.py --share 0.95
    python scripts/measure_rates.py --methods fediih fedaas       those of these methods
    python scripts/measure_rates.py --missing          those that were not measured yet
    python scripts/reproduce_tables.py --list          what all runs take by that

Rows of the plan that share method, backbone, dataset and settings are timed once: one seed on one thread, in a process of its own, after
the rounds that fill caches. It counts processor time, so that other work on the machine hardly matters. The seconds per seed and round of
one local epoch are written to results/measured_rates.csv. Estimates prefer them to the seconds of stored runs, which are of the clock.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts")]

import reproduce_tables  # noqa: E402

from fgl_bench.papers.plan import Cell  # noqa: E402
from fgl_bench.papers.work import given  # noqa: E402
from fgl_bench.results.estimates import MEASURED, Kind, duration, read_rates, round_cost, write_rates  # noqa: E402
from fgl_bench.utils.processes import last_line  # noqa: E402

ROUNDS, WARM_UP = 3, 1
# Methods whose later rounds are of another kind: behind the first round, both kinds in the proportion of a whole run.
SHORTENED = {"adafgl": (["algorithm.federated_rounds=4"], 7, 1), "fedsage_plus": (["algorithm.gen_rounds=2"], 11, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.8, help="of the plan's hours that is to be measured")
    parser.add_argument("--methods", nargs="+", help="of these only, whose share counts then (all)")
    parser.add_argument("--missing", action="store_true", help="not again what results/measured_rates.csv has")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a run, as JSON
    options = parser.parse_args()
    if options.one:
        print(json.dumps(seconds(**json.loads(options.one))))
        return
    plan = reproduce_tables.Reproduction(reproduce_tables.parser().parse_args([]))
    for work in plan.works:
        work.read()
    hours: dict[Kind, float] = {}
    cells: dict[Kind, Cell] = {}
    for work, cell in plan.todo():
        kind = Kind(cell.row.algorithm, str(given(cell).get("model", "gcn")), cell.dataset)
        if cell.dataset in plan.absent or (options.methods and kind.algorithm not in options.methods):
            continue
        if cost := work.cost(cell):
            hours[kind], cells[kind] = hours.get(kind, 0) + cost / 3600, cells.get(kind, cell)
    path, left = ROOT / "results" / MEASURED, (1 - options.share) * sum(hours.values())
    total, before = sum(hours.values()), read_rates(path) if options.missing else {}
    for kind in sorted(hours, key=hours.__getitem__, reverse=True):
        if total <= left:
            break
        total -= hours[kind]
        if kind in before:
            continue
        rate = measured(cells[kind])
        if rate is None:
            continue
        write_rates(path, read_rates(path) | {kind: rate})
        print(f"{', '.join(kind)}: {rate:.3g} s, {duration(3600 * hours[kind])} by what was stored", flush=True)


def measured(cell: Cell) -> float | None:
    """Seconds per seed and round of one local epoch, None where the run failed; that is said."""
    job = {"overrides": cell.overrides, "algorithm": cell.row.algorithm}
    done = subprocess.run([sys.executable, __file__, "--one", json.dumps(job)], capture_output=True, text=True)
    if done.returncode:
        print(f"not measured: {cell.command}: {last_line(done)}", file=sys.stderr)
        return None
    return float(done.stdout.splitlines()[-1])


def seconds(overrides: list[str], algorithm: str) -> float:
    """The same of the run with these overrides, in this process."""
    import torch
    from bench_jobs import Marks

    from fgl_bench.config import compose
    from fgl_bench.results.callbacks import Callbacks
    from fgl_bench.runner.devices import pick_devices
    from fgl_bench.runner.program import simulate
    from fgl_bench.runner.run import prepare
    from fgl_bench.runner.spec import resolve
    from fgl_bench.utils.allocator import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    changed, rounds, warm_up = SHORTENED.get(algorithm, ([], ROUNDS, WARM_UP))
    whole = resolve(compose.composed(list(overrides))).settings
    short = ["rounds=null", f"trips={rounds * whole.num_clients}", f"seeds=[{whole.seeds[0]}]", "device=cpu", "progress=false"]
    spec = resolve(compose.composed([*overrides, *changed, *short]))
    marks = Marks(whole.num_clients, lambda: None, clock=time.process_time)  # one seed is one program, in this process
    simulate(spec, prepare(spec), pick_devices("cpu")[0], Callbacks([marks]))
    return marks.per_round(warm_up) / round_cost(whole.local_epochs)


if __name__ == "__main__":
    main()
