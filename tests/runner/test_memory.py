"""How many replicas are trained at once, and the estimate of memory that decides it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.data.graph import Federation
from fgl_bench.data.served import Served
from fgl_bench.engine.activations import Activations, activation_bytes
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.propagation import Hops, identity
from fgl_bench.runner.memory import Need, available_bytes, graph_bytes, model_bytes, plan, seed_bytes
from tests.engine.graphs import federation, make_client

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LAYOUT = ParameterLayout({"w": (5, 4), "v": (4, 3)}, inputs=("w",))
ACTIVATIONS, STACKS, ITEM, CLIENTS, NODES = Activations(kept=30, passing=4), 7, 4, 3, 9
FEDERATIONS = [federation([make_client(4), make_client(NODES), make_client(2)], seed=s) for s in range(5)]
NEED = seed_bytes(FEDERATIONS, LAYOUT, ACTIVATIONS, STACKS, ITEM, CPU)
SEED = NEED.program(1)


def planned(budget, device=GPU, seeds=None):
    return plan(FEDERATIONS, LAYOUT, ACTIVATIONS.passing, NEED, device, budget, seeds)


def together(chunking):
    """Replicas that one program holds."""
    return chunking.seeds * CLIENTS if chunking.replicas is None else chunking.replicas


def test_sizes_worked_out_by_hand():
    assert model_bytes(LAYOUT, 8, ITEM) == 8 * 32 * 4  # eight stacks of 32 scalars of four bytes
    assert activation_bytes(NODES, ACTIVATIONS, ITEM) == 9 * (24 + 24) * 4  # nine nodes, of each 0.8 times 30 and 6 times 4 scalars
    assert NEED == Need(CLIENTS, 7 * 32 * 4, 32 * 4 + 9 * 48 * 4, NEED.graphs, making=NEED.making, row=32 * 4)
    assert 0 < NEED.making <= NEED.graphs / 2
    assert Need(3, 10, 100, 1000).program(2) == 2 * (3 * 10 + 3 * 100 + 1000)
    assert Need(3, 10, 100, 1000, row=7).program(2) == 2 * (3 * 17 + 3 * 100 + 1000), "of several seeds an average is no view"
    assert Need(3, 10, 100, 1000, making=500).program(2) == 2 * (3 * 10 + 500 + 1000), (
        "what graphs are made with is gone when training begins"
    )
    assert Need(3, 10, 100, 1000).program(1, 2) == 3 * 10 + 2 * 100 + 2 * 1000, "chunks have their graphs once more"


def tensors(x, seen):
    """Every tensor that can be reached from ``x`` through attributes and containers."""
    if isinstance(x, torch.Tensor):
        seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
    elif isinstance(x, dict | list | tuple):
        for item in x.values() if isinstance(x, dict) else x:
            tensors(item, seen)
    elif type(x).__module__.startswith("fgl_bench.engine"):
        tensors(vars(x), seen)
    return seen


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("sizes", [(40, 60, 50), (200, 200)])
def test_the_graphs_of_a_batch_are_as_large_as_estimated(sparse, sizes):
    clients = [make_client(size, 0.05, features=400, sparse=sparse) for size in sizes]
    if not sparse:
        for client in clients:
            client.features[:] = 1.0
    batch = Batch(clients, torch.float32, CPU)
    weight = torch.zeros(len(clients), 400, 4, requires_grad=True)
    (batch.operator(gcn_operator) @ (batch.features @ weight)).sum().backward()
    assert batch.training_nodes.index.numel()
    measured = sum(tensors(batch, {}).values())
    assert graph_bytes(clients, 1, 4, CPU) == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("sizes", [(40, 60, 50), (60, 60)])
def test_hops_made_beforehand_are_as_large_as_estimated_and_chunks_are_views(sizes):
    clients = [make_client(size, 0.05, features=400) for size in sizes]
    batch, hops = Batch(clients, torch.float32, CPU), Hops(identity(3))
    whole = batch.derived(hops)
    assert sum(tensors(whole, {}).values()) == len(sizes) * max(sizes) * 4 * 400 * 4
    need = seed_bytes([federation(clients)], LAYOUT, ACTIVATIONS, STACKS, ITEM, CPU, copies=2, derived=4)
    assert need.derived == 3 * whole.values.numel() * 4
    assert need.program(1) - seed_bytes([federation(clients)], LAYOUT, ACTIVATIONS, STACKS, ITEM, CPU, copies=2).program(1) == need.derived
    part = batch.select([1]).derived(hops)
    assert part.values.untyped_storage().data_ptr() == whole.values.untyped_storage().data_ptr()


def test_seeds_with_one_partition_share_what_is_made_beforehand():
    client = make_client(20)
    seeds = [replace(client, train=client.val, val=client.train), client]  # other masks, the same features and edges
    batch = Batch(seeds, torch.float32, CPU)
    assert batch.derived(Hops(identity(2))).values.shape[0] == 1


def test_everything_at_once_where_it_fits():
    assert planned(NEED.program(5)) == planned(10**12)
    assert (planned(NEED.program(5)).seeds, planned(NEED.program(5)).replicas) == (5, None)


def test_seeds_are_parted_first_then_clients():
    assert (planned(NEED.program(5) - 1).seeds, planned(NEED.program(5) - 1).replicas) == (4, None)
    assert (planned(SEED).seeds, planned(SEED).replicas) == (1, None)
    lean = Need(CLIENTS, 10, 100, 5)  # 335 bytes a seed; in chunks 40 and 100 for each client at once

    def chunk(budget):
        return plan(FEDERATIONS, LAYOUT, ACTIVATIONS.passing, lean, GPU, budget, None)

    assert [(chunk(b).seeds, chunk(b).replicas) for b in (335, 334, 240, 239, 140)] == [(1, None), (1, 2), (1, 2), (1, 1), (1, 1)]
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
    assert NEED.program(chunking.seeds, chunking.replicas) <= budget or together(chunking) == 1


def test_the_default_budget_is_a_part_of_the_machine():
    assert 0 < available_bytes(CPU) < 2**50


def test_of_a_method_that_divides_the_nodes_a_step_computes_one_part():
    parts = seed_bytes(FEDERATIONS, LAYOUT, ACTIVATIONS, STACKS, ITEM, CPU, batches=4)
    assert parts.step - model_bytes(LAYOUT, 1, ITEM) == activation_bytes(3, ACTIVATIONS, ITEM), "nine nodes, three of them at most"
    assert replace(parts, step=NEED.step) == NEED


def test_a_servers_whole_graph_is_counted_once_a_seed():
    bare, whole = federation([make_client(7), make_client(5, seed=1)]), make_client(40, seed=2)
    parts = {field.name: getattr(bare, field.name) for field in fields(Federation)}
    need = seed_bytes([Served(**parts, server=whole)], LAYOUT, ACTIVATIONS, STACKS, ITEM, CPU)
    alone = seed_bytes([bare], LAYOUT, ACTIVATIONS, STACKS, ITEM, CPU)
    assert need.whole > graph_bytes([whole], 1, ITEM, CPU)
    assert need.program(2, 1) - alone.program(2, 1) == 2 * need.whole
