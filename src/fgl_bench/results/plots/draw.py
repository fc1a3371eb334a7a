"""Draws figures of runs into files; matplotlib is imported on first use."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.results.compare import Compared
from fgl_bench.results.question import short
from fgl_bench.utils.files import home

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPTIONS = ("out", "format", "style", "width", "side", "x")
FORMATS = ("pdf", "svg", "png")
AXES = {"curves": ("trips", "rounds", "bytes", "time"), "pareto": ("bytes", "seconds", "trips")}
WIDEST = 40.0
ABOUT = 1.55  # default panel width in inches


def plot(
    kind: str,
    table: Compared,
    out: str | Path,
    format: str = "pdf,svg,png",
    style: str = "",
    width: str | float = "",
    side: str | int = "",
    x: str = "",
) -> list[Path]:
    """Draw the runs of a table and write the figure; returns the written files.

    Args:
        kind: ``curves``, ``bars``, ``lines`` (score against the key of the columns), ``ranks``, ``pareto`` (cost against
            score) or ``clients``.
        out: file name without an extension, or with that of the only format.
        format: file extensions, joined by commas.
        style: ``neurips`` or ``ieee`` (fonts and widths), or a matplotlib style name or file, applied after the package's style.
        width: ``column`` or ``text`` of a paper, or inches; by default the column if the panels fit.
        side: number of panels side by side.
        x: horizontal axis: ``trips``, ``rounds``, ``bytes`` or ``time`` for ``curves``; ``bytes``, ``seconds`` or ``trips`` for ``pareto``.

    Raises:
        UserError: an argument is wrong.
    """
    from fgl_bench.results.plots.kinds import KINDS, gray_rows
    from fgl_bench.results.plots.style import WIDTHS

    if kind not in KINDS:
        raise UserError(f"{short(kind)}: no kind of figure{suggest(kind, KINDS)}")
    inches = size(width, len(table.chosen.columns) > 1 and kind not in ("ranks", "lines"), WIDTHS.get(style, WIDTHS[""]))
    abreast = number(side, inches, len(table.chosen.columns))
    axes, x = AXES.get(kind, ()), "rounds" if x == "round" else x  # as history.csv calls it
    if x and x not in axes:
        raise UserError(f"x={short(x)}: {kind} take {'one of ' if axes else 'no x='}{', '.join(axes)}")
    gray = gray_rows(table) if kind in ("curves", "lines", "pareto") else []
    if gray:
        print(f"note: in color: the rows with the highest mean scores; in gray: {', '.join(gray)}", file=sys.stderr)
    return save(lambda: KINDS[kind](table, inches, abreast, **({"x": x} if x else {})), out, format, style)


def save(draw: Callable[[], Figure], out: str | Path, format: str = ",".join(FORMATS), style: str = "") -> list[Path]:
    """Draw a figure in a style and write it; returns the written files.

    Args:
        out, format, style: as for :func:`plot`.

    Raises:
        UserError: an argument is wrong, or the file cannot be written.
    """
    from fgl_bench.results.plots.style import save_all, styled

    stem, endings = target(out, format)
    with styled(style):
        figure = draw()
        try:
            return save_all(figure, stem, endings)
        except OSError as error:
            raise UserError(f"out={short(str(out))}: cannot be written ({error.strerror})") from error


def target(out: str | Path, format: str) -> tuple[Path, list[str]]:
    """Return the file name without extension, and the extensions to write."""
    path, endings = home("out", out), format.split(",")
    if path.suffix[1:] in FORMATS:
        path, endings = path.with_suffix(""), [path.suffix[1:]]
    wrong = [ending for ending in endings if ending not in FORMATS]
    if wrong:
        raise UserError(f"format={short(wrong[0])}: must be some of {', '.join(FORMATS)}")
    if not path.name or "\0" in str(path) or (os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))):
        raise UserError(f"out={short(str(out))}: must be the name of a file")
    return path, list(dict.fromkeys(endings))


def size(width: str | float, several: bool, widths: Mapping[str, float]) -> float:
    """Return the width in inches."""
    if not width:
        return widths["text" if several else "column"]
    if isinstance(width, str) and width in widths:
        return widths[width]
    try:
        inches = float(width)
    except ValueError:
        inches = math.nan
    if not 1 <= inches <= WIDEST:
        raise UserError(f"width={short(str(width))}: must be one of {', '.join(widths)}, or inches from 1 to {WIDEST:g}")
    return inches


def number(side: str | int, inches: float, columns: int) -> int:
    """Return the number of panels side by side: by default as many as fit, and lines of equal length if ``columns`` allows it."""
    if not side:
        fitting = max(int(inches / ABOUT), 1)
        even = [count for count in range(2, fitting + 1) if count % columns == 0 or columns % count == 0]
        return max(even, default=fitting)
    if not str(side).isdecimal() or not 1 <= int(side) <= 20:
        raise UserError(f"side={short(str(side))}: must be an integer from 1 to 20")
    return int(side)
