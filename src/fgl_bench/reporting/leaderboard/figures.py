"""Figures of the leaderboard: average ranks with their critical difference, and scores against bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from fgl_bench.reporting.leaderboard import findings
from fgl_bench.reporting.leaderboard.board import Board
from fgl_bench.reporting.leaderboard.views import over
from fgl_bench.reporting.plots.diagrams import bytes_against_score, critical_difference


def draw(board: Board, models: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Names and figures of what enough cells are there for."""
    for model in models:
        ranks, _ = findings.ranks(board, model)
        if ranks is not None:
            yield f"ranks_{model}", critical_difference(ranks, f"Leaderboard, {model} models")
        found, columns = findings.costs(board, model)
        if len(found) > 1:
            points = {name: (1e6 * cost.megabytes, cost.score) for name, cost in found.items()}
            title = f"Leaderboard, {model} models"
            yield f"bytes_{model}", bytes_against_score({f"mean of {over(columns)}": points}, title, "score in %")
