"""Runs FED-PUB's own code on an exported federation; started by ``compare.py``, see ``openfgl.py``.

Its processes on GPUs are left out: server and clients are made here and called in the order in which its parent process calls them.
``.cuda()`` stays on the CPU; the loader of partitions hands out the exported clients.
"""

from __future__ import annotations

import importlib
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, begin_with, drive, old_scatter, right

AVERAGED = ["algorithm=fedavg", "model.head=linear", "agg_weight=uniform"]
OURS = ["algorithm=fed_pub", "model.head=linear", "algorithm.tau=3", "algorithm.reg=inert"]

MATCHED: dict[str, dict[str, Any]] = {
    "fedavg": {"theirs": "fedavg", "ours": AVERAGED},
    "fed_pub": {"theirs": "fedpub", "config": {"norm_scale": 3}, "ours": OURS, "deterministic": False},
    "fed_pub_e3": {"theirs": "fedpub", "config": {"norm_scale": 3}, "ours": [*OURS, "local_epochs=3"], "deterministic": False},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    own = {"model": "fedpub", "n_dims": settings["hidden"], "laye_mask_one": True, "clsf_mask_one": True, "n_proxy": 5, "loc_l2": 1e-3}
    return rounds(settings, job, folder, f"models.{settings['method']}", own, lambda model, initial: begin_with(model, initial))


def rounds(
    settings: dict[str, Any],
    job: Path,
    folder: Path,
    package: str,
    own: dict[str, Any],
    begin: Callable[[torch.nn.Module, Any], None],
) -> Scores:
    """The rounds of a package that has this code's ``Server`` and ``Client``, with arguments of its own."""
    old_scatter()
    torch.load = lambda *args, load=torch.load, **more: load(*args, **{"weights_only": False, **more})  # of files that it writes
    torch.nn.Module.cuda = torch.Tensor.cuda = lambda self, *_: self
    from torch_geometric.data import Data

    Data.cuda = lambda self, *_: self
    whole, initial = np.load(job / "global.npz"), np.load(job / "initial.npz")
    args = types.SimpleNamespace(
        **{
            "dataset": "exported", "mode": "disjoint", "n_clients": settings["clients"], "frac": 1.0, "n_eps": settings["local_epochs"],
            "n_rnds": settings["rounds"], "n_feat": whole["x"].shape[1], "n_clss": int(whole["num_classes"]), "base_lr": settings["lr"],
            "weight_decay": settings["weight_decay"], "dropout": settings["dropout"], "agg_norm": "exp", "l1": 1e-3,
            "seed": settings["seed"], "checkpt_path": str(folder / "checkpoints"), "log_path": str(folder / "logs"), **own,
            **settings["config"],
        }
    )  # fmt: skip
    shared: dict[str, Any] = {}
    server = importlib.import_module(f"{package}.server").Server(args, shared, 0)
    client_class = importlib.import_module(f"{package}.client").Client
    begin(server.model, initial)
    clients, counts = [], []
    for i in range(args.n_clients):
        arrays = {name: torch.from_numpy(value) for name, value in np.load(job / f"client_{i}.npz").items()}
        masks = {f"{part}_mask": arrays[part] for part in ("train", "val", "test")}
        data = Data(x=arrays["x"], edge_index=arrays["edge_index"], y=arrays["y"], **masks)
        client = client_class(args, 0, 0, shared)
        client.client_id, client.loader = i, types.SimpleNamespace(partition=[data], pa_loader=[data])
        client.logger.switch(i)
        begin(client.model, initial)
        client.init_state()
        clients.append(client)
        counts.append([int(arrays["val"].sum()), int(arrays["test"].sum())])
    scores: Scores = {"trained": [], "received": [], "seconds": []}
    for number in range(args.n_rnds):
        start = time.perf_counter()
        server.on_round_begin(number)
        for client in clients:
            client.on_receive_message(number)
            client.on_round_begin()
        server.on_round_complete(list(range(args.n_clients)))
        last = [(client.log["rnd_local_val_acc"][-1], client.log["rnd_local_test_acc"][-1]) for client in clients]
        scores["trained"].append([right(each, n) for each, n in zip(last, counts, strict=True)])
        scores["seconds"].append(time.perf_counter() - start)
    return scores


if __name__ == "__main__":
    drive(train)
