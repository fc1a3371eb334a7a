"""The numbers of a table, computed from histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fgl_bench.engine import Float

if TYPE_CHECKING:
    from fgl_bench.evaluation.history import History

MODELS = ("received", "trained")
SELECTIONS = ("federation", "client")
AVERAGES = ("weighted", "macro")


def half_width(std: Any, count: int) -> Any:
    """Half of the 95 % t-interval of a mean of ``count`` values, from their sample standard deviation: a number or an array of such."""
    from scipy.special import stdtrit  # Student's quantile; scipy.stats, which calls it, takes half a second to import

    return stdtrit(count - 1, 0.975) * std / np.sqrt(count)


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, sample standard deviation (ddof 1) and half-width of the 95 % t-interval; the last two are None for one value.

    Undefined values (NaN) are left out.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    if x.size < 2:
        return {"mean": float(x.mean()) if x.size else None, "std": None, "ci95": None}
    std = float(x.std(ddof=1))
    return {"mean": float(x.mean()), "std": std, "ci95": float(half_width(std, x.size))}


def best(history: History, model: str, weights: Float[np.ndarray, " C"] | None = None) -> int | None:
    """The evaluation point with the highest validation score, the earliest of equals; None where every point is undefined."""
    scores = history.selectable(model, weights)
    return int(np.argmax(scores)) if np.isfinite(scores).any() else None


def trips_to(history: History, model: str, target: float, weights: Float[np.ndarray, " C"] | None = None) -> int | None:
    """Fewest trips at an evaluation point whose validation score reaches ``target``; None if none does."""
    reached = np.flatnonzero(history.selectable(model, weights) >= target)
    return int(history.trips[reached[0]]) if reached.size else None


def _over_clients(statistic: Callable[[np.ndarray], float], scores: np.ndarray) -> float:
    """``statistic`` of the clients that have a score; NaN if none has."""
    scores = scores[~np.isnan(scores)]
    return float(statistic(scores)) if scores.size else float("nan")


def test_scores(histories: Sequence[History], model: str, weights: Sequence[Float[np.ndarray, " C"]] | None = None) -> dict:
    """Test scores of one kind of model: at the best validation point (the headline), at the last, per seed and per client.

    ``weights`` are the clients' sizes ``[C]`` of each seed where means are not weighted by test nodes. A seed without a defined
    point has no score (None) and counts in no mean; neither does its last point where that one is undefined.
    """
    each: Sequence[np.ndarray | None] = weights if weights else [None] * len(histories)
    points = [best(h, model, w) for h, w in zip(histories, each, strict=True)]
    pooled = [h.pooled(model, w) for h, w in zip(histories, each, strict=True)]
    chosen = [at(p[:, 1], t) for p, t in zip(pooled, points, strict=True)]
    clients = [at(h.each(model)[..., 1], t) for h, t in zip(histories, points, strict=True)]
    last = [float(p[-1, 1]) for p in pooled]
    return {
        **spread(chosen),
        "per_seed": or_none(chosen),
        "selected_trips": [None if t is None else int(h.trips[t]) for h, t in zip(histories, points, strict=True)],
        "val": spread([at(p[:, 0], t) for p, t in zip(pooled, points, strict=True)]),
        "last": {**spread(last), "per_seed": or_none(last)},
        "selected": selected_scores(histories, histories, model, each),
        "macro": spread([_over_clients(np.mean, c) for c in clients]),
        "worst_client": spread([_over_clients(np.min, c) for c in clients]),
        "per_client": [or_none(c) for c in clients],
    }


def selected_scores(
    histories: Sequence[History], scored: Sequence[History], model: str, weights: Sequence[Float[np.ndarray, " C"] | None]
) -> dict[str, dict[str, dict]]:
    """Test scores by how the evaluation point is selected and how clients are averaged, whatever the tables show.

    ``federation`` selects the point with the best validation score of the whole federation, ``client`` for every client the point
    with its own best (the earliest of equals), as code in the line of FED-PUB does; a client without validation nodes stays at the
    federation's. ``weighted`` is the mean by test nodes (or ``weights``), ``macro`` the unweighted one, over clients with test nodes.
    A seed has no score where one of these clients has none.

    Args:
        histories: what points are selected by.
        scored: the same points with the scores to report.
    """
    found: dict[str, dict[str, dict]] = {selection: {} for selection in SELECTIONS}
    points = [chosen_points(h, model, w) for h, w in zip(histories, weights, strict=True)]
    for number, selection in enumerate(SELECTIONS):
        means: dict[str, list[float]] = {average: [] for average in AVERAGES}
        for history, w, of_seed in zip(scored, weights, points, strict=True):
            chosen, clients, counts = of_seed[number], np.arange(len(history.sizes)), history.sizes[:, 1] > 0
            test = np.where(chosen >= 0, history.each(model)[chosen, clients, 1], np.nan)
            sizes = history.sizes[:, 1] if w is None else np.where(counts, w, 0)
            means["weighted"].append(_mean(test, sizes))
            means["macro"].append(_mean(test, counts))
        found[selection] = {average: {**spread(each), "per_seed": or_none(each)} for average, each in means.items()}
    return found


def chosen_points(history: History, model: str, weights: Float[np.ndarray, " C"] | None) -> tuple[np.ndarray, np.ndarray]:
    """The evaluation point of every client ``[C]`` by each of :data:`SELECTIONS`; -1 where it has none."""
    common, own = best(history, model, weights), history.selectable_by_client(model)
    together = np.full(own.shape[1], -1 if common is None else common)
    alone = np.where(np.isfinite(own).any(0), own.argmax(0), -1)
    return together, np.where(history.sizes[:, 0] == 0, together, alone)


def _mean(scores: np.ndarray, sizes: np.ndarray) -> float:
    """Mean of the clients' ``scores [C]`` by ``sizes [C]``; NaN where one of those that count has none, or none counts."""
    used = sizes > 0
    return float((scores[used] * sizes[used]).sum() / sizes[used].sum()) if used.any() else float("nan")


def at(values: np.ndarray, point: int | None) -> Any:
    """``values[point]``, as a float if it is one number; NaN if there is no such point."""
    found = np.full(values.shape[1:], np.nan) if point is None else values[point]
    return float(found) if np.ndim(found) == 0 else found


def or_none(values: Sequence[float]) -> list[float | None]:
    """For json: None instead of NaN."""
    return [None if np.isnan(value) else float(value) for value in values]


def other_scores(histories: Sequence[History], weights: Sequence[Float[np.ndarray, " C"]] | None = None) -> dict[str, dict]:
    """Test scores by the metrics besides the first, by name and model: where the first one is best on validation, and at the end."""
    each: Sequence[np.ndarray | None] = weights if weights else [None] * len(histories)
    found: dict[str, dict] = {}
    for name in histories[0].others:
        found[name] = {}
        for model in MODELS:
            scored = [h.of_metric(name) for h in histories]
            pooled = [h.pooled(model, w)[:, 1] for h, w in zip(scored, each, strict=True)]
            chosen = [at(p, best(h, model, w)) for p, h, w in zip(pooled, histories, each, strict=True)]
            found[name][model] = {**spread(chosen), "per_seed": or_none(chosen), "last": spread([float(p[-1]) for p in pooled])}
            found[name][model]["selected"] = selected_scores(histories, scored, model, each)
    return found


def divergence(histories: Sequence[History]) -> dict[str, dict[str, dict]] | None:
    """Which seeds have diverged: had a model or a training loss at an evaluation point that is not finite. None if no seed has.

    By ``received``, ``trained`` (models) and ``train_loss``, and by seed (as a string), those that have some:

    * ``clients``: how many clients had such a point;
    * ``round``, ``trip``: the first such point of any client, as in ``history.csv``;
    * ``per_client``: at how many points, ``[C]``.
    """
    found: dict[str, dict[str, dict]] = {}
    for history in histories:
        for name, where in _diverged(history):
            if where.any():
                first = int(np.argmax(where.any(1)))
                found.setdefault(name, {})[str(history.seed)] = {
                    "clients": int(where.any(0).sum()),
                    "round": int(history.version[first]),
                    "trip": int(history.trips[first]),
                    "per_client": where.sum(0).tolist(),
                }
    return found or None


def _diverged(history: History) -> Iterator[tuple[str, np.ndarray]]:
    """``[T, C]`` bool by name."""
    for model in MODELS:
        yield model, history.diverged(model)
    if history.losses is not None:
        yield "train_loss", np.isposinf(history.losses)


def unscored(histories: Sequence[History]) -> dict[str, list[int]]:
    """By seed, how many clients have no validation or test score: no such nodes or, for AUC, nodes of one class only.

    They count in no mean.
    """
    return {name: [int((h.sizes[:, i] == 0).sum()) for h in histories] for i, name in enumerate(("val", "test"))}


def trips_to_target(
    histories: Sequence[History], target: float, budget: int, weights: Sequence[Float[np.ndarray, " C"]] | None = None
) -> dict:
    """Trips to a validation score: mean over the seeds that reached it, their number, and the censored mean.

    For both models; not for trained ones where they were not scored at every point, so that nobody knows when they reached it.
    The censored mean counts a seed that never reached the score with the whole budget.
    """
    each: Sequence[np.ndarray | None] = weights if weights else [None] * len(histories)
    out = {}
    for model in (model for model in MODELS if all(h.always_scored(model) for h in histories)):
        counts = [trips_to(h, model, target, w) for h, w in zip(histories, each, strict=True)]
        out[model] = over_seeds(counts, budget)
    return out


def over_seeds(counts: Sequence[int | None], budget: int) -> dict[str, Any]:
    """Statistics of the trips to a target by seed, None where a seed never reached it."""
    reached = [c for c in counts if c is not None]
    censored = [budget if c is None else c for c in counts]
    return {**spread(reached), "reached": len(reached), "censored_mean": float(np.mean(censored)), "per_seed": list(counts)}
