"""Figures of the leaderboard: average ranks with their critical difference, and scores against bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from fgl_bench.leaderboard import findings
from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.views import by_split, columns_text
from fgl_bench.results.plots.figures import critical_difference, tradeoffs


def draw(board: Board, models: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures for which there are enough cells."""
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
