"""Attention over edges equals a dense masked softmax, forward and backward, on square and bipartite graphs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fgl_bench.engine.attention import additive_scores, attend, per_edge, softmax
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.kernels import dynamic_scores as module
from fgl_bench.engine.kernels.dynamic_scores import dynamic_scores
from fgl_bench.engine.sparse import BlockSparse

SLOPE = 0.2


def bipartite(targets=7, sources=9, density=0.4, blocks=3, seed=0):
    """Blocks of different sizes, with targets and sources that have no edge."""
    rng = np.random.default_rng(seed)
    masks = [rng.random((targets - i, sources - 2 * i)) < density for i in range(blocks)]
    masks[0][2], masks[1][:, 1] = False, False
    graph = BlockSparse.stack([sp.csr_matrix(mask.astype(float)) for mask in masks], targets, sources, torch.float64)
    full = np.zeros((blocks, targets, sources), bool)
    for out, mask in zip(full, masks, strict=True):
        out[: mask.shape[0], : mask.shape[1]] = mask
    return graph, torch.from_numpy(full)


def draws(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def dense_scores(version, mask, source, target, weight):
    """``[k, r, c, H]``."""
    heads = weight.shape[1]
    if version == "additive":
        return torch.nn.functional.leaky_relu(source[:, None] + target[:, :, None], SLOPE)
    total = torch.nn.functional.leaky_relu(source[:, None] + target[:, :, None], SLOPE)
    return (total.unflatten(3, (heads, -1)) * weight[:, None, None]).sum(-1)


def dense_attention(mask, values, scores, keep=None):
    heads = scores.shape[3]
    alpha = torch.softmax(scores.masked_fill(~mask[..., None], -torch.inf), 2).nan_to_num(0.0)
    alpha = alpha if keep is None else alpha * keep
    return torch.einsum("krch,kchd->krhd", alpha, values.unflatten(2, (heads, -1))).flatten(2)


def edge_scores(version, graph, source, target, weight):
    return additive_scores(graph, source, target, SLOPE) if version == "additive" else dynamic_scores(graph, source, target, weight, SLOPE)


@pytest.mark.parametrize("block", [1, 1 << 18])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("version", ["additive", "dynamic", "compiled dynamic"])
def test_is_the_dense_softmax(version, heads, block, monkeypatch):
    if version.startswith("compiled"):
        pytest.importorskip("numba")
        version = "dynamic"
    else:
        monkeypatch.setattr(module, "compiles", lambda x: False)
    monkeypatch.setitem(module.BLOCK, "cpu", block)
    monkeypatch.setitem(module.KEPT, "cpu", block)
    graph, mask = bipartite()
    k, r, c = graph.shape
    width = heads if version == "additive" else heads * 4
    inputs = draws((k, c, heads * 4), (k, c, width), (k, r, width), (k, heads, 4))
    values, source, target, weight = inputs
    found = attend(graph, values, edge_scores(version, graph, source, target, weight))
    wanted = dense_attention(mask, values, dense_scores(version, mask, source, target, weight))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert not found[~mask.any(2)].any(), "a target without edges gets zeros"
    (outer,) = draws(found.shape)
    used = inputs if version == "dynamic" else inputs[:3]
    for ours, theirs in zip(
        torch.autograd.grad((found * outer).sum(), used), torch.autograd.grad((wanted * outer).sum(), used), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_scores_are_those_in_operations_and_as_exactly_zero(monkeypatch, threads):
    """The second target's edges have one slope in every column, the first one's in some: their common part has no gradient."""
    pytest.importorskip("numba")
    graph, _ = bipartite()
    k, r, c = graph.shape
    inputs = [x.detach().float().requires_grad_() for x in draws((k, c, 6), (k, r, 6), (k, 2, 3))]
    with torch.no_grad():
        inputs[1][0, 1] += 20
    outer = torch.randn(2, graph.nnz, generator=torch.Generator().manual_seed(1)) * torch.arange(graph.nnz).remainder(5).ne(0)

    def run():
        found = dynamic_scores(graph, *inputs, SLOPE)
        return found.detach(), *torch.autograd.grad((found * outer).sum(), inputs)

    here = run()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert all(torch.equal(one, other) for one, other in zip(run(), here, strict=True))
    monkeypatch.setattr(module, "compiles", lambda x: False)
    wanted = run()
    for one, other in zip(here, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert torch.equal(here[2] == 0, wanted[2] == 0) and (here[2] == 0).any() and here[2].any()


def test_factors_after_the_softmax():
    graph, mask = bipartite()
    k, r, c = graph.shape
    values, source, target = draws((k, c, 6), (k, c, 2), (k, r, 2))
    keep = (torch.rand(2, graph.nnz, generator=torch.Generator().manual_seed(1)) < 0.5).double() * 2
    dense = torch.zeros(k, r, c, 2, dtype=torch.float64)
    dense[mask] = keep.mT
    found = attend(graph, values, additive_scores(graph, source, target, SLOPE), keep)
    wanted = dense_attention(mask, values, dense_scores("additive", mask, source, target, torch.ones(k, 2, 1)), dense)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(y.square().sum(), (values, source, target)) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_weights_sum_to_one_whatever_the_size_of_the_scores(shift):
    graph, mask = bipartite()
    edges, targets = graph.edges, graph.shape[0] * graph.shape[1]
    scores = torch.randn(2, graph.nnz, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 100 + shift
    alpha = softmax(scores, edges, targets)
    total = torch.zeros(2, targets, dtype=torch.float64).index_add_(1, edges.target, alpha)
    torch.testing.assert_close(total, mask.flatten(0, 1).any(1).double().expand(2, -1))
    assert (alpha >= 0).all()


def test_no_edges_at_all():
    graph = BlockSparse.stack([sp.csr_matrix((3, 4))] * 2, 3, 4, torch.float64)
    values, source, target, weight = draws((2, 4, 5), (2, 4, 5), (2, 3, 5), (2, 1, 5))
    out = attend(graph, values, dynamic_scores(graph, source, target, weight, SLOPE))
    assert out.shape == (2, 3, 5) and not out.any()
    assert not any(gradient.any() for gradient in torch.autograd.grad(out.sum(), (values, source, target, weight)))


def test_the_edges_of_a_selection_draw_what_they_drew():
    graph, _ = bipartite()
    keys = torch.tensor([4, 9, 2])
    whole, bounds = per_edge(graph, 2, Dropout(0.5, keys)), graph.edges.bounds
    assert set(whole.unique().tolist()) == {0.0, 2.0}
    part = graph.select([2, 0])
    found = per_edge(part, 2, Dropout(0.5, keys[[2, 0]]))
    assert torch.equal(found, torch.cat([whole[:, bounds[2] : bounds[3]], whole[:, bounds[0] : bounds[1]]], 1))
    assert (per_edge(graph, 2, no_dropout) == 1).all()


def test_edges_of_a_graph():
    """Targets ascend, and sources in the other order; every entry is there once."""
    graph, mask = bipartite()
    edges, (_, r, c) = graph.edges, graph.shape
    pairs = {(int(v), int(u)) for u, v in zip(edges.source, edges.target, strict=True)}
    assert pairs == {(i * r + v, i * c + u) for i, v, u in mask.nonzero().tolist()}
    assert (edges.target.diff() >= 0).all() and (edges.source[edges.order].diff() >= 0).all()
    assert edges.into.diff().tolist() == mask.sum(2).flatten().tolist()
    assert edges.out_of.diff().tolist() == mask.sum(1).flatten().tolist()
    for by_source, starts in ((False, edges.into), (True, edges.out_of)):
        pieces = edges.pieces(by_source, 3)
        assert [p for part, _ in pieces for p in range(part.start, part.stop)] == list(range(graph.nnz))
        assert all(starts[nodes.start] == part.start and starts[nodes.stop] == part.stop for part, nodes in pieces)


@pytest.mark.parametrize(("targets", "sources"), [(7, 9), (9, 7), (4, 4)])
def test_dots_of_edges(targets, sources):
    graph, _ = bipartite(targets, sources)
    edges, (k, r, c) = graph.edges, graph.shape
    a, rows = draws((2, k * r, 5), (2, k * c, 5))
    wanted = (a[:, edges.target] * rows[:, edges.source]).sum(-1)
    torch.testing.assert_close(edges.dots(a, rows), wanted)
    torch.testing.assert_close(edges.dots(a[:1], rows[:1].mT.contiguous().mT), wanted[:1])
