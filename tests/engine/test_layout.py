"""Where parameters lie in a flat row, and how gradients come to lie there too."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.sparse import BlockSparse

matrices = st.tuples(st.integers(1, 5), st.integers(1, 5))


@st.composite
def layouts(draw):
    inputs = {f"in{i}": shape for i, shape in enumerate(draw(st.lists(matrices, max_size=3)))}
    others = {
        f"w{i}": shape for i, shape in enumerate(draw(st.lists(st.one_of(matrices, st.tuples(st.integers(1, 5))), min_size=1, max_size=4)))
    }
    return ParameterLayout({**others, **inputs}, tuple(inputs))


@given(layouts(), st.integers(1, 3))
def test_parameters_cover_distinct_scalars_and_only_padding_is_left(layout, k):
    theta = torch.zeros(k, layout.size, dtype=torch.float64)
    for number, (name, view) in enumerate(layout.views(theta).items(), 1):
        assert view.shape == (k, *layout.shapes[name])
        assert not view.any(), "two parameters share a scalar"
        view.fill_(number)
    assert int((theta != 0).sum()) == k * layout.count
    assert layout.count == sum(math.prod(shape) for shape in layout.shapes.values()) <= layout.size


@given(layouts())
def test_input_weights_are_whole_rows_of_their_width(layout):
    assert tuple(layout.shapes)[: len(layout.inputs)] == layout.inputs
    for name in layout.inputs:
        width = layout.shapes[name][-1]
        assert layout.offsets[name] % width == 0
        assert layout.size % width == 0


def test_a_layout_worked_out_by_hand():
    layout = ParameterLayout({"bias": (2,), "conv0": (5, 4), "conv1": (4, 2)}, inputs=("conv0",))
    # conv0 takes 0..19, bias 20..21, conv1 22..29; 30 is padded to the next multiple of 4.
    assert layout.offsets == {"conv0": 0, "bias": 20, "conv1": 22}
    assert (layout.count, layout.size) == (30, 32)


@given(layouts())
def test_pack_is_undone_by_views(layout):
    generator = torch.Generator().manual_seed(0)
    parameters = {name: torch.rand(shape, generator=generator, dtype=torch.float64) for name, shape in layout.shapes.items()}
    row = layout.pack(parameters)
    assert row.shape == (layout.size,)
    for name, view in layout.views(row[None]).items():
        assert torch.equal(view[0], parameters[name])
    assert row.sum().item() == pytest.approx(sum(p.sum().item() for p in parameters.values()))


@given(layouts(), st.integers(1, 3))
def test_collect_puts_every_gradient_in_its_place(layout, k):
    generator = torch.Generator().manual_seed(0)
    gradients = {name: torch.rand(k, *shape, generator=generator, dtype=torch.float64) for name, shape in layout.shapes.items()}
    flat = layout.collect(gradients)
    assert flat.shape == (k, layout.size)
    for name, view in layout.views(flat).items():
        assert torch.equal(view, gradients[name])
    assert flat.sum().item() == pytest.approx(sum(g.sum().item() for g in gradients.values()))


@pytest.mark.parametrize("k", [1, 3])
def test_collect_is_the_same_with_and_without_the_buffer_of_a_sparse_product(k):
    layout = ParameterLayout({"b": (3,), "a": (6, 4), "c": (4, 3)}, inputs=("a",))
    generator = torch.Generator().manual_seed(1)
    theta = torch.rand(k, layout.size, generator=generator, dtype=torch.float64)
    blocks = [sp.random(5, 6, 0.4, "csr", random_state=np.random.default_rng(i)) for i in range(k)]
    features = BlockSparse.stack(blocks, 5, 6, torch.float64)
    parameters = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
    hidden = (features @ parameters["a"]).tanh() @ parameters["c"] + parameters["b"][:, None]
    gradients = dict(zip(parameters, torch.autograd.grad(hidden.pow(2).sum(), list(parameters.values())), strict=True))
    copied = layout.collect({name: gradient.clone(memory_format=torch.contiguous_format) for name, gradient in gradients.items()})
    address = gradients["a"].data_ptr()
    inside = layout.collect(gradients)
    # A single replica's weight has no stride that would tell of the row around it.
    assert k == 1 or inside.data_ptr() == address, "the largest gradient was copied"
    assert torch.equal(inside, copied)
    unused = torch.ones(layout.size, dtype=torch.bool)
    for name, offset in layout.offsets.items():
        unused[offset : offset + math.prod(layout.shapes[name])] = False
    assert not inside[:, unused].any()


@pytest.mark.parametrize("shape", [(1433, 64), (64, 7), (3, 3)])
def test_glorot_is_uniform_within_its_bound(shape):
    weights, bound = glorot(shape, torch.Generator().manual_seed(0)), math.sqrt(6 / sum(shape))
    assert weights.abs().max() <= bound
    if weights.numel() > 100:
        assert weights.abs().max() > 0.95 * bound
        # A uniform variable on [-b, b] has variance b^2 / 3; five standard errors of mean and variance.
        count = weights.numel()
        assert abs(weights.mean()) < 5 * bound / math.sqrt(3 * count)
        assert weights.pow(2).mean().item() == pytest.approx(bound**2 / 3, rel=5 * math.sqrt(4 / 5 / count))


@given(layouts(), st.data())
def test_overwriting_copies_the_named_parameters_and_no_others(layout, data):
    names = data.draw(st.none() | st.sets(st.sampled_from(sorted(layout.shapes))))
    row, source = torch.zeros(layout.size), torch.ones(layout.size)
    assert layout.overwrite(row, source, names) is row
    for name, view in layout.views(row[None]).items():
        assert (view == (names is None or name in names)).all()
    assert source.all()
