"""Runs AdaFGL's own code on an exported federation; started by ``compare.py``, see ``openfgl.py``.

Both of its programs are called, FedAvg and then the personal training of one client after the other. Sparse products are SciPy's, as the
code has them off Linux, and ``torch.load`` reads whole models, as older versions did. Its clients begin every round with a new Adam, in
which a single epoch is a step of one length for every weight; here they keep it, as in OpenFGL and ours.
"""

from __future__ import annotations

import importlib
import itertools
import platform
import sys
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from driving import Scores, begin_with, drive, right

FEDERATED = 1  # of the rounds: the best round is then one of the personal stage
NAMES = {"base_model.fc.weight": "linear0.weight", "base_model.fc.bias": "linear0.bias"}

MATCHED: dict[str, dict[str, Any]] = {
    "adafgl": {
        "ours": [
            "algorithm=adafgl",
            f"algorithm.federated_rounds={FEDERATED}",
            "algorithm.fusion=hard",
            "algorithm.blend=0.05",
            "algorithm.beta=0.2",
            "model=sgc",
        ],
        "deterministic": False,
        "remark": "One federated round, then 99 epochs of the personal heads, of which only the scores can be compared.",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    platform.system = lambda: "other"
    torch.load = partial(torch.load, weights_only=False)
    args = importlib.import_module("config").args
    args.num_clients, args.lr, args.weight_decay = settings["clients"], settings["lr"], settings["weight_decay"]
    args.num_rounds, args.num_epochs = min(FEDERATED, settings["rounds"]), settings["local_epochs"]
    args.epochs = settings["rounds"] - args.num_rounds
    args.gmodel_name, args.seed = "SGC", settings["seed"]
    data = federation(settings["clients"], job)
    sys.modules["datasets.graph_fl_dataset"] = loader = types.ModuleType("graph_fl_dataset")
    loader.GraphFLDataset = lambda **_: data
    Path("model_weights").mkdir()

    initial, network = np.load(job / "initial.npz"), importlib.import_module("models.sgl_models").SGC
    create = network.__init__

    def created(self: Any, *values: Any, **named: Any) -> None:
        create(self, *values, **named)
        begin_with(self, initial, NAMES)

    network.__init__ = created
    counts = [[int(each.val_idx.sum()), int(each.test_idx.sum())] for each in data.out_of_core]
    federated, program = watch_federated(counts), importlib.import_module("main")
    begin = time.perf_counter()
    program.step1_main()
    personal = watch_personal(program)
    program.step2_main()
    seconds = (time.perf_counter() - begin) / settings["rounds"]
    last = [[right(accuracies, n) for accuracies, n in zip(each, counts, strict=True)] for each in zip(*personal, strict=True)]
    return {**{model: federated[model] + last for model in federated}, "seconds": [seconds] * settings["rounds"]}


def federation(clients: int, job: Path) -> Any:
    """The exported clients as its data set."""
    subgraphs = []
    for i in range(clients):
        arrays = np.load(job / f"client_{i}.npz")
        nodes, (row, column) = len(arrays["y"]), arrays["edge_index"]
        masks = {f"{part}_idx": torch.from_numpy(arrays[part]) for part in ("train", "val", "test")}
        adjacency = sp.csr_matrix((np.ones(len(row), dtype=np.float32), (row, column)), shape=(nodes, nodes))
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        subgraphs.append(types.SimpleNamespace(x=x, y=y, adj=adjacency, num_nodes=nodes, **masks))
    whole = np.load(job / "global.npz")
    return types.SimpleNamespace(
        name="exported", num_clients=clients, sampling="exported", subgraphs=subgraphs, input_dim=whole["x"].shape[1],
        output_dim=int(whole["num_classes"]), global_data=types.SimpleNamespace(num_nodes=len(whole["y"])),
    )  # fmt: skip


def watch_federated(counts: list[list[int]]) -> dict[str, list]:
    """The right answers of every round of FedAvg, of trained and received models; and clients that keep their optimizers."""
    tasks = importlib.import_module("tasks.node_cls")
    scores: dict[str, list] = {"trained": [], "received": []}
    optimizers: dict[int, torch.optim.Optimizer] = {}
    start, finish, score = (
        tasks.SGLNodeClassification.__init__,
        tasks.SGLNodeClassification.execute,
        tasks.SGLEvaluateModelClients.execute,
    )

    def started(self: Any, *values: Any, **named: Any) -> None:
        start(self, *values, **named)
        self.optimizer = optimizers.setdefault(id(self.model), self.optimizer)

    def note(model: str, accuracies: tuple[float, float]) -> None:
        rounds = scores[model]
        if not rounds or len(rounds[-1]) == len(counts):
            rounds.append([])
        rounds[-1].append(right(accuracies, counts[len(rounds[-1])]))

    def finished(self: Any) -> Any:
        answer = finish(self)
        note("trained", self.postprocess())
        return answer

    def scored(self: Any) -> Any:
        answer = score(self)
        note("received", answer)
        return answer

    tasks.SGLNodeClassification.__init__ = started
    tasks.SGLNodeClassification.execute, tasks.SGLEvaluateModelClients.execute = finished, scored
    return scores


def watch_personal(program: Any) -> list[list[tuple[float, float]]]:
    """Validation and test accuracy of every client after every epoch, filled as the program takes them.

    It takes one pair of the model that the client received; then, after every epoch, one of the answer and, of each part of it, another.
    """
    scores: list[list[tuple[float, float]]] = []
    state: dict[str, Any] = {"pending": None}
    accuracy, begin = program.accuracy, program.MyModel.non_para_lp

    def begun(self: Any, *values: Any, **named: Any) -> None:
        begin(self, *values, **named)
        scores.append([])
        state["calls"] = itertools.cycle(range(6 if self.homo else 8))

    def taken(output: torch.Tensor, labels: torch.Tensor) -> float:
        value = accuracy(output, labels)
        call = next(state["calls"]) if "calls" in state else None
        if call == 0:
            state["pending"] = value
        elif call == 1:
            scores[-1].append((state["pending"], value))
        return value

    def received(*values: Any, **named: Any) -> Any:
        state.pop("calls", None)  # the next client begins
        return load(*values, **named)

    load, torch.load = torch.load, received
    program.MyModel.non_para_lp, program.accuracy = begun, taken
    return scores


if __name__ == "__main__":
    drive(train)
