"""Runs FedGCN's own code on an exported federation; started by ``compare.py``.

Its trainers run in processes of Ray; here they are called one after the other. Of ``torch_sparse`` it uses a container of edges, for which
PyTorch Geometric's layers take the edges themselves. Clients' subgraphs, trainers, network (dropout 0.5) and server are the clone's.
"""

from __future__ import annotations

import copy
import importlib
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, begin_with, drive

SGD = ["agg_weight=uniform", "optimizer=sgd", "lr=0.5", "weight_decay=0.0005", "local_epochs=3"]
NODES = ["algorithm=fedgcn", "algorithm.exchange=nodes", *SGD]
BUDGET = {"rounds": 50}
MATCHED: dict[str, dict[str, Any]] = {
    "fedgcn": {"ours": NODES, "config": {"hops": 2}, **BUDGET},
    "fedgcn_sums": {
        "ours": ["algorithm=fedgcn", *SGD],
        "config": {"hops": 2},
        **BUDGET,
        "remark": "Ours as in the paper, by sums over neighbors; theirs computes the degrees of the outermost nodes inside the subgraph.",
    },
}
LAYERS = {f"convs.{i}.{theirs}": f"conv{i}.{ours}" for i in (0, 1) for theirs, ours in (("lin.weight", "weight"), ("bias", "bias"))}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the trainers' models, before and after the server's average."""
    sys.path[0] += "/src"
    sparse = types.ModuleType("torch_sparse")
    sparse.SparseTensor = lambda row, col, sparse_sizes: torch.stack([row, col])
    ray = types.ModuleType("ray")
    ray.get, ray.wait = lambda value: value, lambda values, **_: (values[:1], values[1:])
    sys.modules |= {"torch_sparse": sparse, "ray": ray}
    server_module, trainer_module, utils = (importlib.import_module(name) for name in ("server_class", "trainer_class", "utils"))

    whole, clients = np.load(job / "global.npz"), [np.load(job / f"client_{i}.npz") for i in range(settings["clients"])]
    edges, x, y = (torch.from_numpy(whole[name]) for name in ("edge_index", "x", "y"))
    nodes = [torch.from_numpy(client["nodes"]) for client in clients]
    parts = {part: [own[client[part]] for own, client in zip(nodes, clients, strict=True)] for part in ("train", "val", "test")}
    arguments = (edges, nodes, len(nodes), settings["config"]["hops"], torch.cat(parts["train"]), torch.cat(parts["test"]))
    near, training, test, inside = utils.get_in_comm_indexes(*arguments)
    classes = int(whole["num_classes"])
    args = types.SimpleNamespace(dataset="cora", num_layers=2, learning_rate=settings["lr"], local_step=settings["local_epochs"])
    trainers = []
    for number, (adjacency, own) in enumerate(zip(inside, near, strict=True)):
        own_data = (adjacency, y[own], x[own], training[number], test[number])
        trainers.append(trainer_module.Trainer_General(number, *own_data, settings["hidden"], classes, torch.device("cpu"), args))
    validation = [torch.searchsorted(own, part) for own, part in zip(near, parts["val"], strict=True)]
    torch.manual_seed(settings["seed"])  # which every trainer sets to its number
    server = server_module.Server(x.shape[1], settings["hidden"], classes, torch.device("cpu"), [Remote(each) for each in trainers], args)
    begin_with(server.model, np.load(job / "initial.npz"), LAYERS)
    server.broadcast_params(-1)

    @torch.no_grad()
    def right() -> list[list[int]]:
        counts = []
        for each, val in zip(trainers, validation, strict=True):
            each.model.eval()
            hits = each.model(each.features, each.adj).argmax(1) == each.labels
            counts.append([int(hits[rows].sum()) for rows in (val, each.idx_test)])
        return counts

    scores: Scores = {"seconds": [], "trained": [], "received": []}
    average = server.zero_params  # called when all have trained

    def averaging() -> None:
        scores["trained"].append(right())
        average()

    server.zero_params = averaging
    for number in range(settings["rounds"]):
        began = time.perf_counter()
        server.train(number)
        scores["received"].append(right())
        scores["seconds"].append(time.perf_counter() - began)
    return scores


class Remote:
    """A trainer whose methods are called as Ray's are, with copies of the arguments, in this process."""

    def __init__(self, trainer: Any):
        self.trainer = trainer

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Any:
            with torch.enable_grad():
                return getattr(self.trainer, name)(*copy.deepcopy(arguments))

        return types.SimpleNamespace(remote=remote)


if __name__ == "__main__":
    drive(train)
