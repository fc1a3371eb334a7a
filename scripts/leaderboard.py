"""Make the cells that the leaderboard lacks, the cheap ones first; see docs/leaderboard.md.

    python scripts/leaderboard.py --columns cora,webkb --methods fedavg,fedgta --list

Every cell (a method in a column) is a process: trials on validation, then the default and the winner on test. It is
written after every run, so that Ctrl-C, or an end without warning, costs the run under way; the same command resumes.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

from fgl_bench.config.values import shown
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import RUNS
from fgl_bench.leaderboard.protocol import FILES, read_protocol
from fgl_bench.leaderboard.record import current, read_records
from fgl_bench.leaderboard.remaining import Cells, plan
from fgl_bench.results.estimates import duration, read_rates
from fgl_bench.results.scored import DEFAULT_TASK
from fgl_bench.utils.files import remove_leftovers

ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--columns", type=names, default=[], help="default: all of the protocol")
    result.add_argument("--methods", type=names, default=[], help="methods, or one on one of its backbones: fedgta-gcn; default: all")
    result.add_argument("--hours", type=float, help="start no run that would end later than this")
    result.add_argument("--jobs", type=int, default=1, help="cells at a time")
    result.add_argument("--threads", type=int, help="of a cell; default: the machine's, divided by the jobs")
    result.add_argument("--slowest", action="store_true", help="all cells, the most expensive first, for a machine that is much faster")
    result.add_argument(
        "--longest", type=float, default=math.inf, metavar="HOURS", help="leave out cells that are estimated to take longer"
    )
    result.add_argument("--data-dir", help="default: $FGL_BENCH_DATA, or data")
    result.add_argument("--device", default="auto")
    result.add_argument("--task", choices=FILES, default=DEFAULT_TASK, help="the leaderboard of this task")
    result.add_argument("--results", type=Path, help="folder of the cells; default: that of the protocol in results/leaderboard")
    result.add_argument("--protocol", type=Path, help="another protocol")
    result.add_argument("--list", action="store_true", help="show the plan, cell by cell, and stop")
    return result


def names(text: str) -> list[str]:
    return [part for part in text.replace(",", " ").split() if part]


def memory(jobs: int) -> list[str]:
    """A share of the machine's memory for each of several processes, which would all plan with the whole; nothing on a GPU."""
    import torch

    from fgl_bench.runner.memory import available_bytes

    if jobs == 1 or torch.cuda.is_available():
        return []
    return [f"memory_budget_gb={available_bytes(torch.device('cpu')) / jobs / 1e9:.2f}"]


def make(options: argparse.Namespace) -> int:
    """Make the cells; returns the exit status: 0, 1 if a cell failed, 130 after Ctrl-C."""
    file = options.protocol or FILES[options.task]
    protocol = read_protocol(file)
    folder = (options.results or ROOT / "results" / "leaderboard" / protocol.folder).resolve()
    columns, entries = protocol.narrowed(options.columns, options.methods)
    _, others = current(read_records(folder), protocol)
    own_rates = folder / "rates.csv"
    work = plan(protocol, columns, entries, folder, read_rates(own_rates if own_rates.is_file() else ROOT / "results" / "rates.csv"))
    later = [] if options.slowest else [each for each in work if protocol.later(each[0].entry, each[0].column)]
    work = work[::-1] if options.slowest else work[: len(work) - len(later)]
    done = len(columns) * len(entries) - len(work) - len(later)
    long = sum(cost > 3600 * options.longest for _, cost in work)
    if long:
        print(f"left out: {long} cell(s) that are estimated to take longer than {options.longest:.2f} h")
        work = [pair for pair in work if pair[1] <= 3600 * options.longest]
    print(f"{done} cell(s) complete, {len(work)} to make: {duration(sum(cost for _, cost in work) or None)}", flush=True)
    if later:
        print(f"  {len(later)} more are too expensive without a GPU (--slowest): {duration(sum(cost for _, cost in later))}")
    for record in others:
        print(f"  of another protocol: {record.entry} in {record.column} ({record.protocol})")
    if options.list:
        for cell, cost in work:
            print(f"  {cell.name}: {duration(cost or None)}")
        return 0
    threads = options.threads or max(1, (os.cpu_count() or 1) // options.jobs)
    where = [f"device={options.device}", f"threads={threads}", *memory(options.jobs)]
    where += [f"data_dir={shown(options.data_dir)}"] if options.data_dir else []
    until = time.time() + 3600 * (options.hours or 1e6)
    cells = Cells(waiting=work, jobs=options.jobs, protocol=file.resolve(), folder=folder, until=until, where=where)
    remove_leftovers(RUNS, folder)  # of processes that were killed
    cells.make()
    for (cell, _), reason in cells.failures:
        print(f"failed: {cell.name}: {reason}", file=sys.stderr)
    return cells.status


if __name__ == "__main__":
    try:
        sys.exit(make(parser().parse_args()))
    except UserError as error:
        sys.exit(f"leaderboard: {error}")
