"""The row of ``fgl-bench place`` as a file, from which the report page takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fgl_bench.papers.placement import OWN, Placement
from fgl_bench.papers.plan import Cell, Row
from fgl_bench.report.shown import Source
from fgl_bench.results.cells import dumped, warn
from fgl_bench.results.store import Untrusted, checked
from fgl_bench.utils.files import write_whole

FILE = "row.json"


@dataclass(frozen=True)
class PlacedRow:
    """A user's method in a published table.

    Attributes:
        changed: overrides by which its runs differ from the table's setting.
        cells: by column key.
    """

    paper: str
    table: str
    title: str
    changed: Sequence[str]
    cells: Mapping[str, dict[str, Any]]


def write_row(placed: Placement, folder: Path, changed: Sequence[str]) -> Path:
    """Write ``<folder>/row.json``."""
    cells = {
        column.key: placed.stored[cell.digest]
        for column in placed.table.columns
        if (cell := placed.planned.get((OWN, column.key))) and cell.digest in placed.stored
    }
    row = {"paper": placed.paper.name, "table": placed.table.key, "title": placed.title, "changed": list(changed), "cells": cells}
    write_whole(folder / FILE, dumped(row))
    return folder / FILE


def read_rows(folder: Path) -> list[PlacedRow]:
    """The rows in the folders of ``folder``; what is damaged or of another version is left out, with a warning on stderr."""
    found = []
    for path in sorted(folder.glob(f"**/{FILE}")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            cells = {str(key): checked(json.dumps(cell)) for key, cell in row["cells"].items()}
            absent = next((name for cell in cells.values() for name in ("algorithm", "command", "config") if name not in cell), None)
            if absent is not None:
                raise Untrusted(f"{absent} is missing in a cell")
            found.append(PlacedRow(str(row["paper"]), str(row["table"]), str(row["title"]), [str(each) for each in row["changed"]], cells))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warn(path, f"{type(error).__name__}: {error}")
        except Untrusted as reason:
            warn(path, str(reason))
    return found


def with_rows(source: Source, rows: Sequence[PlacedRow]) -> Source:
    """A paper's tables with the users' rows on top of them."""
    paper, cells, stored = source.paper, list(source.cells), dict(source.stored)
    tables = []
    for table in paper.tables:
        here = [row for row in rows if (row.paper, row.table) == (paper.name, table.key)]
        known = {column.key for column in table.columns}
        for number, row in enumerate(here, 1):
            if not known & set(row.cells):
                continue
            algorithm = str(next(iter(row.cells.values()))["algorithm"])
            title = f"{row.title}, {' '.join(row.changed)}" if row.changed else row.title
            added = Row(f"{OWN}{number}", title, algorithm)
            table = replace(table, rows=(added, *table.rows))
            for column in table.columns:
                cell = row.cells.get(column.key)
                digest = f"{cell['config_hash']}" if cell else ""
                words = tuple(str(cell["command"]).removeprefix("fgl-bench ").split(" ")) if cell else ()
                cells.append(Cell(table.key, added, column, words, digest, Path(), cell["config"] if cell else {}))
                if cell:
                    stored[digest] = cell
        tables.append(table)
    return replace(source, paper=replace(paper, tables=tuple(tables)), cells=cells, stored=stored)
