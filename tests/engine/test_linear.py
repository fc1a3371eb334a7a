"""Stacked dense products, narrow and wide."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.linear import NARROW, linear, prelu, ragged


@pytest.mark.parametrize("width", [1, 7, NARROW, NARROW + 1])
def test_equals_a_product_for_each_replica(width):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3, 4, width, generator=generator, dtype=torch.float64, requires_grad=True)
    expected = torch.stack([a @ b for a, b in zip(x, weight, strict=True)])
    result = linear(x, weight)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    scale = torch.rand(expected.shape, generator=generator, dtype=torch.float64)
    for got, wanted in zip(*(torch.autograd.grad((y * scale).sum(), (x, weight)) for y in (result, expected)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_prelu_is_pytorchs_everywhere():
    x = torch.tensor([-2.0, -0.5, 0.0, 0.5, torch.inf, -torch.inf], dtype=torch.float64).expand(2, 3, 6).clone().requires_grad_()
    slope = torch.tensor([[0.25], [-0.5]], dtype=torch.float64, requires_grad=True)
    found = prelu(x, slope)
    wanted = torch.stack([torch.nn.functional.prelu(part, each) for part, each in zip(x, slope, strict=True)])
    assert torch.equal(found, wanted)
    finite = slice(0, 4)
    ours, theirs = (torch.autograd.grad(y[..., finite].sum(), (x, slope)) for y in (prelu(x[..., finite], slope), wanted))
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], -(2.5 * 3) * torch.ones_like(slope))


@pytest.mark.parametrize("counts", [[5, 0, 2], [5, 5, 4]])
def test_a_product_of_ragged_blocks_is_that_of_padded_ones(counts):
    generator = torch.Generator().manual_seed(0)
    held = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64)
    for block, count in zip(held, counts, strict=True):
        block[count:] = 0
    weight = torch.rand(3, 4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    scale, pair = torch.rand(3, 5, 2, generator=generator, dtype=torch.float64), (ragged(held, weight, counts), torch.bmm(held, weight))
    torch.testing.assert_close(*pair, rtol=1e-12, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad((y * scale).sum(), weight)[0] for y in pair), rtol=1e-12, atol=0)
