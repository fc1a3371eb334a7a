"""Runs FedGTA's own code on an exported federation; started by ``compare.py``, see ``openfgl.py``.

Its trainer's loop is called here step by step. Sparse products are SciPy's, as the code has them off Linux, not those of the compiled
library that it ships; ``torchviz``, which it imports for a plot, is stood in for. It scores received models.
"""

from __future__ import annotations

import importlib
import platform
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from driving import Scores, begin_with, drive, old_scatter, right

NAMES = {
    **{f"base_model.fcs_node_edge.{i}.{part}": f"linear{i}.{part}" for i in range(6) for part in ("weight", "bias")},
    "pre_msg_op.learnable_weight.weight": "attention.weight", "pre_msg_op.learnable_weight.bias": "attention.bias",
}  # fmt: skip
OURS = ["algorithm=fedgta", "model=gamlp", "local_epochs=3", "algorithm.orders=6"]
THEIRS = {"moment_type": "hybrid", "num_moments": 6, "gm_alpha": 0.5}

MATCHED: dict[str, dict[str, Any]] = {
    "fedgta": {
        "config": THEIRS,
        "ours": OURS,
        "evaluated": "received",
        "remark": "The backbone's attention mixes nodes and hops in the authors' code.",
    },
    "fedgta_own_hops": {
        "theirs": "fedgta",
        "change": "scores_of_their_hop",
        "config": THEIRS,
        "ours": OURS,
        "evaluated": "received",
        "remark": "As above, every attention score given to its own node and hop.",
    },
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    old_scatter()
    platform.system = lambda: "other"
    sys.modules.setdefault("torchviz", types.ModuleType("torchviz")).make_dot = None
    from torch_geometric.data import Data

    whole, initial = np.load(job / "global.npz"), np.load(job / "initial.npz")
    parts = []
    for i in range(settings["clients"]):
        arrays = {name: torch.from_numpy(value) for name, value in np.load(job / f"client_{i}.npz").items()}
        data = Data(x=arrays["x"], y=arrays["y"], edge_index=arrays["edge_index"])
        nodes, (row, column) = len(arrays["y"]), arrays["edge_index"].numpy()
        data.adj = sp.csr_matrix((np.ones(len(row), dtype=np.float32), (row, column)), shape=(nodes, nodes))
        data.train_idx, data.val_idx, data.test_idx = arrays["train"], arrays["val"], arrays["test"]
        parts.append(data)
    everything = Data(x=torch.from_numpy(whole["x"]), y=torch.from_numpy(whole["y"]))
    dataset = types.SimpleNamespace(
        subgraphs=parts, global_data=everything, input_dim=whole["x"].shape[1], output_dim=int(whole["num_classes"])
    )
    args = types.SimpleNamespace(
        gnn_model="gamlp", gnn_lr=settings["lr"], gnn_weight_decay=settings["weight_decay"], gnn_num_epochs=settings["local_epochs"],
        gnn_dropout=settings["dropout"], lp_prop=5, temperature=20, **settings["config"],
    )  # fmt: skip
    if settings["change"]:
        CHANGES[settings["change"]]()
    server = importlib.import_module("federated.fedgta.fedgta_server").FedGTAServer(dataset, args, torch.device("cpu"))
    clients = [
        importlib.import_module("federated.fedgta.fedgta_client").FedGTAClient(i, dataset, args, torch.device("cpu"))
        for i in range(settings["clients"])
    ]
    begin_with(server.model, initial, NAMES)
    for client in clients:
        client.init_model(server.model.state_dict())
        client.LP.adj = client.LP.adj.astype(np.float32)  # as the compiled library has it
        if settings["exact"]:
            client.model.base_model.dropout.p = 0.0
    counts = [[int(data.val_idx.sum()), int(data.test_idx.sum())] for data in parts]
    scores: Scores = {"trained": [], "received": [], "seconds": []}
    for number in range(settings["rounds"]):
        begin = time.perf_counter()
        outputs = [client.client_execute(round_id=number) for client in clients]
        after = [client.task.eval() for client in clients]
        models = server.server_execute({name: [output[name] for output in outputs] for name in outputs[0]})
        for client, model in zip(clients, models, strict=True):
            client.update_local(client_input=model)
        last = [client.task.eval() for client in clients]
        scores["seconds"].append(time.perf_counter() - begin)
        scores["trained"].append([right(each[:2], n) for each, n in zip(after, counts, strict=True)])
        scores["received"].append([right(each[:2], n) for each, n in zip(last, counts, strict=True)])
    return scores


def scores_of_their_hop() -> None:
    """The backbone's attention reshapes scores that lie hop by hop as if they lay node by node; here every score goes to its own."""
    operator = importlib.import_module("operators.message_operator.sim_message_operator.sim_learnable_weighted_messahe_op")

    def combine(self: Any, hops: list[torch.Tensor]) -> torch.Tensor:
        hops = hops[self.start : self.end]
        everything = torch.hstack(hops)
        scores = torch.hstack([self.learnable_weight(torch.hstack((everything, hop))) for hop in hops])
        weights = torch.softmax(torch.sigmoid(scores), dim=1)
        return sum(weights[:, [i]] * hop for i, hop in enumerate(hops))

    operator.SimLearnableWeightedMessageOp.combine = combine


CHANGES = {"scores_of_their_hop": scores_of_their_hop}

if __name__ == "__main__":
    drive(train)
