"""Runs Ditto, and APFL, of the repository of Ditto's authors on an exported federation; started by ``compare.py``.

Its clients share one network of TensorFlow 1; here it is PyTorch Geometric's GCN, with plain gradient steps on all training nodes of the
client whose turn it is. The rounds, both kinds of steps and the average are the clone's, as they are.
"""

from __future__ import annotations

import importlib
import sys
import time
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, drive
from gcn import begin, loaded, network, right

SGD = ["optimizer=sgd", "lr=0.5", "weight_decay=0", "agg_weight=uniform", "local_epochs=3"]
MATCHED: dict[str, dict[str, Any]] = {
    "ditto": {"ours": ["algorithm=ditto", "algorithm.penalty=0.5", *SGD], "config": {"lam": 0.5}, "rounds": 30},
    "apfl": {
        "ours": ["algorithm=apfl", "algorithm.adapt=never", *SGD],
        "config": {"alpha": 0.5},
        "evaluated": "received",
        "rounds": 30,
        "remark": "The first step of a round is taken at the mixture with the client's last model, not with the received one.",
    },
    "apfl_received_model": {
        "theirs": "apfl",
        "change": "received_model",
        "ours": ["algorithm=apfl", "algorithm.adapt=never", *SGD],
        "config": {"alpha": 0.5},
        "evaluated": "received",
        "rounds": 30,
        "remark": "As above, with the received model.",
    },
}


class Done(Exception):
    """All rounds were made."""


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of each client's personal model (Ditto), or of its mixture with the new global model (APFL)."""
    stand_ins()
    algorithm = importlib.import_module(f"flearn.trainers_MTL.{settings['method']}").Server
    graphs = [loaded(job, number) for number in range(settings["clients"])]
    rows, seconds, last = [], [], time.perf_counter()

    class Server(algorithm):
        def train_error(self, models: list) -> tuple[np.ndarray, ...]:
            return (np.ones(len(graphs)),) * 3

        def test(self, models: list) -> tuple[np.ndarray, ...]:
            nonlocal last
            rows.append([self.client_model.right(*each) for each in zip(graphs, models, strict=True)])
            seconds.append(time.perf_counter() - last)
            last = time.perf_counter()
            if len(rows) == settings["rounds"]:
                raise Done
            return (np.ones(len(graphs)),) * (3 if settings["method"] == "ditto" else 2)

        def select_clients(self, *arguments: Any, **named: Any) -> Any:
            if settings["change"]:
                pairs = zip(self.local_models, [self.global_model] * len(graphs), strict=True)
                self.interpolation = [
                    [self.alpha * v + (1 - self.alpha) * w for v, w in zip(*pair, strict=True)] for pair in pairs
                ]  # fmt: skip
            return super().select_clients(*arguments, **named)

    users = list(range(len(graphs)))
    data = {user: {"x": [user], "y": [0] * int(graph.train_mask.sum())} for user, graph in zip(users, graphs, strict=True)}
    zeros = ("num_corrupted", "q", "dynamic_lam", "gradient_clipping", "median", "k_norm", "krum", "mkrum", "boosting", "random_updates")
    parameters = {
        **dict.fromkeys(zeros, 0), "learning_rate": settings["lr"], "num_rounds": settings["rounds"], "eval_every": 1, "sampling": 1,
        "local_iters": settings["local_epochs"], "clients_per_round": len(graphs), "seed": settings["seed"], "dataset": "", "batch_size": 0,
        "model_params": (settings, job, graphs), **settings["config"],
    }  # fmt: skip
    try:
        Server(parameters, Learner, (users, [], data, data)).train()
    except Done:
        pass
    return {"seconds": seconds, "trained": rows, "received": rows}


class Learner:
    """The network that all clients share, with parameters as lists of arrays."""

    def __init__(self, settings: dict[str, Any], job: Path, graphs: list, *_: Any):
        self.graphs, self.lr, self.network = graphs, settings["lr"], network(settings, graphs[0])
        begin(self.network, job)

    def get_params(self) -> list[np.ndarray]:
        return [parameter.detach().numpy().copy() for parameter in self.network.parameters()]

    def set_params(self, values: list[np.ndarray]) -> None:
        for parameter, value in zip(self.network.parameters(), values, strict=True):
            parameter.data = torch.from_numpy(np.array(value, dtype=np.float32))

    def loss(self, batch: dict[str, Any]) -> torch.Tensor:
        graph = self.graphs[batch["x"][0]]
        logits = self.network(graph.x, graph.edge_index)[graph.train_mask]
        return torch.nn.functional.cross_entropy(logits, graph.y[graph.train_mask])

    def get_loss(self, data: dict[str, Any]) -> float:
        return 0.0  # of no use here, and a forward pass would draw dropout masks

    def solve_sgd(self, batch: dict[str, Any]) -> tuple[list[np.ndarray], float, list[np.ndarray]]:
        self.network.train()
        loss = self.loss(batch)
        gradients = torch.autograd.grad(loss, list(self.network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(self.network.parameters(), gradients, strict=True):
                parameter -= self.lr * gradient
        return [gradient.numpy() for gradient in gradients], float(loss.detach()), self.get_params()

    def right(self, graph: Any, values: list[np.ndarray]) -> list[int]:
        self.set_params(values)
        return list(right(self.network, graph).values())

    def close(self) -> None:
        pass


def stand_ins() -> None:
    """TensorFlow and their helpers, of which only a few names are used here."""
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.train = types.SimpleNamespace(GradientDescentOptimizer=float)
    tensorflow.reset_default_graph = lambda: None
    tensorflow.__spec__ = ModuleSpec("tensorflow", None)  # other libraries look for it
    helpers = {name: types.ModuleType(f"flearn.utils.{name}") for name in ("tf_utils", "model_utils", "language_utils")}
    unused = (
        "process_grad cosine_sim softmax norm_grad norm_grad_sparse l2_clip get_stdev batch_data gen_epoch letter_to_vec word_to_indices"
    )
    for module in helpers.values():
        for name in unused.split():
            setattr(module, name, None)
    helpers["model_utils"].gen_batch = helpers["model_utils"].gen_batch_celeba = lambda data, size, count: iter(lambda: data, None)
    helpers["model_utils"].Metrics = lambda clients, parameters: None
    sys.modules |= {"tensorflow": tensorflow, **{module.__name__: module for module in helpers.values()}}


if __name__ == "__main__":
    drive(train)
