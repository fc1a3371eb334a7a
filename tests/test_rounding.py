"""No step hangs on how a zero is rounded: a gradient that is zero by its formula is computed as exactly zero.

Adam divides a gradient by its own size, so that the rounding of a zero (1e-17, of either sign) becomes a full step, which another
processor takes in the other direction.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType

import pytest
import torch
from torch import Tensor

import fgl_bench.runner.program
from fgl_bench.config.choices import config_folder
from fgl_bench.config.compose import Composer
from fgl_bench.data.federation import Federation
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.linear import prelu
from fgl_bench.runner.validation import validate

ALGORITHMS, MODELS = (sorted(path.stem for path in (config_folder() / group).glob("[!_]*.yaml")) for group in ("algorithm", "model"))
SMALL = (
    "dataset=csbm", "dataset.num_nodes=64", "dataset.num_edges=140", "dataset.num_features=24", "dataset.words_per_node=4",
    "dataset.num_classes=3", "num_clients=4", "seeds=[0]", "rounds=3", "mixing_at=[]", "dtype=float64", "device=cpu", "progress=false",
)  # fmt: skip
# What makes a method's rounds cheap, or all of its stages take place in three of them.
CHANGES = {
    "fedsa_gcl": ["algorithm.threshold=-1"],
    "fedgta": ["algorithm.threshold=-1"],
    **dict.fromkeys(("adafgl", "fedavg_finetune", "fedbabu"), ["algorithm.federated_rounds=1"]),
    "fedtad": ["algorithm.outer=1", "algorithm.generator_steps=1", "algorithm.student_steps=1", "algorithm.pseudo_nodes=12"],
    "fedsage_plus": ["model=graphsage", "algorithm.gen_rounds=1", "algorithm.gen_hidden=[16]", "algorithm.latent=8"],
    "feddep": ["model=graphsage", "algorithm.gen_hidden=[16]", "algorithm.encoder_epochs=2", "algorithm.cluster_epochs=[1,1,1]"],
    "fed_pub": ["model=gcn_linear"],
    "fediih": ["model=disengcn"],
    "fedssa": ["model=unifilter"],
}
CROSS_CLIENT = ("fedaas", "fedaas1", "fedaas2", "fedall", "fedcross", "fedgraph", "fedlocal", "fedpns", "graphfed")
CHANGES |= {name: ["model=gat", "split=iid_server"] for name in CROSS_CLIENT}
VARIANTS = [
    ["fedavg", "model=gamlp", "model.hops=2", "model.propagation=lazy"],  # with other numbers of hops the rounding may be 0 by chance
    ["fedavg", "model=gamlp", "model.hops=2", "model.propagation=precomputed"],
    ["fedavg", "model=gat", "model.version=v2"],
    ["fedavg", "model=gat", "model.heads=2", "model.attn_dropout=0.3"],
    ["fedaas", *CHANGES["fedaas"], "model.version=v2"],
]
RUNS = [[name, *CHANGES.get(name, [])] for name in ALGORITHMS] + [["fedavg", f"model={name}"] for name in MODELS] + VARIANTS

Place = tuple[str, str, int]  # the function that takes a gradient, the parameter's name, the row


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    folder = tmp_path_factory.mktemp("rounding")
    composer = Composer()
    yield lambda overrides: composer([*SMALL, *overrides, f"cache_dir={folder}", f"results_dir={folder}"])


def lonely(federation: Federation) -> Federation:
    """The federation whose second client has no edges within it."""

    def cut(clients: Sequence[ClientGraph]) -> tuple[ClientGraph, ...]:
        return tuple(replace(client, edges=client.edges[:, :0]) if i == 1 else client for i, client in enumerate(clients))

    return replace(federation, clients=cut(federation.clients), observed=cut(federation.observed))


def names(frame: FrameType, inputs: Sequence[Tensor]) -> list[str]:
    """What the function in ``frame`` calls these tensors."""
    tables = [value for value in frame.f_locals.values() if isinstance(value, Mapping)]
    known = {id(tensor): str(name) for table in tables for name, tensor in table.items() if isinstance(tensor, Tensor)}
    return [known.get(id(tensor), f"number {i}") for i, tensor in enumerate(inputs)]


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> dict[Place, float]:
    """The largest entry of every gradient that is taken in this test, over all steps."""
    entries: dict[Place, float] = defaultdict(float)
    take = torch.autograd.grad

    def recording(outputs, inputs, *args, **kwargs):
        gradients, frame = take(outputs, inputs, *args, **kwargs), sys._getframe(1)
        for name, gradient in zip(names(frame, inputs), gradients, strict=True):
            if gradient is not None and gradient.dim() and gradient.numel():
                for row, entry in enumerate(gradient.detach().flatten(1).abs().amax(1).tolist()):
                    place = frame.f_code.co_qualname, name, row
                    entries[place] = max(entries[place], entry)
        return gradients

    monkeypatch.setattr(torch.autograd, "grad", recording)
    return entries


def roundings(largest: Mapping[Place, float]) -> list[Place]:
    """Parameters whose gradient is never zero and always far below the largest of its model."""
    scale: dict[tuple[str, int], float] = defaultdict(float)
    for (function, _, row), entry in largest.items():
        scale[function, row] = max(scale[function, row], entry)
    return [place for place, entry in largest.items() if 0 < entry < 1e-13 * scale[place[0], place[2]]]


SOON = [run for run in RUNS if len(run) > 1]
RUNS = [pytest.param(run, marks=() if run in SOON[::3] else pytest.mark.nightly, id=" ".join(run)) for run in RUNS]


@pytest.mark.parametrize("overrides", RUNS)
def test_no_gradient_is_a_rounding(overrides, compose, largest):
    cfg = compose([f"algorithm={overrides[0]}", *overrides[1:]])
    spec = validate(cfg)
    federations = [lonely(federation) for federation in fgl_bench.runner.run.prepare(spec)]
    fgl_bench.runner.program.simulate(spec, federations, torch.device("cpu"))
    assert bool(largest) == (overrides[0] != "majority")
    assert roundings(largest) == []


def test_what_is_looked_for_is_found(largest):
    weights = {"used": torch.ones(2, 3, requires_grad=True), "shift": torch.full((2, 1), 0.3, requires_grad=True)}
    values = torch.tensor([[0.7, 0.1, 0.4], [1.0, 1.0, 1.0]])
    loss = (torch.softmax(weights["used"] * values + weights["shift"], 1) * values).sum()
    torch.autograd.grad(loss, list(weights.values()))
    assert set(weights) == {name for _, name, _ in largest}
    entries = {("step", "used", 0): 2.0, ("step", "shift", 0): 1e-16, ("step", "unused", 0): 0.0, ("step", "shift", 1): 1e-16}
    assert roundings(entries) == [("step", "shift", 0)]


def test_the_gradient_of_prelu_at_zero_is_the_slope():
    x = torch.tensor([[[-2.0, -0.0, 0.0, 3.0]], [[-2.0, -0.0, 0.0, 3.0]]], requires_grad=True)
    slope = torch.tensor([[0.25], [0.5]], requires_grad=True)
    out = prelu(x, slope)
    assert out.tolist() == [[[-0.5, 0.0, 0.0, 3.0]], [[-1.0, 0.0, 0.0, 3.0]]]
    to_x, to_slope = torch.autograd.grad(out.sum(), (x, slope))
    assert to_x.tolist() == [[[0.25, 0.25, 0.25, 1.0]], [[0.5, 0.5, 0.5, 1.0]]]
    assert to_slope.tolist() == [[-2.0], [-2.0]]
