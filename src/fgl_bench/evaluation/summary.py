"""Statistics of tables, computed from histories."""

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
    """Return half the width of the 95 % t-interval of a mean of ``count`` values, given their sample standard deviation (or an array)."""
    from scipy.special import stdtrit  # Student's quantile, without the half second that importing scipy.stats takes

    return stdtrit(count - 1, 0.975) * std / np.sqrt(count)


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean, sample standard deviation (ddof 1) and half-width of the 95 % t-interval; the last two are None for one value.

    Undefined values (NaN) are left out.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    if x.size < 2:
        return {"mean": float(x.mean()) if x.size else None, "std": None, "ci95": None}
    std = float(x.std(ddof=1))
    return {"mean": float(x.mean()), "std": std, "ci95": float(half_width(std, x.size))}


def best(history: History, model: str, weights: Float[np.ndarray, " C"] | None = None) -> int | None:
    """Return the first evaluation point with the highest validation score; None if every point is undefined."""
    scores = history.selectable(model, weights)
    return int(np.argmax(scores)) if np.isfinite(scores).any() else None


def trips_to(history: History, model: str, target: float, weights: Float[np.ndarray, " C"] | None = None) -> int | None:
    """Return the trips at the first evaluation point whose validation score reaches ``target``; None if no point does."""
    reached = np.flatnonzero(history.selectable(model, weights) >= target)
    return int(history.trips[reached[0]]) if reached.size else None


def _over_clients(statistic: Callable[[np.ndarray], float], scores: np.ndarray) -> float:
    """Return ``statistic`` of the clients with a score; NaN if no client has a score."""
    scores = scores[~np.isnan(scores)]
    return float(statistic(scores)) if scores.size else float("nan")


def test_scores(histories: Sequence[History], model: str, weights: Sequence[Float[np.ndarray, " C"]] | None = None) -> dict:
    """Return test scores of one kind of model: at the best validation point (the headline), at the last point, per seed and per client.

    ``weights`` are the clients' sizes ``[C]`` per seed, if means are not weighted by test nodes. A seed without a defined point
    has no score (None) and is left out of means; so is an undefined last point.
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
    """Return test scores for every selection of the evaluation point and every average over clients.

    ``federation`` selects the point with the best validation score of the whole federation. ``client`` selects for each client the
    first point with its own best score, as FED-PUB's code and its successors do; a client without validation nodes uses the
    federation's point. ``weighted`` is the mean by test nodes (or ``weights``), ``macro`` the unweighted mean, over clients with test
    nodes. A seed has no score if one of these clients has no score.

    Args:
        histories: scores that select the points.
        scored: the same points with the scores to report.
    """
    scores: dict[str, dict[str, dict]] = {selection: {} for selection in SELECTIONS}
    points = [chosen_points(h, model, w) for h, w in zip(histories, weights, strict=True)]
    for number, selection in enumerate(SELECTIONS):
        means: dict[str, list[float]] = {average: [] for average in AVERAGES}
        for history, w, of_seed in zip(scored, weights, points, strict=True):
            chosen, clients, counts = of_seed[number], np.arange(len(history.sizes)), history.sizes[:, 1] > 0
            test = np.where(chosen >= 0, history.each(model)[chosen, clients, 1], np.nan)
            sizes = history.sizes[:, 1] if w is None else np.where(counts, w, 0)
            means["weighted"].append(mean_of(test, sizes))
            means["macro"].append(mean_of(test, counts))
        scores[selection] = {average: {**spread(each), "per_seed": or_none(each)} for average, each in means.items()}
    return scores


def chosen_points(history: History, model: str, weights: Float[np.ndarray, " C"] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return each client's evaluation point ``[C]`` for each of :data:`SELECTIONS`; -1 for no point."""
    common, own = best(history, model, weights), history.selectable_by_client(model)
    federation = np.full(own.shape[1], -1 if common is None else common)
    client = np.where(np.isfinite(own).any(0), own.argmax(0), -1)
    return federation, np.where(history.sizes[:, 0] == 0, federation, client)


def mean_of(scores: np.ndarray, sizes: np.ndarray) -> float:
    """Return the mean of ``scores [C]`` weighted by ``sizes [C]``; NaN if a counted client has no score, or if no client counts."""
    used = sizes > 0
    return float((scores[used] * sizes[used]).sum() / sizes[used].sum()) if used.any() else float("nan")


def at(values: np.ndarray, point: int | None) -> Any:
    """Return ``values[point]``, as a float if it is a single number; NaN if ``point`` is None."""
    value = np.full(values.shape[1:], np.nan) if point is None else values[point]
    return float(value) if np.ndim(value) == 0 else value


def or_none(values: Sequence[float]) -> list[float | None]:
    """Return the values with None instead of NaN, for JSON."""
    return [None if np.isnan(value) else float(value) for value in values]


def other_scores(histories: Sequence[History], weights: Sequence[Float[np.ndarray, " C"]] | None = None) -> dict[str, dict]:
    """Return test scores of the additional metrics by name and model, at the best point of the first metric and at the last point."""
    each: Sequence[np.ndarray | None] = weights if weights else [None] * len(histories)
    scores: dict[str, dict] = {}
    for name in histories[0].others:
        scores[name] = {}
        for model in MODELS:
            scored = [h.of_metric(name) for h in histories]
            pooled = [h.pooled(model, w)[:, 1] for h, w in zip(scored, each, strict=True)]
            chosen = [at(p, best(h, model, w)) for p, h, w in zip(pooled, histories, each, strict=True)]
            scores[name][model] = {**spread(chosen), "per_seed": or_none(chosen), "last": spread([float(p[-1]) for p in pooled])}
            scores[name][model]["selected"] = selected_scores(histories, scored, model, each)
    return scores


def divergence(histories: Sequence[History]) -> dict[str, dict[str, dict]] | None:
    """Return the seeds that diverged, with a model or a training loss that is not finite at an evaluation point; None without any.

    The entries are by ``received``, ``trained`` (models) and ``train_loss``, then by seed (as a string):

    * ``clients``: number of clients with such a point;
    * ``round``, ``trip``: the first such point of any client, as in ``history.csv``;
    * ``per_client``: number of such points per client, ``[C]``.
    """
    seeds: dict[str, dict[str, dict]] = {}
    for history in histories:
        for name, where in _diverged(history):
            if where.any():
                first = int(np.argmax(where.any(1)))
                seeds.setdefault(name, {})[str(history.seed)] = {
                    "clients": int(where.any(0).sum()),
                    "round": int(history.version[first]),
                    "trip": int(history.trips[first]),
                    "per_client": where.sum(0).tolist(),
                }
    return seeds or None


def _diverged(history: History) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the diverged points ``[T, C]`` bool by name."""
    for model in MODELS:
        yield model, history.diverged(model)
    if history.losses is not None:
        yield "train_loss", np.isposinf(history.losses)


def unscored(histories: Sequence[History]) -> dict[str, list[int]]:
    """Return the number of clients per seed without a validation or test score: no such nodes or, for AUC, nodes of a single class.

    These clients are left out of means.
    """
    return {name: [int((h.sizes[:, i] == 0).sum()) for h in histories] for i, name in enumerate(("val", "test"))}


def trips_to_target(
    histories: Sequence[History], target: float, budget: int, weights: Sequence[Float[np.ndarray, " C"]] | None = None
) -> dict:
    """Return trips to a validation score: mean over the seeds that reached it, their number, and the censored mean.

    Trained models are left out if they were not scored at every point. The censored mean counts a seed that never reached the
    score with the whole budget.
    """
    each: Sequence[np.ndarray | None] = weights if weights else [None] * len(histories)
    out = {}
    for model in (model for model in MODELS if all(h.always_scored(model) for h in histories)):
        counts = [trips_to(h, model, target, w) for h, w in zip(histories, each, strict=True)]
        out[model] = over_seeds(counts, budget)
    return out


def over_seeds(counts: Sequence[int | None], budget: int) -> dict[str, Any]:
    """Return statistics of the trips to a target by seed (None for a seed that never reached it)."""
    reached = [c for c in counts if c is not None]
    censored = [budget if c is None else c for c in counts]
    return {**spread(reached), "reached": len(reached), "censored_mean": float(np.mean(censored)), "per_seed": list(counts)}
