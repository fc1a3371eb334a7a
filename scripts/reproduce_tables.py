"""Run what the papers' tables lack, then write them with the published numbers beside ours.

    python scripts/reproduce_tables.py --paper fedsa_gcl --tables 3 --datasets cora --list

Every run is one ``fgl-bench`` command in a process of its own, so that one that fails never stops the others. A run that is
complete is not repeated: its compact result is kept in results/cells/<paper>/ and the tables are made from those. Ctrl-C ends after
writing the tables, and an end without warning costs the run under way; the same command goes on where it stopped. Most telling methods
come first. Of a dataset that is absent one run is tried, which downloads it where it can be; if that fails its others are left out.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fgl_bench.data.raw import absent_files, data_root
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.groups import build
from fgl_bench.reporting.analysis import OVERVIEW, analyse, overview_line, write_statistics
from fgl_bench.reporting.cells import compact, find, read_cells, write_cell, write_whole
from fgl_bench.reporting.plan import Cell, Composer, Costs, Paper, Table, available, duration, in_order, load_paper, papers, plan
from fgl_bench.reporting.processes import end_with, quoted
from fgl_bench.reporting.progress import Display
from fgl_bench.reporting.published import Printed, read_published
from fgl_bench.reporting.store import is_complete, read_summary
from fgl_bench.reporting.tables import write_table
from fgl_bench.schema import config_folder

ROOT = Path(__file__).resolve().parents[1]
POLL = 0.2
ALL = "all"


def main() -> None:
    options = parser().parse_args()
    try:
        sys.exit(Reproduction(options).run())
    except UserError as error:
        sys.exit(f"reproduce_tables: {error}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--paper", default=ALL, help=f"all, or some of {','.join(papers())}")
    result.add_argument("--tables", nargs="+", type=names, default=[], help="numbers, or figure names; default: all")
    result.add_argument("--datasets", nargs="+", type=names, default=[], help="default: the paper's")
    result.add_argument("--methods", nargs="+", type=names, default=[], help="row names; default: all rows")
    result.add_argument("--clients", nargs="+", type=names, default=[], help="numbers of clients; default: all")
    result.add_argument(
        "--seeds", type=seed_list, default=[], help="how many (5 is 0 to 4), or which ([0] or 0,1,2); default: the preset's"
    )
    result.add_argument("--results", type=Path, default=Path("results"), help="holds runs/, cells/ and tables/")
    result.add_argument("--data-dir", help="default: $FGL_BENCH_DATA, or data")
    result.add_argument("--device", default="auto")
    result.add_argument("--threads", type=int, help="CPU threads of a run")
    result.add_argument("--jobs", type=int, default=1, help="runs at a time")
    result.add_argument("--hours", type=float, help="start no run that would end later than this")
    result.add_argument("--set", dest="extra", nargs="+", default=[], metavar="KEY=VALUE", help="further keys of every run")
    result.add_argument("--list", action="store_true", help="show the plan, run by run, and stop")
    result.add_argument("--tables-only", action="store_true", help="run nothing; write the tables from what is there")
    return result


def names(text: str) -> list[str]:
    """``a,b`` or ``[a,b]`` as a list."""
    return [part for part in text.strip("[]").replace(",", " ").split() if part]


def seed_list(text: str) -> list[str]:
    """``5`` is the seeds 0 to 4; ``[5]`` and ``0,1`` are seeds."""
    if text.isdigit() and int(text) > 0:
        return [str(seed) for seed in range(int(text))]
    found = names(text)
    if not found or not all(seed.isdigit() for seed in found) or text == "0":
        raise argparse.ArgumentTypeError(f"{text}: give how many seeds (5), or a list ([0] or 0,1,2)")
    return found


def flat(parts: list[list[str]]) -> list[str]:
    return [name for part in parts for name in part]


@dataclass
class Work:
    """One paper: its chosen tables, the cells they need, and what is stored of them by configuration hash.

    Attributes:
        changed: overrides by which the runs differ from the paper's setting.
        known: what is stored of all papers, which estimates are made from.
    """

    paper: Paper
    tables: list[Table]
    cells: list[Cell]
    published: Printed
    changed: list[str]
    stored: dict[str, dict] = field(default_factory=dict)
    known: dict[str, dict] = field(default_factory=dict)
    costs: Costs | None = None

    def cost(self, cell: Cell) -> float | None:
        """Seconds that a run will take, from what is stored of all papers; None where nothing was run."""
        self.costs = self.costs or Costs(self.paper, self.known.values())
        return self.costs.of(cell)

    def name(self, cell: Cell) -> str:
        return f"{self.paper.name}: {cell.name}"


@dataclass
class Job:
    """A run under way."""

    work: Work
    cell: Cell
    process: subprocess.Popen
    log: IO[str]
    begin: float


@dataclass(frozen=True)
class Failure:
    """A run that was not made, and the last line that it said."""

    name: str
    reason: str
    command: str


class Reproduction:
    """One call of the script."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.results: Path = options.results.resolve()
        self.extra = [f"seeds=[{','.join(options.seeds)}]"] if options.seeds else []
        self.extra += options.extra
        wanted = papers() if options.paper == ALL else names(options.paper)
        self.whole = set(wanted) == set(papers()) and not options.tables and not options.datasets
        chosen = [load_paper(name) for name in wanted]
        self._check("TABLE", self.keys, list(dict.fromkeys(table.key for paper in chosen for table in paper.tables)))
        rows = dict.fromkeys(row.key for paper in chosen for table in paper.tables for row in table.rows)
        self._check("METHODS", flat(options.methods), list(rows))
        self._check("DATASETS", flat(options.datasets), sorted(path.stem for path in (config_folder() / "dataset").glob("*.yaml")))
        self.works = [work for paper in chosen if (work := self._work(paper)).tables]
        self.absent = self._absent()
        self.failures: list[Failure] = []
        self.stopping = False

    def _check(self, variable: str, given: list[str], allowed: list[str]) -> None:
        for name in given:
            if name not in allowed:
                raise UserError(f"{variable}={name}: unknown; allowed: {', '.join(allowed)}")

    @property
    def keys(self) -> list[str]:
        """The tables that were asked for."""
        return [key.removeprefix("table") for key in flat(self.options.tables)]

    def _work(self, paper: Paper) -> Work:
        datasets = flat(self.options.datasets)
        tables = [self._with(paper, table, datasets) for table in paper.tables if not self.keys or table.key in self.keys]
        published = read_published(ROOT / "results" / "published" / f"{paper.name}.csv")
        cells = plan(paper, tables, self.extra)
        with Composer() as composed:
            usual = {str(composed([f"experiment={name}"]).seeds) for name in {table.experiment for table in tables}}
        asked = {str(list(map(int, self.options.seeds)))}
        changed = [text for text in self.extra if not (text.startswith("seeds=") and usual == asked)]
        return Work(paper, tables, cells, published, changed)

    def _with(self, paper: Paper, table: Table, datasets: list[str]) -> Table:
        """``table`` with a column more for a dataset that no table of the paper has, where this paper was asked for by name."""
        known = {name for other in paper.tables for name in other.datasets}
        new = [name for name in datasets if name not in known] if self.options.paper != ALL else []
        groups = {column.group: column for column in table.columns}.values()
        return replace(table, columns=(*table.columns, *(replace(column, dataset=name) for column in groups for name in new)))

    def _absent(self) -> dict[str, Path]:
        """The datasets without raw files here, and the first file that is missing."""
        root, found = data_root(self.options.data_dir), {}
        with Composer() as composed:
            for name in dict.fromkeys(name for work in self.works for table in work.tables for name in table.datasets):
                dataset = composed([f"dataset={name}"]).dataset
                if "csbm" not in dataset._target_ and name != "custom" and (missing := absent_files(build(dataset).read, root)):
                    found[name] = missing[0]
        return found

    def store(self, work: Work) -> Path:
        return self.results / "cells" / work.paper.name

    def run(self) -> int:
        """Exit status: 0, 1 if a run failed, 130 after Ctrl-C."""
        for work in self.works:
            read = read_cells(self.store(work))
            for cell in work.cells:
                found = find(read, cell.digest, cell.config) if cell.digest else None
                if found is not None:
                    work.stored[cell.digest] = found
            self.collect(work)
        for work in self.works:
            work.known = {digest: cell for other in self.works for digest, cell in other.stored.items()}
        todo = self.todo()
        self.show(todo)
        if self.options.list:
            return 0
        status = 0
        if not self.options.tables_only:
            # A flag that the loop reads, and no exception, which could strike between a process and the note of it.
            previous = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
            self.work(todo)
            for number, handler in previous.items():
                signal.signal(number, handler)
            status = 130 if self.stopping else 0
        for work in self.works:
            for path in self.write(work):
                print(f"written: {path.relative_to(self.results)}")
        if self.whole:
            self.overview()
        for failure in self.failures:
            print(f"failed: {failure.name}: {failure.reason}\n    {failure.command}", file=sys.stderr)
        if status:
            print("interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        return status or int(bool(self.failures))

    def stop(self, *_: object) -> None:
        """Handler of Ctrl-C and of an end signal."""
        self.stopping = True

    def wanted(self, cell: Cell) -> bool:
        """Whether the cell is among the datasets, methods and numbers of clients that were asked for."""
        datasets, methods, clients = (flat(getattr(self.options, name)) for name in ("datasets", "methods", "clients"))
        fits = not clients or str(cell.config.get("num_clients")) in clients
        return (not datasets or cell.dataset in datasets) and (not methods or cell.row.key in methods) and fits

    def collect(self, work: Work) -> None:
        """Take complete run directories, whoever made them, into the store."""
        for cell in work.cells:
            folder = self.results / "runs" / cell.folder
            if cell.digest and cell.digest not in work.stored and is_complete(folder):
                work.stored[cell.digest] = compact(read_summary(folder), cell.command, folder)
                for other in self.works:
                    other.costs, other.known[cell.digest] = None, work.stored[cell.digest]
                write_cell(self.store(work), work.stored[cell.digest])

    def todo(self) -> list[tuple[Work, Cell]]:
        """The runs to make: paper by paper, those whose dataset is absent at the end."""
        found = [
            (work, cell)
            for work in self.works
            for cell in in_order(work.paper, [each for each in work.cells if self.wanted(each)])
            if cell.digest not in work.stored
        ]
        return sorted(found, key=lambda pair: pair[1].dataset in self.absent)

    def show(self, todo: list[tuple[Work, Cell]]) -> None:
        """Print the plan: what is done, what is to be run and how long it takes, what needs a dataset that is absent."""
        for work in self.works:
            cells = [cell for cell in work.cells if self.wanted(cell)]
            rows = {cell.row.key: cell.row for cell in cells}
            missing = [row for row in rows.values() if not available(row.algorithm)]
            mine = [cell for other, cell in todo if other is work]
            here = [cell for cell in mine if cell.dataset not in self.absent]
            costs = [work.cost(cell) for cell in here]
            unknown = f", {costs.count(None)} of them of unknown cost" if None in costs else ""
            total = duration(sum(c or 0 for c in costs) or None) if here else "nothing to do"
            done = len({cell.digest for cell in cells if cell.digest in work.stored})
            print(f"{work.paper.name}: {done} run(s) complete, {len(here)} to make{unknown}: {total}")
            for row in missing:
                print(f"  not available: {row.key} (no algorithm={row.algorithm})")
            for name in dict.fromkeys(cell.dataset for cell in mine if cell.dataset in self.absent):
                count = sum(cell.dataset == name for cell in mine)
                print(f"  {count} more need dataset={name}, which is absent ({self.absent[name]}) and downloaded where it can be")
        if self.options.list:
            for work, cell in todo:
                needs = f", needs dataset={cell.dataset}" if cell.dataset in self.absent else ""
                print(f"  {work.name(cell)}: {duration(work.cost(cell))}{needs}\n    {cell.command}")
        sys.stdout.flush()

    def work(self, todo: list[tuple[Work, Cell]]) -> None:
        """Make the runs, at most ``jobs`` at a time; those that fail go to ``failures``."""
        running: list[Job] = []
        waiting, end, made = list(todo), time.monotonic() + 3600 * (self.options.hours or 1e6), 0
        with Display(len(todo)) as display:
            try:
                while (waiting or running) and not self.stopping:
                    for work, cell in self.startable(waiting, running):
                        if time.monotonic() + (work.cost(cell) or 0) > end:
                            display.say(f"left out, no time: {work.name(cell)}")
                            made += 1
                            continue
                        display.say(f"start: {work.name(cell)} ({duration(work.cost(cell))})")
                        running.append(self.start(work, cell))
                    for job in [job for job in running if not self.stopping and job.process.poll() is not None]:
                        running.remove(job)
                        self.finish(job, display)
                        made += 1
                        made += self.drop(job.cell.dataset, waiting, display)
                    rest = [work.cost(cell) for work, cell in waiting] + [job.work.cost(job.cell) for job in running]
                    left = sum(seconds or 0 for seconds in rest) / self.options.jobs
                    display.show(made, [job.cell.name for job in running], left)
                    if running:
                        time.sleep(POLL)
            finally:
                for job in running:
                    job.process.terminate()
                for job in running:
                    job.process.wait()
                    job.log.close()

    def startable(self, waiting: list[tuple[Work, Cell]], running: list[Job]) -> Iterator[tuple[Work, Cell]]:
        """Take runs from ``waiting`` while there is room; of an absent dataset one at a time, until it is there or known not to come."""
        for pair in list(waiting):
            if len(running) >= self.options.jobs:
                return
            dataset = pair[1].dataset
            if dataset in self.absent and any(job.cell.dataset == dataset for job in running):
                continue
            waiting.remove(pair)
            yield pair

    def drop(self, dataset: str, waiting: list[tuple[Work, Cell]], display: Display) -> int:
        """After a run on an absent dataset: it is there now, or its other runs are left out; returns how many were."""
        if dataset not in self.absent:
            return 0
        self.absent = {**self._absent()}
        lost = [pair for pair in waiting if pair[1].dataset == dataset] if dataset in self.absent else []
        for pair in lost:
            waiting.remove(pair)
        if lost:
            display.say(f"left out: {len(lost)} more run(s) that need dataset={dataset}")
        return len(lost)

    def start(self, work: Work, cell: Cell) -> Job:
        where = {
            "results_dir": str(self.results / "runs"),
            "data_dir": self.options.data_dir,
            "device": self.options.device,
            "threads": self.options.threads,
        }
        line = [sys.executable, "-m", "fgl_bench.cli", *cell.overrides, "progress=false"]
        line += [f"{key}={quoted(value)}" for key, value in where.items() if value is not None]
        log = tempfile.TemporaryFile("w+", encoding="utf-8")
        dying = end_with(os.getpid()) if sys.platform == "linux" else None
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, preexec_fn=dying)
        return Job(work, cell, process, log, time.monotonic())

    def finish(self, job: Job, display: Display) -> None:
        """Keep the result of a run that has ended, or note that there is none."""
        work, cell, seconds = job.work, job.cell, time.monotonic() - job.begin
        job.log.seek(0)
        output = job.log.read().splitlines()
        job.log.close()
        if job.process.returncode == 0 and is_complete(self.results / "runs" / cell.folder):
            self.collect(work)
            test = work.stored[cell.digest]["test"]
            shown = ", ".join(f"{model} {percent(scores['mean'])}" for model, scores in test.items())
            display.say(f"done: {work.name(cell)} in {seconds:.0f} s: {shown}")
            self.write(work, cell.digest)
            return
        told = [line.strip() for line in output if line.strip()][-6:] or [f"exit status {job.process.returncode}"]
        self.failures.append(Failure(work.name(cell), told[-1], cell.command))
        display.say(f"failed: {work.name(cell)} after {seconds:.0f} s (exit {job.process.returncode})", *(f"    {line}" for line in told))

    def write(self, work: Work, digest: str | None = None) -> list[Path]:
        """Write a paper's chosen tables from what is stored, or those only that show the run ``digest``."""
        folder, paths = self.results / "tables" / work.paper.name, []
        for table in work.tables:
            planned = {(cell.row.key, cell.column.key): cell for cell in work.cells if cell.table == table.key}
            if table.measure == "curves" or (digest and digest not in {cell.digest for cell in planned.values()}):
                continue
            paths += write_table(folder, work.paper, table, work.cells, work.stored, work.published, work.changed)
            path = write_statistics(folder, work.paper, table, planned, work.stored, work.published)
            paths += [path] if path else []
        return paths

    def overview(self) -> None:
        """Write the agreement with all papers."""
        lines = list(OVERVIEW)
        for work in self.works:
            for table in sorted(work.tables, key=lambda each: (len(each.key), each.key)):
                planned = {(cell.row.key, cell.column.key): cell for cell in work.cells if cell.table == table.key}
                found = [analyse(work.paper, table, planned, work.stored, work.published, model) for model in MODELS]
                if table.measure != "curves":
                    digests = {cell.digest or str(cell.overrides) for cell in planned.values()}
                    run = f"{len(digests & set(work.stored))} of {len(digests)}"
                    lines.append(overview_line(work.paper.title, table.key, run, found))
        path = self.results / "tables" / "agreement.md"
        write_whole(path, "\n".join(lines) + "\n")
        print(f"written: {path.relative_to(self.results)}")


def percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.1f}"


if __name__ == "__main__":
    main()
