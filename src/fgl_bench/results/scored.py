"""The scores of a stored run: those that tables show, and notes on seeds that diverged or have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COMMON = ("federation", "weighted")
DEFAULT_TASK = "node"


def of_task(summary: Mapping) -> str:
    """Return ``, task=link`` for a caption; empty for the default task, which summaries of older runs do not name."""
    task = summary.get("task", DEFAULT_TASK)
    return "" if task == DEFAULT_TASK else f", task={task}"


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


MARK = "†"


def diverged_seeds(summary: Mapping) -> dict[str, dict[str, int]]:
    """Return, per diverged seed of a summary or cell, the number of diverged clients and the first round."""
    counts: dict[str, dict[str, int]] = {}
    for by_seed in (summary.get("diverged") or {}).values():
        for seed, one in by_seed.items():
            known = counts.get(seed, one)
            counts[seed] = {"clients": max(known["clients"], one["clients"]), "round": min(known["round"], one["round"])}
    return counts


def scored_seeds(scores: Mapping) -> int:
    """Return the number of seeds that have a score."""
    return sum(value is not None for value in scores["per_seed"])


def shares(summary: Mapping) -> str:
    """``diverged: 1 of 5 seeds (seed 0: 3 of 20 clients, first in round 12)``; empty if no seed diverged."""
    seeds = diverged_seeds(summary)
    if not seeds:
        return ""
    clients = [
        f"seed {seed}: {one['clients']} of {summary['num_clients']} clients, first in round {one['round']}" for seed, one in seeds.items()
    ]
    more = f"; and {len(clients) - 2} more" if len(clients) > 2 else ""
    return f"diverged: {len(seeds)} of {len(summary['seeds'])} seeds ({'; '.join(clients[:2])}{more})"


def warning(summary: Mapping) -> str | None:
    """Return warnings about diverged seeds, seeds without a defined score and a virtual time that was not reached; None without any."""
    return "\n".join(line for line in (_diverged(summary), _undefined(summary), _over(summary)) if line) or None


def _over(summary: Mapping) -> str:
    limit, reached = (summary.get("config") or {}).get("virtual_time"), summary.get("virtual_time", 0)
    if limit is None or reached >= limit:
        return ""
    return f"warning: the rounds were over at virtual time {reached:g}, before virtual_time={limit:g}; give more of them"


def _undefined(summary: Mapping) -> str:
    unscored = summary.get("unscored_clients") or {}
    empty = {name: [count == summary["num_clients"] for count in unscored.get(name, ())] for name in ("val", "test")}
    reasons = [
        f"no client of seed(s) {', '.join(str(seed) for seed, none in zip(summary['seeds'], empty[name], strict=True) if none)} has {nodes}"
        for name, nodes in (("val", "a defined validation score, so that no round can be chosen"), ("test", "a defined test score"))
        if any(empty[name])
    ]
    why = " (an area under a curve needs nodes of two classes)" * str(summary["metric"]).startswith("auc")
    return f"warning: {'; '.join(reasons)}{why}: these seeds have no score; raise that share of split.ratios" if reasons else ""


def _diverged(summary: Mapping) -> str:
    seeds = diverged_seeds(summary)
    if not seeds:
        return ""
    seed, one = next(iter(seeds.items()))
    others = f" and clients of {len(seeds) - 1} other seed(s)" if len(seeds) > 1 else ""
    return (
        f"warning: {one['clients']} of {summary['num_clients']} clients of seed {seed}{others} diverged (first in round {one['round']}): "
        f"where a model is not finite its scores are undefined; try a lower lr (now {summary['config']['lr']:g}) or fewer local_epochs"
    )


def footnote(cells: Sequence[tuple[str, Mapping]]) -> list[str]:
    """Return the note that lists the diverged cells of a table by name; an empty list if none diverged."""
    some = [f"{name} ({len(diverged_seeds(cell))} of {len(cell['seeds'])} seeds)" for name, cell in cells if diverged_seeds(cell)]
    if not some:
        return []
    return [
        f"{MARK} diverged, models or losses of some clients are not finite: {', '.join(some)}. (n/m): only n of m seeds have a score, the "
        "mean is theirs and competes with no other."
    ]
