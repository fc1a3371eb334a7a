"""Run stored cells again, drawn at random or named, and compare their scores: whether the committed results are what the code gives.

    python scripts/rerun_cells.py --count 30 --seconds 300
    python scripts/rerun_cells.py --hash 0983a5402256

A cell's command is run as it stands in the cell, into a folder of its own; raw files come from ``FGL_BENCH_DATA``. The test scores of both
models are compared seed by seed, and their means over the seeds. Another processor rounds differently (docs/reproducibility.md): say
``--tolerance 2`` there.
Exit status 1 if a seed's score differs by more than ``--tolerance``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import subprocess
import sys
import tempfile
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.results.cells import read_cells
from fgl_bench.utils.processes import last_line

ROOT = Path(__file__).parents[1]


def main() -> int:
    options = parser().parse_args()
    cells = [cell for folder in sorted((ROOT / "results" / "cells").iterdir()) for cell in read_cells(folder)]
    drawn = named(cells, options.hash) if options.hash else draw(cells, options)
    worst = Difference(0.0, 0.0)
    for cell in drawn:
        off = rerun(cell, options.threads)
        worst = Difference(*map(max, zip(worst, off, strict=True)))
        print(f"{off if off.seed else 'same'}: {cell['command']} (stored on {cell['device']})", flush=True)
    print(f"largest: {worst}")
    return int(not worst.seed <= options.tolerance / 100)


def named(cells: list[dict], hashes: list[str]) -> list[dict]:
    """The cells of these hashes, in their order."""
    by_hash = {cell["config_hash"]: cell for cell in cells}
    unknown = [each for each in hashes if each not in by_hash]
    if unknown:
        sys.exit(f"rerun_cells: --hash {' '.join(unknown)}: no cell below results/cells has it")
    return [by_hash[each] for each in hashes]


def draw(cells: list[dict], options: argparse.Namespace) -> list[dict]:
    """Cells at random, without those of a GPU and those that take long."""
    fitting = [cell for cell in cells if cell["seconds"]["total"] <= options.seconds and not cell["device"].startswith("NVIDIA")]
    drawn = random.Random(options.seed).sample(sorted(fitting, key=lambda cell: cell["config_hash"]), min(options.count, len(fitting)))
    print(f"{len(drawn)} of {len(cells)} cells, drawn with seed {options.seed} from {len(fitting)} that took up to {options.seconds:g} s")
    return drawn


class Difference(NamedTuple):
    """Largest differences of test scores: per seed, and of the means over seeds; infinite where one is undefined or the run fails."""

    seed: float
    mean: float

    def __str__(self) -> str:
        return f"off by {100 * self.seed:.2f} points at a seed, {100 * self.mean:.2f} in the mean"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--count", type=int, default=30, help="cells to run (30)")
    command.add_argument("--hash", nargs="+", default=[], help="of the cells to run, in the place of a draw")
    command.add_argument("--seconds", type=float, default=300, help="leave out cells that took longer (300)")
    command.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    command.add_argument("--tolerance", type=float, default=0.2, help="points by which a seed may differ (0.2)")
    command.add_argument("--threads", type=int, default=1, help="CPU threads of a run (1)")
    return command


def rerun(cell: dict, threads: int) -> Difference:
    """How far a cell's run, made again, is from what is stored."""
    with tempfile.TemporaryDirectory(prefix="fgl-bench-cells-") as folder:
        chosen = f"seeds=[{','.join(map(str, cell['seeds']))}]"
        overrides = [*shlex.split(cell["command"])[1:], chosen, f"results_dir='{folder}'", "progress=false", f"threads={threads}"]
        done = subprocess.run([sys.executable, "-m", "fgl_bench", *overrides], capture_output=True, text=True)
        if done.returncode:
            print(last_line(done), file=sys.stderr)
            return Difference(math.inf, math.inf)
        [path] = Path(folder).rglob("summary.json")
        test = json.loads(path.read_text(encoding="utf-8"))["test"]
    seeds = [pair for model in MODELS for pair in zip(cell["test"][model]["per_seed"], test[model]["per_seed"], strict=True)]
    means = [(cell["test"][model]["mean"], test[model]["mean"]) for model in MODELS]
    return Difference(max(starmap(between, seeds)), max(starmap(between, means)))


def between(stored: float | None, now: float | None) -> float:
    if stored is None or now is None:
        return 0.0 if stored is now else math.inf
    return abs(stored - now)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
