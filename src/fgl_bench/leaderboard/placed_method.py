"""A user's method among the entries of the leaderboard."""

from __future__ import annotations

from statistics import mean

from fgl_bench.leaderboard import findings
from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.protocol import BoardColumn
from fgl_bench.leaderboard.views import View, columns_text
from fgl_bench.results.statistics import against

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
