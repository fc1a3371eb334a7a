"""``fgl-bench leaderboard``: what the cells of the leaderboard show."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fgl_bench.cli.table import write
from fgl_bench.config.choices import config_folder, suggest
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.protocol import read_protocol
from fgl_bench.leaderboard.submission import whole_board
from fgl_bench.leaderboard.views import MODELS, VIEWS, as_csv, markdown, text
from fgl_bench.results.console import line_width
from fgl_bench.results.question import read_words, short
from fgl_bench.utils.files import home

USAGE = "fgl-bench leaderboard [FOLDER] [show=scores] [model_of=received] [method=fedavg] [datasets=cora] [out=FILE.md] [figures=FOLDER]"
KEYS = ("show", "model_of", "method", "datasets", "format", "out", "figures", "protocol")
FORMATS = ("text", "md", "csv")


def stored() -> Path:
    """The cells of the package: inside it when installed from a wheel, below the project's root in a checkout."""
    return config_folder().parent / "results" / "leaderboard"


def show(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong.
    """
    words, rest = read_words(arguments, KEYS, USAGE)
    asked = {key: values[0] for key, values in words.items()}
    if len(rest) > 1:
        raise UserError(f"{short(' '.join(rest))}: give one folder, and KEY=VALUE; {USAGE}")
    folder = Path(os.path.expanduser(rest[0])) if rest else stored()
    if not folder.is_dir():
        raise UserError(f"{short(str(folder))}: there is no such folder; {USAGE}")
    protocol = read_protocol(*([home("protocol", asked["protocol"])] if "protocol" in asked else []))
    out = home("out", asked["out"]) if "out" in asked else None
    form = asked.get("format", out.suffix[1:] if out is not None else "text")
    for key, value, allowed in (
        ("show", asked.get("show", "overview"), [*VIEWS]),
        ("model_of", asked.get("model_of", "both"), ["both", *MODELS]),
        ("method", asked.get("method", "fedavg"), [entry.name for entry in protocol.entries]),
        ("format", form, FORMATS),
    ):
        if value not in allowed:
            raise UserError(f"{key}={short(value)}: not known{suggest(value, allowed)}")
    models = MODELS if asked.get("model_of", "both") == "both" else (asked["model_of"],)
    board = of_datasets(whole_board(folder, protocol), asked.get("datasets", ""))
    if "figures" in asked:
        save(board, models, home("figures", asked["figures"]))
        return
    parts = VIEWS[asked.get("show", "overview")](board, models, asked.get("method"))
    if "method" in asked:  # marks and tests stay those against all entries
        parts = [replace(part, rows=[row for row in part.rows if part.head[0] != "entry" or row[0] == asked["method"]]) for part in parts]
    made = as_csv(parts) if form == "csv" else markdown(parts, board.said()) if form == "md" else text(parts, board.said(), line_width())
    if out is None:
        sys.stdout.write(made)
    else:
        write(out, made)


def of_datasets(board: Board, text: str) -> Board:
    """The board's columns of some datasets, joined by commas; all of none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    columns, _ = board.protocol.narrowed(names, [])
    return replace(
        board,
        protocol=replace(board.protocol, columns=tuple(columns)),
        records=[record for record in board.records if record.column in columns],
        others=[record for record in board.others if record.column in columns],
    )


def save(board: Board, models: Sequence[str], folder: Path) -> None:
    """Write the figures that there are enough cells for."""
    from fgl_bench.leaderboard.figures import draw
    from fgl_bench.results.plots.style import save_all

    try:
        paths = [path for name, figure in draw(board, models) for path in save_all(figure, folder / name)]
    except OSError as error:
        raise UserError(f"figures={short(str(folder))}: cannot be written ({error.strerror})") from error
    if not paths:
        raise UserError(f"figures={short(str(folder))}: nothing to draw yet. {board.said()}")
    print("written: " + ", ".join(path.name for path in paths) + f" in {folder}")
