"""Which of a run's test scores a table shows."""

from __future__ import annotations

from typing import Any

COMMON = ("federation", "weighted")


def selected(scores: Any, selection: str, average: str) -> Any:
    """Of ``test.received`` or the like, the score of this selection and mean (``evaluation.summary.selected_scores``).

    Returns:
        None in results that are older than this choice.
    """
    return scores if (selection, average) == COMMON else scores.get("selected", {}).get(selection, {}).get(average)
