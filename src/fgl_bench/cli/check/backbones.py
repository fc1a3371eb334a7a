"""Checks what must hold for any backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fgl_bench.cli.check.promise import Broken, Unusable, tried
from fgl_bench.cli.check.subject import CLIENTS, Subject, composed
from fgl_bench.config.groups import build
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, DropoutFunction, no_dropout, step_key
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output
from fgl_bench.models.base import Backbone
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import resolve

SMALL = (f"num_clients={CLIENTS}", "rounds=1", "seeds=[0]")
CLOSE = 1e-9


@dataclass
class Case:
    """A backbone under test, the graphs of some clients of different sizes, and a model for each.

    The first client has isolated nodes, the last one no edges at all.
    """

    model: Backbone
    layout: ParameterLayout
    initial: dict[str, Tensor]
    clients: tuple[ClientGraph, ...]
    theta: Tensor
    classes: int

    def batch(self, rows: Sequence[int]) -> Batch:
        """These clients, padded to the largest among them."""
        batch = Batch([self.clients[row] for row in rows], torch.float64, "cpu")
        batch.per_federation = len(rows)
        return batch

    def answer(self, batch: Batch, theta: Tensor, dropout: DropoutFunction = no_dropout) -> Output:
        parameters = self.layout.views(theta)
        return self.model.forward(parameters, batch, self.model.first(parameters, batch), dropout)

    @property
    def everyone(self) -> range:
        return range(len(self.clients))


def examine(subject: Subject, overrides: Sequence[str], folders: Sequence[Path] = ()) -> int:
    """Try every promise on a backbone; returns 0, or 1 if one is broken."""
    cfg = composed(subject, overrides, SMALL, folders)
    (federation,) = prepare(resolve(cfg))
    clients = uneven(federation.clients)
    model = build(cfg.model).settle(clients, federation.num_classes, torch.device("cpu"), 1, None, lambda _: True)
    layout = model.layout(federation.num_features, federation.num_classes)
    initial = model.init_parameters(layout, torch.Generator().manual_seed(0))
    sizes = ", ".join(str(client.num_nodes) for client in clients)
    print(f"{subject.name}: {len(clients)} clients of {sizes} nodes, {layout.count} parameters", flush=True)
    for name, shape in layout.shapes.items():
        if name not in initial or tuple(initial[name].shape) != shape:
            told = f"of shape {list(initial[name].shape)}" if name in initial else "not at all"
            print(f"  BROKEN  {PROMISES[shaped]}: init_parameters() gives {name} {told}; layout() has {list(shape)}")
            return 1
    theta, scalars = layout.pack(initial).to(torch.float64).repeat(len(clients), 1), layout.scalars()
    theta[:, scalars] += 0.1 * torch.randn(len(clients), len(scalars), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return tried(subject.name, PROMISES, Case(model, layout, initial, clients, theta, federation.num_classes))


def uneven(clients: Sequence[ClientGraph]) -> tuple[ClientGraph, ...]:
    """The clients cut to different sizes, the first with isolated nodes, the last without edges."""
    cut = []
    for number, client in enumerate(clients):
        nodes = client.num_nodes - 3 * number
        kept = (client.edges < nodes).all(0) & (client.edges >= (3 if number == 0 else 0)).all(0) & (number < len(clients) - 1)
        parts = {name: getattr(client, name)[:nodes] for name in ("nodes", "features", "labels", "train", "val", "test")}
        cut.append(replace(client, edges=np.ascontiguousarray(client.edges[:, kept]), **parts))
    return tuple(cut)


# ---- the promises


def shaped(case: Case) -> None:
    if not all(torch.isfinite(value).all() for value in case.initial.values()):
        raise Broken("init_parameters() gives numbers that are not finite")
    named = sorted(name for layer in case.model.chain(case.layout) for name in layer)
    if named != sorted(case.layout.shapes):
        raise Broken(f"chain() names {', '.join(named)}; layout() has {', '.join(sorted(case.layout.shapes))}, each of one layer")


def answers(case: Case) -> None:
    batch = case.batch(case.everyone)
    output = case.answer(batch, case.theta)
    expected = [batch.size, batch.nodes, case.classes]
    if list(output.logits.shape) != expected:
        raise Unusable(f"logits are {list(output.logits.shape)}; expected [k, n, Y] = {expected}")
    if output.hidden.ndim != 3 or list(output.hidden.shape[:2]) != expected[:2]:
        raise Unusable(f"hidden is {list(output.hidden.shape)}; expected [k, n, h] with k, n = {expected[:2]}")


def isolated(case: Case) -> None:
    batch = case.batch(case.everyone)
    output = case.answer(batch, case.theta)
    for name, value in output._asdict().items():
        bad = ~torch.isfinite(value).all(-1) & batch.valid
        if bad.any():
            client, node = bad.nonzero()[0].tolist()
            edges = "" if batch.degree[client, node] else ", which has no edges"
            raise Broken(f"{name} of node {node} of client {client}{edges} is not finite")


def repeatable(case: Case) -> None:
    batch = case.batch(case.everyone)
    equal(case.answer(batch, case.theta), case.answer(batch, case.theta), batch, 0.0, "the same pass gives other numbers")


def alone(case: Case) -> None:
    batch = case.batch(case.everyone)
    whole = case.answer(batch, case.theta)
    for row in case.everyone:
        part = batch.select([row])
        words = f"client {row} alone gives other numbers than among others"
        equal(case.answer(part, case.theta[row : row + 1]), rows_of(whole, row), part, CLOSE, words)


def padded(case: Case) -> None:
    batch = case.batch(case.everyone)
    whole = case.answer(batch, case.theta)
    for row in case.everyone:
        bare = case.batch([row])
        output = case.answer(bare, case.theta[row : row + 1])
        same = Output(*(value[:, : bare.nodes] for value in rows_of(whole, row)))
        equal(output, same, bare, CLOSE, f"client {row} without padding gives other numbers")


def apart(case: Case) -> None:
    """A client's answers are a function of its own model."""
    batch, theta = case.batch(case.everyone), case.theta.clone().requires_grad_()
    for row in case.everyone:
        logits = case.answer(batch, theta).logits[row][batch.valid[row]]
        (gradient,) = torch.autograd.grad(logits.square().sum(), theta)
        for other in case.everyone:
            if other != row and gradient[other].abs().max() > 0:
                raise Broken(f"what client {row} answers depends on the model of client {other}")


def dropped(case: Case) -> None:
    """Random numbers come from the given dropout alone, which is a function of the replica's key."""
    if not case.model.drops:
        return
    batch = case.batch(case.everyone)
    keys = step_key(torch.arange(batch.size) + 7, torch.zeros(batch.size, dtype=torch.int64), 0)
    first, again = (case.answer(batch, case.theta, Dropout(case.model.dropout, keys)) for _ in range(2))
    equal(again, first, batch, 0.0, "the same keys give other numbers")
    for row in case.everyone:
        part = batch.select([row])
        output = case.answer(part, case.theta[row : row + 1], Dropout(case.model.dropout, keys[[row]]))
        equal(output, rows_of(first, row), part, CLOSE, f"with dropout client {row} alone gives other numbers than among others")


def learnable(case: Case) -> None:
    batch = case.batch(case.everyone)
    parameters = {name: view.detach().clone().requires_grad_() for name, view in case.layout.views(case.theta).items()}
    logits = case.model.forward(parameters, batch, case.model.first(parameters, batch), no_dropout).logits[batch.valid]
    weights = torch.randn(logits.shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(2))
    gradients = torch.autograd.grad((logits.log_softmax(-1) * weights).sum(), list(parameters.values()), allow_unused=True)
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            raise Broken(f"no gradient reaches the parameter {name}")
        if not torch.isfinite(gradient).all():
            raise Broken(f"the gradient of the parameter {name} is not finite")


def rows_of(output: Output, row: int) -> Output:
    return Output(*(value[row : row + 1] for value in output))


def equal(some: Output, other: Output, batch: Batch, tolerance: float, words: str) -> None:
    """Raise ``Broken`` unless the logits of real nodes are the same."""
    x, y = some.logits[batch.valid], other.logits[batch.valid]
    off = (x - y).abs().max().item()
    if not off <= tolerance * max(1.0, y.abs().max().item()):
        raise Broken(f"{words} (off by {off:.2g})")


PROMISES: dict[Callable[[Case], None], str] = {
    shaped: "parameters are as layout() says",
    answers: "outputs have their shapes",
    isolated: "outputs are finite, of isolated nodes too",
    repeatable: "a repeated pass gives the same numbers",
    alone: "a client alone equals the client among others",
    padded: "padding changes nothing",
    apart: "clients do not see each other's models",
    dropped: "randomness comes from the given dropout alone",
    learnable: "finite gradients reach every parameter",
}
