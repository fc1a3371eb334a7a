"""Runs FedTGP of HtFLlib, its authors' library, on an exported federation; started by ``compare.py``.

HtFLlib classifies images and texts. Here a client's network is PyTorch Geometric's GCN over its graph, whose second layer is the head, and
its data are its training nodes, in one batch. Clients (plain gradient descent), server and rounds are the clone's, as they are; what they
write to files stays in memory.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network

OURS = ["algorithm=fedtgp", "algorithm.margin=nearest", "optimizer=sgd", "lr=0.5", "weight_decay=0", "local_epochs=3"]
ROUNDS = {"evaluated": "received", "deterministic": False, "rounds": 30, "theirs": "fedtgp"}  # the server's first weights are drawn
MATCHED: dict[str, dict[str, Any]] = {
    "fedtgp": {"ours": [*OURS, "algorithm.prediction=prototypes"], "config": {"prediction": "prototypes"}, **ROUNDS},
    "fedtgp_head": {"ours": OURS, "config": {"prediction": "head"}, **ROUNDS},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of a client's model and the prototypes that it has received."""
    sys.path[0] += "/system"
    for name in ("h5py", "flcore.trainmodel.models"):  # result files and networks for images, which are not used
        sys.modules[name] = ModuleType(name)
    sys.modules["flcore.trainmodel.models"].BaseHeadSplit = None
    modules = [importlib.import_module(f"flcore.{name}") for name in ("clients.clientbase", "servers.serverbase", "clients.clienttgp")]
    server = importlib.import_module("flcore.servers.servertgp")
    graphs = [loaded(job, number) for number in range(settings["clients"])]
    files: dict[tuple[str, str], Any] = {}
    for module in (*modules, server):
        module.save_item = lambda item, role, name, folder=None: files.__setitem__((role, name), item)
        module.load_item = lambda role, name, folder=None: files.get((role, name))
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    last = time.perf_counter()

    def evaluate(server: Any) -> None:
        """When a round begins and the clients have received the prototypes, also before the first."""
        nonlocal last
        server.rs_test_acc.append(0.0)
        prototypes = files.get(("Server", "global_protos")) if settings["config"]["prediction"] == "prototypes" else None
        scores["received"].append([right(files[client.role, "model"], prototypes) for client in server.clients])
        scores["seconds"].append(time.perf_counter() - last)
        last = time.perf_counter()

    def client_network(_: Any, number: int) -> torch.nn.Module:
        whole = network(settings, graphs[number])
        begin(whole, job)
        return Split(whole, graphs[number], settings["dropout"])

    def numbers(_: str, number: int, **kind: Any) -> torch.Tensor:
        return graphs[number].train_mask.nonzero()

    modules[0].BaseHeadSplit = client_network
    modules[0].read_client_data = modules[1].read_client_data = numbers  # whose lengths are asked for
    server.FedTGP.evaluate, server.FedTGP.save_results = evaluate, lambda server: None
    server.clientTGP.load_train_data = lambda own: [(graphs[own.id].train_mask, graphs[own.id].y[graphs[own.id].train_mask])]
    arguments = {
        "num_clients": settings["clients"], "global_rounds": settings["rounds"], "local_epochs": settings["local_epochs"],
        "local_learning_rate": settings["lr"], "num_classes": graphs[0].classes, "feature_dim": settings["hidden"], "device": "cpu",
        "dataset": "", "algorithm": "FedTGP", "save_folder_name": "temp", "models_folder_name": "", "batch_size": 10, "few_shot": 0,
        "join_ratio": 1.0, "random_join_ratio": False, "time_select": False, "time_threthold": 1e9, "goal": "", "top_cnt": 0,
        "auto_break": False, "eval_gap": 1, "client_drop_rate": 0.0, "train_slow_rate": 0.0, "send_slow_rate": 0.0, "lamda": 1.0,
        "server_epochs": 100, "margin_threthold": 100.0,
    }  # fmt: skip
    running = server.FedTGP(SimpleNamespace(**arguments), 0)
    running.server_learning_rate = 0.01  # their default, which is that of the clients too
    torch.manual_seed(settings["seed"])  # their clients set it to 0
    running.train()
    return {name: rows[1:] for name, rows in scores.items()}


class Split(torch.nn.Module):
    """A GCN as its first layer (``base``: hidden rows of the nodes that are asked for) and its second (``head``: their logits)."""

    def __init__(self, network: torch.nn.Module, graph: Any, rate: float):
        super().__init__()
        self.conv0, self.conv1, self.graph, self.rate = network.conv0, network.conv1, graph, rate

    def base(self, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.conv0(self.graph.x, self.graph.edge_index).relu()
        self.mask, self.hidden = mask, torch.nn.functional.dropout(hidden, self.rate, self.training)
        return self.hidden[mask]

    def head(self, _: torch.Tensor) -> torch.Tensor:
        return self.conv1(self.hidden, self.graph.edge_index)[self.mask]


@torch.no_grad()
def right(model: Split, prototypes: dict[int, torch.Tensor] | None) -> list[int]:
    """Right answers among validation and test nodes: of the head, or of the nearest prototype."""
    model.eval()
    graph = model.graph
    hidden = model.base(torch.ones_like(graph.val_mask))
    if prototypes is None:
        answers = model.head(hidden).argmax(1)
    else:
        answers = torch.cdist(hidden, torch.stack([prototypes[c] for c in range(graph.classes)])).argmin(1)
    return [int((answers == graph.y)[mask].sum()) for mask in (graph.val_mask, graph.test_mask)]


if __name__ == "__main__":
    drive(train)
