"""Contents of the report page for tables and runs, as plain data."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers import analysis
from fgl_bench.papers.placement import OWN
from fgl_bench.papers.plan import Cell, Column, Key, Paper, Row, Stored, Table, in_table, look_up
from fgl_bench.papers.published import Printed
from fgl_bench.papers.tables import entry_of, kinds_of, levels, printed, reading, texts
from fgl_bench.results.console import amount
from fgl_bench.results.frame import value_of
from fgl_bench.results.render import percent
from fgl_bench.results.scored import footnote, of_task, scored_models, shares

VERDICTS = ("equivalent", "inconclusive", "different", "under-specified", "contradictory", "not run")  # of fgl_bench.papers.verdicts
ABOUT_VERDICTS = (
    "Each printed cell is compared with one row and one model of ours, named beforehand by a written rule (results/settlements/RULE.md). "
    "Equivalent: the 90 % interval of the difference lies within 1.5 points (trips: a fifth of the printed value). Different: it lies "
    "outside, and all settings of the method are known. Under-specified: it lies outside, and a setting is not known. Inconclusive: "
    "neither. Contradictory: the printed value contradicts other cells of its paper. The standard error includes the variances of our "
    "seeds, of the printed runs and between draws of the masks."
)


@dataclass(frozen=True)
class Source:
    """Contents of the page for one paper or a folder's runs.

    Attributes:
        cells: planned cells of all its tables.
        stored: results by cell.
        verdicts: lines of ``results/tables/verdicts.csv`` on the paper.
        files: by hash, folder of the run or file of its cell.
        downloads: contents of tables by key and extension, if made elsewhere.
        readings: explanations of tables, if written elsewhere.
        claims: lines of ``results/tables/claims.csv`` on the paper.
        pivots: by table, the values of rows and columns and the metrics from which the page builds other tables of the same runs.
        scores: by hash, scores of a run by metric and kind of model.
        own: True for a folder's runs.
    """

    paper: Paper
    cells: Sequence[Cell]
    stored: Stored
    published: Printed
    verdicts: Sequence[Mapping[str, str]] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    downloads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[Mapping[str, str]] = ()
    pivots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    own: bool = False

    @cached_property
    def commands(self) -> Mapping[Key, str]:
        """Return the command of every planned cell, quoted for a shell."""
        return {cell.key: shlex.join(("fgl-bench", *cell.overrides)) if cell.overrides else "" for cell in self.cells}

    @property
    def runs(self) -> dict[str, Mapping[str, Any]]:
        """Return stored results by hash."""
        return {cell["config_hash"]: cell for cell in self.stored.values()}


def paper_data(source: Source) -> dict:
    return {
        "name": source.paper.name,
        "title": source.paper.title,
        "own": source.own,
        "tables": [table_data(source, table) for table in sorted(source.paper.tables, key=lambda table: (len(table.key), table.key))],
        "verdicts": verdict_data(source.verdicts),
        "claims": list(source.claims),
    }


def verdict_data(verdicts: Sequence[Mapping[str, str]]) -> dict:
    """Return counts and list of the verdicts on published cells, by table; empty if none was run."""
    run = [line for line in verdicts if line["verdict"] != "not run"]
    if not run:
        return {}
    heads = ("table", "title", "model", "column", "printed_text", "ours", "low", "high", "verdict", "open")
    return {
        "counts": {name: sum(line["verdict"] == name for line in verdicts) for name in VERDICTS},
        "cells": [[_short(line[name]) for name in heads] for line in run],
    }


def _short(text: str) -> str:
    """Return a number with one decimal."""
    try:
        return f"{round(float(text), 1) + 0.0:.1f}" if "." in text else text  # no -0.0
    except ValueError:
        return text


def table_data(source: Source, table: Table) -> dict:
    """Return a table: rows, columns, an entry per cell, statistics per kind of model."""
    stored = source.stored
    targets = levels(table, stored, source.published)
    kinds = scored_models(kinds_of(table), (cell for _, cell in in_table(table, stored)))
    theirs = [cell for cell in source.cells if cell.table == table.key and not cell.row.key.startswith(OWN)]
    hashes = {stored[cell.key]["config_hash"] for cell in theirs if cell.key in stored}
    models = [model for model in MODELS if model in kinds]
    statistics = {model: analysis.analyze(table, stored, source.published, model) for model in models}
    verdicts = {(line["row"], line["column"], line["model"]): line["verdict"] for line in source.verdicts if line["table"] == table.key}
    main = variants(table, {row for row, *_ in verdicts})
    position = re.sub(r"^(figure|)(?=\d)", lambda kind: f"{kind[1] or 'table'} ", table.key).replace("_", ", ")  # 2_f1: table 2, f1
    explanation = source.readings.get(table.key) or reading(table.measure).replace("*", "")
    return {
        "key": table.key,
        "label": f"{position}: {table.title}",
        "title": table.title,
        "heading": f"{source.paper.title}, {position}",
        "measure": table.measure,
        "reading": " ".join([explanation, *footnote(in_table(table, stored))]),
        "kinds": list(kinds),
        "made": len(hashes),
        "planned": len(hashes) + len({cell.overrides for cell in theirs if cell.key not in stored}),
        "columns": [{"key": column.key, "dataset": column.dataset} for column in table.columns],
        "rows": [
            {"key": row.key, "title": row.title, "algorithm": named_method(source, table, row), "variant_of": main.get(row.key)}
            for row in table.rows
        ],
        "cells": {
            f"{row.key}|{column.key}": cell_data(source, table, row, column, verdicts, targets.get(column.key))
            for row in table.rows
            for column in table.columns
        },
        "statistics": {model: statistics_data(part) for model, part in statistics.items()} if hashes else {},
        "downloads": source.downloads.get(table.key) or (downloads(source, table) if hashes else {}),
        **source.pivots.get(table.key, {}),
    }


def variants(table: Table, registered: Collection[str]) -> dict[str, str]:
    """Return the main row by key of each variant.

    Rows with the same printed numbers are variants of one another. So is a row that the paper does not print and whose title begins with
    that of another row. The main row is the ``registered`` one, whose cells have verdicts, else the first.
    """
    groups: dict[Any, list[Row]] = {}
    for row in table.rows if table.measure != "curves" else ():
        first = row if row.published else next((other for other in table.rows if row.title.startswith(f"{other.title}, ")), row)
        groups.setdefault((first.published, *first.where.items()) if first.published else first.title, []).append(row)
    found: dict[str, str] = {}
    for rows in groups.values():
        main = next((row.key for row in rows if row.key in registered), rows[0].key)
        found |= {row.key: main for row in rows if row.key != main}
    return found


def named_method(source: Source, table: Table, row: Row) -> str:
    """Return the method of a row, as named in its runs (``fedsage_plus+fedgta``)."""
    cells = (source.stored.get((table.key, row.key, column.key)) for column in table.columns)
    return next((str(cell["algorithm"]) for cell in cells if cell), row.algorithm)


def downloads(source: Source, table: Table) -> dict[str, str]:
    """Return the rows and columns with runs of a paper's table, as files."""
    filled = {key for key in source.stored if key[0] == table.key}
    table = replace(
        table,
        measure="accuracy" if table.measure == "curves" else table.measure,
        rows=tuple(row for row in table.rows if any(row.key == key for _, key, _ in filled)),
        columns=tuple(column for column in table.columns if any(column.key == key for *_, key in filled)),
    )
    return texts(source.paper, table, source.stored, source.published, name_missing=False)


def cell_data(
    source: Source,
    table: Table,
    row: Row,
    column: Column,
    verdicts: Mapping[tuple[str, str, str], str],
    target: float | None,
) -> dict:
    """Return the contents of one cell: our entries, the published one, the verdict on the registered row and model, and the run."""
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
        entry[kind] = {"text": ours.text, "rank": ours.rank, "verdict": verdicts.get((row.key, column.key, kind))}
    return {**entry, "run": cell["config_hash"]}


def run_data(cell: Mapping) -> dict:
    """Return the contents for one run: facts as (name, text), scores, and its stored curve, matrices and labels."""
    code = cell.get("code") or {}
    per_client = value_of(cell.get("config"), "split.test") != "server"  # with one test set for all clients
    even = {
        model: scores for model in MODELS if per_client and (scores := cell["test"][model].get("fairness")) and scores["worst"] is not None
    }
    facts = [
        *([("task", cell["task"])] if of_task(cell) else []),
        ("seeds", ", ".join(map(str, cell["seeds"]))),
        *((f"{model} by seed", ", ".join(map(percent, cell["test"][model]["per_seed"]))) for model in scored_models(MODELS, [cell])),
        *([("not finite", shares(cell))] if cell.get("diverged") else []),
        *(
            (f"{model} over clients", f"worst {100 * part['worst']:.1f}, median {100 * part['median']:.1f}, best {100 * part['best']:.1f}")
            for model, part in even.items()
        ),
        ("client trips", str(cell["client_trips"]["total"])),
        ("sent per seed", f"{amount(cell['bytes']['upload'])} up, {amount(cell['bytes']['download'])} down"),
        ("seconds", f"{cell['seconds']['total']:.0f}, {cell['device']}"),
        ("finished", str(cell["finished"])[:10]),
        ("commit", f"{code['commit'][:10]}{' with changes' * bool(code.get('dirty'))}" if code else "unknown"),
        ("configuration", cell["config_hash"]),
    ]
    numbers = {
        "algorithm": cell["algorithm"],
        "dataset": cell["dataset"],
        "metric": cell.get("metric", "accuracy"),
        **({"task": of_task(cell)} if of_task(cell) else {}),
        "seeds": cell["seeds"],
        "scores": {model: [None if v is None else round(100 * v, 3) for v in cell["test"][model]["per_seed"]] for model in MODELS},
        "worst": {model: round(100 * part["worst"], 1) for model, part in even.items()},
        "median": {model: round(100 * part["median"], 1) for model, part in even.items()},
        "megabytes": round(sum(cell["bytes"][way] for way in ("upload", "download")) / 1e6, 3),
        "trips": cell["client_trips"]["total"],
        "seconds": round(cell["seconds"]["total"], 1),
    }
    curve = {
        name: stored for name, stored in (cell.get("curve") or {}).items() if name.removesuffix("_half") in ("trips", "bytes", *MODELS)
    }
    pictures = {"curve": curve, "matrices": cell.get("matrices"), "labels": cell.get("label_counts")}
    stored = {name: value for name, value in pictures.items() if value}
    return {"facts": facts, "numbers": numbers, "decentralized": cell.get("scenario") == "decentralized", **stored}


def statistics_data(statistics: analysis.Statistics) -> dict:
    """Return statistics for JSON, with null for NaN (a test on one seed has no p-value)."""
    return cast(dict, _without_nan(asdict(statistics)))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
