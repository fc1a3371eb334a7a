"""One self-contained HTML page of all papers' tables: the data as json inside a fixed page (``page/``), nothing fetched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgl_bench.config.parts import Parts
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.reporting import analysis
from fgl_bench.reporting.cells import stored_of
from fgl_bench.reporting.console import amount
from fgl_bench.reporting.divergence import footnote, shares
from fgl_bench.reporting.grids import levels, look_up, named, printed
from fgl_bench.reporting.measures import MEASURES, Measure, reading
from fgl_bench.reporting.plan import Cell, Column, Paper, Row, Table, available, plan
from fgl_bench.reporting.published import Printed, read_published

PAGE = Path(__file__).parent / "page"


@dataclass(frozen=True)
class Source:
    """What the page says about one paper.

    Attributes:
        cells: the plan of all its tables.
        stored: results by the hash of the planned configuration.
    """

    paper: Paper
    cells: Sequence[Cell]
    stored: Mapping[str, Mapping]
    published: Printed


def gather(paper: Paper, results: Path, published: Path, parts: Parts | None = None) -> Source:
    """A paper's plan, the cells in ``results/cells/<paper>`` and the printed numbers in the folder ``published``."""
    cells = plan(paper, paper.tables, parts=parts)
    stored = stored_of(cells, results / "cells" / paper.name)
    return Source(paper, cells, stored, read_published(published / f"{paper.name}.csv"))


def page(sources: Iterable[Source]) -> str:
    """The whole page as text."""
    sources = list(sources)
    runs = {digest: run_data(cell) for source in sources for digest, cell in source.stored.items()}
    dates = sorted(str(cell["finished"])[:10] for source in sources for cell in source.stored.values())
    data = {
        "papers": [paper_data(source) for source in sources],
        "runs": runs,
        "about": analysis.ABOUT.replace("*", "").replace("`", ""),
        "made": f"{len(runs)} runs, {dates[0]} to {dates[-1]}; made by make report." if dates else "Nothing has been run yet.",
    }
    # In a script element only "</" and "<!--" end or change the text.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    html = (PAGE / "page.html").read_text(encoding="utf-8")
    for mark, part in (
        ("CSS", (PAGE / "page.css").read_text(encoding="utf-8")),
        ("JS", "".join((PAGE / name).read_text(encoding="utf-8") for name in ("drawings.js", "page.js"))),
        ("DATA", text),
    ):
        html = html.replace(f"/*{mark}*/", part, 1)
    return html


def paper_data(source: Source) -> dict:
    return {"name": source.paper.name, "title": source.paper.title, "tables": [table_data(source, table) for table in source.paper.tables]}


def measure_of(table: Table) -> Measure:
    """What the page shows of a table; the accuracies where a figure shows curves."""
    return MEASURES["accuracy" if table.measure == "curves" else table.measure]


def table_data(source: Source, table: Table) -> dict:
    """A table: its rows and columns, an entry for each cell, statistics for each kind of model."""
    planned = {(cell.row.key, cell.column.key): cell for cell in source.cells if cell.table == table.key}
    measure = measure_of(table)
    targets = levels(table, planned, source.stored, source.published)
    found = {
        model: analysis.analyze(source.paper, table, planned, source.stored, source.published, model)
        for model in MODELS
        if model in measure.kinds
    }
    place = f"table {table.key}" if table.key[0].isdigit() else table.key
    return {
        "key": table.key,
        "label": f"{place}: {table.title}",
        "title": table.title,
        "heading": f"{source.paper.title}, {place}",
        "measure": table.measure,
        "reading": " ".join([reading(table.measure).replace("*", ""), *footnote(named(table, planned, source.stored))]),
        "kinds": list(measure.kinds),
        "columns": [{"key": column.key, "dataset": column.dataset} for column in table.columns],
        "rows": [{"key": row.key, "title": row.title} for row in table.rows],
        "cells": {
            f"{row.key}|{column.key}": cell_data(source, table, row, column, planned[row.key, column.key], found, targets.get(column.key))
            for row in table.rows
            for column in table.columns
        },
        "statistics": {model: analysis.plain(part) for model, part in found.items()},
    }


def cell_data(
    source: Source,
    table: Table,
    row: Row,
    column: Column,
    planned: Cell,
    found: Mapping[str, analysis.Statistics],
    target: float | None,
) -> dict:
    """What stands in one place of a table: our entries, the printed one, verdicts, and which run it is."""
    their, cell = look_up(source.published, table, row, column), source.stored.get(planned.digest)
    entry = {
        "command": planned.command,
        "available": available(row.algorithm),
        "published": printed(their),
        "published_value": None if their is None else float(their.mean),
    }
    if cell is None:
        return entry
    measure = measure_of(table)
    for kind in measure.kinds:
        ours = measure.shown(cell, kind, target)
        verdict = found[kind].verdicts.get((row.key, column.key)) if kind in found else None
        entry[kind] = {"text": ours.text, "rank": ours.rank, "verdict": verdict}
    return {**entry, "run": planned.digest}


def percent(value: float | None) -> str:
    return "no score" if value is None else f"{100 * value:.1f}"


def run_data(cell: Mapping) -> dict:
    """What the page shows of one run: facts as (name, text), its curve, its first seed's matrices and labels where it kept them."""
    code = cell.get("code") or {}
    facts = [
        ("seeds", ", ".join(map(str, cell["seeds"]))),
        *((f"{model} by seed", ", ".join(map(percent, cell["test"][model]["per_seed"]))) for model in MODELS),
        *([("not finite", shares(cell))] if cell.get("diverged") else []),
        *(
            (f"{model} over clients", f"worst {100 * even['worst']:.1f}, median {100 * even['median']:.1f}, best {100 * even['best']:.1f}")
            for model in MODELS
            if (even := cell["test"][model].get("fairness")) and even["worst"] is not None
        ),
        ("client trips", str(cell["client_trips"]["total"])),
        ("moved a seed", f"{amount(cell['bytes']['upload'])} up, {amount(cell['bytes']['download'])} down"),
        ("seconds", f"{cell['seconds']['total']:.0f}, {cell['device']}"),
        ("finished", str(cell["finished"])[:10]),
        ("commit", f"{code['commit'][:10]}{' with changes' * bool(code.get('dirty'))}" if code else "unknown"),
        ("configuration", cell["config_hash"]),
    ]
    curve = {name: kept for name, kept in (cell.get("curve") or {}).items() if name.removesuffix("_half") in ("trips", *MODELS)}
    pictures = {"curve": curve, "matrices": cell.get("matrices"), "labels": cell.get("label_counts")}
    decentralized = cell.get("scenario") == "decentralized"
    return {"facts": facts, "decentralized": decentralized, **{name: value for name, value in pictures.items() if value}}
