"""Comparing a stacked backbone with its plain counterpart, client by client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output
from fgl_bench.models.base import Backbone
from tests.engine.graphs import make_client

FEATURES, CLASSES = 5, 3
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def awkward_clients(sparse: bool = True, dense_values: bool = False) -> list[ClientGraph]:
    """A lone node, an edgeless client, a small one, and one whose node 0 is isolated and whose last feature is zero everywhere."""
    clients = [make_client(1, sparse=sparse), make_client(6, edges=0.0, sparse=sparse), make_client(5, sparse=sparse)]
    last = make_client(11, seed=3, sparse=sparse)
    features = (last.features.toarray() if sparse else last.features) * (np.arange(FEATURES) < FEATURES - 1)
    features = sp.csr_matrix(features) if sparse else features
    clients.append(replace(last, edges=last.edges[:, (last.edges != 0).all(0)], features=features))
    if dense_values:
        rng = np.random.default_rng(0)
        clients = [replace(c, features=rng.normal(size=c.features.shape)) for c in clients]
    return clients


def features_of(client: ClientGraph) -> torch.Tensor:
    return torch.from_numpy(client.features.toarray() if sp.issparse(client.features) else client.features).double()


def random_models(layout: ParameterLayout, count: int, seed: int = 0) -> torch.Tensor:
    """``[count, P]`` without the zeros that initial biases are; padding stays empty."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        named = {n: torch.rand(s, generator=generator, dtype=torch.float64) * 1.6 - 0.8 for n, s in layout.shapes.items()}
        rows.append(layout.pack(named))
    return torch.stack(rows)


def run(model: Backbone, batch: Batch, theta: torch.Tensor, layout: ParameterLayout, dropout=no_dropout) -> tuple[dict, Output]:
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    return parameters, model.forward(parameters, batch, model.first(parameters, batch), dropout)


def logits_and_gradients(model: Backbone, batch: Batch, theta: torch.Tensor, layout: ParameterLayout) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits ``[k, n, Y]`` and the gradient ``[k, P]`` of a loss in which every node of every client weighs differently."""
    parameters, output = run(model, batch, theta, layout)
    gradients = torch.autograd.grad((output.logits.log_softmax(-1) * weights_of(batch)).sum(), list(parameters.values()))
    return output.logits.detach(), layout.collect(dict(zip(parameters, gradients, strict=True)))


def weights_of(batch: Batch) -> torch.Tensor:
    draws = torch.rand(batch.size, batch.nodes, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return draws * batch.valid[..., None]


def assert_equals_plain(model: Backbone, plain: Callable[..., torch.Tensor], clients: Sequence[ClientGraph], **options) -> None:
    """Forward and backward; ``plain(parameters, x, edges, **options)`` gives one client's logits."""
    assert_equals_network(
        model, lambda client, own: plain(own, features_of(client), torch.from_numpy(client.edges), **options), clients, **EXACT
    )


def assert_equals_network(
    model: Backbone,
    network: Callable[[ClientGraph, dict[str, torch.Tensor]], torch.Tensor],
    clients: Sequence[ClientGraph],
    rtol: float = 1e-9,
    atol: float = 1e-9,
) -> None:
    """``network(client, parameters)`` gives logits ``[n, Y]``; the stack agrees in them and in the gradient of every parameter."""
    batch, layout = Batch(clients, torch.float64, "cpu"), model.layout(FEATURES, CLASSES)
    theta = random_models(layout, len(clients))
    parameters, output = run(model, batch, theta, layout)
    # All nodes, or those of training alone: backbones may take a shorter way for the latter.
    for mask in (batch.valid, batch.train):
        weights = weights_of(batch) * mask[..., None]
        loss = (output.logits.log_softmax(-1) * weights).sum()
        flat = layout.collect(dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values()), retain_graph=True), strict=True)))
        for i, client in enumerate(clients):
            own = {name: view[i].clone().requires_grad_() for name, view in layout.views(theta).items()}
            wanted = network(client, own)
            torch.testing.assert_close(output.logits[i, : client.num_nodes], wanted, rtol=rtol, atol=atol)
            total = (wanted.log_softmax(-1) * weights[i, : client.num_nodes]).sum()
            gradients = torch.autograd.grad(total, list(own.values()), allow_unused=True)
            for (name, value), gradient in zip(own.items(), gradients, strict=True):
                gradient = torch.zeros_like(value) if gradient is None else gradient
                torch.testing.assert_close(layout.view(flat, name)[i], gradient, rtol=rtol, atol=atol)


def dense_propagation(client: ClientGraph) -> torch.Tensor:
    """P = D^-1/2 A D^-1/2 as a dense matrix, written from the definition."""
    matrix = torch.from_numpy(adjacency(client).toarray())
    degree = matrix.sum(1)
    scale = torch.where(degree > 0, degree.clamp(min=1) ** -0.5, 0.0)
    return scale[:, None] * matrix * scale
