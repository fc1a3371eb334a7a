"""Checks the promises of any backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fgl_bench.cli.check.subject import CLIENTS, Broken, Cases, Subject, composed, tried
from fgl_bench.config.groups import build
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output
from fgl_bench.engine.random_numbers import step_key
from fgl_bench.models.base import Backbone
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import resolve

SMALL = (f"num_clients={CLIENTS}", "rounds=1", "seeds=[0]")
CLOSE = 1e-9


@dataclass
class SmallModels:
    """A backbone, graphs of clients of different sizes, and a model per client.

    The first client has isolated nodes, the last one no edges at all.
    """

    model: Backbone
    layout: ParameterLayout
    initial: dict[str, Tensor]
    clients: tuple[ClientGraph, ...]
    classes: int

    def __post_init__(self) -> None:
        self.rows = range(len(self.clients))
        self.batch = self.padded(self.rows)

    def padded(self, rows: Sequence[int]) -> Batch:
        """Return a batch of these clients, padded to the largest."""
        batch = Batch([self.clients[row] for row in rows], torch.float64, "cpu")
        batch.per_federation = len(rows)
        return batch

    @cached_property
    def theta(self) -> Tensor:
        """Return the initial models of all clients, with noise on scalars."""
        theta, scalars = self.layout.pack(self.initial).to(torch.float64).repeat(len(self.clients), 1), self.layout.scalars()
        noise = torch.randn(len(self.clients), len(scalars), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        theta[:, scalars] += 0.1 * noise
        return theta

    def answer(self, batch: Batch, theta: Tensor, dropout: DropoutFunction = no_dropout) -> Output:
        parameters = self.layout.views(theta)
        return self.model.forward(parameters, batch, self.model.first(parameters, batch), dropout)


def examine(subject: Subject, overrides: Sequence[str], folders: Sequence[Path] = ()) -> int:
    """Check every promise of a backbone; returns 0, or 1 if one is broken."""
    cfg = composed(subject, overrides, SMALL, folders)
    (federation,) = prepare(resolve(cfg))
    clients = uneven(federation.clients)
    model = build(cfg.model).settle(clients, federation.num_classes, torch.device("cpu"), 1, None, lambda _: True)
    layout = model.layout(federation.num_features, federation.num_classes)
    initial = model.init_parameters(layout, torch.Generator().manual_seed(0))
    sizes = ", ".join(str(client.num_nodes) for client in clients)
    print(f"{subject.name}: {len(clients)} clients of {sizes} nodes, {layout.count} parameters", flush=True)
    return tried(subject.name, PROMISES, SmallModels(model, layout, initial, clients, federation.num_classes))


def uneven(clients: Sequence[ClientGraph]) -> tuple[ClientGraph, ...]:
    """Cut the clients to different sizes, the first with isolated nodes, the last without edges."""
    cut = []
    for number, client in enumerate(clients):
        nodes = client.num_nodes - 3 * number
        inside = (client.edges < nodes).all(0) & (client.edges >= (3 if number == 0 else 0)).all(0) & (number < len(clients) - 1)
        parts = {name: getattr(client, name)[:nodes] for name in ("nodes", "features", "labels", "train", "val", "test")}
        cut.append(replace(client, edges=np.ascontiguousarray(client.edges[:, inside]), **parts))
    return tuple(cut)


# ---- the promises


def shaped(small: SmallModels) -> None:
    initial, layout = small.initial, small.layout
    for name, shape in layout.shapes.items():
        if name not in initial or tuple(initial[name].shape) != shape:
            given = f"of shape {list(initial[name].shape)}" if name in initial else "not at all"
            raise Broken(f"init_parameters() gives {name} {given}; layout() has {list(shape)}", last=True)
    if not all(torch.isfinite(value).all() for value in initial.values()):
        raise Broken("init_parameters() gives numbers that are not finite")
    named = sorted(name for layer in small.model.chain(layout) for name in layer)
    if named != sorted(layout.shapes):
        raise Broken(f"chain() names {', '.join(named)}; layout() has {', '.join(sorted(layout.shapes))}, each of one layer")


def answers(small: SmallModels) -> None:
    output = small.answer(small.batch, small.theta)
    expected = [small.batch.size, small.batch.nodes, small.classes]
    if list(output.logits.shape) != expected:
        raise Broken(f"logits are {list(output.logits.shape)}; expected [k, n, Y] = {expected}", last=True)
    if output.hidden.ndim != 3 or list(output.hidden.shape[:2]) != expected[:2]:
        raise Broken(f"hidden is {list(output.hidden.shape)}; expected [k, n, h] with k, n = {expected[:2]}", last=True)


def isolated(small: SmallModels) -> None:
    batch = small.batch
    for name, value in small.answer(batch, small.theta)._asdict().items():
        bad = ~torch.isfinite(value).all(-1) & batch.valid
        if bad.any():
            client, node = bad.nonzero()[0].tolist()
            edges = "" if batch.degree[client, node] else ", which has no edges"
            raise Broken(f"{name} of node {node} of client {client}{edges} is not finite")


def repeatable(small: SmallModels) -> None:
    first, second = (small.answer(small.batch, small.theta).logits for _ in range(2))
    equal(second, first, small.batch, 0.0, "the same pass gives other numbers")


def alone(small: SmallModels) -> None:
    check_each_alone(small, lambda row: small.batch.select([row]), "client {row} alone gives other numbers than among others")


def padded(small: SmallModels) -> None:
    check_each_alone(small, lambda row: small.padded([row]), "client {row} without padding gives other numbers")


def independent(small: SmallModels) -> None:
    """A client's outputs depend only on its own model."""
    theta = small.theta.clone().requires_grad_()
    for row in small.rows:
        logits = small.answer(small.batch, theta).logits[row][small.batch.valid[row]]
        (gradient,) = torch.autograd.grad(logits.square().sum(), theta)
        for other in small.rows:
            if other != row and gradient[other].abs().max() > 0:
                raise Broken(f"the output of client {row} depends on the model of client {other}")


def dropped(small: SmallModels) -> None:
    """Random numbers come only from the given dropout, a function of the replica's key."""
    if not small.model.drops:
        return
    keys = step_key(torch.arange(len(small.rows)) + 7, torch.zeros(len(small.rows), dtype=torch.int64), 0)

    def dropout(rows: Sequence[int]) -> DropoutFunction:
        return Dropout(small.model.dropout, keys[list(rows)])

    first, second = (small.answer(small.batch, small.theta, dropout(small.rows)).logits for _ in range(2))
    equal(second, first, small.batch, 0.0, "the same keys give other numbers")
    words = "with dropout client {row} alone gives other numbers than among others"
    check_each_alone(small, lambda row: small.batch.select([row]), words, dropout)


def learnable(small: SmallModels) -> None:
    batch = small.batch
    parameters = {name: view.detach().clone().requires_grad_() for name, view in small.layout.views(small.theta).items()}
    logits = small.model.forward(parameters, batch, small.model.first(parameters, batch), no_dropout).logits[batch.valid]
    weights = torch.randn(logits.shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(2))
    gradients = torch.autograd.grad((logits.log_softmax(-1) * weights).sum(), list(parameters.values()), allow_unused=True)
    for name, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            raise Broken(f"no gradient reaches the parameter {name}")
        if not torch.isfinite(gradient).all():
            raise Broken(f"the gradient of the parameter {name} is not finite")


def check_each_alone(
    small: SmallModels,
    part_of: Callable[[int], Batch],
    words: str,
    dropout: Callable[[Sequence[int]], DropoutFunction] = lambda rows: no_dropout,
) -> None:
    """Raise ``Broken`` unless every client's outputs are the same in a separate batch and in a joint one."""
    whole = small.answer(small.batch, small.theta, dropout(small.rows)).logits
    for row in small.rows:
        part = part_of(row)
        logits = small.answer(part, small.theta[row : row + 1], dropout([row])).logits
        equal(logits, whole[row : row + 1, : part.nodes], part, CLOSE, words.format(row=row))


def equal(logits: Tensor, expected: Tensor, batch: Batch, tolerance: float, words: str) -> None:
    """Raise ``Broken`` unless the logits of real nodes are the same."""
    x, y = logits[batch.valid], expected[batch.valid]
    off = (x - y).abs().max().item()
    if not off <= tolerance * max(1.0, y.abs().max().item()):
        raise Broken(f"{words} (off by {off:.2g})")


PROMISES: Cases = {
    "parameters are as layout() says": shaped,
    "outputs have their shapes": answers,
    "outputs are finite, of isolated nodes too": isolated,
    "a repeated pass gives the same numbers": repeatable,
    "a client alone equals the client among others": alone,
    "padding changes nothing": padded,
    "clients do not see each other's models": independent,
    "randomness comes from the given dropout alone": dropped,
    "finite gradients reach every parameter": learnable,
}
