"""The little that a committed cell keeps of a run's curves, costs and matrices, so that pages and figures can be made without the run."""

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
STEPS = 250  # grey levels of a kept matrix
UNKNOWN = 255
SCORES = (*MODELS, "received_macro_f1", "received_loss")
SPENT = ("round", "bytes", "embedding_bytes", "communication_seconds")
KEPT = {"similarity": "similarity_", "mixing": "trips_"}  # by the prefix in a run's mixing.npz


def thinned(points: int, most: int | None = MOST_POINTS) -> np.ndarray:
    """At most ``most`` positions of ``0 .. points - 1`` (None: all): a third of them dense at the start, where curves are steep."""
    if most is None or points <= most:
        return np.arange(points)
    early = np.geomspace(1, points, most // 3) - 1
    even = np.linspace(0, points - 1, most - most // 3)
    return np.unique(np.round(np.concatenate([early, even])).astype(int))


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds and half-width of the 95 % t-interval at every point, ``[S, T]`` to two ``[T]``; zero width for one seed."""
    mean = values.mean(0)
    return mean, half_width(values.std(0, ddof=1), len(values)) if len(values) > 1 else np.zeros_like(mean)


def table_of(history: Path) -> pd.DataFrame:
    """``history.csv``, with bytes up and down put together."""
    import pandas as pd

    table = pd.read_csv(history)
    for name, up, down in (("bytes", "upload_bytes", "download_bytes"), ("embedding_bytes", "embedding_upload", "embedding_download")):
        if up in table:
            table[name] = table[up] + table[down]
    return table


def curve(history: Path, most: int | None = MOST_POINTS) -> dict[str, list]:
    """Test scores and what was spent so far at the evaluation points: lists of one length by name.

    ``trips``; of each of ``SCORES`` the mean over the seeds and, ``<name>_half``, half the width of its 95 % interval; of each of ``SPENT``
    the mean. What a history does not have is left out, and so are trained models that were not scored at every point. Points at
    which a seed has no score of either model are passed over; empty where no point is left.

    Args:
        history: a run's ``history.csv``.
        most: how many points are kept, see :func:`thinned`.
    """
    table = table_of(history)
    seeds = table["seed"].nunique()
    by_seed = {name: table.pivot(index="trip", columns="seed", values=name) for name in table.columns.drop(["seed", "trip"])}
    scored = by_seed["test_received"].notna().all(axis=1)
    if "diverged_trained" not in table or table["diverged_trained"].notna().all():
        scored &= by_seed["test_trained"].notna().all(axis=1)
    if not scored.any():
        return {}
    places = np.flatnonzero(scored)[thinned(int(scored.sum()), most)]
    found: dict[str, list] = {"trips": scored.index[places].tolist()}
    for name in (*SCORES, *SPENT):
        each = by_seed.get(f"test_{name}" if name in SCORES else name)
        if each is None or each.iloc[places].isna().any(axis=None):
            continue
        mean, half = band(each.iloc[places].to_numpy().T)
        found[name] = mean.round(4).tolist()
        if name in SCORES and seeds > 1:
            found[f"{name}_half"] = half.round(4).tolist()
    return found


def records(history: Path) -> list[dict[str, list]] | None:
    """For every seed the points at which the received model's validation score was higher than ever before, and what they had cost.

    That is all there is to know about the cost of reaching any score. None where the method's costs by round are not known.

    Args:
        history: a run's ``history.csv``.
    """
    table = table_of(history)
    if "communication_seconds" not in table:
        return None
    names = {"val": "val_received", "test": "test_received", **{name: name for name in SPENT}}
    kept = []
    for _, seed in table.groupby("seed"):
        score = seed["val_received"].where(seed["test_received"].notna()).fillna(float("-inf"))
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
    """Labelled nodes of every class that each client holds, ``[C][Y]``; None for large federations and for several labels a node."""
    if len(labels) > MOST_CLIENTS or any(np.ndim(each) != 1 for each in labels):
        return None
    return [np.bincount(each[each >= 0], minlength=classes).tolist() for each in labels]
