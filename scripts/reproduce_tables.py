"""Run what a paper's tables lack, then write them with the published numbers beside ours.

    python scripts/reproduce_tables.py --paper fedsa_gcl --tables 3 --datasets cora --list

Every run is one ``fgl-bench`` command in a process of its own, so that one that fails never stops the others. A run that is
complete is not repeated: its compact result is kept in results/cells/<paper>/ and the tables are made from those. Ctrl-C ends after
writing the tables; the same command goes on where it stopped. Most telling methods come first.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from fgl_bench.errors import UserError
from fgl_bench.reporting.cells import compact, find, read_cells, write_cell
from fgl_bench.reporting.plan import Cell, Costs, Paper, Table, available, duration, in_order, load_paper, papers, plan
from fgl_bench.reporting.published import Printed, read_published
from fgl_bench.reporting.store import is_complete
from fgl_bench.reporting.tables import write_table
from fgl_bench.schema import config_folder

ROOT = Path(__file__).resolve().parents[1]
POLL = 0.2


def main() -> None:
    options = parser().parse_args()
    try:
        sys.exit(Reproduction(options).run())
    except UserError as error:
        sys.exit(f"reproduce_tables: {error}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--paper", default="fedsa_gcl", help=f"one of {', '.join(papers())}")
    result.add_argument("--tables", nargs="+", type=names, default=[], help="numbers, or figure names; default: all")
    result.add_argument("--datasets", nargs="+", type=names, default=[], help="default: the paper's")
    result.add_argument("--methods", nargs="+", type=names, default=[], help="row names; default: all rows")
    result.add_argument("--clients", nargs="+", type=names, default=[], help="numbers of clients; default: all")
    result.add_argument("--seeds", nargs="+", type=names, default=[], help="default: the preset's, 0 to 4")
    result.add_argument("--results", type=Path, default=Path("results"), help="holds runs/, cells/ and tables/")
    result.add_argument("--data-dir", help="default: $FGL_BENCH_DATA, or data")
    result.add_argument("--device", default="auto")
    result.add_argument("--threads", type=int, help="CPU threads of a run")
    result.add_argument("--jobs", type=int, default=1, help="runs at a time")
    result.add_argument("--hours", type=float, help="start no run that would end later than this")
    result.add_argument("--set", dest="extra", nargs="+", default=[], metavar="KEY=VALUE", help="further keys of every run")
    result.add_argument("--list", action="store_true", help="show the plan and stop")
    result.add_argument("--tables-only", action="store_true", help="run nothing; write the tables from what is there")
    return result


def names(text: str) -> list[str]:
    """``a,b`` or ``[a,b]`` as a list."""
    return [part for part in text.strip("[]").replace(",", " ").split() if part]


def flat(parts: list[list[str]]) -> list[str]:
    return [name for part in parts for name in part]


@dataclass
class Job:
    """A run under way."""

    cell: Cell
    process: subprocess.Popen
    log: IO[str]
    begin: float


class Reproduction:
    """One call of the script."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.paper: Paper = load_paper(options.paper)
        self.results: Path = options.results.resolve()
        self.published: Printed = read_published(ROOT / "results" / "published" / f"{self.paper.name}.csv")
        self.extra = [f"seeds=[{','.join(flat(options.seeds))}]"] if options.seeds else []
        self.extra += options.extra
        datasets, chosen = flat(options.datasets), [key.removeprefix("table") for key in flat(options.tables)]
        known = [table.key for table in self.paper.tables]
        self._check("TABLE", chosen, known)
        self._check("METHODS", flat(options.methods), list(dict.fromkeys(row.key for table in self.paper.tables for row in table.rows)))
        self._check("DATASETS", datasets, sorted(path.stem for path in (config_folder() / "dataset").glob("*.yaml")))
        self.tables: list[Table] = [self._with(table, datasets) for table in self.paper.tables if not chosen or table.key in chosen]
        self.cells = plan(self.paper, self.tables, self.extra)
        self.stored: dict[str, dict] = {}
        self.stopping = False

    def _check(self, variable: str, given: list[str], allowed: list[str]) -> None:
        for name in given:
            if name not in allowed:
                raise UserError(f"{variable}={name}: unknown; allowed: {', '.join(allowed)}")

    def _with(self, table: Table, datasets: list[str]) -> Table:
        """``table`` with a column more for a dataset that no table of the paper has."""
        known = {name for other in self.paper.tables for name in other.datasets}
        new = [name for name in datasets if name not in known]
        groups = {column.group: column for column in table.columns}.values()
        return replace(table, columns=(*table.columns, *(replace(column, dataset=name) for column in groups for name in new)))

    @property
    def store(self) -> Path:
        return self.results / "cells" / self.paper.name

    def run(self) -> int:
        """Exit status: 0, 1 if a run failed, 130 after Ctrl-C."""
        self.stored = read_cells(self.store)
        for cell in self.cells:
            found = find(self.stored, cell.digest, cell.config) if cell.digest else None
            if found is not None:
                self.stored[cell.digest] = found
        self.collect()
        todo = self.todo()
        self.show(todo)
        if self.options.list:
            return 0
        failed, status = [], 0
        if not self.options.tables_only:
            # A flag that the loop reads, and no exception, which could strike between a process and the note of it.
            previous = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
            failed = self.work(todo)
            for number, handler in previous.items():
                signal.signal(number, handler)
            status = 130 if self.stopping else 0
        self.write()
        for cell in failed:
            print(f"failed: {cell.name}: {cell.command}", file=sys.stderr)
        if status:
            print("interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        return status or int(bool(failed))

    def stop(self, *_: object) -> None:
        """Handler of Ctrl-C and of an end signal."""
        self.stopping = True

    def wanted(self, cell: Cell) -> bool:
        """Whether the cell is among the datasets, methods and numbers of clients that were asked for."""
        datasets, methods, clients = (flat(getattr(self.options, name)) for name in ("datasets", "methods", "clients"))
        fits = not clients or str(cell.config.get("num_clients")) in clients
        return (not datasets or cell.dataset in datasets) and (not methods or cell.row.key in methods) and fits

    def collect(self) -> None:
        """Take complete run directories, whoever made them, into the store."""
        for cell in self.cells:
            folder = self.results / "runs" / cell.folder
            if cell.digest and cell.digest not in self.stored and is_complete(folder):
                summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
                self.stored[cell.digest] = compact(summary, cell.command)
                write_cell(self.store, self.stored[cell.digest])

    def todo(self) -> list[Cell]:
        return [cell for cell in in_order(self.paper, [c for c in self.cells if self.wanted(c)]) if cell.digest not in self.stored]

    def cost(self, cell: Cell) -> float | None:
        return Costs(self.paper, self.stored.values()).of(cell)

    def show(self, todo: list[Cell]) -> None:
        """Print the plan."""
        rows = {cell.row.key: cell.row for cell in self.cells if self.wanted(cell)}
        for row in rows.values():
            if not available(row.algorithm):
                print(f"not available: {row.key} (no algorithm={row.algorithm})")
        done = len({cell.digest for cell in self.cells if self.wanted(cell) and cell.digest in self.stored})
        costs = [self.cost(cell) for cell in todo]
        unknown = f", {costs.count(None)} of them of unknown cost" if None in costs else ""
        total = sum(c or 0 for c in costs) or None
        print(f"{done} run(s) complete, {len(todo)} to make{unknown}: {duration(total) if todo else 'nothing to do'}")
        if self.options.list:
            for cell, seconds in zip(todo, costs, strict=True):
                print(f"  {cell.name}: {duration(seconds)}\n    {cell.command}")
        sys.stdout.flush()

    def work(self, todo: list[Cell]) -> list[Cell]:
        """Make the runs, at most ``jobs`` at a time; returns those that failed."""
        running: list[Job] = []
        failed, waiting, end = [], list(todo), time.monotonic() + 3600 * (self.options.hours or 1e6)
        try:
            while (waiting or running) and not self.stopping:
                while waiting and len(running) < self.options.jobs:
                    cell = waiting.pop(0)
                    if time.monotonic() + (self.cost(cell) or 0) > end:
                        print(f"left out, no time: {cell.name}", flush=True)
                        continue
                    running.append(self.start(cell))
                for job in [job for job in running if not self.stopping and job.process.poll() is not None]:
                    running.remove(job)
                    if not self.finish(job):
                        failed.append(job.cell)
                if running:
                    time.sleep(POLL)
        finally:
            for job in running:
                job.process.terminate()
            for job in running:
                job.process.wait()
                job.log.close()
        return failed

    def start(self, cell: Cell) -> Job:
        where = {
            "results_dir": str(self.results / "runs"),
            "data_dir": self.options.data_dir,
            "device": self.options.device,
            "threads": self.options.threads,
        }
        line = [sys.executable, "-m", "fgl_bench.cli", *cell.overrides, "progress=false"]
        line += [f"{key}={quoted(value)}" for key, value in where.items() if value is not None]
        log = tempfile.TemporaryFile("w+", encoding="utf-8")
        print(f"start: {cell.name} ({duration(self.cost(cell))})", flush=True)
        return Job(cell, subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT), log, time.monotonic())

    def finish(self, job: Job) -> bool:
        """Keep the result of a run that has ended; whether there is one."""
        seconds = time.monotonic() - job.begin
        job.log.seek(0)
        output = job.log.read().splitlines()
        job.log.close()
        if job.process.returncode == 0 and is_complete(self.results / "runs" / job.cell.folder):
            self.collect()
            test = self.stored[job.cell.digest]["test"]
            shown = ", ".join(f"{model} {100 * scores['mean']:.1f}" for model, scores in test.items())
            print(f"done: {job.cell.name} in {seconds:.0f} s: {shown}", flush=True)
            self.write(quiet=True)
            return True
        print(f"failed: {job.cell.name} after {seconds:.0f} s (exit {job.process.returncode})", *output[-6:], sep="\n    ", flush=True)
        return False

    def write(self, quiet: bool = False) -> None:
        """Write the chosen tables from what is stored."""
        folder = self.results / "tables" / self.paper.name
        for table in self.tables:
            if table.measure == "curves":
                continue
            paths = write_table(folder, self.paper, table, self.cells, self.stored, self.published, self.extra)
            if not quiet:
                print(f"written: {', '.join(str(path.relative_to(self.results)) for path in paths)}")


def quoted(value: object) -> str:
    """A value for Hydra's grammar: paths may hold any sign."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" if isinstance(value, str) else str(value)


if __name__ == "__main__":
    main()
