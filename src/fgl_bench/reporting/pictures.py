"""The little that a committed cell keeps of a run's curves, costs and matrices, so that pages can be made without the run."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fgl_bench.evaluation.summary import MODELS

MOST_POINTS = 40
MOST_CLIENTS = 64
STEPS = 250  # grey levels of a kept matrix
UNKNOWN = 255
SPENT = ("round", "bytes", "embedding_bytes", "communication_seconds")
KEPT = {"similarity": "similarity_", "mixing": "trips_"}  # by the prefix in a run's mixing.npz


def thinned(points: int) -> np.ndarray:
    """At most ``MOST_POINTS`` positions of ``0 .. points - 1``: a third of them dense at the start, where curves are steep."""
    if points <= MOST_POINTS:
        return np.arange(points)
    early = np.geomspace(1, points, MOST_POINTS // 3) - 1
    even = np.linspace(0, points - 1, MOST_POINTS - MOST_POINTS // 3)
    return np.unique(np.round(np.concatenate([early, even])).astype(int))


def curve(history: Path) -> dict[str, list]:
    """Test scores against trips, thinned: ``trips``, and for each model its mean over the seeds and the 95 % half-width.

    Args:
        history: a run's ``history.csv``.
    """
    import pandas as pd
    from scipy import stats

    table = pd.read_csv(history)
    found: dict[str, list] = {}
    for model in MODELS:
        by_seed = table.pivot(index="trip", columns="seed", values=f"test_{model}").dropna()
        by_seed = by_seed.iloc[thinned(len(by_seed))]
        values, seeds = by_seed.to_numpy(), by_seed.shape[1]
        found["trips"] = by_seed.index.tolist()
        found[model] = [round(float(v), 4) for v in values.mean(1)]
        if seeds > 1:
            half = stats.t.ppf(0.975, seeds - 1) * values.std(1, ddof=1) / np.sqrt(seeds)
            found[f"{model}_half"] = [round(float(v), 4) for v in half]
    return found


def records(history: Path) -> list[dict[str, list]] | None:
    """For every seed the points at which the received model's validation score was higher than ever before, and what they had cost.

    That is all there is to know about the cost of reaching any score. None where the method's costs by round are not known.

    Args:
        history: a run's ``history.csv``.
    """
    import pandas as pd

    table = pd.read_csv(history)
    if "communication_seconds" not in table:
        return None
    table["embedding_bytes"] = table["embedding_upload"] + table["embedding_download"]
    table["bytes"] = table["upload_bytes"] + table["download_bytes"]
    names = {"val": "val_received", "test": "test_received", **{name: name for name in SPENT}}
    kept = []
    for _, seed in table.groupby("seed"):
        score = seed["val_received"]
        better = seed[score > score.cummax().shift(fill_value=float("-inf"))]
        kept.append({name: better[column].tolist() for name, column in names.items()})
    return kept


def matrices(arrays: Path) -> dict[str, dict[str, dict]]:
    """The first seed's client similarities and the weights of averages, by kind and trip count, a byte an entry.

    Args:
        arrays: a run's ``mixing.npz``; nothing is kept of federations of more than ``MOST_CLIENTS``.
    """
    kept: dict[str, dict[str, dict]] = {}
    with np.load(arrays) as file:
        for kind, prefix in KEPT.items():
            for name in sorted((name for name in file.files if name.startswith(prefix)), key=lambda n: int(n.removeprefix(prefix))):
                matrix = np.asarray(file[name][0], dtype=np.float64)
                if len(matrix) <= MOST_CLIENTS:
                    kept.setdefault(kind, {})[name.removeprefix(prefix)] = packed(matrix)
    return kept


def packed(matrix: np.ndarray) -> dict:
    """A matrix ``[C, C]`` of non-negative numbers as text: every entry over the largest in ``STEPS`` steps, base64, row by row."""
    known = np.isfinite(matrix)
    most = float(matrix[known].max(initial=0.0))
    levels = np.round(np.clip(np.where(known, matrix, 0) / (most or 1.0), 0, 1) * STEPS)
    data = np.where(known, levels, UNKNOWN).astype(np.uint8)
    return {"clients": len(matrix), "max": round(most, 6), "data": base64.b64encode(data.tobytes()).decode("ascii")}


def unpacked(kept: Mapping) -> np.ndarray:
    """What :func:`packed` packed, to within half a step; NaN where nothing was known."""
    levels = np.frombuffer(base64.b64decode(kept["data"]), dtype=np.uint8).reshape(kept["clients"], kept["clients"])
    return np.where(levels == UNKNOWN, np.nan, levels / STEPS * kept["max"])


def label_counts(labels: Sequence[np.ndarray], classes: int) -> list[list[int]] | None:
    """Nodes of every class that each client holds, ``[C][Y]``; None for large federations and for several labels a node."""
    if len(labels) > MOST_CLIENTS or any(np.ndim(each) != 1 for each in labels):
        return None
    return [np.bincount(each, minlength=classes).tolist() for each in labels]
