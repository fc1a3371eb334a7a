"""The findings as tables, for a terminal, a page or a csv, and as figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from fgl_bench.leaderboard import findings
from fgl_bench.leaderboard.board import LOCAL, Board
from fgl_bench.leaderboard.findings import Fit, titles
from fgl_bench.leaderboard.protocol import BoardColumn
from fgl_bench.results import render
from fgl_bench.results.statistics import against

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("received", "trained")
NONE = "nothing to show yet"


@dataclass(frozen=True)
class View:
    """A table with notes."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def scores(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return mean test scores by split, with marks of the paired tests."""
    notes = [
        f"Mean over {len(board.protocol.test_seeds)} seeds. * best of a column. ~ not significantly different from the best: paired",
        "t-tests over the seeds, Holm-corrected in a column, 5 %. Minesweeper, Tolokers: area under the curve.",
    ]
    parts = []
    for model in models:
        means = board.means(model)
        for split, columns in by_split(board.columns).items():
            tested = {column.key: findings.column_tests(board, column, model) for column in columns}
            rows = [
                [name, *(marked(means[column.key].get(name), name, *tested[column.key]) for column in columns)]
                for name in board.entries
                if any(name in means[column.key] for column in columns)
            ]
            parts.append(View(f"test score in %, {model} model, {split}", ["entry", *(column.dataset for column in columns)], rows))
    return [*parts[:-1], View(parts[-1].title, parts[-1].head, parts[-1].rows, notes)] if parts else []


def marked(score: float | None, name: str, best: str | None, alike: set[str]) -> str:
    if score is None:
        return ""
    return f"{100 * score:.1f}{'*' if name == best else '~' if name in alike else ''}"


def by_split(columns: Sequence[BoardColumn]) -> dict[str, list[BoardColumn]]:
    groups: dict[str, list[BoardColumn]] = {}
    for column in columns:
        groups.setdefault(column.split, []).append(column)
    return groups


def ranks(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return average ranks with the critical difference."""
    parts = []
    for model in models:
        ranking, columns = findings.ranks(board, model)
        title = f"average rank, {model} model"
        if ranking is None:
            parts.append(View(title, ["entry", "rank"], [], ["Ranks need two entries with scores in the same two columns."]))
            continue
        test = "" if ranking.friedman is None else f" Friedman's test that all are alike: p = {ranking.friedman:.2g}."
        notes = [
            f"{len(ranking.ranks)} entries over {columns_text(columns)}, in which all of them have a score.{test}",
            f"Nemenyi's critical difference at 5 %: {ranking.difference:.2f}; closer ranks do not differ significantly.",
            "Louvain and METIS of one graph are not independent columns.",
        ]
        parts.append(View(title, ["entry", "rank"], [[name, f"{rank:.2f}"] for name, rank in ranking.ranks.items()], notes))
    return parts


def columns_text(columns: Sequence[BoardColumn]) -> str:
    return f"{len(columns)} column(s)" if len(columns) != 1 else columns[0].key


def local(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return gains over local training by column, and wins by split."""
    parts = []
    for model in models:
        tests, counted = findings.against_local(board, model), findings.tallies(board, model)
        columns = [column for column in board.columns if column.key in tests]
        names = [name for name in board.entries if name in counted]
        for split, those in by_split(columns).items():
            rows = []
            for name in names:
                each = [tests[column.key].get(name) for column in those]
                cells = ["" if one is None else f"{-100 * one.difference:+.1f}{'*' * one.worse}" for one in each]
                rows.append([name, *cells, str(counted[name].get(split, ""))])
            head = ["entry", *(column.dataset for column in those), "+/-/="]
            parts.append(View(f"points above local training, {model} model, {split}", head, rows))
    notes = [
        "* different: paired t-tests over the seeds, Holm-corrected in a column, 5 %. The seeds share a",
        "graph, so the tests are somewhat optimistic. +/-/=: columns in which the entry is better, worse, not different.",
    ]
    return [*parts[:-1], View(parts[-1].title, parts[-1].head, parts[-1].rows, notes)] if parts else []


def tuning(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return gains from tuning."""
    notes = [
        "Validation score of the best trial minus that of the defaults, in points, over the columns of the entry. The",
        f"best of {board.protocol.trials} noisy scores is too good by chance: the gain on other seeds is smaller.",
    ]
    head = ["entry", "mean gain", "largest", "columns", "defaults best in"]
    parts = []
    for model in models:
        gained = sorted(findings.gains(board, model).items(), key=lambda each: -each[1].mean)
        rows = [[name, f"{gain.mean:+.1f}", f"{gain.most:+.1f}", str(gain.columns), str(gain.unchanged)] for name, gain in gained]
        parts.append(View(f"gain from tuning, {model} model", head, rows, notes if rows and model == models[-1] else ()))
    return parts


def costs(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return scores against bytes and seconds."""
    parts = []
    for model in models:
        by_entry, columns = findings.costs(board, model)
        rows = [
            [name, f"{cost.megabytes:.1f}", f"{cost.score:.1f}", f"{cost.seconds:.1f}", "*" if cost.frontier else ""]
            for name, cost in by_entry.items()
        ]
        notes = [f"Means over {columns_text(columns)}, of a seed. * no other entry sends less and scores more."] if rows else []
        parts.append(View(f"score against bytes, {model} model", ["entry", "MB", "score", "seconds", ""], rows, notes))
    return parts


def fairness(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return the distribution of scores over clients."""
    names = {"worst": "worst", "tenth": "lowest tenth", "median": "median", "best": "best", "std": "std"}
    parts = []
    for model in models:
        by_entry, columns = findings.fairness(board, model)
        order = sorted(by_entry, key=lambda name: -by_entry[name].get("worst", 0.0))
        rows = [[name, *(f"{by_entry[name][key]:.1f}" if key in by_entry[name] else "" for key in names)] for name in order]
        notes = (
            [f"Test score in % over the clients, means over the seeds of {columns_text(columns)}; the best worst client first."]
            if rows
            else []
        )
        parts.append(View(f"fairness over clients, {model} model", ["entry", *names.values()], rows, notes))
    return parts


def federation(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return regressions of the gain over local training on properties of the federation."""
    return [effects(board, model, method) for model in models]


def effects(board: Board, model: str, method: str | None) -> View:
    what = method or "the mean of all federated entries"
    title, head = f"gain over {LOCAL} of {what}, {model} model", ["property", "points for one standard deviation more"]
    fit = findings.regression(board, model, method)
    if not isinstance(fit, Fit):
        return View(title, head, [], [f"The regression needs {findings.LEAST} columns with scores of both; there are {fit}."])
    rows = [
        [named, f"{effect.coefficient:+.2f} ± {effect.half:.2f}"]
        for named, effect in zip(titles(list(fit.effects)), fit.effects.values(), strict=True)
    ]
    notes = [
        f"Least squares over {fit.columns} columns ± 95 % interval. R² {fit.r2:.2f}, adjusted {fit.adjusted:.2f}; columns predicted",
        f"from the others: {fit.predicted:.2f} (0 or less: no better than their mean). Training nodes by their logarithm.",
        "Few columns, two of them often of one graph: this is a description, and no proof of a cause.",
    ]
    return View(title, head, rows, notes)


def overview(board: Board, models: Sequence[str], method: str | None) -> list[View]:
    """Return a line per entry: rank, wins against local training, gain from tuning."""
    head = ["entry", "cells"]
    by_model = []
    for model in models:
        placed, _ = findings.ranks(board, model)
        by_model.append((placed.ranks if placed else {}, findings.tallies(board, model), findings.gains(board, model)))
        head += [f"rank, {model}", f"against local, {model}", f"tuning, {model}"]
    rows = []
    for name in board.entries:
        row = [name, str(sum(record.complete for record in board.records if record.entry == name))]
        for placed_ranks, tallied, gained in by_model:
            each = list(tallied.get(name, {}).values())
            wins = f"{sum(t.better for t in each)}/{sum(t.worse for t in each)} of {sum(t.of for t in each)}" if each else ""
            rank = f"{placed_ranks[name]:.2f}" if name in placed_ranks else ""
            row += [rank, wins, f"{gained[name].mean:+.1f}" if name in gained else ""]
        rows.append(row)
    first = by_model[0][0] if by_model else {}
    rows.sort(key=lambda row: first.get(row[0], float("inf")))
    notes = [
        "rank: average over the columns in which all ranked entries have a score. against local: columns in which it is",
        "better and worse (paired t-tests, Holm, 5 %), of how many. tuning: validation points gained over the defaults.",
    ]
    return [View("leaderboard", head, rows, notes if rows else ())]


VIEWS: dict[str, Callable[[Board, Sequence[str], str | None], list[View]]] = {
    "overview": overview, "scores": scores, "ranks": ranks, "local": local, "tuning": tuning, "costs": costs, "fairness": fairness,
    "federation": federation,
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
        sections += [f"**{part.title[0].upper()}{part.title[1:]}.**", body, *([" ".join(part.notes)] if part.notes else [])]
    return "\n\n".join(sections) + "\n"


def as_csv(parts: Sequence[View]) -> str:
    """Format every part with its headings and the title in the first column."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for part in parts:
        lines.writerow(["table", *part.head])
        lines.writerows([part.title, *row] for row in part.rows)
    return out.getvalue()


def board_rows(board: Board) -> list[list[str]]:
    """Return the overview, headings first, for the report page; empty without cells."""
    [part] = overview(board, MODELS, None)
    return [list(part.head), *(list(row) for row in part.rows)] if part.rows else []


HEAD = ["", "entry", "score", "diff.", "p"]


def placement_views(board: Board, guest: str, models: tuple[str, ...]) -> list[View]:
    """Return a table per column of the guest and kind of model, best entry first, and the average ranks."""
    columns = [column for column in board.columns if (guest, column.key) in board.cells]
    parts = [of_column(board, guest, column, model) for column in columns for model in models]
    return [*parts, *(of_ranks(board, guest, model) for model in models)]


def of_column(board: Board, guest: str, column: BoardColumn, model: str) -> View:
    scores = board.scores(column, model)
    tests = {each.name: each for each in against(guest, scores)} if guest in scores else {}
    rows = []
    for name in sorted(scores, key=lambda name: -mean(scores[name])):
        rank = 1 + sum(mean(other) > mean(scores[name]) for other in scores.values())
        test = tests.get(name)
        compared = [f"{100 * test.difference:+.1f}", f"{test.adjusted:.3f}{'*' * test.worse}"] if test else ["", ""]
        rows.append([str(rank), f"> {name}" if name == guest else name, f"{100 * mean(scores[name]):.1f}", *compared])
    notes = [] if guest in scores else [f"{guest} has no score: a seed has diverged, or the cell is not complete."]
    return View(f"{column.key}, {model} model", HEAD, rows, notes)


def of_ranks(board: Board, guest: str, model: str) -> View:
    found, columns = findings.ranks(board, model)
    title = f"average rank, {model} model"
    if found is None or guest not in found.ranks:
        return View(title, ["entry", "rank"], [], ["Ranks need two entries with scores in the same two columns."])
    own = found.ranks[guest]
    near = [name for name, rank in found.ranks.items() if name != guest and abs(rank - own) <= found.difference]
    rows = [[f"> {name}" if name == guest else name, f"{rank:.2f}"] for name, rank in found.ranks.items()]
    text = f"Over {columns_text(columns)}, critical difference {found.difference:.2f}; not significantly different from {guest}:"
    return View(title, ["entry", "rank"], rows, [text, ", ".join(near) or "nobody"])


def draw(board: Board, models: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures for which there are enough cells."""
    from fgl_bench.results.plots.figures import critical_difference, tradeoffs  # imports matplotlib

    for model in models:
        ranks, _ = findings.ranks(board, model)
        if ranks is not None:
            yield f"ranks_{model}", critical_difference(ranks, f"Leaderboard, {model} models")
        rows, columns = board.whole(model)
        if len(rows) > 1:
            panels = {}
            for split, those in by_split(columns).items():
                costs = findings.costs_in(board, model, rows, those)
                panels[f"{split}, {columns_text(those)}"] = {name: (1e6 * cost.megabytes, cost.score) for name, cost in costs.items()}
            yield f"bytes_{model}", tradeoffs(panels, f"Leaderboard, {model} models: means by split", "score in %")
