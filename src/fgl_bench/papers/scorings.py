"""Agreement of the tables under other scorings of the same runs.

Papers rarely state which round they score and how they average clients. Every run stores its scores under each of :data:`SCORINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from fgl_bench.papers.agreement import percent, settle_all
from fgl_bench.papers.settlements import AGREES, NOT_RUN
from fgl_bench.papers.work import Work
from fgl_bench.results.scored import selected

SCORINGS: dict[str, Callable[[Any], Any]] = {
    "best round": partial(selected, selection="federation", average="weighted"),
    "best round, clients alike": partial(selected, selection="federation", average="macro"),
    "each client's best round": partial(selected, selection="client", average="weighted"),
    "each client's best round, clients alike": partial(selected, selection="client", average="macro"),
    "last round": methodcaller("get", "last"),
}
HEAD = (
    "",
    "## Scored in other ways",
    "",
    "How many cells agree where the same rows and models are scored in the round that is best on the validation nodes of all clients, as "
    "everywhere else on this page; in the round that is best on each client's own; or in the last one. Means over clients weight them by "
    "their test nodes, or count them *alike*. Cells whose runs are older than a score are left out.",
    "",
    f"| paper | {' | '.join(SCORINGS)} |",
    f"|---{'|---' * len(SCORINGS)}|",
)


def rescored(result: Mapping[str, Any], scoring: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Return a stored result with its test scores under another scoring; None if they are not stored."""
    test = _by_model(result["test"], scoring)
    metrics = {name: found for name, scores in result.get("metrics", {}).items() if (found := _by_model(scores, scoring)) is not None}
    return None if test is None else {**result, "test": test, "metrics": metrics}


def _by_model(scores: Mapping[str, Any], scoring: Callable[[Any], Any]) -> dict[str, Any] | None:
    result = {model: scoring(each) for model, each in scores.items()}
    return result if all(each and "per_seed" in each for each in result.values()) else None


def compared(works: Sequence[Work]) -> list[str]:
    """Return a section with the papers' agreement under each of :data:`SCORINGS`."""
    return [*HEAD, *(f"| {work.paper.title} | {' | '.join(_agreeing(work, scoring) for scoring in SCORINGS.values())} |" for work in works)]


def _agreeing(work: Work, scoring: Callable[[Any], Any]) -> str:
    stored = {key: found for key, result in work.stored.items() if (found := rescored(result, scoring)) is not None}
    tables = [table for table in work.tables if table.measure != "trips"]
    found = settle_all(work.paper, tables, stored, work.published, work.settlements)
    cells = [each for of_table in found.values() for each in of_table if each.finding != NOT_RUN]
    near = sum(each.finding == AGREES for each in cells)
    return f"{near} of {len(cells)} ({percent(near, len(cells))} %)" if cells else ""
