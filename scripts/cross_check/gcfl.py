"""Runs GCFL's own code on an exported federation; started by ``compare.py``.

Its clients classify graphs. Here a client's data are one batch a part, its training, validation or test nodes, and its network is PyTorch
Geometric's GCN; clients, server and rounds are the clone's, as they are. With Adam, updates are longer than the paper's thresholds, so
that no cluster would ever be split: these are larger.
"""

from __future__ import annotations

import importlib
import time
import types
from pathlib import Path
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network, right

THRESHOLDS = {"eps1": 1.0, "eps2": 0.1}
OURS = [f"algorithm.{name}={value}" for name, value in THRESHOLDS.items()]
SPLIT = {"config": THRESHOLDS, "evaluated": "received", "step_rounds": 40}
MATCHED: dict[str, dict[str, Any]] = {
    "gcfl": {"ours": ["algorithm=gcfl", *OURS], **SPLIT},
    "gcfl_plus": {"ours": ["algorithm=gcfl_plus", *OURS], **SPLIT},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the model that a client has from its cluster."""
    client_module, server_module, rounds = (importlib.import_module(name) for name in ("client", "server", "training"))
    server = server_module.Server(Nodes(settings, loaded(job, 0), job), "cpu")
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    clients, last = [], time.perf_counter()
    for number in range(settings["clients"]):
        data = loaded(job, number)
        model = Nodes(settings, data, job)
        adam = torch.optim.Adam(model.parameters(), settings["lr"], weight_decay=settings["weight_decay"])
        parts = {part: [batch(data, getattr(data, f"{part}_mask"))] for part in ("train", "val", "test")}
        arguments = types.SimpleNamespace(device="cpu")
        clients.append(client_module.Client_GC(model, number, str(number), data.num_nodes, parts, adam, arguments))
        clients[-1].data = data

    def evaluate(client: Any) -> tuple[float, float]:
        """Once a round, client by client, when the server has answered."""
        nonlocal last
        hits = right(client.model.network, client.data)
        if client is clients[0]:
            scores["received"].append([])
        scores["received"][-1].append([hits["val"], hits["test"]])
        if client is clients[-1]:
            scores["seconds"].append(time.perf_counter() - last)
            last = time.perf_counter()
        return 0.0, 0.0

    client_module.Client_GC.evaluate = evaluate
    own = settings["config"]
    if settings["method"] == "gcfl":
        rounds.run_gcfl(clients, server, settings["rounds"], settings["local_epochs"], own["eps1"], own["eps2"])
    else:
        rounds.run_gcflplus(clients, server, settings["rounds"], settings["local_epochs"], own["eps1"], own["eps2"], 5, False)
    return scores


class Nodes(torch.nn.Module):
    """A GCN for their loops: a batch in, its logits out."""

    loss = staticmethod(torch.nn.functional.cross_entropy)

    def __init__(self, settings: dict[str, Any], data: Any, job: Path):
        super().__init__()
        self.network = network(settings, data)
        begin(self.network, job)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.network(batch.x, batch.edge_index)[batch.mask]


def batch(data: Any, mask: torch.Tensor) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        x=data.x, edge_index=data.edge_index, mask=mask, y=data.y[mask], num_graphs=1, to=lambda device: None
    )  # fmt: skip


if __name__ == "__main__":
    drive(train)
