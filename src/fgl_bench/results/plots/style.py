"""Style and saving of figures: colors, widths, legends outside the data, labels at the ends of lines."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from fgl_bench.errors import UserError
from fgl_bench.utils.files import home, write_out

# Okabe and Ito's colors, which color-blind readers can distinguish.
COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#999999")
DASHES = ("-", "--", ":", "-.")
MARKS = "osD^v<>pPX*"  # coprime to the number of colors: 88 pairs
RECEIVED, TRAINED = COLORS[2], COLORS[6]
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "fgl-bench",
    "pdf.fonttype": 42,  # outlines that publishers accept and readers can search
}
# Drawn at the printed size.
PRINTED: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7,
    "axes.linewidth": 0.6, "lines.linewidth": 1.2, "grid.linewidth": 0.5, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
}  # fmt: skip
ENDINGS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {},
}  # fmt: skip
TIMES: dict[Any, Any] = {
    "font.family": "serif", "font.serif": ["Times New Roman", "Nimbus Roman", "STIXGeneral"], "mathtext.fontset": "stix", "ps.fonttype": 42,
}  # fmt: skip
VENUES: dict[str, dict[Any, Any]] = {"neurips": TIMES | {"font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9}, "ieee": TIMES}
TEXT = 7.0  # width of a page in inches
WIDTHS = {"": {"column": 3.35, "text": TEXT}, "neurips": {"column": 2.7, "text": 5.5}, "ieee": {"column": 3.5, "text": 7.16}}
"""Widths in inches of one of two figures side by side or of a column, and of the text, by venue."""
GRAY = "#bbbbbb"  # of rows beyond the colors
LETTER = 0.6  # average width of a letter, in font sizes


def points(key: str) -> float:
    """Return a font size of the style in points; the style may name it (``large``)."""
    sizes: Any = plt.rcParams
    return float(FontProperties(size=sizes[key]).get_size_in_points())


def line_style(number: int) -> dict[str, Any]:
    """Return color and dashes of line ``number``, unique among the first 32."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[(number // len(COLORS) + number) % len(DASHES)]}


@contextmanager
def styled(style: str = "") -> Iterator[None]:
    """Apply the style of printed figures, then a venue's (:data:`VENUES`) or the user's matplotlib style.

    Raises:
        UserError: the style does not exist.
    """
    with plt.rc_context(STYLE | PRINTED):
        if style in VENUES:
            plt.rcParams.update(VENUES[style])
        elif style:
            path = home("style", style)
            if style not in plt.style.available and not path.is_file():
                raise UserError(f"style={style[:60]}: neither a file nor a style; allowed: {', '.join([*VENUES, *plt.style.available])}")
            try:
                plt.style.use(style if style in plt.style.available else path)
            except (OSError, ValueError, UnicodeDecodeError) as error:
                raise UserError(f"style={style[:60]}: cannot be read ({str(error).splitlines()[0]})") from error
        yield


def legend_below(figure: Figure, axes: Iterable[Axes], ncols: int) -> None:
    """Add one legend for all axes below them; the figure must use the ``constrained`` layout."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles and ncols:
        legend = {"handlelength": 2.2, "columnspacing": 1.0, "borderaxespad": 0.2}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=max(min(ncols, len(handles)), 1), **legend)


def columns_of_legend(names: Sequence[str], width: float) -> int:
    """Return the number of legend columns that fit ``width`` inches."""
    widest = max(map(len, names), default=1) * LETTER * points("legend.fontsize") / 72 + 0.55
    return max(int(width // widest), 1)


def label_ends(axis: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Label lines at the right of a panel, as near to their ends as there is room. Axis limits must be final.

    Args:
        ends: x, y and color of the last point by name.
    """
    bottom, top = axis.get_ylim()
    height = axis.get_figure().get_figheight() * axis.get_position().height  # type: ignore[union-attr]
    room = 1.15 * points("legend.fontsize") / 72 / height * (top - bottom)
    names = sorted(ends, key=lambda name: ends[name][1])
    heights = spread_out([ends[name][1] for name in names], room, bottom, top)
    for name, y in zip(names, heights, strict=True):
        x, end, color = ends[name]
        line: dict[str, Any] = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1}
        options: dict[str, Any] = {"textcoords": axis.get_yaxis_transform(), "va": "center", "annotation_clip": False}
        axis.annotate(name, (x, end), (1.03, y), color=color, fontsize=points("legend.fontsize"), arrowprops=line, **options)


def spread_out(wanted: Sequence[float], room: float, low: float, high: float) -> list[float]:
    """Move ascending positions at least ``room`` apart, staying close to them and between ``low`` and ``high`` if they fit."""
    clusters: list[list[float]] = []  # clusters: sum of wanted starts, and size
    for position in wanted:
        clusters.append([position, 1.0])
        while len(clusters) > 1 and bounds(clusters[-2], room)[1] + room > bounds(clusters[-1], room)[0]:
            last = clusters.pop()
            clusters[-1] = [
                (clusters[-1][0] * clusters[-1][1] + last[0] * last[1]) / (clusters[-1][1] + last[1]),
                clusters[-1][1] + last[1],
            ]
    heights = [bounds(cluster, room)[0] + room * i for cluster in clusters for i in range(int(cluster[1]))]
    if heights:  # clip to the panel from above, then from below
        heights[-1] = min(heights[-1], high)
        for i in range(len(heights) - 2, -1, -1):
            heights[i] = min(heights[i], heights[i + 1] - room)
        heights[0] = max(heights[0], low) if room * (len(heights) - 1) <= high - low else heights[0]
        for i in range(1, len(heights)):
            heights[i] = max(heights[i], heights[i - 1] + room)
    return heights


def bounds(cluster: Sequence[float], room: float) -> tuple[float, float]:
    """Return the lowest and highest position of a cluster of stacked names."""
    half = room * (cluster[1] - 1) / 2
    return cluster[0] - half, cluster[0] + half


def save_all(figure: Figure, stem: Path, endings: Iterable[str] = tuple(ENDINGS), dpi: int = 300) -> list[Path]:
    """Write ``stem`` with every extension and close the figure. Output bytes are deterministic."""
    written = []
    for ending in endings:
        data = io.BytesIO()
        with plt.rc_context({"svg.hashsalt": STYLE["svg.hashsalt"], "pdf.fonttype": STYLE["pdf.fonttype"]}):
            figure.savefig(data, format=ending, **ENDINGS[ending] | ({"dpi": dpi} if ending == "png" else {}))
        written.append(stem.with_name(f"{stem.name}.{ending}"))
        write_out(written[-1], data.getvalue())
    plt.close(figure)
    return written
