"""Compact curves, costs and matrices for committed cells, so that pages and figures do not need the run."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fgl_bench.evaluation.summary import MODELS, half_width

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 40
MOST_CLIENTS = 64
STEPS = 250  # quantization levels of a stored matrix
UNKNOWN = 255
SCORES = (*MODELS, "received_macro_f1", "received_loss")
SPENT = ("round", "bytes", "embedding_bytes", "communication_seconds")
KEPT = {"similarity": "similarity_", "mixing": "trips_"}  # by the prefix in a run's mixing.npz


def thinned(points: int, most: int | None = MOST_POINTS) -> np.ndarray:
    """Return at most ``most`` positions of ``0 .. points - 1`` (None: all), a third of them dense at the steep start of curves."""
    if most is None or points <= most:
        return np.arange(points)
    early = np.geomspace(1, points, most // 3) - 1
    even = np.linspace(0, points - 1, most - most // 3)
    return np.unique(np.round(np.concatenate([early, even])).astype(int))


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean over seeds and half-width of the 95 % t-interval, ``[S, T]`` to two ``[T]``; zero width for one seed."""
    mean = values.mean(0)
    return mean, half_width(values.std(0, ddof=1), len(values)) if len(values) > 1 else np.zeros_like(mean)


def table_of(history: Path) -> pd.DataFrame:
    """Read ``history.csv`` and add the sum of bytes up and down."""
    import pandas as pd

    table = pd.read_csv(history)
    for name, up, down in (("bytes", "upload_bytes", "download_bytes"), ("embedding_bytes", "embedding_upload", "embedding_download")):
        if up in table:
            table[name] = table[up] + table[down]
    return table


def along(history: Path, cost: str) -> dict[str, list]:
    """Return test scores by ``cost``, such as virtual time, of which seeds have spent different amounts after as many trips.

    Names are as in :func:`curve`. Between two evaluation points a seed has the score of the earlier one; the lines end where the first
    seed ends. Points without a score of some seed are left out, and so are models that were not scored at every point.

    Args:
        history: a run's ``history.csv``.
        cost: ``trips`` or a column that never decreases.
    """
    table = table_of(history).rename(columns={"trip": "trips"})
    if cost not in table:
        return {}
    models = [model for model in MODELS if f"diverged_{model}" not in table or table[f"diverged_{model}"].notna().all()]
    seeds = [rows for _, rows in table.groupby("seed")]
    points = np.unique(np.concatenate([rows[cost] for rows in seeds]))
    points = points[points <= min(rows[cost].max() for rows in seeds)]
    last = [np.searchsorted(rows[cost], points, side="right") - 1 for rows in seeds]
    scores = {model: np.stack([rows[f"test_{model}"].to_numpy()[at] for rows, at in zip(seeds, last, strict=True)]) for model in models}
    scored = ~np.isnan(np.concatenate([*scores.values()])).any(axis=0)
    result = {cost: points[scored].tolist()}
    for model, values in scores.items():
        result[model], result[f"{model}_half"] = (each.tolist() for each in band(values[:, scored]))
    return result


def curve(history: Path, most: int | None = MOST_POINTS) -> dict[str, list]:
    """Return test scores and costs at the evaluation points: lists of equal length by name.

    Names are ``trips``; for each of ``SCORES`` the mean over the seeds and ``<name>_half``, the half-width of its 95 % interval; for each
    of ``SPENT`` the mean. Missing columns and trained models without scores at every point are left out. Points without a score
    of either model for some seed are skipped; empty if no point is left.

    Args:
        history: a run's ``history.csv``.
        most: maximum number of points, see :func:`thinned`.
    """
    table = table_of(history)
    seeds = table["seed"].nunique()
    by_seed = {name: table.pivot(index="trip", columns="seed", values=name) for name in table.columns.drop(["seed", "trip"])}
    scored = by_seed["test_received"].notna().all(axis=1)
    if "diverged_trained" not in table or table["diverged_trained"].notna().all():
        scored &= by_seed["test_trained"].notna().all(axis=1)
    if not scored.any():
        return {}
    rows = np.flatnonzero(scored)[thinned(int(scored.sum()), most)]
    result: dict[str, list] = {"trips": scored.index[rows].tolist()}
    for name in (*SCORES, *SPENT):
        each = by_seed.get(f"test_{name}" if name in SCORES else name)
        if each is None or each.iloc[rows].isna().any(axis=None):
            continue
        mean, half = band(each.iloc[rows].to_numpy().T)
        result[name] = mean.round(4).tolist()
        if name in SCORES and seeds > 1:
            result[f"{name}_half"] = half.round(4).tolist()
    return result


def records(history: Path) -> list[dict[str, list]] | None:
    """Return, per seed, the points at which the received model's validation score reached a new maximum, with costs so far.

    They determine the cost of reaching any score. None if the method's costs per round are unknown.

    Args:
        history: a run's ``history.csv``.
    """
    table = table_of(history)
    if "communication_seconds" not in table:
        return None
    names = {"val": "val_received", "test": "test_received", **{name: name for name in SPENT}}
    improvements = []
    for _, seed in table.groupby("seed"):
        score = seed["val_received"].where(seed["test_received"].notna()).fillna(float("-inf"))
        better = seed[score > score.cummax().shift(fill_value=float("-inf"))]
        improvements.append({name: better[column].tolist() for name, column in names.items()})
    return improvements


def matrices(arrays: Path) -> dict[str, dict[str, dict]]:
    """Return the first seed's client similarities and averaging weights, by kind and trip count, one byte per entry.

    Args:
        arrays: a run's ``mixing.npz``. Federations of more than ``MOST_CLIENTS`` are left out.
    """
    stored: dict[str, dict[str, dict]] = {}
    with np.load(arrays) as file:
        for kind, prefix in KEPT.items():
            for name in sorted((name for name in file.files if name.startswith(prefix)), key=lambda n: int(n.removeprefix(prefix))):
                matrix = np.asarray(file[name][0], dtype=np.float64)
                if len(matrix) <= MOST_CLIENTS:
                    stored.setdefault(kind, {})[name.removeprefix(prefix)] = packed(matrix)
    return stored


def packed(matrix: np.ndarray) -> dict:
    """Encode a non-negative matrix ``[C, C]``: entries over the largest in ``STEPS`` steps, base64, row by row."""
    known = np.isfinite(matrix)
    most = float(matrix[known].max(initial=0.0))
    levels = np.round(np.clip(np.where(known, matrix, 0) / (most or 1.0), 0, 1) * STEPS)
    data = np.where(known, levels, UNKNOWN).astype(np.uint8)
    return {"clients": len(matrix), "max": round(most, 6), "data": base64.b64encode(data.tobytes()).decode("ascii")}


def unpacked(stored: Mapping) -> np.ndarray:
    """Decode a matrix of :func:`packed`, to within half a step; unknown entries are NaN."""
    levels = np.frombuffer(base64.b64decode(stored["data"]), dtype=np.uint8).reshape(stored["clients"], stored["clients"])
    return np.where(levels == UNKNOWN, np.nan, levels / STEPS * stored["max"])


def label_counts(labels: Sequence[np.ndarray], classes: int) -> list[list[int]] | None:
    """Return labeled nodes per client and class, ``[C][Y]``; None for large federations and for multi-label nodes."""
    if len(labels) > MOST_CLIENTS or any(np.ndim(each) != 1 for each in labels):
        return None
    return [np.bincount(each[each >= 0], minlength=classes).tolist() for each in labels]
