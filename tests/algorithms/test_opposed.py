"""Attention of opposite signs over pairs, against the same with n x n matrices; tiles change nothing."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fgl_bench.algorithms import adafgl as opposed
from fgl_bench.algorithms.adafgl import attend, tiles

SIZES = (9, 6, 1, 0)


def inputs(beta: float, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    valid = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    rows = torch.randn(len(SIZES), max(SIZES), 3, generator=draw, dtype=torch.float64) * valid[..., None]
    similar = (torch.rand(len(SIZES), max(SIZES), max(SIZES), generator=draw) < 0.5) & valid[:, :, None] & valid[:, None]
    similar &= similar.mT.clone()
    values = torch.randn(len(SIZES), max(SIZES), 2, generator=draw, dtype=torch.float64) * valid[..., None]
    return rows, values, similar if beta else None, valid.sum(1)


def dense(rows, values, similar, beta, itself):
    """One client, from the formulas."""
    raw = (1 - beta) * functional.normalize(rows, dim=1) @ functional.normalize(rows, dim=1).T
    raw = raw if itself else raw * (1 - torch.eye(len(raw), dtype=raw.dtype))
    raw = raw + beta * similar.double() if beta else raw
    mean, most = raw.mean(), raw.max()
    above = (raw - mean) / (most - mean) if most - mean > 1e-6 else 0 * raw
    below = -raw / mean if mean.abs() > 1e-6 else 0 * raw
    r = torch.where(raw > mean, above, below) + torch.eye(len(raw), dtype=raw.dtype)
    return r.clamp(min=0) @ values, r.clamp(max=0) @ values


@pytest.mark.parametrize("tile", [1, 20, 100, 10_000])
@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_answers_and_gradients_equal_those_of_the_whole_matrices(beta, itself, tile, monkeypatch):
    monkeypatch.setitem(opposed.TILE, "cpu", tile)
    rows, values, similar, count = inputs(beta)
    if not itself and beta:
        similar &= ~torch.eye(max(SIZES), dtype=torch.bool)  # as AdaFGL's B
    rows.requires_grad_(), values.requires_grad_()
    found = attend(functional.normalize(rows, dim=-1), values, similar, beta, count, itself)
    weights = [torch.randn(each.shape, generator=torch.Generator().manual_seed(5 + i), dtype=each.dtype) for i, each in enumerate(found)]
    weights = [w * (torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None])[..., None] for w in weights]
    gradients = torch.autograd.grad(sum((f * w).sum() for f, w in zip(found, weights, strict=True)), (rows, values))
    for i, n in enumerate(SIZES[:-1]):
        mine, others = rows[i, :n].detach().requires_grad_(), values[i, :n].detach().requires_grad_()
        wanted = dense(mine, others, similar[i, :n, :n] if beta else None, beta, itself)
        for each, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(each[i, :n], other, rtol=1e-9, atol=1e-11)
        loss = sum((f * w[i, :n]).sum() for f, w in zip(wanted, weights, strict=True))
        for each, other in zip(gradients, torch.autograd.grad(loss, (mine, others)), strict=True):
            torch.testing.assert_close(each[i, :n], other, rtol=1e-7, atol=1e-9)
            assert n == 1 or other.abs().max() > 0


def test_degenerate_pairs_are_finite():
    """All alike: mean and maximum coincide; a single node; no node at all."""
    valid = torch.tensor([[True] * 4, [True] + [False] * 3, [False] * 4])
    rows = torch.ones(3, 4, 2, dtype=torch.float64)
    rows[1] = 0  # a node without a direction
    unit = (functional.normalize(rows, dim=-1) * valid[..., None]).requires_grad_()
    values = torch.eye(4, dtype=torch.float64).expand(3, -1, -1) * valid[..., None]
    above, below = attend(unit, values, None, 0.0, valid.sum(1))
    found = above + below
    assert torch.isfinite(found).all() and torch.isfinite(torch.autograd.grad(above.sum() - below.sum(), unit)[0]).all()
    torch.testing.assert_close(found[0], torch.eye(4, dtype=torch.float64) - 1)
    assert (found[2][valid[2]] == 0).all()


@pytest.mark.parametrize(("clients", "nodes", "most"), [(3, 5, 1), (3, 5, 12), (3, 5, 50), (3, 5, 10_000), (2, 0, 4), (1, 1, 1)])
def test_tiles_cover_every_row_once(clients, nodes, most):
    seen = torch.zeros(clients, nodes, dtype=torch.int64)
    for which, rows in tiles(clients, nodes, most):
        part = seen[which, rows]
        part += 1
        assert part.numel() * nodes <= max(most, nodes)
    assert (seen == 1).all()
