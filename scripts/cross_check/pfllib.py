"""Runs FedPer of PFLlib on an exported federation; started by ``compare.py``.

PFLlib classifies images. Here a client's network is PyTorch Geometric's GCN over its graph, whose second layer is the head, and its data
are its training nodes, in one batch. Clients (plain gradient descent), server and rounds are the clone's, as they are.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network

MATCHED: dict[str, dict[str, Any]] = {
    "fedper": {
        "ours": ["algorithm=fedper", "optimizer=sgd", "lr=0.5", "weight_decay=0", "agg_weight=train", "local_epochs=3"],
        "evaluated": "received",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the model that a client has received, with its own head."""
    sys.path[0] += "/system"
    base, client = importlib.import_module("flcore.servers.serverbase"), importlib.import_module("flcore.clients.clientbase")
    server, split = importlib.import_module("flcore.servers.serverper"), importlib.import_module("flcore.trainmodel.models")
    graphs = [loaded(job, number) for number in range(settings["clients"])]
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    last = time.perf_counter()

    def evaluate(server: Any) -> None:
        """When a round begins and the clients have received its model, also before the first."""
        nonlocal last
        server.rs_test_acc.append(0.0)
        scores["received"].append([right(each.model) for each in server.clients])
        scores["seconds"].append(time.perf_counter() - last)
        last = time.perf_counter()

    def numbers(_: str, number: int, **kind: Any) -> torch.Tensor:
        return graphs[number].train_mask.nonzero()

    base.read_client_data = client.read_client_data = numbers  # whose lengths are asked for
    server.FedPer.evaluate, server.FedPer.save_results = evaluate, lambda server: None
    server.clientPer.load_train_data = lambda own: [(graphs[own.id].train_mask, graphs[own.id].y[graphs[own.id].train_mask])]
    first = network(settings, graphs[0])
    begin(first, job)
    model = split.BaseHeadSplit(Base(first, settings["dropout"]), Head(first))
    arguments = {
        "model": model, "num_clients": settings["clients"], "global_rounds": settings["rounds"], "local_epochs": settings["local_epochs"],
        "local_learning_rate": settings["lr"], "num_classes": graphs[0].classes, "device": "cpu", "dataset": "", "algorithm": "FedPer",
        "save_folder_name": "", "batch_size": 1, "few_shot": 0, "join_ratio": 1.0, "random_join_ratio": False, "time_select": False,
        "time_threthold": 1e9, "goal": "", "top_cnt": 0, "auto_break": False, "eval_gap": 1, "client_drop_rate": 0.0,
        "train_slow_rate": 0.0, "send_slow_rate": 0.0, "dlg_eval": False, "dlg_gap": 1, "batch_num_per_client": 1, "num_new_clients": 0,
        "fine_tuning_epoch_new": 0, "learning_rate_decay": False, "learning_rate_decay_gamma": 1.0,
    }  # fmt: skip
    running = server.FedPer(SimpleNamespace(**arguments), 0)
    running.global_model = running.global_model.base  # as their command does
    for each in running.clients:
        each.model.base.graph = graphs[each.id]
    running.train()
    return {name: rows[1:] for name, rows in scores.items()}


class Base(torch.nn.Module):
    """The first layer: hidden rows of all nodes of a client."""

    def __init__(self, network: torch.nn.Module, rate: float):
        super().__init__()
        self.conv, self.rate, self.graph = network.conv0, rate, None

    def forward(self, mask: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        hidden = self.conv(self.graph.x, self.graph.edge_index).relu()
        return self.graph, torch.nn.functional.dropout(hidden, self.rate, self.training), mask


class Head(torch.nn.Module):
    """The second layer: logits of the nodes that were asked for."""

    def __init__(self, network: torch.nn.Module):
        super().__init__()
        self.conv = network.conv1

    def forward(self, given: tuple[Any, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        graph, hidden, mask = given
        return self.conv(hidden, graph.edge_index)[mask]


@torch.no_grad()
def right(model: torch.nn.Module) -> list[int]:
    """Right answers among validation and test nodes."""
    model.eval()
    graph = model.base.graph
    hits = model(torch.ones_like(graph.val_mask)).argmax(1) == graph.y
    return [int(hits[mask].sum()) for mask in (graph.val_mask, graph.test_mask)]


if __name__ == "__main__":
    drive(train)
