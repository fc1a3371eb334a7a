"""The least numbers of a row are those that come first in a stable order."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine.selection import largest, smallest
from tests.pretend_cuda import CUDA, Ledger, pretended

NUMBERS = st.sampled_from([-1.0, 0.0, 0.5, 2.0, float("inf")])
ROWS = st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(NUMBERS, min_size=n, max_size=n), min_size=1))


def first(x, count, descending):
    order = x.argsort(dim=-1, descending=descending, stable=True)[..., :count]
    return torch.zeros_like(x).scatter(-1, order, 1)


@pytest.mark.parametrize("device", ["cpu", "another"])
@given(rows=ROWS, count=st.integers(0, 10))
def test_of_equal_numbers_the_first_are_taken(device, rows, count):
    x = torch.tensor(rows)[:, None]
    with pretended(Ledger()) if device == "another" else nullcontext():
        there = torch.tensor(rows, device=CUDA)[:, None] if device == "another" else x
        found = smallest(there, count).cpu(), largest(there.clone(), count).cpu()
    assert torch.equal(found[0], first(x, count, False)) and torch.equal(found[1], first(x, count, True))


@pytest.mark.parametrize("count", [1, 500, 999])
def test_it_takes_what_topk_takes_where_no_two_are_equal(count):
    x = torch.rand(3, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    taken = torch.zeros_like(x).scatter(-1, x.topk(count, largest=False).indices, 1)
    assert torch.equal(smallest(x, count), taken)
