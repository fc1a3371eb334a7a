"""How many replicas are trained at once, and what a plan makes of a need."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.propagation import Hops, identity
from fgl_bench.engine.shard import ALONE
from fgl_bench.errors import UserError
from fgl_bench.results.callbacks import Callbacks
from fgl_bench.runner.memory import WIDE, Need, available_bytes, out_of_memory, plan
from fgl_bench.runner.program import Program
from tests.engine.graphs import federation, make_client

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LAYOUT = ParameterLayout({"w": (5, 4), "v": (4, 3)}, inputs=("w",))
CLIENTS, WIDEST = 3, 6
FEDERATIONS = [federation([make_client(4), make_client(9), make_client(2)], seed=s) for s in range(5)]
NEED = Need(CLIENTS, held=30, step=100)
SEED = NEED.program(1)


def planned(budget, device=GPU, seeds=None):
    return plan(FEDERATIONS, LAYOUT, WIDEST, NEED, device, budget, seeds)


def together(chunking):
    """Replicas that one program holds."""
    return chunking.seeds * CLIENTS if chunking.replicas is None else chunking.replicas


def test_sizes_worked_out_by_hand():
    assert (NEED.program(1), NEED.program(2)) == (330, 660)
    assert [NEED.program(1, k) for k in (1, 2)] == [130, 230]
    assert NEED.program(2, 3) == 2 * 30 + 3 * 100


def test_everything_at_once_where_it_fits():
    assert planned(NEED.program(5)) == planned(10**12)
    assert (planned(NEED.program(5)).seeds, planned(NEED.program(5)).replicas) == (5, None)


def test_seeds_are_parted_first_then_clients():
    assert (planned(NEED.program(5) - 1).seeds, planned(NEED.program(5) - 1).replicas) == (4, None)
    chunks = [(planned(b).seeds, planned(b).replicas) for b in (330, 329, 230, 229, 130)]
    assert chunks == [(1, None), (1, 2), (1, 2), (1, 1), (1, 1)]
    assert (planned(1).seeds, planned(1).replicas) == (1, 1), "a single client is the smallest program there is"


def test_a_cpu_takes_one_seed_after_another_unless_told_otherwise():
    assert (planned(10**12, CPU).seeds, planned(10**12, CPU).replicas) == (1, None)
    assert planned(10**12, CPU, seeds=3).seeds == 3
    assert planned(10**12, GPU, seeds=2).seeds == 2
    assert planned(10**12, GPU, seeds=50).seeds == 5, "never more seeds than there are"


def test_a_cpu_takes_several_seeds_at_once_where_they_share_matrices():
    def seeds(budget, device=CPU, asked=None):
        return plan(FEDERATIONS, LAYOUT, WIDEST, NEED, device, budget, asked, replicas_at_once=3).seeds

    assert [seeds(NEED.program(count)) for count in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert (seeds(10**12, asked=2), seeds(10**12, GPU)) == (2, 5)


@given(st.integers(1, 6 * SEED), st.integers(0, 6 * SEED), st.sampled_from([CPU, GPU]), st.sampled_from([None, 1, 3]))
def test_more_memory_never_gives_smaller_programs(budget, more, device, seeds):
    small, large = planned(budget, device, seeds), planned(budget + more, device, seeds)
    assert large.seeds >= small.seeds
    assert together(large) >= together(small) >= 1


@given(st.integers(1, 6 * SEED), st.sampled_from([CPU, GPU]), st.sampled_from([None, 2]))
def test_a_plan_fits_the_budget_or_is_the_smallest(budget, device, seeds):
    chunking = planned(budget, device, seeds)
    assert NEED.program(chunking.seeds, chunking.replicas) <= budget or together(chunking) == 1


@pytest.mark.parametrize("budget", [1, NEED.program(1), 10**12])
def test_threads_follow_sizes_and_not_what_was_measured(budget, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    columns = WIDE // (CLIENTS * 9)  # of 9 nodes, the largest client's
    threads = [plan(FEDERATIONS, LAYOUT, widest, NEED, CPU, budget, None).threads for widest in (columns, columns + 1)]
    assert threads == [1, 2]


def test_the_default_budget_is_a_part_of_the_machine():
    assert 0 < available_bytes(CPU) < 2**50


def test_seeds_with_one_partition_share_what_is_made_beforehand():
    client = make_client(20)
    seeds = [replace(client, train=client.val, val=client.train), client]  # other masks, the same features and edges
    batch = Batch(seeds, torch.float32, CPU)
    assert batch.derived(Hops(identity(2))).values.shape[0] == 1


# ---- a chunk that was too large


class Failing(Program):
    """A program of 20 clients whose training fails with more than ``above`` at once."""

    def __init__(self, above, error, replicas=None, shard=ALONE):
        spec = SimpleNamespace(algorithm=None)
        super().__init__(spec, [SimpleNamespace(num_clients=20)], None, None, CPU, replicas, Callbacks(), shard)
        self.above, self.error, self.tried = above, error, []

    def train(self, send, replicas):
        self.tried.append(replicas)
        if (replicas or 20) > self.above:
            raise self.error
        return replicas


def send(report):
    pass


HOST = RuntimeError("[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")


@pytest.mark.parametrize("error", [MemoryError(), torch.cuda.OutOfMemoryError("CUDA out of memory"), HOST])
def test_a_chunk_that_was_too_large_is_halved_until_it_fits(error, capsys):
    program = Failing(3, error)
    assert program(send) == 2 and program.tried == [None, 10, 5, 2]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3 and told[-1] == "warning: memory ran out; beginning again with 2 clients at once"


def test_one_client_that_does_not_fit_and_other_failures_are_raised(capsys):
    program = Failing(0, MemoryError(), 2)
    with pytest.raises(MemoryError):
        program(send)
    assert program.tried == [2, 1]
    program = Failing(3, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"):
        program(send)
    assert program.tried == [None] and not out_of_memory(ValueError("can't allocate memory"))


def test_workers_that_share_clients_do_not_begin_again():
    program = Failing(3, MemoryError(), shard=SimpleNamespace(alone=False))
    with pytest.raises(UserError, match="memory_budget_gb"):
        program(send)
    assert program.tried == [None]
