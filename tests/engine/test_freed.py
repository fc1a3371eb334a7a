"""What a product of our own keeps for its gradient goes with its result, not at some later collection: training would fill the memory."""

from __future__ import annotations

import gc

import pytest
import torch

from fgl_bench.algorithms.adafgl import attend as attend_opposed
from fgl_bench.engine.attention import additive_scores, attend
from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.kernels.dynamic_scores import dynamic_scores
from fgl_bench.engine.kernels.routing import convolve, route
from fgl_bench.engine.linear import linear
from tests.engine.graphs import from_edges

CLIENTS = [from_edges([(0, 1), (1, 2), (2, 3)], [0, 1, 0, 1]), from_edges([(0, 1), (1, 2)], [0, 1, 1])]


def draws(*shapes):
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]


def opposed(graph):
    unit, values = draws((2, 4, 3), (2, 4, 2))
    return sum(attend_opposed(unit, values, None, 0.0, torch.tensor([4, 3])))


def static(graph):
    source, target, values = draws((2, 4, 2), (2, 4, 2), (2, 4, 6))
    return attend(graph, values, additive_scores(graph, source, target, 0.2))


def one_head(graph):
    source, target, values = draws((2, 4, 1), (2, 4, 1), (2, 4, 3))
    return attend(graph, values, additive_scores(graph, source, target, 0.2))


def dynamic(graph):
    source, target, weight, values = draws((2, 4, 6), (2, 4, 6), (2, 2, 3), (2, 4, 6))
    return attend(graph, values, dynamic_scores(graph, source, target, weight, 0.2))


FUNCTIONS = {
    "product": lambda graph: graph @ draws((2, 4, 3))[0],
    "narrow": lambda graph: linear(*draws((2, 4, 3), (2, 3, 2))),
    "routing": lambda graph: route(graph, draws((2, 4, 2, 3))[0], 3, 1.0),
    "routing layer": lambda graph: convolve(graph, draws((2, 4, 2, 3))[0], 3, 1.0, 0.01),
    "opposed": opposed,
    "static": static,
    "one head": one_head,
    "dynamic": dynamic,
}


def live() -> int:
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("backward", [True, False])
def test_nothing_is_left_when_the_result_goes(name, backward):
    graph = Batch(CLIENTS, torch.float64, "cpu").operator(adjacency)
    counts = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            out = FUNCTIONS[name](graph)
            if backward:
                out.square().sum().backward()
            del out
            counts.append(live())
    finally:
        gc.enable()
    assert counts[1:] == counts[1:2] * 3, "the first call fills caches, later ones leave nothing"
