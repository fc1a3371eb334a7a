"""Runs GCFL's own code on an exported federation; started by ``compare.py``.

Clients that classify graphs have the clone's network, and everything is the clone's, as it is. Clients that classify nodes have one
batch a part, their training, validation or test nodes, and PyTorch Geometric's GCN as network; clients, server and rounds are the clone's.
With Adam, their updates are longer than the paper's thresholds, so that no cluster would ever be split: these are larger.
"""

from __future__ import annotations

import importlib
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, begin_with, drive, graphs, right, store_weights
from gcn import begin, loaded, network
from gcn import right as right_nodes

THRESHOLDS = {"eps1": 1.0, "eps2": 0.1}
OURS = [f"algorithm.{name}={value}" for name, value in THRESHOLDS.items()]
SPLIT = {"config": THRESHOLDS, "evaluated": "received", "step_rounds": 40}
MATCHED: dict[str, dict[str, Any]] = {
    "gcfl": {"ours": ["algorithm=gcfl", *OURS], **SPLIT},
    "gcfl_plus": {"ours": ["algorithm=gcfl_plus", *OURS], **SPLIT},
}

# Graphs: the settings of its scripts, one set a client (main_multiDS.py) or one set for all (main_oneDS.py), but for the thresholds, which
# are such that clusters are split in the rounds that are compared. Steps are compared with all graphs of a client in each, since both draw
# the order of mini-batches.
GRAPHS = ["task=graph", "model=gin_plain", "lr=0.001", "batch_nodes=128", "agg_weight=train"]
STILL = {"weights": True, "still": ["batch_nodes=null"], "step_rounds": 40, "rounds": 30}
MOLECULES = {**STILL, "datasets": ["molecules"], "split": "domains", "clients": 4}
PROTEINS = {**STILL, "datasets": ["proteins"], "split": "iid"}
FOUR_SETS = [*GRAPHS, "dataset.sets=[MUTAG,BZR,COX2,AIDS]"]


def clustered(method: str, thresholds: dict[str, float], ours: list[str], **more: Any) -> dict[str, Any]:
    own = [f"algorithm={method}", "algorithm.shared=conv", *(f"algorithm.{name}={value}" for name, value in thresholds.items())]
    return {"theirs": method, "config": thresholds, "ours": [*ours, *own], **more}


MANY, ONE = {"eps1": 0.1, "eps2": 0.08}, {"eps1": 0.08, "eps2": 0.06}
MATCHED |= {
    "local_graphs": {"theirs": "local", "ours": [*FOUR_SETS, "algorithm=local"], **MOLECULES, "step_rounds": 10, "rounds": 10},
    "fedavg_graphs": {"theirs": "fedavg", "ours": [*FOUR_SETS, "algorithm=fedavg"], **MOLECULES, "step_rounds": 10, "rounds": 10},
    "gcfl_graphs": clustered("gcfl", MANY, FOUR_SETS, **MOLECULES),
    "gcfl_plus_graphs": clustered("gcfl_plus", MANY | {"sequence": 5}, FOUR_SETS, **MOLECULES),
    "gcfl_one_set": clustered("gcfl", ONE, GRAPHS, **PROTEINS),
    "gcfl_plus_one_set": clustered("gcfl_plus", ONE | {"sequence": 10}, GRAPHS, **PROTEINS),
}
LAYERS = {
    f"{theirs}.{kind}": f"{ours}.{kind}" for kind in ("weight", "bias") for theirs, ours in {
        "pre.0": "input", "post.0": "pooled", "readout.0": "classifier",
        **{f"graph_convs.{i}.nn.{j}": f"conv{i}{out}" for i in range(9) for j, out in ((0, ""), (2, ".out"))},
    }.items()
}  # fmt: skip


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    return {"node": train_nodes, "graph": train_graphs}[settings["task"]](settings, job)


def train_graphs(settings: dict[str, Any], job: Path) -> Scores:
    """Every round's right answers of the models that clients have trained."""
    from torch_geometric.loader import DataLoader

    client_module, server_module, rounds, nets = (importlib.import_module(name) for name in ("client", "server", "training", "models"))
    initial, classes = np.load(job / "initial.npz"), int(np.load(job / "global.npz")["num_classes"])
    server = server_module.Server(nets.serverGIN(settings["layers"], settings["hidden"]), "cpu")
    begin_with(server.model, initial, LAYERS)
    clients, trained, weights, clusters, seconds = [], [], [], [], []
    for number in range(settings["clients"]):
        data, masks = graphs(job, number)
        parts = {part: [data[i] for i in mask.nonzero()[:, 0]] for part, mask in masks.items()}
        loaders = {part: DataLoader(each, settings["batch_nodes"] or len(each), shuffle=True) for part, each in parts.items()}
        model = nets.GIN(data[0].num_features, settings["hidden"], classes, settings["layers"], settings["dropout"])
        begin_with(model, initial, LAYERS)
        adam = torch.optim.Adam(model.parameters(), settings["lr"], weight_decay=settings["weight_decay"])
        arguments = types.SimpleNamespace(device="cpu")
        clients.append(client_module.Client_GC(model, number, str(number), len(parts["train"]), loaders, adam, arguments))
        trained.append([])
        weights.append({})

    def watched(model: Any, loaders: Any, *more: Any, train_gc: Any = client_module.train_gc) -> Any:
        """Their local training, which scores the model after each epoch."""
        begin, stats = time.perf_counter(), train_gc(model, loaders, *more)
        seconds.append(time.perf_counter() - begin)
        number = next(i for i, client in enumerate(clients) if client.model is model)
        counts = [len(loaders[part].dataset) for part in ("val", "test")]
        accuracies = list(zip(stats["valAccs"], stats["testAccs"], strict=True))
        trained[number] += [right(each, counts) for each in accuracies[settings["local_epochs"] - 1 :: settings["local_epochs"]]]
        weights[number] = {name: value.detach().clone() for name, value in model.named_parameters()}
        return stats

    def aggregate(members: list[list[Any]], aggregate: Any = server.aggregate_clusterwise) -> None:
        cluster = {client.id: number for number, each in enumerate(members) for client in each}
        clusters.append([cluster[number] for number in range(len(clients))])
        aggregate(members)

    client_module.train_gc, server.aggregate_clusterwise = watched, aggregate
    run, own = (settings["rounds"], settings["local_epochs"]), settings["config"]
    if settings["method"] == "local":  # all rounds at once
        rounds.run_selftrain_GC(clients, server, run[0] * run[1])
    elif settings["method"] == "fedavg":
        rounds.run_fedavg(clients, server, *run)
    elif settings["method"] == "gcfl":
        rounds.run_gcfl(clients, server, *run, own["eps1"], own["eps2"])
    else:
        rounds.run_gcflplus(clients, server, *run, own["eps1"], own["eps2"], own["sequence"], False)
    store_weights(job, weights, LAYERS)
    scores: Scores = {"seconds": [sum(seconds) / run[0]], "trained": [list(each) for each in zip(*trained, strict=True)], "received": []}
    return {**scores, "clusters": clusters} if clusters else scores


def train_nodes(settings: dict[str, Any], job: Path) -> Scores:
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
        hits = right_nodes(client.model.network, client.data)
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
