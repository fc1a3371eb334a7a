"""``fgl-bench leaderboard``: views of the leaderboard."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fgl_bench.cli.table import write
from fgl_bench.config.choices import config_folder, suggest
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.board import KINDS, Board
from fgl_bench.leaderboard.protocol import Protocol, asked_protocol
from fgl_bench.leaderboard.submission import whole_board
from fgl_bench.leaderboard.views import VIEWS, as_csv, draw, markdown, text
from fgl_bench.results.console import line_width
from fgl_bench.results.question import parts, read_words, short
from fgl_bench.utils.files import home

USAGE = "fgl-bench leaderboard [FOLDER] [task=graph] [show=scores] [score=received] [method=fedavg] [columns=cora] [out=FILE] [figures=DIR]"
KEYS = ("task", "show", "score", "method", "columns", "format", "out", "figures", "protocol")
FORMATS = ("text", "md", "csv")


def stored(protocol: Protocol) -> Path:
    """Return the folder of the stored cells: in the package if installed from a wheel, below the root of a checkout."""
    return config_folder().parent / "results" / "leaderboard" / protocol.folder


def show(arguments: Sequence[str]) -> None:
    """Print a view of the leaderboard, or write it.

    Raises:
        UserError: an argument is wrong.
    """
    words, rest = read_words(arguments, KEYS, USAGE)
    asked = {key: values[0] for key, values in words.items()}
    if len(rest) > 1:
        raise UserError(f"{short(' '.join(rest))}: give one folder, and KEY=VALUE; {USAGE}")
    protocol = asked_protocol(asked)
    folder = Path(os.path.expanduser(rest[0])) if rest else stored(protocol)
    if not folder.is_dir():
        raise UserError(f"{short(str(folder))}: there is no such folder; {USAGE}")
    out = home("out", asked["out"]) if "out" in asked else None
    chosen = {"show": "overview", "score": KINDS[0], "format": out.suffix[1:] if out is not None else "text", **asked}
    names = [entry.name for entry in protocol.entries]
    for key, allowed in (("show", [*VIEWS]), ("score", KINDS), ("method", names), ("format", FORMATS)):
        if key in chosen and chosen[key] not in allowed:
            raise UserError(f"{key}={short(chosen[key])}: not known{suggest(chosen[key], allowed)}")
    board = of_columns(whole_board(folder, protocol), asked.get("columns", ""))
    if "figures" in asked:
        save(board, home("figures", asked["figures"]))
        return
    tables = VIEWS[chosen["show"]](board, chosen["score"])
    if "method" in asked:  # marks and tests still compare all entries
        tables = [replace(each, rows=[row for row in each.rows if each.head[0] != "entry" or row[0] == asked["method"]]) for each in tables]
    form = chosen["format"]
    output = (
        as_csv(tables)
        if form == "csv"
        else markdown(tables, board.status())
        if form == "md"
        else text(tables, board.status(), line_width())
    )
    if out is None:
        sys.stdout.write(output)
    else:
        write(out, output)


def of_columns(board: Board, text: str) -> Board:
    """Restrict the board to comma-separated columns; an empty string keeps all."""
    columns, _ = board.protocol.narrowed(parts(text), [])
    protocol = replace(board.protocol, columns=tuple(columns))
    records, others = (
        [record for record in each if record.column in {column.key for column in columns}] for each in (board.records, board.others)
    )
    return replace(board, protocol=protocol, records=records, others=others)


def save(board: Board, folder: Path) -> None:
    """Write all figures with enough cells."""
    from fgl_bench.results.plots.style import save_all

    try:
        paths = [path for name, figure in draw(board) for path in save_all(figure, folder / name)]
    except OSError as error:
        raise UserError(f"figures={short(str(folder))}: cannot be written ({error.strerror})") from error
    if not paths:
        raise UserError(f"figures={short(str(folder))}: nothing to draw yet. {board.status()}")
    print("written: " + ", ".join(path.name for path in paths) + f" in {folder}")
