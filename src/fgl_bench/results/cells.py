"""Stored cells: the compact results from which tables are made, in git, unlike the runs themselves.

``cells.csv`` has one row per run. Its columns are the paths of ``summary.json`` joined by slashes (``test/received/mean``). Strings are
stored as they are, all other values as JSON. ``places`` lists the table cells that the run fills: table, row, column and the overrides of
the command. Curves, matrices and label counts are stored by hash in ``curves.json.gz`` in the same folder.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fgl_bench.errors import UserError, printable
from fgl_bench.results.statistics import fairness
from fgl_bench.results.thinned import curve, matrices, records
from fgl_bench.utils.files import write_bytes, write_whole

NAME, CURVES = "cells.csv", "curves.json.gz"
PICTURES = ("curve", "records", "matrices", "label_counts", "partition_hash")
WHOLE = ("places", "code", "data", "diverged")  # mappings and lists stored in one column
CellPosition = tuple[str, str, str, tuple[str, ...]]
"""Table, key of the row, key of the column, overrides of the command."""
ABSENT = object()
_warned: set[str] = set()  # warnings of this process


def compact(summary: Mapping, command: str, run: Path | None = None, places: Sequence[CellPosition] = ()) -> dict[str, Any]:
    """``summary.json`` with fairness statistics instead of client scores, the run's command and its places.

    Args:
        run: the run's directory, for its curves, costs and matrices (:mod:`fgl_bench.results.thinned`).
    """
    test = {}
    for model, scores in summary["test"].items():
        test[model] = {key: value for key, value in scores.items() if key != "per_client"}
        if "per_client" in scores:
            test[model]["fairness"] = fairness(scores["per_client"])
    return {"places": list(places), **summary, "test": test, **(pictures(run) if run else {}), "command": command}


def pictures(run: Path) -> dict[str, Any]:
    """Return the thinned curve, cost records and matrices of a run. Unreadable parts are left out; they affect figures, not scores."""
    content: dict[str, Any] = {}
    for name, read, file in (("curve", curve, "history.csv"), ("records", records, "history.csv"), ("matrices", matrices, "mixing.npz")):
        try:
            content[name] = read(run / file) if (run / file).is_file() else None
        except Exception as error:  # a damaged file may raise anything
            warn(run / file, f"{type(error).__name__}: {error}")
    return {name: value for name, value in content.items() if value}


def warn(path: Path | str, reason: str) -> None:
    """Warn once per file on stderr that the file, or part of it, is not used."""
    line = printable(f"warning: {path} is not used: {' '.join(reason.split())[:200]}")
    if line not in _warned:
        _warned.add(line)
        print(line, file=sys.stderr)


def write_cells(folder: Path, cells: Iterable[Mapping[str, Any]]) -> None:
    """Write ``cells.csv`` and ``curves.json.gz`` in ``folder``. The order depends only on the content."""
    ordered = sorted(cells, key=lambda cell: [str(cell[name]) for name in ("dataset", "split", "sparsity", "algorithm", "config_hash")])
    images = {cell["config_hash"]: {name: cell[name] for name in PICTURES if name in cell} for cell in ordered}
    rows = [dict(flat({key: value for key, value in cell.items() if key not in PICTURES})) for cell in ordered]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(heads)
    lines.writerows(zip(*([*written([row.get(head, ABSENT) for row in rows])] for head in heads), strict=True))
    write_bytes(folder / CURVES, gzip.compress(dumped(images).encode(), mtime=0))
    write_whole(folder / NAME, out.getvalue())


def written(column: Sequence[Any]) -> Iterator[str]:
    """Yield a column as text. Strings are written unquoted if they cannot be mistaken for JSON."""
    given = [value for value in column if value is not ABSENT]
    # The csv module writes a carriage return unquoted, and does not read it so.
    plain = all(isinstance(value, str) and value and "\r" not in value for value in given) and read(given) == given
    yield from ("" if value is ABSENT else value if plain else dumped(value) for value in column)


def dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def flat(cell: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the column and value of every leaf; an empty mapping is a leaf."""
    for key, value in cell.items():
        if isinstance(value, Mapping) and value and key not in WHOLE:
            yield from flat(value, f"{above}{key}/")
        else:
            yield above + key, value


def read_cells(folder: Path) -> list[dict[str, Any]]:
    """Return the cells in ``folder``; an empty list if there are none.

    Raises:
        UserError: a file cannot be read.
    """
    path = folder / NAME
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            heads, *rows = csv.reader(file)
        columns = [column_of(texts) for _, texts in zip(heads, zip(*rows, strict=True), strict=True)]
        images = json.loads(gzip.decompress((folder / CURVES).read_bytes())) if (folder / CURVES).is_file() else {}
    except (OSError, ValueError, EOFError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as stored cells ({' '.join(str(error).split())[:100]})") from error
    paths = [head.split("/") for head in heads]
    cells = []
    for row in zip(*columns, strict=True):
        cell: dict[str, Any] = {}
        for (*above, last), value in zip(paths, row, strict=True):
            if value is not ABSENT:
                inner = cell
                for key in above:
                    inner = inner.setdefault(key, {})
                inner[last] = value
        cell["places"] = [(*names, tuple(overrides)) for *names, overrides in cell["places"]]
        cells.append(cell | images.get(cell["config_hash"], {}))
    return cells


def column_of(texts: Sequence[str]) -> list[Any]:
    """Return the values of a column of the file; an empty field is absent."""
    parsed = iter(read([text for text in texts if text]))
    return [next(parsed) if text else ABSENT for text in texts]


def read(given: Sequence[str]) -> list[Any]:
    """Return the values of a column: parsed if all of them are JSON, else strings."""
    try:
        return json.loads(f"[{','.join(given)}]")
    except ValueError:
        return list(given)
