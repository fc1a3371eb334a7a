"""Runs the backbone of FedGSP's code on an exported federation; started by ``compare.py``.

Clients train alone: FedGSP itself is not among our methods. Its UniFilter, basis and all, is imported from the clone; ``cvxpy`` and
``glog``, which its server needs, stand empty where they are not installed. The loop over rounds here stands for the one in ``main.py``,
which runs when it is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from driving import Scores, begin_with, drive

# The authors' setting for Cora, ten disjoint clients.
OURS = [
    "algorithm=local", "model=unifilter", "model.basis=code", "model.per_feature=true", "model.default_homophily=0.75", "model.orders=7",
    "model.hidden=512", "model.layers=3", "model.dropout=0.15", "model.input_dropout=0.15", "model.basis_dropout=0.3",
    "model.filter_lr=0.01", "model.filter_weight_decay=5e-6", "lr=0.15", "weight_decay=5e-4",
]  # fmt: skip
CONFIG = {"K": 7, "tau": 0.975, "dpC": 0.3, "lr2": 0.01, "wd2": 5e-6}
STILL = ["model.input_dropout=0", "model.basis_dropout=0"]
ROUNDS = 30
MATCHED: dict[str, dict[str, Any]] = {
    "unifilter": {
        "ours": [*OURS, "model.tau=0.975"],
        "config": CONFIG,
        "still": STILL,
        "rounds": ROUNDS,
        "remark": "The homophily is taken from the first nodes, as many as there are training nodes, in the authors' code.",
    },
    "unifilter_training_edges": {
        "ours": [*OURS, "model.tau=0.975"],
        "config": CONFIG,
        "still": STILL,
        "rounds": ROUNDS,
        "change": "training_edges",
        "remark": "As above, with the homophily of the edges between training nodes.",
    },
    "unifilter_double_basis": {
        "ours": [*OURS, "model.tau=0.975"],
        "config": CONFIG,
        "still": STILL,
        "rounds": ROUNDS,
        "change": "double_basis",
        "remark": "As above, with the basis made in double precision.",
    },
    "unifilter_homophilous": {
        "ours": [*OURS, "model.tau=1"],
        "config": {**CONFIG, "tau": 1.0},
        "still": STILL,
        "rounds": ROUNDS,
        "remark": "With the homophilous part of the basis alone.",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of each client's model."""
    for name in ("cvxpy", "glog"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
    network, basis = importlib.import_module("core.model"), importlib.import_module("core.utils")
    initial, own = np.load(job / "initial.npz"), settings["config"]
    clients = []
    for i in range(settings["clients"]):
        arrays = {name: torch.from_numpy(array) for name, array in np.load(job / f"client_{i}.npz").items()}
        operator, _, _ = basis.edgeindex_construct(arrays["edge_index"], len(arrays["y"]))
        if settings["change"]:
            homophily = agreeing(arrays)
        else:
            graph = basis.GraphConstruct(arrays["edge_index"].numpy(), len(arrays["y"]))
            homophily = float(basis.homocal(graph, arrays["train"], arrays["y"]))
        width = arrays["x"].shape[1]
        precision = torch.float64 if settings["change"] == "double_basis" else torch.float32
        signals = basis.load_dataset(operator.to(precision), arrays["x"].to(precision), own["K"], own["tau"], homophily)[0]
        features = signals.float().view(-1, own["K"] + 1, width)
        classes = int(np.load(job / "global.npz")["num_classes"])
        net = network.GFK(
            own["K"], width, settings["layers"], settings["hidden"], classes, own["dpC"], settings["dropout"], "none", sole=False
        )
        begin_with(net, initial, {f"mlp.fcs.{i}.weight": f"mlp{i}.weight" for i in range(settings["layers"])}, transposed=False)
        adam = torch.optim.Adam([
            {"params": net.mlp.parameters(), "weight_decay": settings["weight_decay"], "lr": settings["lr"]},
            {"params": net.comb.parameters(), "weight_decay": own["wd2"], "lr": own["lr2"]},
        ])  # fmt: skip
        clients.append((net, adam, features, arrays))
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    for _ in range(settings["rounds"]):
        begun, answers = time.perf_counter(), []
        for net, adam, features, arrays in clients:
            net.train()
            for _ in range(settings["local_epochs"]):
                adam.zero_grad()
                F.cross_entropy(net(features[arrays["train"]]), arrays["y"][arrays["train"]]).backward()
                adam.step()
            net.eval()
            with torch.no_grad():
                hits = net(features).argmax(1) == arrays["y"]
            answers.append([int(hits[arrays[part]].sum()) for part in ("val", "test")])
        scores["trained"].append(answers)
        scores["seconds"].append(time.perf_counter() - begun)
    return scores


def agreeing(arrays: dict[str, torch.Tensor]) -> float:
    """The share of edges between training nodes whose ends have one class; 0.75 where there is none, as theirs."""
    source, target = arrays["edge_index"][:, arrays["train"][arrays["edge_index"]].all(0)]
    return float((arrays["y"][source] == arrays["y"][target]).float().mean()) if len(source) else 0.75


if __name__ == "__main__":
    drive(train)
