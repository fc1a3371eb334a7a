"""Runs FedAvg of the FedGraph library on an exported federation; started by ``compare.py`` or ``bench_peers.py``.

It runs every client in a process of its own under Ray, and scores received models on test nodes only. It has no data sets here: clients
are handed to it as its loader would, and a compiled library that only this loader uses is stood in for.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, drive

MATCHED: dict[str, dict[str, Any]] = {
    "fedavg": {
        "ours": ["algorithm=fedavg", "model.hidden=16", "optimizer=sgd", "lr=0.1", "weight_decay=0.0005"],
        "evaluated": "received",
        "deterministic": False,
        "remark": "Its initial weights are its own draw, and clients count alike in its average.",
    }
}
ROUND = re.compile(r"Round (\d+): Global Test Accuracy = ([0-9.]+)")


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's pooled test accuracy of received models, as it prints it."""
    (folder / "torch_sparse.py").touch()
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)  # of the clients' processes
    attridict = importlib.import_module("attridict")
    methods = importlib.import_module("fedgraph.federated_methods")
    whole = np.load(job / "global.npz")
    clients = [np.load(job / f"client_{i}.npz") for i in range(settings["clients"])]
    nodes = [torch.from_numpy(client["nodes"]) for client in clients]
    indices = {part: [torch.from_numpy(client[part].nonzero()[0]) for client in clients] for part in ("train", "test")}
    data = (
        torch.from_numpy(whole["edge_index"]), torch.from_numpy(whole["x"]), torch.from_numpy(whole["y"]),
        None, None, int(whole["num_classes"]), nodes, nodes, indices["train"], indices["test"],
        [torch.from_numpy(client["edge_index"]) for client in clients],
    )  # fmt: skip
    args = attridict(
        {
            "method": "FedAvg", "num_hops": 0, "dataset": "cora", "n_trainer": settings["clients"], "global_rounds": settings["rounds"],
            "local_step": settings["local_epochs"], "learning_rate": settings["lr"], "num_layers": settings["layers"], "batch_size": -1,
            "iid_beta": 0, "gpu": False, "num_cpus_per_trainer": 1 / settings["clients"], "num_gpus_per_trainer": 0,
            "use_huggingface": False, "saveto_huggingface": False, "use_encryption": False, "use_cluster": False, "logdir": str(folder),
        }
    )  # fmt: skip
    scores: Scores = {"seconds": [], "trained": [], "received": [], "test_received": []}
    last = time.perf_counter()

    def read(*words: Any, **_: Any) -> None:
        nonlocal last
        if match := ROUND.search(" ".join(map(str, words))):
            scores["test_received"].append(float(match[2]))
            scores["seconds"].append(time.perf_counter() - last)
            last = time.perf_counter()

    methods.print = read  # its module's only: Ray has a print of its own
    methods.run_NC(args, data)
    return scores


if __name__ == "__main__":
    drive(train)
