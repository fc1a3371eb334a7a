"""Selects the test scores that tables show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COMMON = ("federation", "weighted")


def selected(scores: Any, selection: str, average: str) -> Any:
    """Select a score of ``test.received`` or ``test.trained`` by selection and average (``evaluation.summary.selected_scores``).

    Returns:
        The score; None if the result is older than this option.
    """
    return scores if (selection, average) == COMMON else scores.get("selected", {}).get(selection, {}).get(average)


def score_trained(summary: Mapping) -> str | None:
    """Return when the server scored trained models (``split.score_trained``); None if clients score them at every point."""
    split = (summary.get("config") or {}).get("split")
    return split.get("score_trained", "never") if isinstance(split, Mapping) and split.get("test") == "server" else None


def scored_models(models: Sequence[str], cells: Iterable[Mapping]) -> tuple[str, ...]:
    """Return the ``models`` that at least one cell has scored; all of them without cells."""
    never = {score_trained(cell) == "never" for cell in cells} == {True}
    return tuple(model for model in models if model != "trained" or not never)
