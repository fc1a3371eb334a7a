"""The statistics as tables, for a terminal, a page or a csv, and as a figure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fgl_bench.evaluation.summary import spread
from fgl_bench.leaderboard import statistics
from fgl_bench.leaderboard.board import KINDS, Board
from fgl_bench.leaderboard.protocol import BoardColumn
from fgl_bench.results import render
from fgl_bench.results.statistics import holm

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

NONE = "nothing to show yet"
LINE = "-- references --"


@dataclass(frozen=True)
class View:
    """A table with notes."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def estimand(board: Board) -> list[str]:
    """Return the sentences on what is estimated and tested."""
    return [
        f"Scores are means over {len(board.protocol.test_seeds)} seeds: masks, partitions and initializations of this data set, for one",
        "tuned configuration. Plain: paired t-tests over the seeds. Corrected: Nadeau and Bengio's, which also hold for training sets",
        f"that overlap (test/train = {board.protocol.ratio:.2g}). Both at 5 %, Holm-corrected in a column. Data sets weigh alike.",
    ]


def overview(board: Board, kind: str) -> list[View]:
    """Return a line per entry: rank, win rate, points below the best, and columns better and worse than local and FedAvg."""
    ranks, columns = statistics.ranking(board, kind)
    tests = {method: statistics.against(board, method, kind) for method in ("local", "fedavg")}
    tallies = [statistics.tally(each, p) for each in tests.values() for p in ("plain", "corrected")]
    equal = {name: f"{near} of {of}" for name, near, of in statistics.equivalent(board, kind)}
    done = {name: sum(record.complete for record in board.records if record.entry == name) for name in board.entries}
    order = list(ranks.index) if ranks is not None else []
    order += [name for name in board.ranked(list(board.entries)) if name not in order]
    rows = []
    for name in lined(board, order):
        placed = ["", "", ""]
        if ranks is not None and name in ranks.index:
            row = ranks.loc[name].to_dict()
            placed = [interval(row, "rank", 1), f"{100 * row['wins']:.0f}", interval(row, "points", 1)]
        counted = ["/".join(map(str, tally[name][:2])) if name in tally else "" for tally in tallies]
        counted = [f"{a} ({b})" if a else "" for a, b in zip(counted[::2], counted[1::2], strict=True)]
        rows.append([name, str(done.get(name, "")), *placed, equal.get(name, ""), *counted])
    head = ["entry", "cells", "rank", "wins", "points below best", "as good as best", "against local", "against FedAvg"]
    over = f"over {columns_text(columns)} in which all ranked entries have a score, [95 % bootstrap over data sets and seeds]"
    notes = [
        f"Rank, wins (% of comparisons) and points below the best: {over}. Entries with a missing cell there have none.",
        "As good as best: columns in which an entry is within a point of the best (two one-sided paired t-tests, 5 %).",
        "Against local, FedAvg: columns in which it is better/worse than these on its own backbone, by the plain (corrected) test.",
        *estimand(board),
    ]
    return [View(f"leaderboard{board.protocol.caption}", head, rows, notes if rows else ())]


def lined(board: Board, names: Sequence[str]) -> list[str]:
    """Return the names with the references below a line."""
    below = [name for name, entry in board.entries.items() if entry.reference]
    return [*names, *([LINE, *below] if below else [])]


def interval(row: Mapping[Any, float], measure: str, digits: int) -> str:
    return f"{row[measure]:.{digits}f} [{row[f'{measure}_low']:.{digits}f}, {row[f'{measure}_high']:.{digits}f}]"


def columns_text(columns: Sequence[BoardColumn]) -> str:
    return f"{len(columns)} column(s)" if len(columns) != 1 else columns[0].key


def scores(board: Board, kind: str) -> list[View]:
    """Return mean test scores, the best ranked entry and those that are not significantly worse marked."""
    means, best = board.means(kind), {column.key: statistics.best_of(board, column.key, kind) for column in board.columns}
    rows, shown = [], means.to_dict("index")
    for name in lined(board, board.ranked(list(board.entries))):
        cells = [] if name == LINE else [marked(shown[name][key], name, *best[key]) for key in means.columns]
        if any(cells) or name == LINE:
            rows.append([name, *(cells or [""] * len(means.columns))])
    curves = [column.key for column in board.columns if "auc" in {record.facts.get("metric") for record in board.of_column(column.key)}]
    notes = ["* best ranked entry. ~ not significantly different from it (plain).", *estimand(board)]
    notes[1:1] = [f"{', '.join(curves)}: area under the curve."] if curves else []
    return [View(f"test score in %{board.protocol.caption}, {kind}", ["entry", *means.columns], rows, notes if rows else ())]


def marked(score: float, name: str, best: str | None, p: dict[str, float]) -> str:
    if math.isnan(score):
        return ""
    return f"{100 * score:.1f}{'*' if name == best else '~' if p.get(name, 0) >= statistics.LEVEL else ''}"


def against(board: Board, kind: str) -> list[View]:
    """Return points above local training and above FedAvg on the entry's own backbone, by column."""
    parts = []
    for method in ("local", "fedavg"):
        tests = statistics.against(board, method, kind)
        marks = (tests["plain"] < statistics.LEVEL).map({True: "*", False: ""}) + (tests["corrected"] < statistics.LEVEL).map(
            {True: "*", False: ""}
        )
        shown = tests.assign(text=[f"{100 * mean:+.1f}{mark}" for mean, mark in zip(tests["mean"], marks, strict=True)])
        table = shown.pivot(index="entry", columns="column", values="text").fillna("")
        keys = [column.key for column in board.columns if column.key in table.columns]
        rows = [[name, *table.loc[name, keys]] for name in board.entries if name in table.index]
        parts.append(View(f"points above {method} on the same backbone{board.protocol.caption}, {kind}", ["entry", *keys], rows))
    notes = ["* different by the plain test, ** by the corrected one too.", *estimand(board)]
    return [*parts[:-1], View(parts[-1].title, parts[-1].head, parts[-1].rows, notes)]


def tuning(board: Board, kind: str) -> list[View]:
    """Return what tuning gives, and how far chance decides it."""
    table = statistics.tuning(board)
    rows = [
        [
            str(name), str(int(row["columns"])), f"{row['gain']:+.1f} ± {row['half']:.1f}".replace(" ± nan", ""),
            *("" if math.isnan(row[f"best_of_{n}"]) else f"{row[f'best_of_{n}']:+.1f}" for n in (2, 3, 6)),
            f"{100 * row['edge']:.0f}",
        ]
        for name, row in table.iterrows()
    ]  # fmt: skip
    notes = [
        "Gain: test points of the tuned over the default configuration, mean over columns ± 95 %. Best of N: expected validation points",
        "of the best of N configurations over one, trials drawn again without replacement. At an edge: % of winners whose",
        "learning rate is the smallest or largest tried.",
    ]
    head = ["entry", "columns", "gain", "best of 2", "of 3", "of 6", "at an edge"]
    return [View(f"tuning{board.protocol.caption}", head, rows, notes if rows else ())]


def costs(board: Board, kind: str) -> list[View]:
    """Return scores against virtual time, bytes and local steps."""
    table, columns = statistics.costs(board)
    rows = [
        [
            str(name), f"{row['score']:.1f}", f"{row['equal_time']:.1f}", f"{row['time']:.0f}", f"{row['megabytes']:.1f}",
            f"{row['steps']:.0f}", f"{row['seconds']:.1f}", "*" * bool(row["front"]),
        ]
        for name, row in table.iterrows()
    ]  # fmt: skip
    notes = [
        f"Means over {columns_text(columns)}, of a seed, data sets alike, at equal client trips. Time: on the virtual clock, the same",
        "30 % slow clients for every entry. At equal time: score when the fastest entry of the column has made its trips. * no",
        "ranked entry scores more in less time.",
    ]
    head = ["entry", "score", "at equal time", "time", "MB", "local steps", "seconds", ""]
    return [View(f"score against costs{board.protocol.caption}", head, rows, notes if rows else ())]


def fairness(board: Board, kind: str) -> list[View]:
    """Return the distribution of scores over clients."""
    table, columns = statistics.fairness(board)
    names = {"worst": "worst", "tenth": "lowest tenth", "median": "median", "best": "best", "std": "std"}
    rows = [[str(name), *(f"{row[key]:.1f}" for key in names)] for name, row in table.iterrows()]
    notes = [f"Test score in % over the clients, means over the seeds of {columns_text(columns)}; the best worst client first."]
    return [View(f"fairness over clients{board.protocol.caption}", ["entry", *names.values()], rows, notes if rows else ())]


VIEWS: dict[str, Callable[[Board, str], list[View]]] = {
    "overview": overview, "scores": scores, "against": against, "tuning": tuning, "costs": costs, "fairness": fairness,
}  # fmt: skip


def text(parts: Sequence[View], status: str, width: int) -> str:
    """Format for a terminal."""
    sections = [status]
    for part in parts:
        body = render.plain(part.head, part.rows, width) if part.rows else NONE
        sections.append("\n".join([part.title, body, *render.wrapped([" ".join(part.notes)], width)]))
    return "\n\n".join(sections) + "\n"


def markdown(parts: Sequence[View], status: str) -> str:
    sections = [status]
    for part in parts:
        body = render.markdown(part.head, part.rows) if part.rows else NONE.capitalize() + "."
        notes = " ".join(part.notes).replace("*", r"\*")
        sections += [f"**{part.title[0].upper()}{part.title[1:]}.**", body, *([notes] if notes else [])]
    return "\n\n".join(sections) + "\n"


def as_csv(parts: Sequence[View]) -> str:
    """Format every part with its headings and the title in the first column."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for part in parts:
        lines.writerow(["table", *part.head])
        lines.writerows([part.title, *row] for row in part.rows)
    return out.getvalue()


def board_data(board: Board) -> dict[str, Any]:
    """Return the overview and the scores of all columns as plain data, for the report page; empty without cells."""
    [part] = overview(board, KINDS[0])
    lines = {name: cells for name, *cells in part.rows if name != LINE}
    scores = {column.key: board.scores(column.key) for column in board.columns}
    return {
        "status": board.status(),
        "notes": list(part.notes),
        "head": list(part.head[1:]),
        "columns": list(scores),
        "entries": [
            {"name": name, "algorithm": entry.algorithm, "model": entry.model, "reference": entry.reference, "cells": lines[name]}
            | {"scores": {key: mean_text(by_entry[name]) for key, by_entry in scores.items() if name in by_entry}}
            for name, entry in ((name, board.entries[name]) for name in lines)
        ],
    } if lines else {}  # fmt: skip


def mean_text(scores: np.ndarray) -> str:
    """Return the mean in percent with the half-width of the 95 % t-interval over the seeds."""
    percent = [100 * float(score) for score in scores]
    found = spread(percent)
    return render.number(found["mean"], 1, found["ci95"], percent)


def placement_views(board: Board, guest: str) -> list[View]:
    """Return a table per column of the guest, the best entry first, and the overview."""
    keys = [column.key for column in board.columns if (guest, column.key) in board.cells]
    return [*(of_column(board, guest, key) for key in keys), *overview(board, KINDS[0])]


def of_column(board: Board, guest: str, column: str) -> View:
    scores = board.scores(column)
    others, ratio = [name for name in scores if name != guest and guest in scores], board.protocol.ratio
    tests = {name: statistics.difference(scores[guest], scores[name], ratio) for name in others}
    adjusted = [dict(zip(tests, holm([getattr(test, p) for test in tests.values()]), strict=True)) for p in ("plain", "corrected")]
    order = sorted(scores, key=lambda name: -scores[name].mean())
    ranks = {name: str(place) for place, name in enumerate(board.ranked(order), 1)}
    rows = []
    for name in order:
        compared = [f"{100 * tests[name].mean:+.1f}", *(f"{p[name]:.3f}" for p in adjusted)] if name in tests else ["", "", ""]
        rows.append([ranks.get(name, ""), f"> {name}" if name == guest else name, f"{100 * scores[name].mean():.1f}", *compared])
    notes = [] if guest in scores else [f"{guest} has no score: a seed has diverged, or the cell is not complete."]
    return View(f"{column}{board.protocol.caption}", ["", "entry", "score", "diff.", "p, plain", "p, corrected"], rows, notes)


def draw(board: Board) -> Iterator[tuple[str, Figure]]:
    """Yield the figure of scores against each cost, if there are enough cells."""
    from fgl_bench.results.plots.figures import draw_tradeoff, grid  # imports matplotlib

    table, columns = statistics.costs(board)
    if len(table) > 1:
        labels = {"time": "virtual time", "megabytes": "MB sent per seed", "steps": "local steps per seed"}
        numbers = {str(name): number for number, name in enumerate(table.index)}
        title = f"Leaderboard{board.protocol.caption}, means over {columns_text(columns)}"
        with grid(len(labels), 3, (3.2, 3.0), title, len(table)) as (figure, axes):
            for axis, (cost, label) in zip(axes, labels.items(), strict=True):
                draw_tradeoff(axis, {str(name): (row[cost], row["score"]) for name, row in table.iterrows()}, numbers)
                axis.set(xlabel=label, ylabel="score in %")
        yield "costs", figure
