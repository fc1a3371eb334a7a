"""DisenGCN: projection, routing and their gradients against a loop over nodes, edges and factors."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.kernels import routing
from fgl_bench.engine.kernels.routing import convolve, route, unit
from fgl_bench.models.disengcn import DisenGCN
from tests.engine.graphs import from_edges, make_client


def model(**changes):
    keys = {"factors": 3, "width": 2, "layers": 2, "iterations": 3, "temperature": 0.7, "dropout": 0.0}
    return DisenGCN(**{**keys, **changes})


def scaled(x):
    return x / x.norm() if x.norm() > 1e-12 else x


def naive_layer(x, edges, iterations, temperature):
    """``x [n, K, d]``, node by node."""
    n, factors, _ = x.shape
    z = [[scaled(x[v, k]) for k in range(factors)] for v in range(n)]
    c = [list(row) for row in z]
    for _ in range(iterations):
        new = []
        for v in range(n):
            sums = list(z[v])
            for u, target in edges.T.tolist():
                if target == v:
                    p = torch.softmax(torch.stack([z[u][k] @ c[v][k] for k in range(factors)]) / temperature, 0)
                    sums = [sums[k] + p[k] * z[u][k] for k in range(factors)]
            new.append([scaled(row) for row in sums])
        c = new
    return torch.stack([torch.stack(row) for row in c])


@pytest.fixture(params=[True, False], ids=["compiled", "in operations"])
def compiled(request, monkeypatch):
    if request.param:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(routing, "compiles", lambda x: False)


def naive(made, named, client):
    def leaky(x):
        return torch.where(x > 0, x, 0.01 * x)

    hidden = leaky(torch.from_numpy(client.features.toarray()) @ named["projection.weight"] + named["projection.bias"])
    for _ in range(made.layers):
        layer = naive_layer(hidden.unflatten(1, (made.factors, made.width)), client.edges, made.iterations, made.temperature)
        hidden = leaky(layer.flatten(1))
    return hidden, hidden @ named["classifier.weight"] + named["classifier.bias"]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("changes", [{}, {"factors": 1}, {"iterations": 1, "layers": 1}])
def test_equals_the_loop_forward_and_backward(changes):
    clients = [make_client(1), make_client(3, edges=0.0), make_client(5)]
    made, batch = model(**changes), Batch(clients, torch.float64, "cpu")
    layout = made.layout(5, 3)
    theta = torch.stack([layout.pack(made.init_parameters(layout, torch.Generator().manual_seed(i))) for i in range(3)])
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    output = made.forward(parameters, batch, made.first(parameters, batch), no_dropout)
    weights = torch.rand(output.logits.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = torch.autograd.grad((output.logits * weights * batch.valid[..., None]).sum(), list(parameters.values()))
    for i, client in enumerate(clients):
        n = client.num_nodes
        named = {name: view[i].detach().requires_grad_() for name, view in parameters.items()}
        hidden, logits = naive(made, named, client)
        torch.testing.assert_close(output.hidden[i, :n], hidden, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(output.logits[i, :n], logits, rtol=1e-9, atol=1e-11)
        wanted = torch.autograd.grad((logits * weights[i, :n]).sum(), list(named.values()))
        for gradient, other in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient[i], other, rtol=1e-8, atol=1e-10)


def test_the_gradient_of_routing_is_the_numerical_one():
    batch = Batch([make_client(6, seed=2), make_client(4, seed=3)], torch.float64, "cpu")
    x = torch.randn(2, 6, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: route(batch.operator(adjacency), unit(x), 3, 0.7), (x,))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("slope", [0.01, 1.0])
def test_the_gradient_of_a_layer_is_the_numerical_one(slope):
    batch = Batch([make_client(6, seed=2), make_client(4, seed=3)], torch.float64, "cpu")
    x = torch.randn(2, 6, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: convolve(batch.operator(adjacency), x, 3, 0.7, slope), (x,))


def test_a_compiled_layer_is_the_one_in_operations_on_any_number_of_threads(monkeypatch):
    pytest.importorskip("numba")
    batch = Batch([make_client(30, seed=2), make_client(1), make_client(12, edges=0.0), make_client(25, seed=4)], torch.float32, "cpu")
    draws = torch.Generator().manual_seed(0)
    x, weights = (torch.randn(4, 30, 3, 9, generator=draws) for _ in range(2))
    x[0, 3, 1] = 0  # no direction

    def run():
        one = x.clone().requires_grad_()
        out = convolve(batch.operator(adjacency), one, 4, 0.7, 0.01)
        return out.detach(), *torch.autograd.grad((out * weights).sum(), [one])

    here = run()
    for threads in (2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert all(torch.equal(one, other) for one, other in zip(run(), here, strict=True))
    monkeypatch.setattr(routing, "compiles", lambda x: False)
    for one, other in zip(run(), here, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("numbers", "group"), [(1, 2), (24, 3), (1 << 20, 1)])
def test_clients_and_factors_may_be_routed_some_at_a_time(monkeypatch, numbers, group):
    batch = Batch([make_client(6, seed=2), make_client(4, seed=3), make_client(6, seed=4)], torch.float64, "cpu")
    x = torch.randn(3, 6, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def run():
        out = route(batch.operator(adjacency), unit(x), 3, 0.7)
        return out.detach(), *torch.autograd.grad((out * weights).sum(), [x])

    monkeypatch.setattr(routing, "PART", {})
    monkeypatch.setattr(routing, "GROUP", {})
    together = run()
    monkeypatch.setattr(routing, "PART", {"cpu": numbers})
    monkeypatch.setattr(routing, "GROUP", {"cpu": group})
    for parted, whole in zip(run(), together, strict=True):
        torch.testing.assert_close(parted, whole, rtol=1e-13, atol=1e-14)


def test_routing_sends_an_edge_to_the_factor_in_which_its_ends_agree():
    """Nodes 0 and 1 agree in factor 0 and are opposite in factor 1: at a low temperature the edge counts in factor 0 only."""
    z = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]]], dtype=torch.float64)[None]
    graph = Batch([from_edges([(0, 1)], [0, 1])], torch.float64, "cpu").operator(adjacency)
    torch.testing.assert_close(route(graph, z, 4, 1e-3), z)
    # With equal shares, what is opposite would cancel out half.
    mixed = route(graph, z * torch.tensor([1.0, 0.0])[:, None], 4, 1.0)
    torch.testing.assert_close(mixed[0, :, 0], z[0, :, 0])
    assert (mixed[0, :, 1] == 0).all()


@pytest.mark.usefixtures("compiled")
def test_rows_of_zeros_have_no_direction_and_no_gradient():
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    unit(x).sum().backward()
    assert (x.grad == 0).all()
    graph = Batch([from_edges([(0, 1)], [0, 1])], torch.float64, "cpu").operator(adjacency)
    z = torch.zeros(1, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    for made in (route(graph, z, 2, 1.0), convolve(graph, z, 2, 1.0, 0.01)):
        z.grad = None
        made.sum().backward()
        assert (made == 0).all() and torch.isfinite(z.grad).all()


def test_dropout_draws_after_the_projection_and_after_every_layer():
    made, batch = model(dropout=0.5), Batch([make_client(9)], torch.float64, "cpu")
    layout = made.layout(5, 3)
    parameters = layout.views(layout.pack(made.init_parameters(layout, torch.Generator().manual_seed(0)))[None])
    dropout, calls = Dropout(0.5, torch.tensor([3])), []
    made.forward(parameters, batch, made.first(parameters, batch), lambda x: calls.append(x.shape) or dropout(x))
    assert calls == [(1, 9, 6)] * 3
