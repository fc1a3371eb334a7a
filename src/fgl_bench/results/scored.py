"""Which of a run's test scores a table shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COMMON = ("federation", "weighted")


def selected(scores: Any, selection: str, average: str) -> Any:
    """Of ``test.received`` or the like, the score of this selection and mean (``evaluation.summary.selected_scores``).

    Returns:
        None in results that are older than this choice.
    """
    return scores if (selection, average) == COMMON else scores.get("selected", {}).get(selection, {}).get(average)


def score_trained(summary: Mapping) -> str | None:
    """When a server scored the trained models (``split.score_trained``); None where clients score them at every point."""
    split = (summary.get("config") or {}).get("split")
    return split.get("score_trained", "never") if isinstance(split, Mapping) and split.get("test") == "server" else None


def scored_models(models: Sequence[str], cells: Iterable[Mapping]) -> tuple[str, ...]:
    """Those of ``models`` that some of the cells have scored; all of them if there are no cells."""
    never = {score_trained(cell) == "never" for cell in cells} == {True}
    return tuple(model for model in models if model != "trained" or not never)
