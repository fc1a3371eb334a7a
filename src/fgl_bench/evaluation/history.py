"""Measurements of a run by seed and evaluation point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine import Bool, Float, Int


class ScoreLog:
    """Scores of batches of models, stored on the device so that the training loop never waits for them.

    The scores are in one tensor that doubles when full: many small tensors between large temporary ones would fragment the memory.
    """

    def __init__(self) -> None:
        self._scores: Tensor | None = None
        self.size = 0

    def reserve(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        """Allocate now, before large temporary tensors."""
        self._scores = torch.empty(4096, width, dtype=dtype, device=device)

    def add(self, scores: Tensor) -> int:
        """Append ``scores [k, w]`` (w must not change) and return the position of the first row."""
        start, self.size = self.size, self.size + len(scores)
        if self._scores is None or self.size > len(self._scores):
            grown = scores.new_empty(max(4096, 2 * self.size), scores.shape[1])
            if self._scores is not None:
                grown[:start] = self._scores[:start]
            self._scores = grown
        self._scores[start : self.size] = scores
        return start

    def read(self, at: np.ndarray | None = None) -> np.ndarray:
        """Return the rows at these positions (default: all rows) as float64 on the host, ``[..., w]``."""
        if self._scores is None:
            return np.zeros((0, 2))
        if at is None:
            return self._scores[: self.size].double().cpu().numpy()
        rows = self._scores[torch.as_tensor(at.ravel(), device=self._scores.device)].double().cpu().numpy()
        return rows.reshape(*at.shape, -1)


@dataclass
class Point:
    """One evaluation point of one seed.

    Attributes:
        trips: client trips counted so far.
        version: synchronous rounds or server steps done.
        time: virtual clock, in cycles of an all-fast system, or in seconds where clients have devices.
        received, trained: ``[C]`` positions in the score log; -1 for trained models that are not scored.
        upload, download: bytes so far.
        staleness: mean and largest staleness of the uploads processed since the last point, or None.
        busiest: bytes that the busiest client has sent and received so far; None if clients communicate only with a server.
        loss: ``[C]`` positions in the log of training losses, -1 for a client without a finished trip; None for methods without training.
    """

    trips: int
    version: int
    time: float
    received: np.ndarray
    trained: np.ndarray
    upload: int
    download: int
    staleness: tuple[float, float] | None = None
    busiest: int | None = None
    loss: np.ndarray | None = None


def excerpt(points: Sequence[Point], scores: ScoreLog, losses: ScoreLog) -> tuple[list[Point], tuple[np.ndarray, np.ndarray]]:
    """Some points with those rows of the two logs that they refer to; waits for the device."""
    at = np.stack([[point.received, point.trained] for point in points])  # [T, 2, C]
    lost = np.stack([np.full(at.shape[2], -1) if point.loss is None else point.loss for point in points])
    row = np.where(at < 0, -1, np.arange(at.size).reshape(at.shape))
    loss_row = np.where(lost < 0, -1, np.arange(lost.size).reshape(lost.shape))
    moved = [
        replace(point, received=row[t, 0], trained=row[t, 1], loss=None if point.loss is None else loss_row[t])
        for t, point in enumerate(points)
    ]
    return moved, (scores.read(np.maximum(at, 0).ravel()), losses.read(np.maximum(lost, 0).ravel()))


@dataclass
class History:
    """The evaluation points of one seed.

    Attributes:
        trips, version, upload, download: ``[T]`` int64.
        time: ``[T]``.
        staleness: ``[T, 2]``, mean and largest; NaN at points without an upload.
        scores: for ``received`` and ``trained``, ``[T, C, 2]`` summed validation and test scores; NaN if a model is not finite or
            was not scored.
        sizes: ``[C, 2]`` validation and test nodes.
        busiest: ``[T]`` bytes of the busiest client; None if clients communicate only with a server.
        others: scores and sizes of the additional metrics, by name.
        warmup_rounds: versions (rounds) before the model is federated; their points are recorded but never selected.
        spent: ``[T]`` by name, cumulative costs of the method other than bytes (``Spending.cost_history``).
        losses: ``[T, C]`` training loss of each client's last finished trip (``Trips.train_loss``); infinite if the loss is not
            finite, NaN for a client without a trip or without training nodes. None for methods without training.
        train_nodes: ``[C]`` training nodes.
        trained_scored: ``[T]`` bool, True where the trained models were scored; None if they always are.
    """

    seed: int
    trips: Int[np.ndarray, " T"]
    version: Int[np.ndarray, " T"]
    time: Float[np.ndarray, " T"]
    upload: Int[np.ndarray, " T"]
    download: Int[np.ndarray, " T"]
    staleness: Float[np.ndarray, "T 2"]
    scores: dict[str, Float[np.ndarray, "T C 2"]]
    sizes: Int[np.ndarray, "C 2"]
    busiest: Int[np.ndarray, " T"] | None = None
    warmup_rounds: int = 0
    others: dict[str, tuple[dict[str, np.ndarray], np.ndarray]] = field(default_factory=dict)
    spent: dict[str, np.ndarray] = field(default_factory=dict)
    losses: Float[np.ndarray, "T C"] | None = None
    train_nodes: Int[np.ndarray, " C"] | None = None
    trained_scored: Bool[np.ndarray, " T"] | None = None

    @classmethod
    def of(
        cls,
        seed: int,
        points: list[Point],
        scores: np.ndarray,
        sizes: np.ndarray,
        warmup_rounds: int = 0,
        others: dict[str, np.ndarray] | None = None,
        cost_history: Mapping[str, np.ndarray] | None = None,
        losses: np.ndarray | None = None,
        train_nodes: np.ndarray | None = None,
    ) -> History:
        """Return the history of one seed.

        Args:
            scores: the log; a row holds the scores of one client, or of several side by side, metric by metric.
            sizes: ``[C, 2]`` scored nodes of the first metric.
            others: ``[C, 2]`` scored nodes of the other metrics, by name.
            cost_history: ``[rounds]`` by name, cumulative costs after each version.
            losses: ``[size, 1]``, the log of training losses.
            train_nodes: ``[C]`` training nodes.
        """
        others, cost_history = others or {}, cost_history or {}
        at = {name: np.stack([getattr(p, name) for p in points]) for name in ("received", "trained")}
        by_model = {name: scores[each].reshape(len(points), -1, 1 + len(others), 2) for name, each in at.items()}
        trained_scored = np.asarray((at["trained"] >= 0).all(1))
        if not trained_scored.all():
            by_model["trained"] = np.where(trained_scored[:, None, None, None], by_model["trained"], np.nan)
        none = (np.nan, np.nan)
        counts: dict[str, Any] = {n: np.array([getattr(p, n) for p in points]) for n in ("trips", "version", "time", "upload", "download")}
        return cls(
            seed,
            **counts,
            staleness=np.array([none if p.staleness is None else p.staleness for p in points]),
            scores={name: summed[:, :, 0] for name, summed in by_model.items()},
            sizes=sizes,
            busiest=None if points[-1].busiest is None else np.array([p.busiest for p in points]),
            warmup_rounds=warmup_rounds,
            others={
                metric: ({name: summed[:, :, i] for name, summed in by_model.items()}, counted)
                for i, (metric, counted) in enumerate(others.items(), 1)
            },
            spent={name: np.concatenate([[0], costs])[[p.version for p in points]] for name, costs in cost_history.items()},
            losses=None if losses is None or train_nodes is None or points[-1].loss is None else _losses(points, losses[:, 0], train_nodes),
            train_nodes=train_nodes,
            trained_scored=None if trained_scored.all() else trained_scored,
        )

    def of_metric(self, name: str) -> History:
        """Return the same points with the scores of another metric."""
        scores, sizes = self.others[name]
        return replace(self, scores=scores, sizes=sizes, others={})

    def selectable(self, model: str, weights: Float[np.ndarray, " C"] | None = None) -> Float[np.ndarray, " T"]:
        """Return the pooled validation scores ``[T]``; -inf at undefined points and during warm-up (unless all points are warm-up)."""
        pooled = self.pooled(model, weights)
        undefined = np.isnan(pooled) & [True, bool(self.sizes[:, 1].any())]  # without test nodes, validation alone decides
        return self._after_warmup(np.where(undefined.any(1), -np.inf, pooled[:, 0]))

    def selectable_by_client(self, model: str) -> Float[np.ndarray, "T C"]:
        """Return each client's validation scores ``[T, C]``; -inf as in :meth:`selectable` and for clients without validation nodes."""
        own = self.each(model)[..., 0]
        return self._after_warmup(np.where(np.isnan(own) | self.diverged(model), -np.inf, own))

    def _after_warmup(self, scores: np.ndarray) -> np.ndarray:
        """Return ``scores [T, ...]`` with -inf during warm-up, unless all points are warm-up."""
        late = (self.version > self.warmup_rounds) | (self.warmup_rounds == 0)
        return np.where(late.reshape(-1, *[1] * (scores.ndim - 1)), scores, -np.inf) if late.any() else scores

    def pooled(self, model: str, weights: Float[np.ndarray, " C"] | None = None) -> Float[np.ndarray, "T 2"]:
        """Return the mean over clients weighted by their validation or test nodes (or by ``weights [C]``), ``[T, 2]``.

        Clients without such nodes are left out. NaN if no client is left, or if the model of a counted client is not finite.
        """
        used = self.sizes > 0
        by = self.sizes if weights is None else np.where(used, weights[:, None], 0)
        total = by.sum(0)
        return np.where(used, self.each(model) * by, 0).sum(1) / np.where(total > 0, total, np.nan)

    def diverged(self, model: str) -> Bool[np.ndarray, "T C"]:
        """Return ``[T, C]`` bool, True where a client's model is not finite, judged by its predictions for scored nodes."""
        undefined = np.isnan(self.scores[model]).any(2)
        if model == "received" or self.trained_scored is None:
            return undefined
        return undefined & self.trained_scored[:, None]

    def always_scored(self, model: str) -> bool:
        """Return True if this kind of model was scored at every point."""
        return model == "received" or self.trained_scored is None

    def train_loss(self) -> Float[np.ndarray, " T"]:
        """Return the mean of ``losses`` over clients weighted by training nodes, ``[T]``; NaN without losses or if a loss is not finite."""
        if self.losses is None or self.train_nodes is None:
            return np.full(len(self.trips), np.nan)
        by = np.where(np.isnan(self.losses), 0, self.train_nodes)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(by > 0, self.losses * by, 0).sum(1) / by.sum(1)
        return np.where(np.isfinite(mean), mean, np.nan)

    def each(self, model: str) -> Float[np.ndarray, "T C 2"]:
        """Return each client's validation and test scores, ``[T, C, 2]``; NaN without such nodes or if its model is not finite."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.scores[model] / np.where(self.sizes > 0, self.sizes, np.nan)


def _losses(points: list[Point], log: np.ndarray, train_nodes: np.ndarray) -> np.ndarray:
    """Return ``History.losses`` from the log ``[size]``."""
    at = np.stack([np.asarray(p.loss) for p in points])
    losses = np.where(at >= 0, log[np.maximum(at, 0)], np.nan) if log.size else np.full(at.shape, np.nan)
    return np.where(train_nodes > 0, np.where((at >= 0) & ~np.isfinite(losses), np.inf, losses), np.nan)


@dataclass
class Outcome:
    """The result of a simulation: histories in the order of the seeds, mixing and similarity matrices ``[S, C, C]`` by trip count.

    ``models`` are the saved parameters by name. Some methods add costs per seed by name, bytes between clients ``[S, C, C]``, and
    a final state of the clients by name, ``[S, C, ...]``. ``unseen`` are the scores of unseen clients, by seed.
    """

    histories: list[History]
    mixing: dict[int, Float[np.ndarray, "S C C"]]
    similarity: dict[int, Float[np.ndarray, "S C C"]]
    costs: dict[str, list[float]] = field(default_factory=dict)
    exchanged: Int[np.ndarray, "S C C"] | None = None
    final_state: dict[str, Float[np.ndarray, "S C ..."]] = field(default_factory=dict)
    models: dict[str, np.ndarray] = field(default_factory=dict)
    unseen: list[dict[str, Any]] = field(default_factory=list)


def history_rows(histories: Sequence[History], weights: Sequence[np.ndarray] | None = None) -> list[dict]:
    """Return one row per seed and evaluation point, with None for undefined values.

    ``diverged_received`` and ``diverged_trained`` are the numbers of clients whose model is not finite at that point.
    """
    rows = []
    for number, h in enumerate(histories):
        weight = None if weights is None else weights[number]
        pooled = {model: h.pooled(model, weight) for model in h.scores}
        losses, diverged = h.train_loss(), {model: h.diverged(model).sum(1) for model in h.scores}
        others = {f"{model}_{name}": h.of_metric(name).pooled(model, weight)[:, 1] for name in h.others for model in h.scores}
        for t in range(len(h.trips)):
            row: dict[str, Any] = {"seed": h.seed, "trip": int(h.trips[t]), "round": int(h.version[t]), "time": round(float(h.time[t]), 6)}
            for model, score in pooled.items():
                row |= {f"val_{model}": rounded(score[t, 0]), f"test_{model}": rounded(score[t, 1])}
            row["train_loss"] = rounded(losses[t])
            unknown = h.trained_scored is not None and not h.trained_scored[t]
            row |= {f"diverged_{model}": None if unknown and model == "trained" else int(n[t]) for model, n in diverged.items()}
            for name, score in others.items():
                row[f"test_{name}"] = rounded(score[t])
            row |= {"upload_bytes": int(h.upload[t]), "download_bytes": int(h.download[t])}
            if h.busiest is not None:
                row["busiest_bytes"] = int(h.busiest[t])
            row |= {name: round(each[t].item(), 6) for name, each in h.spent.items()}
            for name, value in zip(("staleness_mean", "staleness_max"), h.staleness[t], strict=True):
                row[name] = None if np.isnan(value) else round(float(value), 4)
            rows.append(row)
    return rows


def rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)
