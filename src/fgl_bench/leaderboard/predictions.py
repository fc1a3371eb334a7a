"""Predictions of a cell's winner for the test nodes, as a small file.

``<entry>.npz`` has ``sizes [S, C]`` (test nodes of every client with every test seed) and ``nodes`` uint8, one seed and client after
another. With accuracy ``nodes`` is (prediction - label) modulo the number of classes, 0 where the prediction is right. With the area under
the curve it is the rank of the logit difference of the two classes among the client's test nodes, in 256 steps, and ``labels`` has as many
uint8.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fgl_bench.utils.files import write_bytes

if TYPE_CHECKING:
    from omegaconf import DictConfig

TOLERANCE = {"accuracy": 1e-5, "auc": 0.01}  # of a score that is computed from the file; ranks in 256 steps have ties
Arrays = Mapping[str, np.ndarray]


def write_predictions(
    cfg: DictConfig, folder: Path, model: str, scores: Sequence[float | None], path: Path, say: Callable[[str], None]
) -> None:
    """Write the predictions of the saved models of a run, unless they do not give the run's scores; that is said.

    Args:
        cfg: configuration of the run.
        folder: of the run, with its saved models.
        model: ``received`` or ``trained``.
        scores: test scores of the seeds.
    """
    found: list[Arrays] = []
    path.unlink(missing_ok=True)
    for (seed, metric, each), score in zip(arrays_of_seeds(cfg, folder, model), scores, strict=False):
        again = score_of(each) if each else None
        if score is None or again is None or abs(again - score) > TOLERANCE[metric]:
            say(f"predictions are not stored: the saved models of seed {seed} score {again}, the run {score}")
            return
        found.append(each)
    if found:
        buffer = io.BytesIO()
        joined: dict[str, Any] = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
        np.savez_compressed(buffer, **joined | {"sizes": np.stack([each["sizes"] for each in found])})
        write_bytes(path, buffer.getvalue())


def read_predictions(path: Path, scores: Sequence[float | None], metric: str) -> bytes:
    """Return the content of a stored file.

    Raises:
        ValueError: it is damaged, or does not give ``scores``, of the test seeds.
    """
    content = path.read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    sizes, again = arrays.pop("sizes", np.zeros((0, 0), dtype=np.int64)), []
    ends = np.cumsum(sizes.sum(1))
    if len(sizes) != len(scores) or any(value.shape != (ends[-1],) for value in arrays.values()) or "nodes" not in arrays:
        raise ValueError(f"{path.name}: predictions are not of {len(scores)} seeds")
    for size, end in zip(sizes, ends, strict=True):
        again.append(score_of({name: value[end - size.sum() : end] for name, value in arrays.items()} | {"sizes": size}))
    if any(one is None or two is None or abs(one - two) > TOLERANCE[metric] for one, two in zip(again, scores, strict=True)):
        raise ValueError(f"{path.name}: predictions do not give the scores of the cell")
    return content


def arrays_of_seeds(cfg: DictConfig, folder: Path, model: str) -> Iterator[tuple[int, str, Arrays]]:
    """Yield seed, metric and arrays of the seeds of a run; no arrays if its models do not fit the network; nothing for pooled clients."""
    from fgl_bench.runner.predictions import predicted

    for federation, batch, logits, _ in predicted(cfg, folder, model):
        metric = federation.metric
        yield federation.seed, metric, {} if logits is None else arrays_of(logits, batch.test.numpy(), batch.labels.numpy(), metric)


def arrays_of(logits: np.ndarray, test: np.ndarray, labels: np.ndarray, metric: str) -> dict[str, np.ndarray]:
    """Return the stored arrays of one seed from ``logits [C, n, Y]``, ``test [C, n]`` bool and ``labels [C, n]``."""
    from scipy.stats import rankdata

    sizes = test.sum(1).astype(np.int32)
    if metric == "accuracy":
        wrong = (logits.argmax(-1) - labels) % logits.shape[-1]
        return {"sizes": sizes, "nodes": wrong[test].astype(np.uint8)}
    margins = logits[..., 1] - logits[..., 0]
    steps = [(rankdata(margin[mask]) - 1) * 255 // max(mask.sum() - 1, 1) for margin, mask in zip(margins, test, strict=True)]
    return {"sizes": sizes, "nodes": np.concatenate(steps).astype(np.uint8), "labels": labels[test].astype(np.uint8)}


def score_of(arrays: Arrays) -> float | None:
    """Return the score of one seed from its stored arrays; None without a scored node."""
    from scipy.stats import rankdata

    if "labels" not in arrays:
        return float((arrays["nodes"] == 0).mean()) if arrays["nodes"].size else None
    total = weight = 0.0
    ends = np.cumsum(arrays["sizes"])
    for start, end in zip(ends - arrays["sizes"], ends, strict=True):
        positive = arrays["labels"][start:end] == 1
        ones = int(positive.sum())
        if 0 < ones < positive.size:
            wins = rankdata(arrays["nodes"][start:end])[positive].sum() - ones * (ones + 1) / 2
            total += wins / (ones * (positive.size - ones)) * positive.size
            weight += positive.size
    return total / weight if weight else None
