"""Block-diagonal sparse products equal dense ones, forward and backward, wherever the operand lies."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine import sparse
from fgl_bench.engine.sparse import BlockSparse


def stacked(blocks, rows, columns):
    dense = torch.zeros(len(blocks), rows, columns, dtype=torch.float64)
    for i, block in enumerate(blocks):
        dense[i, : block.shape[0], : block.shape[1]] = torch.from_numpy(block.toarray())
    return dense


def assert_acts_like(matrix, dense, x):
    """Product and gradient, for an operand ``x`` that may be any view."""
    assert matrix.shape == tuple(dense.shape)
    leaf, plain = x.detach().requires_grad_(), x.detach().contiguous().requires_grad_()
    result, expected = matrix @ leaf, torch.bmm(dense, plain)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    # An uneven weighting of the outputs, so that a misplaced gradient shows.
    weights = torch.arange(expected.numel(), dtype=torch.float64).view_as(expected).sin()
    (gradient,), (wanted,) = torch.autograd.grad((result * weights).sum(), leaf), torch.autograd.grad((expected * weights).sum(), plain)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)
    # Gradients of sums reach the product as expanded tensors without memory of their own.
    (gradient,), (wanted,) = torch.autograd.grad((matrix @ leaf).sum(), leaf), torch.autograd.grad(torch.bmm(dense, plain).sum(), plain)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)


@st.composite
def problems(draw):
    """Blocks (some empty, some smaller than the padding) and the padded size."""
    rows, columns, k = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    blocks = []
    for _ in range(k):
        shape = draw(st.integers(1, rows)), draw(st.integers(1, columns))
        blocks.append(sp.random(*shape, density=draw(st.sampled_from([0.0, 0.3, 1.0])), format="csr", random_state=rng))
    return blocks, rows, columns


@given(problems(), st.integers(1, 5))
def test_products_equal_dense_ones(problem, width):
    blocks, rows, columns = problem
    matrix, dense = BlockSparse.stack(blocks, rows, columns, torch.float64), stacked(*problem)
    x = torch.rand(len(blocks), columns, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_acts_like(matrix, dense, x)
    assert matrix.nnz == sum(block.nnz for block in blocks)


@given(problems(), st.integers(1, 4), st.integers(0, 9), st.integers(0, 9))
def test_an_operand_inside_flat_parameter_rows(problem, width, before, after):
    """Aligned views are used in place, others are copied; ``before`` and ``after`` scalars lie around the weight."""
    blocks, rows, columns = problem
    matrix, dense = BlockSparse.stack(blocks, rows, columns, torch.float64), stacked(*problem)
    for lead, tail in [(before, after), (before * width, after * width)]:
        theta = torch.rand(len(blocks), lead + columns * width + tail, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        view = theta[:, lead : lead + columns * width].unflatten(1, (columns, width))
        assert_acts_like(matrix, dense, view)


@given(problems(), st.integers(1, 4), st.integers(1, 3))
def test_an_operand_in_the_middle_of_a_larger_stack(problem, width, first):
    """A chunk's models are a slice of everybody's."""
    blocks, rows, columns = problem
    matrix, dense = BlockSparse.stack(blocks, rows, columns, torch.float64), stacked(*problem)
    theta = torch.rand(len(blocks) + 4, columns * width + 2 * width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    view = theta[first : first + len(blocks), width : width + columns * width].unflatten(1, (columns, width))
    assert_acts_like(matrix, dense, view)


@given(problems())
def test_transposed_and_permuted_operands(problem):
    blocks, rows, columns = problem
    matrix, dense = BlockSparse.stack(blocks, rows, columns, torch.float64), stacked(*problem)
    generator = torch.Generator().manual_seed(0)
    assert_acts_like(matrix.T, dense.mT, torch.rand(len(blocks), rows, 3, generator=generator, dtype=torch.float64))
    assert_acts_like(matrix, dense, torch.rand(len(blocks), 3, columns, generator=generator, dtype=torch.float64).mT)
    assert_acts_like(matrix, dense, torch.rand(1, columns, 3, generator=generator, dtype=torch.float64).expand(len(blocks), -1, -1))


@given(problems(), st.data())
def test_select_takes_blocks_in_the_order_asked_for(problem, data):
    blocks, rows, columns = problem
    chosen = data.draw(st.lists(st.integers(0, len(blocks) - 1), min_size=1, max_size=5))
    part = BlockSparse.stack(blocks, rows, columns, torch.float64).select(chosen)
    x = torch.rand(len(chosen), columns, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_acts_like(part, stacked(blocks, rows, columns)[chosen], x)
    assert_acts_like(part.select([0]), stacked(blocks, rows, columns)[chosen[:1]], x[:1])


def test_a_matrix_without_any_entry_gives_zeros():
    matrix = BlockSparse.stack([sp.csr_matrix((2, 3))], 2, 3, torch.float64)
    x = torch.ones(1, 3, 4, dtype=torch.float64, requires_grad=True)
    y = matrix @ x
    assert y.shape == (1, 2, 4) and not y.any()
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert not gradient.any()


def test_no_graph_is_kept_where_no_gradient_is_asked_for():
    matrix = BlockSparse.stack([sp.eye(3, format="csr")], 3, 3, torch.float64)
    x = torch.ones(1, 3, 2, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        assert not (matrix @ x).requires_grad
    assert not (matrix @ x.detach()).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_take_the_dtype_asked_for(dtype):
    matrix = BlockSparse.stack([sp.eye(3, format="csr", dtype=np.float32)], 3, 3, dtype)
    x = torch.rand(1, 3, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert torch.equal(matrix @ x, x)


@pytest.mark.parametrize("width", [31, 32, 33, 100])
def test_some_columns_at_a_time_give_the_same_bits(width, monkeypatch):
    """Where the rows of a wide operand do not fit into the cache, products and gradients are summed in several passes over the entries."""
    draw = np.random.default_rng(0)
    blocks = [sp.random(rows, 30, 0.9, "csr", random_state=draw) for rows in (25, 30)]
    matrix = BlockSparse.stack(blocks, 30, 30, torch.float32, "cpu")
    flat = torch.randn(2, 7 * width + 30 * width, generator=torch.Generator().manual_seed(0))
    x, passes, whole = flat[:, 7 * width :].view(2, 30, width), list[int](), sparse.Bags._sums

    def summed(own, source, *rest):
        passes.append(source.shape[1])
        return whole(own, source, *rest)

    def both():
        leaf = x.detach().requires_grad_()
        result = matrix @ leaf
        return result.detach(), *torch.autograd.grad((result * torch.arange(result.numel()).view_as(result).sin()).sum(), leaf)

    monkeypatch.setattr(sparse.Bags, "_sums", summed)
    expected, at_once = both(), [passes.pop() for _ in range(len(passes))]
    monkeypatch.setattr(sparse, "CACHE", 1)
    monkeypatch.setattr(sparse, "OFTEN", 1)
    assert all(torch.equal(*pair) for pair in zip(both(), expected, strict=True))
    assert at_once == [width] * 2
    assert max(passes) == min(width, 32) and sum(passes) == 2 * width
