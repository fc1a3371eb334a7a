"""FedStar against a plain loop, and its structure encoding by hand."""

from __future__ import annotations

import numpy as np

from fgl_bench.algorithms.fedstar import FedStar
from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.models.gin_plain import GINPlain
from fgl_bench.tasks.graph import GraphClassification
from tests.reference import tasks as plain
from tests.small_graph_sets import of_graphs
from tests.small_runs import simulate, synchronous
from tests.test_task_equivalence import assert_same_steps


def test_clients_take_the_steps_of_a_plain_loop():
    method, federation = FedStar(walks=3, degrees=4), of_graphs()
    model = GraphClassification("sum", 4, "mlp").network(GINPlain(4, 2, 0.0, "linear"))
    encoded = method.federate(federation)
    run = simulate([federation], method, synchronous(), rounds=3, model=model)
    own = [[graph for graph, train in zip(plain.graphs_of(client), client.train, strict=True) if train] for client in encoded.clients]
    batches = [lambda graphs=graphs: plain.loader(graphs, len(graphs)) for graphs in own]
    assert_same_steps(run, federation, 0, lambda p: plain.StructureNetwork(p, 7), batches, 3, "structure")


def test_the_structure_encoding_of_a_path_and_a_triangle():
    edges = np.array([[0, 1, 1, 2, 3, 3, 4, 4, 5, 5], [1, 0, 2, 1, 4, 5, 3, 5, 3, 4]])
    none = np.zeros(7, dtype=bool)
    client = ClientGraph(np.arange(7), np.zeros((7, 1), np.float32), edges, np.zeros(7, np.int64), none, none, none)
    (encoded,) = FedStar(walks=3, degrees=2).federate(Federation("a", 0, 1, 1, (client,), (client,), edges[:, :0], "")).clients
    path_end, middle, corner, alone = [0, 0.5, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0.5, 0.25, 0, 1], [0, 0, 0, 1, 0]
    np.testing.assert_allclose(encoded.features[:, 1:], [path_end, middle, path_end, corner, corner, corner, alone])
