"""Run the cells that printed ones are compared with over many draws of the masks, into results/draws/<paper>/.

    python scripts/draw_masks.py --paper fedsa_gcl,dfed_sst --hours 1
    python scripts/draw_masks.py --paper fedssa --datasets citeseer --methods local

The code behind some papers draws masks once and keeps them, so that the draw of a paper is not known. The runs tell how far one draw lies
from another, which the verdicts need (results/settlements/RULE.md). Chosen are registered cells that are stored and whose masks are fixed
over the seeds; cheap ones first. What is there is not made again.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import reproduce_tables

from fgl_bench.errors import UserError
from fgl_bench.papers.plan import Cell
from fgl_bench.papers.verdicts import registered_cells
from fgl_bench.papers.work import Work
from fgl_bench.results.cells import compact, read_cells, write_cells
from fgl_bench.results.estimates import duration
from fgl_bench.results.store import read_summary
from fgl_bench.utils.processes import last_line

ROOT = Path(__file__).resolve().parents[1]
PER_SEED = "split.per_seed=[masks]"


def main() -> None:
    options = parser().parse_args()
    chosen = ["--paper", options.paper]
    for key in ("datasets", "methods"):
        chosen += [f"--{key}", *getattr(options, key)] if getattr(options, key) else []
    try:
        plan = reproduce_tables.Reproduction(reproduce_tables.parser().parse_args(chosen))
    except UserError as error:
        sys.exit(f"draw_masks: {error}")
    for work in plan.works:
        work.read()
    todo = [(work, cell) for work in plan.works for cell in lacking(work) if plan.wanted(cell)]
    todo.sort(key=lambda pair: pair[0].cost(pair[1]) or math.inf)
    end, failed = time.monotonic() + 3600 * (options.hours or 1e6), False
    for work, cell in todo:
        cost = (work.cost(cell) or 0) * options.draws / 5
        print(f"{work.name(cell)}: {duration(cost or None)}", flush=True)
        if options.list or time.monotonic() + cost > end:
            continue
        failed |= not drawn(work, cell, options.draws)
    sys.exit(int(failed))


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--paper", required=True, help="one, or several with commas")
    command.add_argument("--datasets", nargs="+", help="default: the paper's")
    command.add_argument("--methods", nargs="+", help="row names; default: all rows")
    command.add_argument("--draws", type=int, default=10, help="of the masks, one a seed (10)")
    command.add_argument("--hours", type=float, help="start no run that would end later than this")
    command.add_argument("--list", action="store_true", help="name the runs and stop")
    return command


def lacking(work: Work) -> list[Cell]:
    """The registered cells of fixed masks without stored draws."""
    named, trips = registered_cells(work.paper.name, work.tables, work.registered), {t.key for t in work.tables if t.measure == "trips"}
    found = {}
    for cell in work.cells:
        stored = work.stored.get(cell.key)
        if stored is None or cell.key not in named or cell.table in trips or cell.key in work.draws:
            continue
        if "masks" not in stored["config"]["split"]["per_seed"]:
            found.setdefault(cell.overrides, cell)
    return list(found.values())


def drawn(work: Work, cell: Cell, draws: int) -> bool:
    """Make one run and keep it; False if it fails, with the reason on stderr."""
    more = [PER_SEED, f"seeds=[{','.join(map(str, range(draws)))}]", "results_dir=results/runs"]
    command = [sys.executable, "-m", "fgl_bench", *cell.overrides, *more, "progress=false"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    folder = next((Path(line.split()[-1]) for line in done.stdout.splitlines() if "results/runs/" in line), None)
    summary = read_summary(ROOT / folder) if folder is not None and not done.returncode else None
    if summary is None:
        print(last_line(done), file=sys.stderr)
        return False
    store = work.results / "draws" / work.paper.name
    places = [(*each.key, each.overrides) for each in work.cells if each.overrides == cell.overrides]
    new = compact(summary, " ".join(["fgl-bench", *cell.overrides, *more[:2]]), places=places)
    write_cells(store, [*read_cells(store), new])
    return True


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
