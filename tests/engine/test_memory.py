"""How many replicas are trained at once."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.memory import activation_bytes, available_bytes, model_bytes, plan
from tests.engine.graphs import federation, make_client

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LAYOUT = ParameterLayout({"w": (5, 4), "v": (4, 3)}, inputs=("w",))
WIDTHS, STACKS, ITEM, CLIENTS, NODES = [4, 3], 8, 4, 3, 9
FEDERATIONS = [federation([make_client(4), make_client(NODES), make_client(2)], seed=s) for s in range(5)]
ROWS, ACTIVE = model_bytes(LAYOUT, STACKS, ITEM), activation_bytes(NODES, WIDTHS, ITEM)
SEED = CLIENTS * (ROWS + ACTIVE)


def planned(budget, device=GPU, seeds=None):
    return plan(FEDERATIONS, LAYOUT, WIDTHS, STACKS, ITEM, device, budget, seeds)


def together(chunking):
    """Replicas that one program holds."""
    return chunking.seeds * CLIENTS if chunking.replicas is None else chunking.replicas


def test_sizes_worked_out_by_hand():
    assert ROWS == 8 * 32 * 4  # eight stacks of 32 scalars of four bytes
    assert ACTIVE == 9 * 7 * 28  # nine nodes, seven units, 28 bytes each


def test_everything_at_once_where_it_fits():
    assert planned(5 * SEED) == planned(10**12) == plan(FEDERATIONS, LAYOUT, WIDTHS, STACKS, ITEM, GPU, 10**12, None)
    assert (planned(5 * SEED).seeds, planned(5 * SEED).replicas) == (5, None)


def test_seeds_are_parted_first_then_clients():
    assert (planned(5 * SEED - 1).seeds, planned(5 * SEED - 1).replicas) == (4, None)
    assert (planned(SEED).seeds, planned(SEED).replicas) == (1, None)
    assert (planned(SEED - 1).seeds, planned(SEED - 1).replicas) == (1, CLIENTS - 1)
    assert (planned(CLIENTS * ROWS + ACTIVE).seeds, planned(CLIENTS * ROWS + ACTIVE).replicas) == (1, 1)
    assert (planned(1).seeds, planned(1).replicas) == (1, 1), "a single client is the smallest program there is"


def test_a_cpu_takes_one_seed_after_another_unless_told_otherwise():
    assert (planned(10**12, CPU).seeds, planned(10**12, CPU).replicas) == (1, None)
    assert planned(10**12, CPU, seeds=3).seeds == 3
    assert planned(10**12, GPU, seeds=2).seeds == 2
    assert planned(10**12, GPU, seeds=50).seeds == 5, "never more seeds than there are"


@given(st.integers(1, 6 * SEED), st.integers(0, 6 * SEED), st.sampled_from([CPU, GPU]), st.sampled_from([None, 1, 3]))
def test_more_memory_never_gives_smaller_programs(budget, more, device, seeds):
    small, large = planned(budget, device, seeds), planned(budget + more, device, seeds)
    assert large.seeds >= small.seeds
    assert together(large) >= together(small) >= 1


@given(st.integers(1, 6 * SEED), st.sampled_from([CPU, GPU]), st.sampled_from([None, 2]))
def test_a_plan_fits_the_budget_or_is_the_smallest(budget, device, seeds):
    chunking = planned(budget, device, seeds)
    assert chunking.seeds * CLIENTS * ROWS + together(chunking) * ACTIVE <= budget or together(chunking) == 1


def test_the_default_budget_is_a_part_of_the_machine():
    assert 0 < available_bytes(CPU) < 2**50
