"""Runs FedStruct's own structure model and averages on an exported federation; started by ``compare.py``.

The random walk, the perceptron on structure features, gradients and averages are the clone's (``joint_train_w``). The network of
features is PyTorch Geometric's GCN here.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, drive, old_scatter
from gcn import loaded, network

OURS = ["algorithm=fedstruct", "algorithm.width=32"]
MATCHED: dict[str, dict[str, Any]] = {
    "fedstruct": {
        "ours": OURS,
        "change": "logits",
        "evaluated": "received",
        "rounds": 50,
        "remark": "Of their code, the loss is of logits, and the normalization's weights are averaged too.",
    },
    "fedstruct_released": {
        "ours": OURS,
        "evaluated": "received",
        "deterministic": False,
        "rounds": 50,
        "remark": "As released: the cross-entropy is of softmax of the logits, and clients keep the normalization's weights.",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of the averaged models."""
    utils = configured(settings, folder)
    graph, classifiers = importlib.import_module("src.utils.graph"), importlib.import_module("src.GNN.GNN_classifier")
    whole = np.load(job / "global.npz")
    count, edges = len(whole["y"]), torch.from_numpy(whole["edge_index"])
    steps = utils.create_adj(edges, normalization="rw", self_loop=True, num_nodes=count, nodes=torch.arange(count))
    dtype = torch.get_default_dtype()
    walk = utils.calc_abar(steps.to(dtype), 10).to_dense()
    draw = torch.Generator().manual_seed(settings["stream"])
    features = (0.05 * torch.randn(count, 32, generator=draw, dtype=torch.float64)).to(dtype)
    clients = []
    for i in range(settings["clients"]):
        data, nodes = loaded(job, i).apply(lambda x: x.to(dtype), "x"), torch.from_numpy(np.load(job / f"client_{i}.npz")["nodes"])
        masks = {name: data[name] for name in ("train_mask", "val_mask", "test_mask")}
        shared = {"y": data.y, "node_ids": nodes, "num_classes": data.classes, **masks}
        structure = graph.AGraph(abar=walk[nodes], x=features.clone().requires_grad_(), **shared)
        client = classifiers.FedDGCN(structure, structure)
        client.fmodel = Features(settings, data)
        begin(client, job)
        client.create_optimizer()
        if settings["change"] == "logits":
            client.get_prediction = client.get_embeddings
        clients.append(client)
    share = [len(client.graph.y) / count for client in clients]
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    for _ in range(settings["rounds"]):
        began = time.perf_counter()
        for client in clients:
            client.reset()
            client.train()
            loss, _ = classifiers.Classifier.calc_mask_metric(client, mask="train")
            loss.backward()
        gradients = utils.sum_lod([client.get_grads(True) for client in clients], share)
        for client in clients:
            client.set_grads(gradients)
            client.update_model()
        norms = utils.sum_lod([dict(norm(client).state_dict()) for client in clients], share)
        mean = utils.sum_lod([client.state_dict() for client in clients], share)
        for client in clients:
            client.load_state_dict(mean)
            if settings["change"] == "logits":
                norm(client).load_state_dict(norms)
        scores["seconds"].append(time.perf_counter() - began)
        scores["received"].append([answers(client) for client in clients])
    return scores


class Features:
    """The network of features, as a part of their classifier."""

    def __init__(self, settings: dict[str, Any], data: Any):
        self.network, self.data = network(settings, data), data
        for name in ("state_dict", "load_state_dict", "train", "eval", "zero_grad"):
            setattr(self, name, getattr(self.network, name))

    def __call__(self) -> torch.Tensor:
        return self.network(self.data.x, self.data.edge_index)

    def parameters(self) -> list[torch.Tensor]:
        return list(self.network.parameters())

    def get_grads(self, just_SFV: bool = False) -> dict[str, Any]:  # noqa: N803 (their argument)
        return {}

    def set_grads(self, grads: dict[str, Any]) -> None:
        pass

    def reset(self) -> None:
        pass  # gradients are set to zero by the whole classifier's optimizer


def norm(client: Any) -> torch.nn.LayerNorm:
    return client.smodel.model[0][0]


def begin(client: Any, job: Path) -> None:
    """Our initial weights, of both networks."""
    first, second = (layer for layer in client.smodel.model[0].layers if isinstance(layer, torch.nn.Linear))
    layers = {"conv0": client.fmodel.network.conv0, "conv1": client.fmodel.network.conv1, "structure0": first, "structure1": second}
    for name, value in np.load(job / "initial.npz").items():
        layer, part = name.split(".")
        if layer in layers:
            own = getattr(layers[layer], "lin", layers[layer]).weight if part == "weight" else layers[layer].bias
            own.data.copy_(torch.from_numpy(value.T))


@torch.no_grad()
def answers(client: Any) -> list[int]:
    """Right answers among validation and test nodes."""
    client.eval()
    hits = client.get_embeddings().argmax(1) == client.graph.y
    return [int(hits[mask].sum()) for mask in (client.graph.val_mask, client.graph.test_mask)]


def configured(settings: dict[str, Any], folder: Path) -> Any:
    """Their functions, by our hyper-parameters."""
    old_scatter()
    os.environ |= {"CONFIGPATH": f"{sys.path[0]}/config/config_Cora.yml", "RESULTPATH": f"{folder}/"}
    utils = importlib.import_module("src.utils.utils")
    utils.sparse_eye = lambda count, **_: torch.eye(count).to_sparse()  # in double precision where the comparison is
    utils.config.model.dropout, utils.config.model.lr = settings["dropout"], settings["lr"]
    utils.config.model.weight_decay, utils.config.dataset.multi_label = settings["weight_decay"], False
    return utils


if __name__ == "__main__":
    drive(train)
