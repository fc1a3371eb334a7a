"""Runs S2FGL's own functions on an exported federation; started by ``compare.py``.

Its framework and its network need a GPU. Its choice of important nodes, its prototypes and its two losses are the clone's; clients train
PyTorch Geometric's GCN here, and the server averages by nodes. Prototypes are of training nodes (theirs use test labels too), of all
classes (theirs of as many as the first client has), and of the trained models.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network, right
from torch.nn import functional

MATCHED: dict[str, dict[str, Any]] = {
    "s2fgl": {"ours": ["algorithm=s2fgl", "local_epochs=3"], "config": {"share": 0.7, "weight": 1.0}, "deterministic": False, "rounds": 20},
    "s2fgl_repository": {
        "ours": ["algorithm=s2fgl", "algorithm.alignment_weight=0", "algorithm.sampled=1", "local_epochs=3"],
        "config": {"share": 1.0, "weight": 0.0},
        "rounds": 20,
        "remark": "Without the alignment of frequencies, with all clients in every slot.",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the trained models."""
    losses, utils = theirs(Path(sys.path[0]) / "S2FGL_ICML25_Code/flgo/algorithm")
    share, weight = settings["config"]["share"], settings["config"]["weight"]
    clients = [Client(settings, loaded(job, number), job, utils) for number in range(settings["clients"])]
    received = {name: value.clone() for name, value in clients[0].model.state_dict().items()}
    sizes = [client.data.num_nodes for client in clients]
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    codebook = None
    for _ in range(settings["rounds"]):
        began = time.perf_counter()
        for client in clients:
            client.model.load_state_dict(received)
            with torch.no_grad():
                client.model.eval()
                before = client.hidden()
            for _ in range(settings["local_epochs"]):
                client.model.train()
                hidden = client.hidden()
                logits = client.model.conv1(hidden, client.data.edge_index)
                loss = functional.cross_entropy(logits[client.data.train_mask], client.data.y[client.data.train_mask])
                if codebook is not None:
                    loss = loss + 0.05 * losses.federated_knowledge_distillation_loss(hidden, before, codebook, temperature=1, lamb=100)
                    if weight:
                        chosen = client.aligned
                        loss = loss + losses.calculate_fgma_loss(hidden[chosen], before[chosen], 10)
                client.adam.zero_grad()
                loss.backward()
                client.adam.step()
        answers = [right(client.model, client.data) for client in clients]
        scores["trained"].append([[each["val"], each["test"]] for each in answers])
        states = [client.model.state_dict() for client in clients]
        received = {name: sum(n * state[name] for n, state in zip(sizes, states, strict=True)) / sum(sizes) for name in received}
        codebook = torch.stack([slot(losses, random.sample(clients, int(len(clients) * share))) for _ in range(4)], 1).flatten(0, 1)
        scores["seconds"].append(time.perf_counter() - began)
    return scores


@torch.no_grad()
def slot(losses: Any, clients: list[Client]) -> torch.Tensor:
    """The clients' mean prototypes ``[Y, h]``."""
    total, counts = 0.0, 0.0
    for client in clients:
        nodes, labels = client.important
        prototypes, sizes = losses.compute_prototypes(client.hidden(), nodes, labels, client.data.classes)
        sizes = torch.tensor(sizes)[:, None]
        total, counts = total + torch.stack(prototypes) * sizes, counts + sizes
    return total / counts.clamp(min=1)


class Client:
    """A client's graph, model and optimizer."""

    def __init__(self, settings: dict[str, Any], data: Any, job: Path, utils: Any):
        self.data, self.model, self.dropout = data, network(settings, data), settings["dropout"]
        begin(self.model, job)
        self.adam = torch.optim.Adam(self.model.parameters(), settings["lr"], weight_decay=settings["weight_decay"])
        nodes, labels = utils.select_important_nodes_lis(data, device="cpu")
        known = data.train_mask[nodes]
        self.important = nodes[known], labels[known]
        self.aligned = utils.select_important_nodes_lis_K(data, device="cpu")

    def hidden(self) -> torch.Tensor:
        rows = self.model.conv0(self.data.x, self.data.edge_index).relu()
        return functional.dropout(rows, self.dropout, self.model.training)


def theirs(folder: Path) -> tuple[Any, Any]:
    """The modules with the losses and with the choice of nodes, without the framework that they are part of."""
    package, base, flgo = types.ModuleType("theirs"), types.ModuleType("theirs.FedBase"), types.ModuleType("flgo")
    package.__path__ = [str(folder)]
    base.BasicServer = base.BasicParty = object
    benchmark, tools = types.ModuleType("flgo.benchmark"), types.ModuleType("flgo.utils")
    benchmark.base = types.SimpleNamespace(BasicTaskCalculator=object)
    tools.fmodule = types.SimpleNamespace(with_multi_gpus=lambda function: function)
    flgo.benchmark, flgo.utils = benchmark, tools
    sys.modules |= {each.__name__: each for each in (package, base, flgo, benchmark, tools)}
    return importlib.import_module("theirs.S2FGL_algorithm"), importlib.import_module("theirs.S2FGL_utils")


if __name__ == "__main__":
    drive(train)
