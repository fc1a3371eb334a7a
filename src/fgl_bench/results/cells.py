"""Stored cells: the compact results from which tables are made, in git, unlike the runs themselves.

``cells.csv`` has a row per run. Its columns are the paths of ``summary.json`` joined by slashes (``test/received/mean``); texts stand as
they are, everything else as json. ``places`` says which cells of the paper's tables the run fills: table, row, column and the overrides
of the command. What pictures need (curves, matrices, label counts) lies beside it in ``curves.json.gz``, by hash.
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

NAME, BESIDE = "cells.csv", "curves.json.gz"
PICTURES = ("curve", "records", "matrices", "label_counts", "partition_hash")
WHOLE = ("places", "code", "data", "diverged")  # mappings and lists that are one column
Place = tuple[str, str, str, tuple[str, ...]]
"""Table, key of the row, key of the column, overrides of the command."""
ABSENT = object()
_said: set[str] = set()  # warnings of this process


def compact(summary: Mapping, command: str, run: Path | None = None, places: Sequence[Place] = ()) -> dict[str, Any]:
    """``summary.json`` with fairness statistics instead of the clients' scores, the command of the run and its places.

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
    """The thinned curve, cost records and matrices of a run; without the parts that cannot be read, which affects pictures but no score."""
    found: dict[str, Any] = {}
    for name, read, file in (("curve", curve, "history.csv"), ("records", records, "history.csv"), ("matrices", matrices, "mixing.npz")):
        try:
            found[name] = read(run / file) if (run / file).is_file() else None
        except Exception as error:  # a damaged file may raise anything
            warn(run / file, f"{type(error).__name__}: {error}")
    return {name: value for name, value in found.items() if value}


def warn(path: Path | str, reason: str) -> None:
    """Warn on stderr that a file, or a part of one, is not used; once per file."""
    line = printable(f"warning: {path} is not used: {' '.join(reason.split())[:200]}")
    if line not in _said:
        _said.add(line)
        print(line, file=sys.stderr)


def write_cells(folder: Path, cells: Iterable[Mapping[str, Any]]) -> None:
    """Write ``cells.csv`` and ``curves.json.gz`` in ``folder``, in an order that depends on their content only."""
    ordered = sorted(cells, key=lambda cell: [str(cell[name]) for name in ("dataset", "split", "sparsity", "algorithm", "config_hash")])
    beside = {cell["config_hash"]: {name: cell[name] for name in PICTURES if name in cell} for cell in ordered}
    rows = [dict(flat({key: value for key, value in cell.items() if key not in PICTURES})) for cell in ordered]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(heads)
    lines.writerows(zip(*([*written([row.get(head, ABSENT) for row in rows])] for head in heads), strict=True))
    write_bytes(folder / BESIDE, gzip.compress(dumped(beside).encode(), mtime=0))
    write_whole(folder / NAME, out.getvalue())


def written(column: Sequence[Any]) -> Iterator[str]:
    """A column as text; texts stand for themselves where they cannot be mistaken for json."""
    given = [value for value in column if value is not ABSENT]
    plain = all(isinstance(value, str) and value for value in given) and read(given) == given
    yield from ("" if value is ABSENT else value if plain else dumped(value) for value in column)


def dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def flat(cell: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Column and value of every leaf; an empty mapping is one."""
    for key, value in cell.items():
        if isinstance(value, Mapping) and value and key not in WHOLE:
            yield from flat(value, f"{above}{key}/")
        else:
            yield above + key, value


def read_cells(folder: Path) -> list[dict[str, Any]]:
    """The cells in ``folder``; none if it has none.

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
        beside = json.loads(gzip.decompress((folder / BESIDE).read_bytes())) if (folder / BESIDE).is_file() else {}
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
        cells.append(cell | beside.get(cell["config_hash"], {}))
    return cells


def column_of(texts: Sequence[str]) -> list[Any]:
    """The values of a column of the file; an empty field is absent."""
    found = iter(read([text for text in texts if text]))
    return [next(found) if text else ABSENT for text in texts]


def read(given: Sequence[str]) -> list[Any]:
    """The values of a column: its texts, unless all of them are json."""
    try:
        return json.loads(f"[{','.join(given)}]")
    except ValueError:
        return list(given)
