"""Runs one method of FedGB on an exported federation; started by ``compare.py`` or ``bench_peers.py`` in a process of its own.

    python scripts/cross_check/fedgb.py JOB SOURCE

``SOURCE`` is a clone that the user has made; nothing in it is changed. FedGB began as OpenFGL and has its trainer, so that
``openfgl.py`` hands out the exported clients and counts right answers here too. Its GCN has a linear layer after the convolutions.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from driving import GCN, Scores, begin_with, drive
from openfgl import arguments, trainer_of, watched

LAYERS = GCN | {
    "encoder.convs.0.lin.weight": "conv0.weight", "encoder.convs.0.bias": "conv0.bias", "encoder.convs.1.lin.weight": "conv1.weight",
    "encoder.convs.1.bias": "conv1.bias", "head.weight": "head.weight", "head.bias": "head.bias",
}  # fmt: skip
SAME_WORK = ["model.head=linear", "local_epochs=3"]

MATCHED: dict[str, dict[str, Any]] = {
    "fedavg": {"ours": ["algorithm=fedavg", *SAME_WORK]},
    "fedgta": {"ours": ["algorithm=fedgta", "algorithm.propagation=openfgl", *SAME_WORK]},
    "fed_pub": {
        "theirs": "fedpub",
        "ours": ["algorithm=fed_pub", "algorithm.tau=10", "algorithm.reg=inert", *SAME_WORK],
        "deterministic": False,
    },
    "fedtad": {"ours": ["algorithm=fedtad", *SAME_WORK], "deterministic": False, "rounds": 10},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Train as the settings say; returns what ``openfgl.watched`` counts."""
    args = arguments(importlib.import_module("fedgb.legacy_config").args, settings, folder)
    trainer = trainer_of("fedgb.training.trainer", args, settings, job, folder)
    args.metrics = ["accuracy"]  # its trainer adds F1 scores
    for owner in (*trainer.clients, trainer.server):
        begin_with(owner.task.model, np.load(job / "initial.npz"), LAYERS)
    return watched(trainer)


if __name__ == "__main__":
    drive(train)
