"""Which loops are compiled, and how their work is divided among threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fgl_bench.engine.kernels import compiled


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 6))
@example([1, 0], 1)
def test_shares_are_successive_ranges_as_many_as_threads_at_most(sizes, threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        found = compiled.shares(sizes)
    assert [number for first, last in found for number in range(first, last)] == list(range(len(sizes)))
    assert all(first < last for first, last in found)
    assert len(found) <= threads
    most = max((sum(sizes[first:last]) for first, last in found), default=0)
    assert most <= sum(sizes) / threads + max(sizes, default=0) + 1e-9 or sum(sizes) == 0


def test_every_range_is_worked_on_and_an_error_is_told():
    done = []
    compiled.parallel_for([(0, 2), (2, 3)], lambda first, last: done.append((first, last)))
    assert sorted(done) == [(0, 2), (2, 3)]
    with pytest.raises(ZeroDivisionError):
        compiled.parallel_for([(0, 1), (1, 0)], lambda first, last: first / last)


def test_operations_are_used_without_numba_in_other_types_and_on_other_devices(monkeypatch):
    pytest.importorskip("numba")
    assert compiled.compiles(torch.zeros(1)) and compiled.compiles(torch.zeros(1, dtype=torch.float64))
    assert not compiled.compiles(torch.zeros(1, dtype=torch.bfloat16))
    assert not compiled.compiles(torch.zeros(1, device="meta"))
    monkeypatch.setattr(compiled, "installed", lambda: False)
    assert not compiled.compiles(torch.zeros(1))
