"""Comparing a stacked backbone with a network written for one client, forward and backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.dropout import no_dropout
from tests.engine.graphs import make_client

FEATURES, CLASSES = 5, 3


def awkward_clients(sparse=True):
    """A lone node, an edgeless client, a client of five, and a larger one whose node 0 is isolated and whose last feature is zero."""
    clients = [make_client(1, sparse=sparse), make_client(6, edges=0.0, sparse=sparse), make_client(5, sparse=sparse)]
    last = make_client(11, seed=3, sparse=sparse)
    features = (last.features.toarray() if sparse else last.features) * (np.arange(FEATURES) < FEATURES - 1)
    features = sp.csr_matrix(features) if sparse else features
    return [*clients, replace(last, edges=last.edges[:, (last.edges != 0).all(0)], features=features)]


def random_rows(layout, count, seed=0):
    """Flat parameter rows ``[count, P]``, different for every replica."""
    draw = torch.Generator().manual_seed(seed)
    shapes = layout.shapes.items()
    return torch.stack(
        [layout.pack({n: torch.randn(s, generator=draw, dtype=torch.float64) * 0.5 for n, s in shapes}) for _ in range(count)]
    )


def assert_equals_plain(model, clients, plain, theta=None, tolerance=1e-9):
    """``plain(client, parameters)`` gives logits ``[n, Y]``; the stack must agree in logits and in the gradient of every parameter."""
    layout, batch = model.layout(FEATURES, CLASSES), Batch(clients, torch.float64, "cpu")
    theta = random_rows(layout, len(clients)) if theta is None else theta
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    logits = model.forward(parameters, batch, model.first(parameters, batch), no_dropout).logits
    factors = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # All nodes, or those of training alone: backbones may take a shorter way for the latter.
    for mask in (batch.valid, batch.train):
        loss = (logits.log_softmax(-1) * factors * mask[..., None]).sum()
        gradients = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
        flat = layout.collect(dict(zip(parameters, gradients, strict=True)))
        for i, client in enumerate(clients):
            n, own = client.num_nodes, {name: view[i].clone().requires_grad_() for name, view in layout.views(theta).items()}
            expected = plain(client, own)
            torch.testing.assert_close(logits[i, :n], expected, rtol=tolerance, atol=tolerance)
            total = (expected.log_softmax(-1) * factors[i, :n] * mask[i, :n, None]).sum()
            wanted = torch.autograd.grad(total, list(own.values()), allow_unused=True)
            found = [layout.view(flat, name)[i] for name in own]
            wanted = [torch.zeros_like(value) if g is None else g for value, g in zip(own.values(), wanted, strict=True)]
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def features_of(client):
    return torch.from_numpy(client.features.toarray() if sp.issparse(client.features) else client.features).double()


def dense_propagation(client):
    """P = D^-1/2 A D^-1/2 as a dense matrix, written from the definition."""
    matrix = torch.from_numpy(adjacency(client).toarray())
    degree = matrix.sum(1)
    scale = torch.where(degree > 0, degree.clamp(min=1) ** -0.5, 0.0)
    return scale[:, None] * matrix * scale
