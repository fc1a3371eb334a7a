"""What the report page shows of a table and of a run, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers import analysis, tables
from fgl_bench.papers.draws import Draws
from fgl_bench.papers.findings import HEADS, counts, settle_all
from fgl_bench.papers.grids import Planned, grids, levels, look_up, named, printed
from fgl_bench.papers.measures import MEASURES, Measure, reading
from fgl_bench.papers.placement import OWN
from fgl_bench.papers.plan import Cell, Column, Paper, Row, Table, available
from fgl_bench.papers.published import Printed
from fgl_bench.papers.settlements import NOT_RUN, Settlement
from fgl_bench.results.console import amount
from fgl_bench.results.divergence import footnote, shares
from fgl_bench.results.estimates import Costs
from fgl_bench.results.frame import value_of
from fgl_bench.results.selection import scored_models


@dataclass(frozen=True)
class Source:
    """What the page says about one paper, or about a folder's runs.

    Attributes:
        cells: the plan of all its tables.
        stored: results by the hash of the planned configuration.
        settlements: what the printed rows are compared with.
        files: by hash, the run's folder or the file of its cell.
        downloads: texts of tables by key and ending, where they are made elsewhere.
        readings: how to read a table, where that is said elsewhere.
        own: whether it is a folder's runs.
        draws: runs over many draws of the masks.
    """

    paper: Paper
    cells: Sequence[Cell]
    stored: Mapping[str, Mapping]
    published: Printed
    settlements: Sequence[Settlement] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    own: bool = False
    draws: Draws = ()

    def planned(self, table: Table) -> dict[tuple[str, str], Cell]:
        """A table's cells by (row key, column key)."""
        return {(cell.row.key, cell.column.key): cell for cell in self.cells if cell.table == table.key}


def paper_data(source: Source) -> dict:
    return {
        "name": source.paper.name,
        "title": source.paper.title,
        "own": source.own,
        "tables": [table_data(source, table) for table in sorted(source.paper.tables, key=lambda table: (len(table.key), table.key))],
        "settled": settled_data(source),
    }


def settled_data(source: Source) -> dict:
    """How often each finding was made on the printed cells, and the findings one by one; nothing where no printed cell was run."""
    what = (source.stored, source.published, source.settlements, source.draws)
    tables = settle_all(source.paper, source.paper.tables, source.planned, *what)
    found = [each for cells in tables.values() for each in cells]
    number = counts(found)
    run = [each for each in found if each.finding != NOT_RUN]
    if not run:
        return {}
    return {
        "counts": number,
        "cells": [[each.table, *(getattr(each, head) for head in HEADS)] for each in run],
    }


def measure_of(table: Table) -> Measure:
    """What the page shows of a table; the accuracies where a figure shows curves."""
    return MEASURES["accuracy" if table.measure == "curves" else table.measure]


def table_data(source: Source, table: Table) -> dict:
    """A table: its rows and columns, an entry for each cell, statistics for each kind of model."""
    planned = source.planned(table)
    measure = measure_of(table)
    targets = levels(table, planned, source.stored, source.published)
    kinds = scored_models(measure.kinds, (cell for _, cell in named(table, planned, source.stored)))
    theirs = [cell for cell in planned.values() if not cell.row.key.startswith(OWN)]
    made = [cell for cell in theirs if cell.digest in source.stored]
    found = {
        model: analysis.analyze(source.paper, table, planned, source.stored, source.published, model) for model in MODELS if model in kinds
    }
    place = f"table {table.key}" if table.key[0].isdigit() else table.key
    said = source.readings.get(table.key) or reading(table.measure).replace("*", "")
    return {
        "key": table.key,
        "label": f"{place}: {table.title}",
        "title": table.title,
        "heading": f"{source.paper.title}, {place}",
        "measure": table.measure,
        "reading": " ".join([said, *footnote(named(table, planned, source.stored))]),
        "kinds": list(kinds),
        "made": len({cell.digest for cell in made}),
        "planned": len({cell.digest or str(cell.overrides) for cell in theirs}),
        "columns": [{"key": column.key, "dataset": column.dataset} for column in table.columns],
        "rows": [{"key": row.key, "title": row.title, "algorithm": named_method(source, table, row, planned)} for row in table.rows],
        "cells": {
            f"{row.key}|{column.key}": cell_data(source, table, row, column, planned[row.key, column.key], found, targets.get(column.key))
            for row in table.rows
            for column in table.columns
        },
        "statistics": {model: statistics_data(part) for model, part in found.items()} if made else {},
        "downloads": source.downloads.get(table.key) or (texts(source, table, planned) if made else {}),
    }


def named_method(source: Source, table: Table, row: Row, planned: Planned) -> str:
    """The method of a row, as its runs name it (``fedsage_plus+fedgta``)."""
    cells = (source.stored.get(planned[row.key, column.key].digest) for column in table.columns)
    return next((str(cell["algorithm"]) for cell in cells if cell), row.algorithm)


def texts(source: Source, table: Table, planned: Planned) -> dict[str, str]:
    """The rows and columns of a paper's table that have a run, as files."""
    there = {place for place, cell in planned.items() if cell.digest in source.stored}
    table = replace(
        table,
        measure="accuracy" if table.measure == "curves" else table.measure,
        rows=tuple(row for row in table.rows if any(row.key == key for key, _ in there)),
        columns=tuple(column for column in table.columns if any(column.key == key for _, key in there)),
    )
    planned = {(row.key, column.key): planned[row.key, column.key] for row in table.rows for column in table.columns}
    what = (planned, source.stored, source.published)
    targets = levels(table, *what)
    paragraphs, _ = tables.notes(source.paper, table, planned, source.stored, Costs(source.paper, ()), targets, ())
    parts = grids(table, *what, targets)
    title = f"{source.paper.title}, table {table.key}: {table.title}"
    return {
        "csv": tables.tidy(table, *what, targets),
        "md": tables.markdown(title, parts, paragraphs, ()),
        "tex": tables.latex(title, parts, paragraphs, (), f"tab:{source.paper.name}-{table.key}"),
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
        "command": planned.command if planned.overrides else "",
        "available": source.own or row.key.startswith(OWN) or available(row.algorithm),
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
    """What the page shows of one run: facts as (name, text), numbers, and what it kept of its curve, matrices and labels."""
    code = cell.get("code") or {}
    apart = value_of(cell.get("config"), "split.test") != "server"  # whose test set is one for all clients
    even = {model: found for model in MODELS if apart and (found := cell["test"][model].get("fairness")) and found["worst"] is not None}
    facts = [
        ("seeds", ", ".join(map(str, cell["seeds"]))),
        *((f"{model} by seed", ", ".join(map(percent, cell["test"][model]["per_seed"]))) for model in scored_models(MODELS, [cell])),
        *([("not finite", shares(cell))] if cell.get("diverged") else []),
        *(
            (f"{model} over clients", f"worst {100 * part['worst']:.1f}, median {100 * part['median']:.1f}, best {100 * part['best']:.1f}")
            for model, part in even.items()
        ),
        ("client trips", str(cell["client_trips"]["total"])),
        ("moved a seed", f"{amount(cell['bytes']['upload'])} up, {amount(cell['bytes']['download'])} down"),
        ("seconds", f"{cell['seconds']['total']:.0f}, {cell['device']}"),
        ("finished", str(cell["finished"])[:10]),
        ("commit", f"{code['commit'][:10]}{' with changes' * bool(code.get('dirty'))}" if code else "unknown"),
        ("configuration", cell["config_hash"]),
    ]
    numbers = {
        "algorithm": cell["algorithm"],
        "dataset": cell["dataset"],
        "metric": cell.get("metric", "accuracy"),
        "seeds": cell["seeds"],
        "scores": {model: [None if v is None else round(100 * v, 3) for v in cell["test"][model]["per_seed"]] for model in MODELS},
        "worst": {model: round(100 * part["worst"], 1) for model, part in even.items()},
        "median": {model: round(100 * part["median"], 1) for model, part in even.items()},
        "megabytes": round(sum(cell["bytes"][way] for way in ("upload", "download")) / 1e6, 3),
        "trips": cell["client_trips"]["total"],
        "seconds": round(cell["seconds"]["total"], 1),
    }
    curve = {name: kept for name, kept in (cell.get("curve") or {}).items() if name.removesuffix("_half") in ("trips", *MODELS)}
    pictures = {"curve": curve, "matrices": cell.get("matrices"), "labels": cell.get("label_counts")}
    kept = {name: value for name, value in pictures.items() if value}
    return {"facts": facts, "numbers": numbers, "decentralized": cell.get("scenario") == "decentralized", **kept}


def statistics_data(found: analysis.Statistics) -> dict:
    """For json, which knows no NaN (a test on one seed has no p-value): null; verdicts by ``row|column``."""
    verdicts = {"|".join(key): said for key, said in found.verdicts.items()}
    return cast(dict, _without_nan({**asdict(found), "verdicts": verdicts, "counts": found.counts}))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
