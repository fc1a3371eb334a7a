"""One self-contained HTML page of papers' tables and a folder's runs: data embedded in a fixed page (``page/``), without requests."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.leaderboard.protocol import FILES, read_protocol
from fgl_bench.leaderboard.submission import whole_board
from fgl_bench.leaderboard.views import board_data
from fgl_bench.papers import analysis
from fgl_bench.papers.placement import OWN, PlacedRow, read_rows, stored_results
from fgl_bench.papers.plan import Cell, Paper, Row, fill, load_paper, papers, plan
from fgl_bench.papers.published import read_published
from fgl_bench.report.method_facts import all_methods, of_run
from fgl_bench.report.own_runs import own_runs
from fgl_bench.report.shown import ABOUT_VERDICTS, Source, paper_data, run_data
from fgl_bench.results.cells import NAME, compact, read_cells
from fgl_bench.results.choose import check_keys, met_by
from fgl_bench.results.frame import Result, complete_runs, folder_of, stored_cells
from fgl_bench.results.question import Question, Words, conditions
from fgl_bench.results.scored import DEFAULT_TASK
from fgl_bench.results.sweeps import in_scope

PAGE = Path(__file__).parent / "page"
SCRIPTS = (
    "vendor/LICENSE", "vendor/d3.min.js", "vendor/plot.umd.min.js",
    "core.js", "tables.js", "charts.js", "run.js", "runs.js", "papers.js", "leaderboard.js", "methods.js", "compare.js", "page.js",
)  # fmt: skip
MOST_SEEDS = 100
MOST_BYTES = 5_300_000  # of data; the page itself has 600,000


def gather(paper: Paper, results: Path, published: Path, runs: Sequence[Result] = (), keys: set[str] | None = None) -> Source:
    """Collect the plan of a paper's tables, the cells in ``results/cells/<paper>`` or ``runs``, and the published scores."""
    folder = results / "cells" / paper.name
    tables = tuple(table for table in paper.tables if keys is None or table.key in keys)
    cells, known = plan(tables), read_cells(folder)
    stored = fill(cells, known)
    files = {str(cell["config_hash"]): folder / NAME for cell in stored.values()}
    by_overrides = {run.overrides: run for run in runs}
    for cell in cells:
        if cell.key not in stored and (run := by_overrides.get(cell.overrides)) is not None:
            stored[cell.key] = compact(run.summary, cell.command, run.folder)
    verdicts, claims = (lines_of(paper.name, published.parent / "tables" / f"{name}.csv") for name in ("verdicts", "claims"))
    printed = read_published(published / f"{paper.name}.csv")
    return Source(replace(paper, tables=tables), cells, stored, printed, verdicts, files, claims=claims)


def lines_of(paper: str, path: Path) -> list[dict[str, str]]:
    """Read a paper's lines of a file that ``make reproduce-tables`` wrote; empty without the file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return [line for line in csv.DictReader(lines) if line["paper"] == paper]


def sources(
    results: str | Path,
    names: Sequence[str] | None = None,
    placed: Path | None = None,
    sweep: str | int | None = None,
    where: Words | Mapping[str, Any] = (),
) -> list[Source]:
    """Return the sources in a results folder: the papers' cells (``cells/``), and other runs below it.

    Args:
        names: names of papers; None for all.
        placed: folder with the rows of ``fgl-bench place``.
        sweep: sweep to show; by default the newest one and later runs, see :func:`fgl_bench.results.sweeps.in_scope`.
        where: allowed values of the user's runs, as in :func:`fgl_bench.table`.

    Raises:
        UserError: the folder does not exist or has no runs.
    """
    folder = folder_of(results)
    rows = read_rows(placed) if placed is not None and placed.is_dir() else []
    whole = (folder / "cells").is_dir()
    if whole:
        stores = folder
        published = folder / "published" if (folder / "published").is_dir() else stored_results(papers()[0]) / "published"
        shown = papers() if names is None else list(names)
    else:
        shown = sorted({row.paper for row in rows} & set(papers()) & set(papers() if names is None else names))
        stores = stored_results(shown[0]) if shown else folder
        published = stores / "published"
    runs = complete_runs(folder) or ([] if whole else stored_cells(folder))
    result = [of_paper(name, stores, published, rows, runs, whole) for name in shown]
    known = {digest for source in result for digest in source.runs}
    own = [run for run in runs if run.summary["config_hash"] not in known]
    asked = conditions(where)
    if asked:
        check_keys(own, Question(where=asked))
        own = met_by(own, asked)
    if own:
        result.insert(0, own_runs(folder, in_scope(folder, own, sweep)))
    if not (runs or rows or any(source.stored for source in result)):
        raise UserError(f"{folder}: there is no complete run in it")
    return result


def of_paper(name: str, results: Path, published: Path, rows: Sequence[PlacedRow], runs: Sequence[Result], whole: bool) -> Source:
    """Return a paper with users' rows: the ``whole`` paper, or only tables with such rows."""
    keys = None if whole else {row.table for row in rows if row.paper == name}
    source = with_rows(gather(load_paper(name), results, published, runs if whole else (), keys), rows)
    folders = {run.summary["config_hash"]: run.folder for run in runs}
    return replace(source, files={**source.files, **{digest: folders[digest] for digest in source.runs if digest in folders}})


def with_rows(source: Source, rows: Sequence[PlacedRow]) -> Source:
    """Add users' rows at the top of a paper's tables."""
    paper, cells, stored = source.paper, list(source.cells), dict(source.stored)
    tables = []
    for table in paper.tables:
        own = [row for row in rows if (row.paper, row.table) == (paper.name, table.key)]
        for number, row in enumerate(own, 1):
            columns = [column for column in table.columns if column.key in row.cells]
            if not columns:
                continue
            title = f"{row.title}, {' '.join(row.changed)}" if row.changed else row.title
            added = Row(f"{OWN}{number}", title, str(row.cells[columns[0].key]["algorithm"]))
            table = replace(table, rows=(added, *table.rows))
            for column in columns:
                cell = row.cells[column.key]
                stored[table.key, added.key, column.key] = cell
                cells.append(Cell(table.key, added, column, tuple(str(cell["command"]).removeprefix("fgl-bench ").split(" "))))
        tables.append(table)
    return replace(source, paper=replace(paper, tables=tuple(tables)), cells=cells, stored=stored)


def page(sources_shown: Iterable[Source], out: Path | None = None, leaderboard: Path | None = None) -> str:
    """Return the page as text.

    Args:
        out: path of the page; links to runs are relative to its folder. None omits links.
        leaderboard: folder of the leaderboards' cells; None or a missing one for no leaderboard.
    """
    sources_shown = list(sources_shown)
    stored = {digest: cell for source in sources_shown for digest, cell in source.runs.items()}
    files = {digest: path for source in sources_shown for digest, path in source.files.items()}
    scores = {digest: found for source in sources_shown for digest, found in source.scores.items()}
    runs = {digest: {**run_data(cell), **({"metrics": scores[digest]} if digest in scores else {})} for digest, cell in stored.items()}
    if out is not None:
        for digest, path in files.items():
            runs[digest]["file"] = relative(path, out)
    methods = dict(all_methods()) if any(not source.own for source in sources_shown) else {}
    for cell in stored.values():
        name = str(cell["algorithm"])
        if name not in methods:
            base = all_methods().get(name.partition("+")[0])
            methods[name] = {**base, "name": name} if base else of_run(name, cell.get("config") or {})
    data = {
        "papers": [paper_data(source) for source in sources_shown],
        "runs": runs,
        "methods": [methods[name] for name in sorted(methods)],
        "about": plain(analysis.ABOUT),
        "about_verdicts": ABOUT_VERDICTS,
        "leaderboards": boards(leaderboard),
        "references": sorted({entry.algorithm for entry in read_protocol(FILES[DEFAULT_TASK]).entries if entry.reference}),
        "quantiles": quantiles(max((len(cell["seeds"]) for cell in stored.values()), default=2)),
        "made": summary_of_runs(sources_shown),
    }
    html = (PAGE / "page.html").read_text(encoding="utf-8")
    for mark, part in (
        ("CSS", (PAGE / "page.css").read_text(encoding="utf-8")),
        ("JS", "".join((PAGE / name).read_text(encoding="utf-8") + "\n" for name in SCRIPTS)),
        ("DATA", packed(data)),
    ):
        html = html.replace(f"/*{mark}*/", part, 1)
    return html


def packed(data: dict) -> str:
    """Encode the data as compressed JSON in base64, below ``MOST_BYTES``; the page reports what is left out.

    Dropped first are matrices before the last trip of a run, then all matrices, then labels, then curves.
    """
    for level, less in enumerate((lambda run: run, last_matrices, without("matrices"), without("labels"), without("curve"))):
        if level:
            data["runs"] = {digest: less(run) for digest, run in data["runs"].items()}
            data["less"] = "Some curves, matrices or labels of runs are left out to keep this page small; fgl-bench report RUNS shows them."
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
        encoded = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")
        if len(encoded) <= MOST_BYTES:
            break
    return encoded


def last_matrices(run: dict) -> dict:
    """Keep only the last matrix of each kind."""
    last = {kind: dict([max(trips.items(), key=lambda each: int(each[0]))]) for kind, trips in (run.get("matrices") or {}).items() if trips}
    return {**run, "matrices": last} if last else run


def without(name: str) -> Callable[[dict], dict]:
    return lambda run: {key: value for key, value in run.items() if key != name}


def plain(text: str) -> str:
    """Remove Markdown markup."""
    return text.replace("*", "").replace("`", "")


def summary_of_runs(shown: Sequence[Source]) -> str:
    """Return the number of runs and their dates."""
    cells = {digest: cell for source in shown for digest, cell in source.runs.items()}
    if not cells:
        return "Nothing has been run yet."
    dates = sorted(str(cell["finished"])[:10] for cell in cells.values())
    days = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    own = len({digest for source in shown if source.own for digest in source.runs})
    parts = [f"{len(cells) - own} of the papers' tables"] * (own < len(cells)) + [f"{own} of your own"] * (0 < own)
    return f"Runs: {' and '.join(parts)}, finished {days}. Made by fgl-bench report."


def relative(path: Path, out: Path) -> str:
    """Return a link from the page to a file."""
    return Path(os.path.relpath(path.resolve(), out.resolve().parent)).as_posix()


def quantiles(most: int) -> list[float]:
    """Return Student's t quantiles at 97.5 %, for 2 and more seeds."""
    from scipy import stats

    return [round(float(stats.t.ppf(0.975, seeds - 1)), 4) for seeds in range(2, min(max(most, 2), MOST_SEEDS) + 1)]


def boards(folder: Path | None) -> dict[str, dict[str, Any]]:
    """Return the leaderboards that have cells below ``folder``, by task."""
    protocols = {task: read_protocol(file) for task, file in FILES.items()}
    found = {task: board_data(whole_board(folder / each.folder, each)) for task, each in protocols.items() if folder is not None}
    return {task: board for task, board in found.items() if board}
