"""Runs FedIIH's own code on an exported federation; started by ``compare.py``, see ``fed_pub.py``, on whose code it is built.

``SOURCE`` is the folder of one number of latent factors, such as ``FedIIH/FedIIH_2``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from driving import Scores, begin_with, drive
from fed_pub import rounds

OURS = [
    "algorithm=fediih", "model=disengcn", "model.factors=2", "model.width=128", "model.layers=2", "model.dropout=0.3", "lr=0.02",
    "weight_decay=0.005", "algorithm.inference_layers=2",
]  # fmt: skip
MATCHED: dict[str, dict[str, Any]] = {
    "fediih": {
        "theirs": "fedhvae",
        "model": "disengcn",
        "ours": OURS,
        "rounds": 30,
        "remark": "The authors' setting for Cora, disjoint clients. They infer with dropout, ours without.",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    own = {"model": "fedhvae", "n_latentdims": 128, "n_layers": 4, "n_routit": 6, "norm_scale": 10, "threshold": 0.1}
    return rounds(settings, job, folder, "models.fedhvae", own, begin)


def begin(model: torch.nn.Module, initial: Any) -> None:
    begin_with(model, initial, {"pca.weight": "projection.weight", "pca.bias": "projection.bias"}, transposed=False)
    begin_with(model, initial, {"clf.weight": "classifier.weight", "clf.bias": "classifier.bias"})


if __name__ == "__main__":
    drive(train)
