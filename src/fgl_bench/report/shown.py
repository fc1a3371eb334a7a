"""What the report page shows of a table and of a run, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers import analysis
from fgl_bench.papers.agreement import HEADS, counts, settle_all
from fgl_bench.papers.placement import OWN
from fgl_bench.papers.plan import Cell, Column, Key, Paper, Row, Stored, Table, in_table, look_up
from fgl_bench.papers.published import Printed
from fgl_bench.papers.settlements import NOT_RUN, Settlement
from fgl_bench.papers.tables import entry_of, kinds_of, levels, printed, reading, texts
from fgl_bench.results.console import amount
from fgl_bench.results.divergence import footnote, shares
from fgl_bench.results.frame import value_of
from fgl_bench.results.render import percent
from fgl_bench.results.scored import scored_models


@dataclass(frozen=True)
class Source:
    """What the page says about one paper, or about a folder's runs.

    Attributes:
        cells: the plan of all its tables.
        stored: results by the cell that they fill.
        settlements: what the printed rows are compared with.
        files: by hash, the run's folder or the file of its cell.
        downloads: texts of tables by key and ending, where they are made elsewhere.
        readings: how to read a table, where that is said elsewhere.
        own: whether it is a folder's runs.
        draws: runs over many draws of the masks.
    """

    paper: Paper
    cells: Sequence[Cell]
    stored: Stored
    published: Printed
    settlements: Sequence[Settlement] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    own: bool = False
    draws: Stored = field(default_factory=dict)

    @cached_property
    def commands(self) -> Mapping[Key, str]:
        """The command of every planned cell."""
        return {cell.key: cell.command if cell.overrides else "" for cell in self.cells}

    @property
    def runs(self) -> dict[str, Mapping[str, Any]]:
        """Stored results by hash."""
        return {cell["config_hash"]: cell for cell in self.stored.values()}


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
    tables = settle_all(source.paper, source.paper.tables, source.stored, source.published, source.settlements, source.draws)
    found = [each for cells in tables.values() for each in cells]
    number = counts(found)
    run = [each for each in found if each.finding != NOT_RUN]
    if not run:
        return {}
    return {
        "counts": number,
        "cells": [[each.table, *(getattr(each, head) for head in HEADS)] for each in run],
    }


def table_data(source: Source, table: Table) -> dict:
    """A table: its rows and columns, an entry for each cell, statistics for each kind of model."""
    stored = source.stored
    targets = levels(table, stored, source.published)
    kinds = scored_models(kinds_of(table), (cell for _, cell in in_table(table, stored)))
    theirs = [cell for cell in source.cells if cell.table == table.key and not cell.row.key.startswith(OWN)]
    made = {stored[cell.key]["config_hash"] for cell in theirs if cell.key in stored}
    models = [model for model in MODELS if model in kinds]
    found = {model: analysis.analyze(source.paper, table, stored, source.published, model) for model in models}
    place = f"table {table.key}" if table.key[0].isdigit() else table.key
    said = source.readings.get(table.key) or reading(table.measure).replace("*", "")
    return {
        "key": table.key,
        "label": f"{place}: {table.title}",
        "title": table.title,
        "heading": f"{source.paper.title}, {place}",
        "measure": table.measure,
        "reading": " ".join([said, *footnote(in_table(table, stored))]),
        "kinds": list(kinds),
        "made": len(made),
        "planned": len(made) + len({cell.overrides for cell in theirs if cell.key not in stored}),
        "columns": [{"key": column.key, "dataset": column.dataset} for column in table.columns],
        "rows": [{"key": row.key, "title": row.title, "algorithm": named_method(source, table, row)} for row in table.rows],
        "cells": {
            f"{row.key}|{column.key}": cell_data(source, table, row, column, found, targets.get(column.key))
            for row in table.rows
            for column in table.columns
        },
        "statistics": {model: statistics_data(part) for model, part in found.items()} if made else {},
        "downloads": source.downloads.get(table.key) or (downloads(source, table) if made else {}),
    }


def named_method(source: Source, table: Table, row: Row) -> str:
    """The method of a row, as its runs name it (``fedsage_plus+fedgta``)."""
    cells = (source.stored.get((table.key, row.key, column.key)) for column in table.columns)
    return next((str(cell["algorithm"]) for cell in cells if cell), row.algorithm)


def downloads(source: Source, table: Table) -> dict[str, str]:
    """The rows and columns of a paper's table that have a run, as files."""
    there = {key for key in source.stored if key[0] == table.key}
    table = replace(
        table,
        measure="accuracy" if table.measure == "curves" else table.measure,
        rows=tuple(row for row in table.rows if any(row.key == key for _, key, _ in there)),
        columns=tuple(column for column in table.columns if any(column.key == key for *_, key in there)),
    )
    return texts(source.paper, table, source.stored, source.published, name_missing=False)


def cell_data(
    source: Source,
    table: Table,
    row: Row,
    column: Column,
    found: Mapping[str, analysis.Statistics],
    target: float | None,
) -> dict:
    """What stands in one place of a table: our entries, the printed one, verdicts, and which run it is."""
    key = (table.key, row.key, column.key)
    their, cell = look_up(source.published, table, row, column), source.stored.get(key)
    entry: dict = {
        "command": source.commands.get(key, ""),
        "published": printed(their),
        "published_value": None if their is None else float(their.mean),
    }
    if cell is None:
        return entry
    for kind in kinds_of(table):
        ours = entry_of(table, cell, kind, target)
        verdict = found[kind].verdicts.get((row.key, column.key)) if kind in found else None
        entry[kind] = {"text": ours.text, "rank": ours.rank, "verdict": verdict}
    return {**entry, "run": cell["config_hash"]}


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
