"""Commands other than runs: their usage, and the commands that list, show and copy choices."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from fgl_bench.config.choices import GROUPS, choices, config_folder, file_of, path_of, suggest
from fgl_bench.errors import UserError
from fgl_bench.results.console import line_width
from fgl_bench.utils.files import home

if TYPE_CHECKING:
    from fgl_bench.results.frame import Result

USAGE = """\
Commands (instead of KEY=VALUE)
  ls [GROUP]               list the groups, or the choices of a group
  show GROUP/CHOICE        print a choice's file: keys, values and comments
  show RUN                 print the command and the configuration of a run, or
                           of a paper's cell: HASH or PAPER/TABLE/ROW/COLUMN
  cp GROUP/CHOICE FOLDER   copy a choice to edit it; run it by
                           fgl-bench --config-dir FOLDER GROUP=my_CHOICE
  check FILE.py            test what must hold for any method, backbone or split
  table [RESULTS] rows=algorithm cols=dataset,split
                           runs as a table with tests and ranks: md, csv, LaTeX
  plot KIND [RESULTS]      curves, bars, ranks, pareto or clients of runs
  predict RUN [GRAPH]      predictions of a run's saved models for its own
                           nodes, or for those of another graph
  report [RESULTS]         one HTML page of all runs and papers' tables
  place FILE.py paper=fedsa_gcl table=3
                           your method in a published table
  place FILE.py leaderboard columns=webkb
                           your method tuned and scored as the leaderboard's
  leaderboard              all methods tuned equally: show=scores, against,
                           tuning, costs or fairness
  submit --check FOLDER    test that a method's cells follow the leaderboard's
                           protocol and can be repeated
  import NODES.csv EDGES.csv label=COLUMN
                           a graph of your own, also of networkx or PyG, for
                           dataset=custom
  import FOLDER            cells that another machine stored
  tune SPACE               search hyperparameters on validation scores
  COMMAND --help           the usage of a command
"""


COMMANDS = {
    "ls": "fgl_bench.cli.commands:ls",
    "show": "fgl_bench.cli.commands:show",
    "cp": "fgl_bench.cli.commands:cp",
    "check": "fgl_bench.cli.check:run",
    "table": "fgl_bench.cli.table:show",
    "plot": "fgl_bench.cli.plot:draw",
    "predict": "fgl_bench.cli.predict:write",
    "report": "fgl_bench.cli.report:write",
    "place": "fgl_bench.cli.place:show",
    "leaderboard": "fgl_bench.cli.leaderboard:show",
    "submit": "fgl_bench.cli.submit:run",
    "import": "fgl_bench.cli.import_cells:run",
    "tune": "fgl_bench.cli.tune:search",
}
CELLS = config_folder().parent / "results" / "cells"  # those of the package
CHOOSING = ("ls", "show", "cp", "check", "place", "submit", "tune")  # commands that also take the folders of --config-dir


def about(path: Path) -> str:
    """Return the first comment of a YAML file, skipping a ``@package`` line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"#(?!\s*@package)\s*(.+)", line)
        if match:
            return match[1].strip()
        if line and not line.startswith("#"):
            break
    return ""


def ls(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Print the groups, or the choices of a group."""
    if not arguments:
        for group in GROUPS:
            names = choices(group, folders)
            head = f"{group:<18}{len(names):>4}  "
            print(head + textwrap.shorten(", ".join(names), line_width() - len(head), placeholder=" ..."))
        return
    for group in arguments:
        group = group.rstrip("/").replace(".", "/")
        if group not in GROUPS:
            raise UserError(f"{group}: there is no such group{suggest(group, GROUPS)}")
        names = choices(group, folders)
        width = max(map(len, names), default=0)
        for name in names:
            line = f"{name:<{width}}  {about(path_of(group, name, folders))}".rstrip()
            broken = textwrap.wrap(line, line_width(), subsequent_indent=" " * (width + 2), break_on_hyphens=False)
            print("\n".join(broken) if sys.stdout.isatty() else line)  # a pipe gets a line per choice


def show(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Print the files of choices, and the commands and configurations of runs and stored cells."""
    if not arguments:
        raise UserError("show what? such as fgl-bench show algorithm/fedprox; fgl-bench ls lists all")
    for name in arguments:
        if results := stored(name):
            shown(results)
            continue
        _, _, path = file_of(name, folders)
        sys.stdout.write(path.read_text(encoding="utf-8"))


def stored(name: str) -> list[Result]:
    """Return the run in a folder, the run or cell with a hash, or the cells at ``PAPER/TABLE/ROW/COLUMN`` or at a shorter place."""
    from fgl_bench.results.frame import complete_runs, stored_cells  # numpy

    if (folder := Path(os.path.expanduser(name))).joinpath("summary.json").is_file():
        return complete_runs(folder)
    paper, _, place = name.rstrip("/").partition("/")
    if re.fullmatch(r"[0-9a-f]{12}", name):
        runs = [run for path in Path("results/runs").glob(f"*/*/*/*/{name}") for run in complete_runs(path)]
        return runs or [cell for cell in stored_cells(CELLS) if cell.summary["config_hash"] == name][:1]
    if not place or not (CELLS / paper).is_dir():
        return []
    cells = stored_cells(CELLS / paper)
    places = {"/".join(each[:3]): cell for cell in cells for each in cell.summary["places"]}
    if place in places:
        return [places[place]]
    inside = {cell.summary["config_hash"]: cell for name, cell in places.items() if name.startswith(f"{place}/")}
    if not inside:
        raise UserError(f"{name}: no such cell{suggest(place, sorted(places))}")
    return [*inside.values()]


def shown(results: Sequence[Result]) -> None:
    """Print the command and the configuration of one result; of several, a line for each."""
    for result in results:
        command = shlex.join(["fgl-bench", *(result.overrides or ())])
        if len(results) > 1:
            print(f"{result.summary['config_hash']}  {command}")
        else:
            config = yaml.safe_dump(result.summary["config"], sort_keys=False, allow_unicode=True)
            print(f"# {result.folder}, config_hash {result.summary['config_hash']}\n# {command}", *scores_of(result), sep="\n# ")
            print(config, end="")


def scores_of(result: Result) -> Iterator[str]:
    """Yield the test scores of a result in a line; then the printed numbers that it was compared with, each with its verdict."""
    import pandas as pd

    from fgl_bench.results.console import percent

    test, verdicts = result.summary["test"], CELLS.parent / "tables" / "verdicts.csv"
    yield ", ".join(f"{model} model {percent(scores)}" for model, scores in test.items()) + f" (test {result.summary['metric']} in %)"
    if "places" not in result.summary or not verdicts.is_file():
        return
    places = {(result.folder.name, *place[:3]) for place in result.summary["places"]}
    for row in pd.read_csv(verdicts, dtype=str, keep_default_na=False).to_dict("records"):
        if (row["paper"], row["table"], row["row"], row["column"]) in places:
            difference = f"difference {float(row['difference']):+.1f}, 90 % interval {float(row['low']):.1f} to {float(row['high']):.1f}"
            where = f"{row['paper']} table {row['table']}, {row['column']}"
            yield f"printed in {where}: {row['printed_text']}; {row['model']} model of ours: {difference}: {row['verdict']}"


def cp(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Copy a choice's file for editing; never overwrites a file."""
    if len(arguments) != 2:
        raise UserError("cp takes a choice and a folder (or a .yaml file), such as fgl-bench cp algorithm/fedprox mine")
    group, choice, path = file_of(arguments[0], folders)
    target = home("FOLDER", arguments[1])
    if target.suffix != ".yaml":
        *parts, last = choice.split("/")
        target = target.joinpath(group, *parts, f"my_{last}.yaml")
    if target.exists():
        raise UserError(f"{target} is there already; give another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from error
    print(f"written: {target}")
    base = target.as_posix().removesuffix(".yaml")
    if f"{group}/" in base:
        folder, _, name = base.rpartition(f"{group}/")
        print(f"run it with: fgl-bench --config-dir {folder.rstrip('/') or '.'} {group}={name}")
