"""Runs FedExP's own program on an exported federation; started by ``compare.py``.

The program is one script, which is read, changed in memory and run: its device is made the CPU, and its step sizes, number of local
steps, weight decay, decay of the learning rate and epsilon are those of the job. Its clients classify images; here a client has one item,
all of its training nodes, and the network is PyTorch Geometric's GCN. Local steps, step size and average are the script's.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network, right

MATCHED: dict[str, dict[str, Any]] = {
    "fedexp": {
        "ours": [
            "algorithm=fedexp", "algorithm.epsilon=1e-3", "optimizer=sgd", "lr=0.5", "weight_decay=0", "agg_weight=uniform",
            "local_epochs=3",
        ],
        "config": {"epsilon": 1e-3},
        "evaluated": "received",
        "rounds": 30,
        "remark": "Their epsilon times the number of participants is ours; neither it nor the learning rate decays.",
    },
}  # fmt: skip


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the server's model at each client."""
    graphs = [loaded(job, number) for number in range(settings["clients"])]
    torchvision = types.ModuleType("torchvision")
    torchvision.datasets, torchvision.models = types.ModuleType("torchvision.datasets"), types.ModuleType("torchvision.models")
    made = {name: lambda *_, **__: None for name in ("Compose", "RandomCrop", "RandomHorizontalFlip")}
    torchvision.transforms = types.SimpleNamespace(**made)
    data, models = types.ModuleType("util_data"), types.ModuleType("util_models")
    items = [[(torch.tensor([number]), graph.y[graph.train_mask])] for number, graph in enumerate(graphs)]
    data.get_dataset = lambda *_: (items, items[0])
    models.get_model = lambda *_: OfClients(settings, job, graphs)
    sys.modules |= {"torchvision": torchvision, "torchvision.models": torchvision.models, "util_data": data, "util_models": models}
    general = importlib.import_module("util_general")
    received: list[dict[int, list[int]]] = [{}]
    begins = [time.perf_counter()]
    get_grad = general.get_grad

    def recorded(model: torch.nn.Module, args: Any, hyper: Any, dataset: Any, name: str, client: int, *more: Any) -> torch.Tensor:
        """Its local training; the round's model is scored before."""
        received[-1][int(client)] = list(right(model.network, graphs[client]).values())
        if len(received[-1]) == len(graphs):
            received.append({})
            begins.append(time.perf_counter())
        model.train()
        return get_grad(model, args, hyper, dataset, name, client, *more)

    general.get_grad = recorded
    words = {
        "seed": settings["seed"], "algorithm": "fedexp", "dataset": "EMNIST", "model": "gcn", "num_clients": len(graphs),
        "num_participating_clients": len(graphs), "num_rounds": settings["rounds"], "alpha": 1.0,
    }  # fmt: skip
    sys.argv = ["main.py", *(text for name, value in words.items() for text in (f"--{name}", str(value)))]
    changes = {
        r"'cuda'": "'cpu'", r'"cp":20': f'"cp":{settings["local_epochs"]}', r"decay=  0.998": "decay = 1",
        r"weight_decay = 0.0001": f"weight_decay = {settings['weight_decay']}",
        r"eta_l_fedexp = [\d.]+": f"eta_l_fedexp = {settings['lr']}",
        r"epsilon_fedexp = +[\d.]+": f"epsilon_fedexp = {settings['config']['epsilon'] / len(graphs)}",
        r"print_every_test = 5": "print_every_test = 10**9", r"torch\.save\(.*\)": "pass",
    }  # fmt: skip
    program = Path(sys.path[0], "main.py").read_text(encoding="utf-8")
    for pattern, text in changes.items():
        program, count = re.subn(pattern, text, program)
        if not count:
            raise ValueError(f"main.py has no {pattern}")
    exec(compile(program, "main.py", "exec"), {"__name__": "__main__"})
    rows = [[row[client] for client in range(len(graphs))] for row in received if len(row) == len(graphs)]
    return {"seconds": [b - a for a, b in zip(begins[1:], begins[2:], strict=False)], "received": rows[1:], "trained": []}


class OfClients(torch.nn.Module):
    """Logits of a client's training nodes, ``[1, Y, n]``, for the number of the client, ``[1, 1]``."""

    def __init__(self, settings: dict[str, Any], job: Path, graphs: list):
        super().__init__()
        self.network, self.graphs = network(settings, graphs[0]), Same(graphs)
        begin(self.network, job)

    def forward(self, number: torch.Tensor) -> torch.Tensor:
        graph = self.graphs[int(number)]
        return self.network(graph.x, graph.edge_index)[graph.train_mask].T[None]


class Same(list):
    """A list that copies of a network share."""

    def __deepcopy__(self, memo: Any) -> Same:
        return self


if __name__ == "__main__":
    drive(train)
