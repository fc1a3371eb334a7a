"""Runs methods of PFLlib on an exported federation; started by ``compare.py``.

PFLlib classifies images. Here a client's network is PyTorch Geometric's GCN over its graph, whose second layer is the head, and its data
are its training nodes, in one batch. Clients (plain gradient descent), server and rounds are the clone's, as they are.

FedBABU's and FedAvg's clients fine-tune after the last round by the clone's functions for that. FedBABU's of the clone would
begin with the models that they have trained last; here they receive the global model before, as in the paper.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network

SGD = ["optimizer=sgd", "lr=0.5", "weight_decay=0", "agg_weight=train", "local_epochs=3"]
TWO_STAGES: dict[str, Any] = {
    "rounds": 30,
    "config": {"federated_rounds": 15},
    "still": ["algorithm.federated_rounds=5"],
    "evaluated": "received",
}
MATCHED: dict[str, dict[str, Any]] = {
    "fedper": {"ours": ["algorithm=fedper", *SGD], "evaluated": "received"},
    "fedala": {"ours": ["algorithm=fedala", "algorithm.sample=1", *SGD], "evaluated": "received", "rounds": 30},
    "fedbabu": {"ours": ["algorithm=fedbabu", "algorithm.federated_rounds=15", *SGD], **TWO_STAGES},
    "fedavg_finetune": {"ours": ["algorithm=fedavg_finetune", "algorithm.federated_rounds=15", *SGD], **TWO_STAGES},
}
# Module and name of the method there, and whether the server has the first layer only.
THEIRS = {
    "fedper": ("per", "FedPer", True), "fedala": ("ala", "FedALA", False), "fedbabu": ("babu", "FedBABU", True),
    "fedavg_finetune": ("avg", "FedAvg", False),
}  # fmt: skip
ALL = 1 << 20  # a batch size above the number of training nodes


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the model that a client has received, with its own head where it has one."""
    sys.path[0] += "/system"
    module, name, of_base = THEIRS[settings["method"]]
    base, client = importlib.import_module("flcore.servers.serverbase"), importlib.import_module("flcore.clients.clientbase")
    own, split = importlib.import_module(f"flcore.clients.client{module}"), importlib.import_module("flcore.trainmodel.models")
    server = getattr(importlib.import_module(f"flcore.servers.server{module}"), name)
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

    def items(_: str, number: int, **kind: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        nodes = graphs[number].train_mask.nonzero()[:, 0]
        return list(zip(nodes, graphs[number].y[nodes], strict=True))

    for each in (base, client, own):
        each.read_client_data = items
    server.evaluate, server.save_results, server.save_global_model = evaluate, lambda server: None, lambda server: None
    client.Client.load_train_data = lambda own: [(graphs[own.id].train_mask, graphs[own.id].y[graphs[own.id].train_mask])]
    first = network(settings, graphs[0])
    begin(first, job)
    model = split.BaseHeadSplit(Base(first, settings["dropout"]), Head(first))
    federated = (
        min(settings["config"].get("federated_rounds", settings["rounds"] + 1), settings["rounds"] // 2) if settings["config"] else 0
    )
    arguments = {
        "model": model, "num_clients": settings["clients"], "global_rounds": federated - 1 if federated else settings["rounds"],
        "local_epochs": settings["local_epochs"], "local_learning_rate": settings["lr"], "num_classes": graphs[0].classes, "device": "cpu",
        "dataset": "", "algorithm": name, "save_folder_name": "", "batch_size": ALL, "few_shot": 0, "join_ratio": 1.0,
        "random_join_ratio": False, "time_select": False, "time_threthold": 1e9, "goal": "", "top_cnt": 0, "auto_break": False,
        "eval_gap": 1, "client_drop_rate": 0.0, "train_slow_rate": 0.0, "send_slow_rate": 0.0, "dlg_eval": False, "dlg_gap": 1,
        "batch_num_per_client": 1, "num_new_clients": 0, "fine_tuning_epoch_new": 0, "learning_rate_decay": False,
        "learning_rate_decay_gamma": 1.0, "fine_tuning_epochs": 0, "eta": 1.0, "rand_percent": 100, "layer_idx": 2,
    }  # fmt: skip
    running = server(SimpleNamespace(**arguments), 0)
    if of_base:
        running.global_model = running.global_model.base  # as their command does
    for each in running.clients:
        each.model.base.graph = graphs[each.id]
    running.train()
    if federated:
        rows = scores["received"]
        del rows[federated:]  # after the end of the rounds
        running.send_models()
        evaluate(running)
        for _ in tuned(running, settings["rounds"] - federated, settings["local_epochs"]):
            evaluate(running)
    return {name: rows[1:] for name, rows in scores.items()}


def tuned(running: Any, rounds: int, epochs: int) -> Iterator[None]:
    """Fine-tune all clients for some rounds."""
    running.new_clients = running.clients
    for number in range(rounds):
        if hasattr(running.clients[0], "fine_tune"):
            for each in running.clients:
                each.fine_tuning_epochs = epochs
                each.fine_tune()
        else:  # always from the global model
            running.fine_tuning_epoch_new = (number + 1) * epochs
            running.fine_tuning_new_clients()
        yield


class Base(torch.nn.Module):
    """The first layer: hidden rows of all nodes of a client."""

    def __init__(self, network: torch.nn.Module, rate: float):
        super().__init__()
        self.conv, self.rate, self.graph = network.conv0, rate, None

    def forward(self, nodes: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        hidden = self.conv(self.graph.x, self.graph.edge_index).relu()
        return self.graph, torch.nn.functional.dropout(hidden, self.rate, self.training), nodes


class Head(torch.nn.Module):
    """The second layer: logits of the nodes that were asked for, as numbers or as a mask."""

    def __init__(self, network: torch.nn.Module):
        super().__init__()
        self.conv = network.conv1

    def forward(self, given: tuple[Any, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        graph, hidden, nodes = given
        return self.conv(hidden, graph.edge_index)[nodes]


@torch.no_grad()
def right(model: torch.nn.Module) -> list[int]:
    """Right answers among validation and test nodes."""
    model.eval()
    graph = model.base.graph
    hits = model(torch.ones_like(graph.val_mask)).argmax(1) == graph.y
    return [int(hits[mask].sum()) for mask in (graph.val_mask, graph.test_mask)]


if __name__ == "__main__":
    drive(train)
