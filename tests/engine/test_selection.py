"""The least numbers of a row are those that come first in a stable order."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine import selection
from fgl_bench.engine.compiled import installed
from fgl_bench.engine.selection import largest, smallest
from tests.pretend_cuda import CUDA, Ledger, pretended

NUMBERS = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0, 1e30])
WAYS = ["operations", "another device", pytest.param("compiled", marks=pytest.mark.skipif(not installed(), reason="needs numba"))]


@st.composite
def rows(draw):
    """Rows, where a number may be taken, and how many are."""
    width, height = draw(st.integers(2, 9)), draw(st.integers(1, 4))
    x = draw(st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=height, max_size=height))
    count = draw(st.integers(0, width))
    closed = st.sets(st.integers(0, width - 1), max_size=width - count)
    among = [[float(i not in row) for i in range(width)] for row in draw(st.lists(closed, min_size=height, max_size=height))]
    return x, among, count


@contextmanager
def computed(way):
    """The device on which numbers are selected in this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "LARGE", 0 if way == "compiled" else torch.inf)
        if way == "another device":
            with pretended(Ledger()):
                yield CUDA
        else:
            yield torch.device("cpu")


def first(x, count, among, descending):
    """By Python's sort, which is stable."""
    found = torch.zeros_like(x)
    for row, allowed, into in zip(x.flatten(0, -2), among.flatten(0, -2), found.flatten(0, -2), strict=True):
        order = sorted(allowed.nonzero().flatten().tolist(), key=lambda i: -row[i].item() if descending else row[i].item())
        into[order[:count]] = 1
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(case=rows())
def test_of_equal_numbers_the_first_are_taken(way, dtype, case):
    *given, count = case
    x, among = (torch.tensor(part, dtype=dtype)[:, None] for part in given)
    with computed(way) as device:
        there = [torch.tensor(part, dtype=dtype, device=device)[:, None] for part in given]
        for take, descending in ((smallest, False), (largest, True)):
            assert torch.equal(take(*there[:1], count).cpu(), first(x, count, torch.ones_like(x), descending))
            assert torch.equal(take(there[0], count, there[1]).cpu(), first(x, count, among, descending))
            for flags in ({"among": there[1]}, {"taken": 1 - there[1]}):
                assert torch.equal(take(there[0], count, **flags, magnitude=True).cpu(), first(x.abs(), count, among, descending))
        assert torch.equal(there[0].cpu(), x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 500, 999])
def test_it_takes_what_topk_takes_where_no_two_are_equal(way, dtype, count):
    x = torch.rand(3, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).sub_(0.5).to(dtype)
    with computed(way) as device:
        found = smallest(x.clone().to(device), count).cpu(), largest(x.clone().to(device), count).cpu()
    for taken, greatest in zip(found, (False, True), strict=True):
        assert torch.equal(taken, torch.zeros_like(x).scatter(-1, x.topk(count, largest=greatest).indices, 1))


@pytest.mark.skipif(not installed(), reason="needs numba")
def test_what_is_not_a_number_is_taken_last():
    x = torch.tensor([[torch.nan, 1.0, torch.inf, -torch.nan, -torch.inf]])
    with computed("compiled"):
        assert smallest(x, 3).tolist() == largest(x, 3).tolist() == [[0, 1, 1, 0, 1]]
        assert smallest(x, 4).tolist() == [[1, 1, 1, 0, 1]]
