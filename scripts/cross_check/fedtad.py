"""Runs FedTAD's own program on an exported federation; started by ``compare.py``, see ``openfgl.py``.

The program is one script, which is read, repaired in memory and run: four of its lines are indented too far to be Python, and its device is
made the CPU. Its loader of data sets hands out the exported clients. Its messages tell when the clients have trained and when they have
received a model; both are scored there, and the scores that it prints are not used.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import Scores, begin_with, drive
from gcn import loaded

OURS = ["algorithm=fedtad", "algorithm.divergence=l1", "algorithm.weight_decay=5e-4", "local_epochs=3"]

MATCHED: dict[str, dict[str, Any]] = {
    "fedtad": {
        "ours": OURS,
        "evaluated": "received",
        "deterministic": False,
        "rounds": 10,
        "remark": "The authors' network drops hidden units wherever it is asked, in scores too.",
    },
    "fedtad_dropout_in_training": {
        "theirs": "fedtad",
        "change": "dropout_in_training",
        "ours": OURS,
        "evaluated": "received",
        "deterministic": False,
        "rounds": 10,
        "remark": "As above, dropping them in training only.",
    },
}


class Done(Exception):
    """All rounds were made."""


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    parts = [loaded(job, i) for i in range(settings["clients"])]
    for data in parts:
        data.train_idx, data.val_idx, data.test_idx = data.train_mask, data.val_mask, data.test_mask
    whole, initial = np.load(job / "global.npz"), np.load(job / "initial.npz")
    everything = types.SimpleNamespace(x=torch.from_numpy(whole["x"]))
    dataset = types.SimpleNamespace(subgraphs=parts, num_classes=int(whole["num_classes"]), global_data=everything)
    sys.modules["util.base_util"] = base = types.ModuleType("base_util")
    base.load_dataset, base.seed_everything = lambda args: dataset, lambda seed: None

    network = importlib.import_module("model").GCN
    create = network.__init__

    def created(self: Any, **named: Any) -> None:
        create(self, **named)
        begin_with(self, initial)

    network.__init__ = created
    if settings["change"]:
        CHANGES[settings["change"]](network)
    history: Scores = {"trained": [], "received": [], "seconds": []}
    program: dict[str, Any] = {"__name__": "__main__"}
    begin = time.perf_counter()

    def on_print(text: str = "") -> None:
        nonlocal begin
        if text.startswith("pseudo label distribution"):  # the clients have trained
            history["trained"].append([scores(model, data) for model, data in zip(program["local_models"], parts, strict=True)])
        elif text.startswith("[server]: current_round") and history["trained"]:  # and have received again
            history["received"].append([scores(model, data) for model, data in zip(program["local_models"], parts, strict=True)])
            history["seconds"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            if len(history["received"]) == settings["rounds"]:
                raise Done

    program["print"] = on_print
    sys.argv = ["train_fedtad.py"]
    values = {
        "num_clients": settings["clients"], "num_rounds": settings["rounds"] + 1, "num_epochs": settings["local_epochs"],
        "lr": settings["lr"], "weight_decay": settings["weight_decay"], "dropout": settings["dropout"], "hid_dim": settings["hidden"],
    }  # fmt: skip
    sys.argv += [word for key, value in values.items() for word in (f"--{key}", str(value))]
    file = Path(sys.path[0]) / "train_fedtad.py"
    try:
        exec(compile(repaired(file.read_text(encoding="utf-8")), file, "exec"), program)
    except Done:
        return history
    raise RuntimeError("the program ended before its last round")


def repaired(text: str) -> str:
    """The script with the lines behind its second "generator forward" as far out as that remark, and on the CPU."""
    head, remark, rest = text.rpartition("######  generator forward  ########\n")
    margin = len(head) - len(head.rstrip(" "))
    block, gap, rest = rest.partition("\n            \n")
    block = re.sub(r"^ +", " " * margin, block, flags=re.MULTILINE)
    return (head + remark + block + gap + rest).replace('torch.device(f"cuda:{args.gpu_id}")', 'torch.device("cpu")')


@torch.no_grad()
def scores(model: torch.nn.Module, data: Any) -> list[int]:
    """Right answers among validation and test nodes, in evaluation mode."""
    mode = model.training
    model.eval()
    hits = model(data).argmax(1) == data.y
    model.train(mode)
    return [int(hits[mask].sum()) for mask in (data.val_idx, data.test_idx)]


def dropout_in_training(network: Any) -> None:
    """Hidden units are dropped in training mode only."""

    def forward(self: Any, data: Any) -> torch.Tensor:
        hidden = torch.relu(self.conv1(data.x, data.edge_index))
        return self.conv2(torch.nn.functional.dropout(hidden, self.dropout, self.training), data.edge_index)

    network.forward = forward


CHANGES = {"dropout_in_training": dropout_in_training}

if __name__ == "__main__":
    drive(train)
