"""Run what the papers' tables lack, then write them with the published numbers next to ours.

    python scripts/reproduce_tables.py --paper fedsa_gcl --tables 3 --datasets cora --list

Every run is one ``fgl-bench`` command in a process of its own, so that one that fails never stops the others. A run that is
complete is not repeated: its compact result is kept in results/cells/<paper>/ and the tables are made from those. Ctrl-C ends after
writing the tables, and an end without warning costs the run under way; the same command continues where it stopped. Most telling methods
come first, or with ``--cheapest`` the cheapest runs, printed cells before those that no paper has; after them, where several rows of ours
stand for a printed one, those that it is not compared with (results/settlements/). Of a dataset that is absent one run is tried, which
downloads it where it can be; if that fails its others are left out.
``--again`` makes the chosen runs once more, complete or not.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf

from fgl_bench.config.choices import config_folder, content
from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import build
from fgl_bench.config.settings import resolve_budget
from fgl_bench.data.raw import data_root
from fgl_bench.errors import UserError
from fgl_bench.papers.plan import Cell, Paper, Table, fill, in_order, load_paper, papers, plan
from fgl_bench.papers.published import read_published
from fgl_bench.papers.reproduction import reproduction, write
from fgl_bench.papers.verdicts import read_registered
from fgl_bench.papers.work import Runs, Work, outlook, preset
from fgl_bench.results.cells import read_cells
from fgl_bench.results.estimates import MEASURED, Costs, duration, rates_of, read_rates, write_rates
from fgl_bench.results.store import identity
from fgl_bench.utils.files import write_whole

ROOT = Path(__file__).resolve().parents[1]
ALL = "all"


def main() -> None:
    options = parser().parse_args()
    try:
        sys.exit(Reproduction(options).run())
    except BrokenPipeError:  # --list | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0 if options.list else 1)
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
    result.add_argument("--cheapest", action="store_true", help="cheapest runs of all papers first, printed cells before others")
    result.add_argument("--slowest", action="store_true", help="most expensive runs of all papers first, for a machine that is much faster")
    result.add_argument("--longest", type=float, default=math.inf, metavar="HOURS", help="leave out runs that are estimated to take longer")
    result.add_argument("--set", dest="extra", nargs="+", default=[], metavar="KEY=VALUE", help="further keys of every run")
    result.add_argument("--again", action="store_true", help="also make the runs that are complete; each takes its predecessor's place")
    result.add_argument("--list", action="store_true", help="show the plan, run by run, and stop")
    result.add_argument("--check", action="store_true", help="compose every stored cell's overrides and compare with its configuration")
    result.add_argument("--tables-only", action="store_true", help="run nothing; write the tables from what is there")
    return result


def names(text: str) -> list[str]:
    """``a,b`` or ``[a,b]`` as a list."""
    return [part for part in text.strip("[]").replace(",", " ").split() if part]


def seed_list(text: str) -> list[str]:
    """``5`` is the seeds 0 to 4; ``[5]`` and ``0,1`` are seeds."""
    if text.isdigit() and int(text) > 0:
        return [str(seed) for seed in range(int(text))]
    seeds = names(text)
    if not seeds or not all(seed.isdigit() for seed in seeds) or text == "0":
        raise argparse.ArgumentTypeError(f"{text}: give how many seeds (5), or a list ([0] or 0,1,2)")
    return seeds


def flat(parts: list[list[str]]) -> list[str]:
    return [name for part in parts for name in part]


class Reproduction:
    """One call of the script."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.results: Path = options.results.resolve()
        self.extra = [f"seeds=[{','.join(options.seeds)}]"] if options.seeds else []
        self.extra += options.extra
        self.keys = [key.removeprefix("table") for key in flat(options.tables)]
        wanted = papers() if options.paper == ALL else names(options.paper)
        self.whole = set(wanted) == set(papers()) and not options.tables and not options.datasets
        chosen = [load_paper(name) for name in wanted]
        self._check("TABLE", self.keys, list(dict.fromkeys(table.key for paper in chosen for table in paper.tables)))
        rows = dict.fromkeys(row.key for paper in chosen for table in paper.tables for row in table.rows)
        self._check("METHODS", flat(options.methods), list(rows))
        self._check("DATASETS", flat(options.datasets), sorted(path.stem for path in (config_folder() / "dataset").glob("*.yaml")))
        self.costs = Costs((), *(read_rates(ROOT / "results" / name) for name in ("rates.csv", MEASURED)))
        self.works = [work for paper in chosen if (work := self._work(paper)).tables]
        datasets = dict.fromkeys(name for work in self.works for table in work.tables for name in table.datasets)
        self.datasets = {name: build(OmegaConf.create(content("dataset", name))) for name in datasets if name != "custom"}
        self.absent = self._absent()

    def _check(self, variable: str, given: list[str], allowed: list[str]) -> None:
        for name in given:
            if name not in allowed:
                raise UserError(f"{variable}={name}: unknown; allowed: {', '.join(allowed)}")

    def _work(self, paper: Paper) -> Work:
        datasets, results = flat(self.options.datasets), ROOT / "results"
        tables = [self._with(paper, table, datasets) for table in paper.tables if not self.keys or table.key in self.keys]
        extra = [text for text in self.extra if not (text.startswith("seeds=") and self._usual(tables))]
        return Work(
            paper,
            tables,
            read_published(results / "published" / f"{paper.name}.csv"),
            self.results,
            extra,
            read_registered(results / "settlements"),
            fill(plan(tables), read_cells(results / "draws" / paper.name)),
            self.costs,
        )

    def _usual(self, tables: list[Table]) -> bool:
        """Return True if the seeds that were asked for are those of the tables' presets."""
        usual = {str(preset(table.experiment, "")["seeds"]) for table in tables}
        return usual == {str(list(map(int, self.options.seeds)))}

    def _with(self, paper: Paper, table: Table, datasets: list[str]) -> Table:
        """``table`` with a column more for a dataset that no table of the paper has, where this paper was asked for by name."""
        known = {name for other in paper.tables for name in other.datasets}
        new = [name for name in datasets if name not in known] if self.options.paper != ALL else []
        groups = {column.group: column for column in table.columns}.values()
        return replace(table, columns=(*table.columns, *(replace(column, dataset=name) for column in groups for name in new)))

    def _absent(self) -> dict[str, Path]:
        """The datasets without raw files here, and the first file that is missing."""
        root, missing = data_root(self.options.data_dir), {}
        for name, dataset in self.datasets.items():
            if files := dataset.absent(root):
                missing[name] = files[0]
        return missing

    def run(self) -> int:
        """Exit status: 0, 1 if a run failed, 130 after Ctrl-C."""
        for work in self.works:
            work.read()
        if self.options.check:
            return check(self.works)
        todo = self.todo()
        self.show(todo)
        if self.options.list:
            return 0
        runs = self.runs(todo)
        if not self.options.tables_only:
            runs.make()
        for work in self.works:
            for path in work.write():
                print(f"written: {path.relative_to(self.results)}")
        if self.whole:
            folder = self.results / "tables"
            for path in write(reproduction(self.works, ROOT / "results" / "settlements", self.absent), folder):
                print(f"written: {path.relative_to(self.results)}")
            write_whole(folder / "outlook.md", "\n".join(["# What is left", "", *outlook(self.works, self.absent)]) + "\n")
            write_rates(self.results / "rates.csv", self.costs.earlier | rates_of(self.costs.known))
        for (work, cell), reason in runs.failures:
            print(f"failed: {work.name(cell)}: {reason}\n    {cell.command}", file=sys.stderr)
        return runs.status

    def runs(self, todo: list[tuple[Work, Cell]]) -> Runs:
        given = {key: getattr(self.options, key) for key in ("data_dir", "device", "threads")}
        where = {"results_dir": str(self.results / "runs"), "overwrite": True if self.options.again else None, **given}
        end = time.time() + 3600 * (self.options.hours or 1e6)
        return Runs(waiting=todo, jobs=self.options.jobs, until=end, where=where, absent=self.absent, look=self._absent)

    def wanted(self, cell: Cell) -> bool:
        """Return True if the cell is among the datasets, methods and numbers of clients that were asked for."""
        datasets, methods, clients = (flat(getattr(self.options, name)) for name in ("datasets", "methods", "clients"))
        fits = not clients or cell.column.where.get("num_clients", "20") in clients
        return (not datasets or cell.dataset in datasets) and (not methods or cell.row.key in methods) and fits

    def todo(self) -> list[tuple[Work, Cell]]:
        """The runs to make: paper by paper or by their cost, then those of alternative rows, those whose dataset is absent at the end."""
        pairs = [
            (work, cell)
            for work in self.works
            for cell in in_order(work.paper, [each for each in work.cells if self.wanted(each)])
            if self.options.again or cell.key not in work.stored
        ]
        if self.options.cheapest:
            printed = {work.paper.name: work.printed() for work in self.works}
            pairs.sort(key=lambda pair: (pair[1].overrides not in printed[pair[0].paper.name], pair[0].cost(pair[1]) or math.inf))
        if self.options.slowest:
            pairs.sort(key=lambda pair: -(pair[0].cost(pair[1]) or 0))
        long = [pair for pair in pairs if (pair[0].cost(pair[1]) or 0) > 3600 * self.options.longest]
        if long:
            print(f"left out: {len(long)} run(s) that are estimated to take longer than {self.options.longest:.2f} h")
            pairs = [pair for pair in pairs if pair not in long]
        later = {work.paper.name: work.alternatives() for work in self.works}
        return sorted(pairs, key=lambda pair: (pair[1].dataset in self.absent, pair[1].overrides in later[pair[0].paper.name]))

    def show(self, todo: list[tuple[Work, Cell]]) -> None:
        """Print the plan: what is done, what is to be run and how long it takes, what needs a dataset that is absent."""
        for work in self.works:
            cells = [cell for cell in work.cells if self.wanted(cell)]
            mine = [cell for other, cell in todo if other is work]
            here = [cell for cell in mine if cell.dataset not in self.absent]
            costs = [work.cost(cell) for cell in here]
            unknown = f", {costs.count(None)} of them of unknown cost" if None in costs else ""
            total = duration(sum(c or 0 for c in costs) or None) if here else "nothing to do"
            done = len({work.stored[cell.key]["config_hash"] for cell in cells if cell.key in work.stored})
            print(f"{work.paper.name}: {done} run(s) complete, {len(here)} to make{unknown}: {total}")
            later = work.alternatives()
            if costs_later := [cost or 0 for cell, cost in zip(here, costs, strict=True) if cell.overrides in later]:
                about = duration(sum(costs_later) or None)
                print(f"  {len(costs_later)} of them, for rows without a printed value to compare, come after the others: {about}")
            for name in dict.fromkeys(cell.dataset for cell in mine if cell.dataset in self.absent):
                count = sum(cell.dataset == name for cell in mine)
                print(f"  {count} more need dataset={name}, which is absent ({self.absent[name]}) and downloaded where it can be")
        if self.options.list:
            for work, cell in todo:
                needs = f", needs dataset={cell.dataset}" if cell.dataset in self.absent else ""
                print(f"  {work.name(cell)}: {duration(work.cost(cell))}{needs}\n    {cell.command}")
        sys.stdout.flush()


def check(works: list[Work]) -> int:
    """Print the stored cells whose overrides compose to another configuration now; exit status 1 if there are any."""
    composer, changed = Composer(), 0
    cells_by_overrides = {cell.overrides: (work, cell) for work in works for cell in work.cells if cell.key in work.stored}
    for work, cell in cells_by_overrides.values():
        cfg = composer(cell.overrides)
        now = identity(OmegaConf.to_container(cfg, resolve=True), *resolve_budget(cfg))
        stored = {key: value for key, value in work.stored[cell.key]["config"].items() if key != "data"}  # sums of raw files
        if now != stored:
            changed += 1
            print(f"{work.name(cell)}: {', '.join(key for key in {**now, **stored} if now.get(key) != stored.get(key))}", flush=True)
    print(f"{len(cells_by_overrides)} runs composed, {changed} differ from what is stored")
    return int(changed > 0)


if __name__ == "__main__":
    main()
