"""Runs FedSpray's own clients and server on an exported federation; started by ``compare.py``.

The personal model is PyTorch Geometric's GCN here. Encoder and classifiers begin with their own draw.
"""

from __future__ import annotations

import importlib
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, drive
from gcn import begin, loaded, network

MATCHED: dict[str, dict[str, Any]] = {
    "fedspray": {
        "ours": [
            "algorithm=fedspray", "algorithm.begin=joint", "agg_weight=train", "model=gcn", "model.dropout=0", "weight_decay=0",
            "local_epochs=5",
        ],
        "deterministic": False,
        "rounds": 20,
        "remark": "Without dropout and weight decay, as its authors train.",
    },
}  # fmt: skip


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the personal models."""
    clients, server = importlib.import_module("client"), importlib.import_module("server")
    whole = np.load(job / "global.npz")
    data = types.SimpleNamespace(**{name: torch.from_numpy(whole[name]) for name in ("x", "y", "edge_index")})
    data.num_nodes = len(data.y)
    classes = int(whole["num_classes"])
    dataset = Whole(data, classes)
    made, parts = [], []
    for number in range(settings["clients"]):
        own = np.load(job / f"client_{number}.npz")
        indices = [own["nodes"][own[part]].tolist() for part in ("train", "val", "test")]
        device = torch.device("cpu")
        client = clients.Client(number, dataset, *indices, settings["lr"], settings["local_epochs"], settings["hidden"], 1.0, 64, device)
        model = network(settings, loaded(job, number))
        begin(model, job)
        client.gnn = Twice(model)
        client.optimizer_per = torch.optim.Adam(client.gnn.parameters(), settings["lr"])
        made.append(client)
        parts.append(indices[0])
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    last = time.perf_counter()

    def counted(client: Any, stats: Any) -> Any:
        def answer() -> tuple:
            nonlocal last
            value = stats()
            hits = client.gnn(client.features, client.edge_index)[0].argmax(1) == client.labels
            if client is made[0]:
                scores["trained"].append([])
            scores["trained"][-1].append([int(hits[rows].sum()) for rows in (client.valIdx, client.testIdx)])
            if client is made[-1]:
                scores["seconds"].append(time.perf_counter() - last)
                last = time.perf_counter()
            return value

        return answer

    for client in made:
        client.stats = counted(client, client.stats)
    server.Server(made, list(range(len(made))), parts, dataset, settings["hidden"], torch.device("cpu"), 64).train(settings["rounds"])
    return scores


class Whole:
    """The whole graph, as a data set of one."""

    def __init__(self, data: Any, classes: int):
        self.data, self.num_classes, self.num_node_features = data, classes, data.x.shape[1]

    def __getitem__(self, number: int) -> Any:
        return self.data


class Twice(torch.nn.Module):
    """A model with two outputs, as theirs have."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.model(x, edges)
        return out, out


if __name__ == "__main__":
    drive(train)
