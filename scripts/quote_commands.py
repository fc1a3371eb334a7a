"""Write what commands print into README.md and docs/, so that every table there is made by the command above it.

The tutorial's figure is drawn too.

    python scripts/quote_commands.py                       # every block again
    python scripts/quote_commands.py --keep results/runs first_question   # before, keep these runs as the cells of this name

A block begins with a line such as

    <!-- output: fgl-bench table results/cells/first_question -->

and ends with ``<!-- /output -->``; the lines between them are replaced.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fgl_bench
from fgl_bench.results.cells import compact, write_cells

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from blocks import block, filled  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
CELLS = ROOT / "results" / "cells" / "first_question"
OUTPUT = block("output")


def pages() -> list[Path]:
    """The files that have blocks."""
    files = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    return [path for path in files if OUTPUT.search(path.read_text(encoding="utf-8"))]


def page(text: str, printed: Callable[[list[str]], str]) -> str:
    """``text`` with every block filled in.

    Args:
        printed: gives what ``fgl-bench`` prints, called at the project's root.
    """

    def lines(command: str) -> list[str]:
        output = printed(shlex.split(command)[1:]).strip()
        return ["", output, ""] if "format=md" in command else ["```text", output, "```"]

    return filled(text, "output", lines)


def printed(arguments: list[str]) -> str:
    """Return the command's output."""
    return subprocess.run([sys.executable, "-m", "fgl_bench", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def keep(runs: Path, name: str) -> None:
    """Store the runs below a folder as the cells of a name, in the place of those that are there."""
    folders = [path.parent for path in sorted(runs.rglob("summary.json"))]
    if not folders:
        raise SystemExit(f"quote_commands: there is no run below {runs}")
    cells = []
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        cells.append(compact(summary, shlex.join(["fgl-bench", *summary["overrides"]])))
    write_cells(CELLS.parent / name, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write what commands print into README.md and docs/.")
    parser.add_argument("--keep", nargs=2, metavar=("RUNS", "NAME"), help="store the runs below a folder in results/cells/NAME before")
    options = parser.parse_args()
    if options.keep:
        keep(Path(options.keep[0]), options.keep[1])
    fgl_bench.plot("bars", fgl_bench.table(CELLS), ROOT / "docs" / "images" / "bars.svg")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        updated = page(text, printed)
        if updated != text:
            path.write_text(updated, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
