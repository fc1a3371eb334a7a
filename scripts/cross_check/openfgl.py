"""Runs one method of OpenFGL on an exported federation; started by ``compare.py`` in a process of its own.

    python scripts/cross_check/openfgl.py JOB SOURCE

``SOURCE`` is a clone that the user has made; nothing in it is changed. What its code needs to run on a current PyTorch and without data
sets of its own is put in its place here: its loader of data sets hands out the exported clients, and ``torch.load`` reads the masks that
this driver has written, with ``weights_only=False`` as older versions did.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, begin_with, drive, old_scatter, right

SEEN_AS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "photo": "Photo", "computers": "Computers", "cs": "CS"}
PLAIN = {"layers.0.weight": "conv0.weight", "layers.1.weight": "conv1.weight", "layers.0.bias": "conv0.bias", "layers.1.bias": "conv1.bias"}


FEDDC = ["algorithm=feddc", "algorithm.alpha=0.1", "algorithm.scaling=none", "algorithm.clip=null", "local_epochs=3"]
FGSSL = ["algorithm=fgssl", "algorithm.structure=edges", "algorithm.structure_temperature=0.1", "local_epochs=3"]
WHOLE = [f"algorithm.{view}_{part}=0" for view in ("weak", "strong") for part in ("edge_drop", "feature_mask")]

MATCHED: dict[str, dict[str, Any]] = {
    "local": {"theirs": "isolate", "ours": ["algorithm=local"]},
    "fedavg": {"ours": ["algorithm=fedavg"]},
    "fedavg_received": {"theirs": "fedavg", "ours": ["algorithm=fedavg", "local_epochs=3"], "evaluated": "received"},
    "fedprox": {"ours": ["algorithm=fedprox", "algorithm.mu=0.001", "local_epochs=3"]},
    "scaffold": {
        "ours": ["algorithm=scaffold", "algorithm.control=option_ii_literal", "algorithm.weighting=samples", "local_epochs=3"],
    },
    "moon": {"ours": ["algorithm=moon", "algorithm.mu=1", "algorithm.temperature=0.5", "local_epochs=3"]},
    "fedgta": {"ours": ["algorithm=fedgta", "algorithm.propagation=openfgl", "local_epochs=3"]},
    "fed_pub": {
        "theirs": "fedpub",
        "ours": ["algorithm=fed_pub", "model.head=linear", "algorithm.tau=10", "algorithm.reg=inert", "local_epochs=3"],
        "deterministic": False,
    },
    "feddc": {"ours": [*FEDDC, "algorithm.control=literal"]},
    "feddc_mean_gradient": {"theirs": "feddc", "ours": FEDDC},
    "fedtad": {"ours": ["algorithm=fedtad", "local_epochs=3"], "deterministic": False, "rounds": 10},
    "fedsage_plus": {
        "model": "graphsage",
        "ours": ["algorithm=fedsage_plus", "algorithm.gen_hidden=[256,2048]", "model=graphsage", "local_epochs=3"],
        "deterministic": False,
        "rounds": 30,
    },
    "adafgl": {"ours": ["algorithm=adafgl"], "deterministic": False},  # where a personal round is one step
    "fedgl": {"ours": ["algorithm=fedgl", "local_epochs=3"]},
    "fgssl": {"ours": [*FGSSL, "algorithm.contrast_weight=0", "algorithm.structure_weight=0.1"], "still": WHOLE, "rounds": 10},
    "fgssl_contrast": {
        "theirs": "fgssl",
        "change": "contrast",
        "ours": [*FGSSL, "algorithm.structure_weight=0"],
        "still": WHOLE,
        "rounds": 10,
    },
    "fedgl_normalized": {"theirs": "fedgl", "change": "normalized_propagation", "ours": ["algorithm=fedgl", "local_epochs=3"]},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Train as the settings say; returns what :func:`watched` counts."""
    args = arguments(importlib.import_module("openfgl.config").args, settings, folder)
    if settings["method"] == "adafgl":  # whose product of a sparse and a dense matrix is a library at a path of its authors
        product = importlib.import_module("openfgl.flcore.adafgl.op")
        product.csr_sparse_dense_matmul = lambda matrix, x: np.asarray(matrix @ x, dtype=np.float32)
    for name, value in settings["config"].items():
        importlib.import_module(f"openfgl.flcore.{settings['method']}.{settings['method']}_config").config[name] = value
    trainer = trainer_of("openfgl.flcore.trainer", args, settings, job, folder)
    initial, plain = np.load(job / "initial.npz"), settings["method"] == "fedgl"  # whose layers multiply by [in, out]
    for owner in (*trainer.clients, trainer.server):
        begin_with(owner.task.model, initial, *([PLAIN, False] if plain else []))
    if settings["exact"] and settings["method"] == "fgssl":
        for client in trainer.clients:
            client.augWeak = client.augStrongF = client.augNone
    if settings["change"]:
        CHANGES[settings["change"]](trainer)
    return watched(trainer)


def arguments(args: Any, settings: dict[str, Any], folder: Path) -> Any:
    """Set the arguments of the command line that their code has parsed on import."""
    values = {
        "root": str(folder),
        "dataset": [SEEN_AS.get(settings["dataset"], "Cora")],
        "fl_algorithm": settings["method"],
        "model": [settings["model"]],
        "num_clients": settings["clients"],
        "num_rounds": settings["rounds"],
        "num_epochs": settings["local_epochs"],
        "use_cuda": settings["cuda"],
        "lr": settings["lr"],
        "weight_decay": settings["weight_decay"],
        "hid_dim": settings["hidden"],
        "num_layers": settings["layers"],
        "dropout": settings["dropout"],
        "metrics": ["accuracy"],
        "seed": settings["seed"],
        "simulation_mode": "subgraph_fl_metis",
    }
    for name, value in values.items():
        setattr(args, name, value)
    return args


def trainer_of(module: str, args: Any, settings: dict[str, Any], job: Path, folder: Path) -> Any:
    """Their trainer on the exported federation, with what their code needs from older versions of PyTorch and of PyG's extensions."""
    old_scatter()
    torch.load = lambda *args, load=torch.load, **more: load(*args, **{"weights_only": False, **more})
    trainer_module = importlib.import_module(module)
    trainer_module.FGLDataset = lambda args: exported(job, folder, settings["clients"])
    return trainer_module.FGLTrainer(args)


def watched(trainer: Any) -> Scores:
    """Train; returns every round's seconds and the right answers of each client's trained model, and of the server's if all receive it."""
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    counts = [[int(client.task.val_mask.sum()), int(client.task.test_mask.sum())] for client in trainer.clients]
    last = time.perf_counter()

    def evaluate() -> None:
        nonlocal last
        scores["trained"].append(
            [correct(client.task.evaluate(mute=True), each) for client, each in zip(trainer.clients, counts, strict=True)]
        )
        scores["seconds"].append(time.perf_counter() - last)
        if not trainer.server.personalized:
            parts = [client.task.splitted_data for client in trainer.clients]
            with contextlib.suppress(Exception):  # a method whose server has no network for this
                scores["received"].append(
                    [correct(trainer.server.task.evaluate(part, mute=True), n) for part, n in zip(parts, counts, strict=True)]
                )
        last = time.perf_counter()

    trainer.evaluate = evaluate
    trainer.train()
    return scores


def correct(answer: dict[str, Any], counts: list[int]) -> list[int]:
    return right((answer["accuracy_val"], answer["accuracy_test"]), counts)


def exported(job: Path, folder: Path, clients: int) -> types.SimpleNamespace:
    """The federation as its loader would hand it out; masks lie in files where its tasks look for them."""
    from torch_geometric.data import Data

    whole = np.load(job / "global.npz")
    classes = int(whole["num_classes"])

    def data(arrays, **more) -> Data:
        x, edges, y = (torch.from_numpy(arrays[name]) for name in ("x", "edge_index", "y"))
        return Data(x=x.float(), edge_index=edges, y=y, num_global_classes=classes, **more)

    masks = folder / "node_cls" / "default_split"
    masks.mkdir(parents=True)
    local = []
    for i in range(clients):
        arrays = np.load(job / f"client_{i}.npz")
        for part in ("train", "val", "test"):
            torch.save(torch.from_numpy(arrays[part]), masks / f"{part}_{i}.pt")
            (masks / f"glb_{part}_{i}.pkl").write_bytes(pickle.dumps(arrays["nodes"][arrays[part]].tolist()))
        local.append(data(arrays, global_map=dict(enumerate(arrays["nodes"].tolist()))))
    return types.SimpleNamespace(local_data=local, global_data=data(whole), processed_dir=str(folder))


def normalized_propagation(trainer) -> None:
    """FedGL's network propagates by the plain adjacency matrix; here by GCN's."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import to_torch_csr_tensor

    def operator(data):
        return to_torch_csr_tensor(*gcn_norm(data.edge_index, None, data.num_nodes))

    for client in trainer.clients:
        client.adj = operator(client.task.data)
        client.task.splitted_data["data"].adj = client.adj
    trainer.server.task.splitted_data["data"].adj = operator(trainer.server.task.data)


def contrast(trainer) -> None:
    """FGSSL's contrast, which is computed and left out of the loss, in the place of the structure term.

    It is of representations, as in the authors' network, whose two outputs come in the other order.
    """
    module, computed, inside = importlib.import_module("openfgl.flcore.fgssl.client"), [], []

    class Term:
        def __mul__(self, weight: float) -> torch.Tensor:
            return 3 * computed[-2]  # of the received and the trained model; the last is of two views of the trained one

    def keep(module: torch.nn.Module, given: Any, loss: torch.Tensor) -> None:
        computed.append(loss)

    def other_order(module: torch.nn.Module, given: Any, outputs: tuple) -> tuple:
        return outputs[::-1] if inside else outputs

    def watched_loss(make: Any) -> Any:
        def loss(*arguments: Any) -> torch.Tensor:
            inside.append(True)
            value = make()(*arguments)
            inside.clear()
            computed.clear()
            return value

        return lambda: loss

    module.edge_distribution_high = lambda *_: Term()
    for client in trainer.clients:
        client.contrast_model.register_forward_hook(keep)
        client.get_custom_loss_fn = watched_loss(client.get_custom_loss_fn)
        for model in (client.task.model, client.global_model):
            model.register_forward_hook(other_order)


CHANGES = {"normalized_propagation": normalized_propagation, "contrast": contrast}

if __name__ == "__main__":
    drive(train)
