"""Functions that the drivers share. A driver is one file for one repository of other code.

It runs in that code's environment, in a process of its own, and imports nothing of fgl-bench. ``compare.py`` reads ``MATCHED`` from it,
what makes our methods and theirs alike:

- ``ours``: keys of fgl-bench; ``config``: values of the method's configuration there, where they are not its defaults;
- ``theirs``: its name of the method, ``model``: of the backbone, where they are not ours;
- ``still``: keys that switch off what is random in ours, besides ``model.dropout``;
- ``change``: the name of what the driver changes in their code, for a run that shows what a difference comes from;
- ``evaluated``: the model that is compared, ``trained`` if there is nothing else;
- ``deterministic``: false where steps are random without dropout as well;
- ``step_rounds``: how many are compared step by step;
- ``weights``: true where the driver writes every client's trained weights, which are then compared in float64;
- ``datasets``, ``split``, ``clients``: what is compared unless the command names others;
- ``rounds``: a smaller budget, for both, for methods that are slow there; ``remark``: for the page.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

# "trained" and "received": [rounds, C, 2] right answers among validation and test nodes; "seconds" of each round; "clusters": [rounds, C].
Scores = dict[str, list]
GCN = {
    "layers.0.lin.weight": "conv0.weight", "layers.1.lin.weight": "conv1.weight", "layers.0.bias": "conv0.bias",
    "layers.1.bias": "conv1.bias", "conv1.lin.weight": "conv0.weight", "conv2.lin.weight": "conv1.weight", "conv1.bias": "conv0.bias",
    "conv2.bias": "conv1.bias", "clsif.weight": "head.weight", "clsif.bias": "head.bias",
}  # fmt: skip


def drive(train: Callable[[dict[str, Any], Path, Path], Scores]) -> None:
    """Run ``JOB SOURCE`` of the command line: ``train(settings, job, scratch folder)``, with the job's seed and without output."""
    job, source = Path(sys.argv[1]), Path(sys.argv[2])
    settings = json.loads((job / "settings.json").read_text())
    sys.path.insert(0, str(source))
    sys.argv = sys.argv[:1]  # which other code parses on import
    torch.set_num_threads(settings["threads"])
    torch.set_default_dtype(getattr(torch, settings["dtype"]))
    random.seed(settings["seed"])
    np.random.seed(settings["seed"])  # noqa: NPY002 (what other code draws from)
    torch.manual_seed(settings["seed"])
    if settings["exact"]:
        torch.nn.functional.dropout = lambda x, *_, **__: x  # in layers whose dropout has no setting
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        scores = train(settings, job, Path(folder))
    (job / "theirs.json").write_text(json.dumps(scores))


def old_scatter() -> None:
    """``torch_scatter`` and ``torch_sparse`` for layers that use one function and one class name of them, where they are not installed."""
    from torch_geometric.utils import scatter

    one, two = types.ModuleType("torch_scatter"), types.ModuleType("torch_sparse")
    one.scatter = scatter
    one.scatter_add = lambda src, index, dim=0, dim_size=None: scatter(src, index, dim, dim_size, "sum")
    two.SparseTensor = type("SparseTensor", (), {})  # only ever asked whether something is one
    two.fill_diag = two.matmul = two.mul = two.sum = two.coalesce = None
    for module in (one, two):
        try:
            importlib.import_module(module.__name__)
        except ImportError:
            sys.modules[module.__name__] = module


def begin_with(model: torch.nn.Module, initial: Any, names: dict[str, str] = GCN, transposed: bool = True) -> None:
    """Our initial weights in the layers of these names; our matrices are ``[in, out]``, those of most others ``[out, in]``."""
    for name, parameter in model.named_parameters():
        if names.get(name) in initial:
            value = torch.from_numpy(initial[names[name]])
            parameter.data.copy_((value.T if transposed else value).reshape(parameter.shape))


def store_weights(job: Path, models: list[dict[str, torch.Tensor]], names: dict[str, str]) -> None:
    """Write the weights of every client's model for ``compare.py``, by our names and ``[C, in, out]``."""
    each = [{names[name]: value.detach().numpy().T for name, value in model.items() if name in names} for model in models]
    np.savez(job / "weights.npz", **{name: np.stack([weights[name] for weights in each]) for name in each[0]})


def graphs(job: Path, client: int) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """The graphs of a client, and their masks."""
    from torch_geometric.data import Data

    arrays = np.load(job / f"client_{client}.npz")
    graph, edges = arrays["graph"], arrays["edge_index"]
    ends = np.cumsum(np.bincount(graph))
    order = np.argsort(graph[edges[0]], kind="stable")
    parts = np.split(edges[:, order], np.cumsum(np.bincount(graph[edges[0]], minlength=len(ends)))[:-1], axis=1)
    x = torch.from_numpy(arrays["x"]).to(torch.get_default_dtype()).tensor_split(torch.from_numpy(ends[:-1]))
    starts, y = [0, *ends[:-1]], torch.from_numpy(arrays["y"])
    data = [Data(x=x[i], edge_index=torch.from_numpy(parts[i] - starts[i]), y=y[i : i + 1]) for i in range(len(ends))]
    return data, {part: torch.from_numpy(arrays[part]) for part in ("train", "val", "test")}


def right(accuracies: tuple[float, float], counts: list[int]) -> list[int]:
    """Right answers among validation and test nodes."""
    return [round(float(accuracy) * count) for accuracy, count in zip(accuracies, counts, strict=True)]
