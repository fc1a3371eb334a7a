"""``fgl-bench report``: one HTML page of the papers' tables and of a folder's runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fgl_bench.cli.table import only_folder
from fgl_bench.cli.table import write as write_file
from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.papers.plan import papers
from fgl_bench.report.html import page, sources
from fgl_bench.results.question import read_words, short
from fgl_bench.utils.files import home

USAGE = "fgl-bench report [RESULTS] [out=FILE.html] [papers=fedsa_gcl,fedgta] [placed=FOLDER] [sweep=all] [where=KEY=VALUE]"
DEFAULT, PLACED, NAME, BOARD = "results", "placed", "report.html", "leaderboard"


def write(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, there is no run, or the page cannot be written.
    """
    words, rest = read_words(arguments, ("out", "papers", "placed", "sweep", "where"), USAGE)
    folder = Path(os.path.expanduser(only_folder(rest, USAGE) if rest else DEFAULT))
    names = [name.strip() for name in words["papers"][0].split(",")] if "papers" in words else None
    wrong = next((name for name in names or () if name not in papers()), None)
    if wrong is not None:
        raise UserError(f"papers={short(wrong)}: no tables of that paper here{suggest(wrong, papers())}")
    placed = home("placed", words.get("placed", [PLACED])[0])
    if "placed" in words and not placed.is_dir():
        raise UserError(f"placed={short(str(placed))}: there is no such folder; it is the out= of fgl-bench place, or holds several")
    out = home("out", words["out"][0]) if "out" in words else folder / NAME
    if out.suffix not in (".html", ".htm"):
        raise UserError(f"out={short(str(out))}: must end in .html")
    text = page(sources(folder, names, placed, words.get("sweep", [None])[0], words.get("where", ())), out, folder / BOARD)
    write_file(out, text)
