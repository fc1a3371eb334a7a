"""The least numbers of a row are those that come first in a stable order."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.algorithms.dis_pfl import drop_, grow_, largest
from tests.pretend_cuda import CUDA, Ledger, pretended

NUMBERS = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0, 1e30])
WAYS = ["host", "another device"]


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
    """The device on which numbers are selected."""
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


@pytest.mark.parametrize(("way", "dtype"), list(zip(WAYS, (torch.float32, torch.float64), strict=True)))
@settings(max_examples=10)
@given(case=rows())
def test_of_equal_numbers_the_first_are_taken(way, dtype, case):
    *given, count = case
    x, among = (torch.tensor(part, dtype=dtype)[:, None] for part in given)
    with computed(way) as device:
        there, free = (torch.tensor(part, dtype=dtype, device=device)[:, None] for part in given)
        assert torch.equal(largest(there, count).cpu(), first(x, count, torch.ones_like(x), True))
        assert torch.equal(drop_(free.clone(), there, count).cpu(), among - first(x.abs(), count, among, False))
        assert torch.equal(grow_(1 - free, there, count).cpu(), 1 - among + first(x.abs(), count, among, True))
        assert torch.equal(there.cpu(), x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 500, 999])
def test_it_takes_what_topk_takes_where_no_two_are_equal(way, dtype, count):
    x = torch.rand(3, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).sub_(0.5).to(dtype)
    with computed(way) as device:
        there = x.clone().to(device)
        found = largest(there, count).cpu(), 1 - drop_(torch.ones_like(there), there, count).cpu()
    for taken, numbers, greatest in zip(found, (x, x.abs()), (True, False), strict=True):
        assert torch.equal(taken, torch.zeros_like(x).scatter(-1, numbers.topk(count, largest=greatest).indices, 1))


def test_a_part_of_a_mask_changes_in_place():
    mask, x = torch.ones(2, 3, 8), torch.arange(30.0).view(2, 3, 5)
    assert drop_(mask[..., 2:7], x, 2).data_ptr() == mask[..., 2:7].data_ptr()
    assert mask.tolist() == [[[1, 1, 0, 0, 1, 1, 1, 1]] * 3] * 2
    grow_(mask[..., 2:7], x, 1)
    assert mask.tolist() == [[[1, 1, 0, 1, 1, 1, 1, 1]] * 3] * 2
