"""FGSSL: the plain loop on whole graphs, both terms by hand, and what its views show."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fgssl import FGSSL, Places, View, by_edges, contrast, neighborhoods
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.network import Output
from fgl_bench.errors import Unsuited
from fgl_bench.models.gat import GAT
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.stateful import assert_follows
from tests.reference import fgssl as plain
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

WHOLE = {name: 0.0 for name in ("weak_edge_drop", "weak_feature_mask", "strong_edge_drop", "strong_feature_mask")}


def method(**changes):
    keys = {"contrast_weight": 1.5, "temperature": 0.1, "structure_weight": 1.0, "structure_temperature": 1.0, "structure": "neighborhoods"}
    return FGSSL(**{**keys, **WHOLE, **changes})


@pytest.mark.parametrize(
    ("changes", "epochs", "participation"),
    [
        ({}, 3, 0.5),
        ({"contrast_weight": 0.0, "structure": "edges", "structure_temperature": 0.5}, 2, 1.0),
        ({"temperature": 0.5, "structure_weight": 4.0, "structure_temperature": 0.2}, 2, 1.0),
    ],
)
def test_it_is_the_plain_loop(changes, epochs, participation):
    assert_follows(
        lambda: method(**changes), lambda: plain.FGSSL(**changes), participation=participation, local_epochs=epochs, rounds=2,
        tolerance=1e-6,
    )  # fmt: skip


def test_without_its_terms_it_is_fedavg_bit_for_bit():
    federations = [small_federation(seed) for seed in (0, 1)]
    none = method(contrast_weight=0.0, structure_weight=0.0, strong_edge_drop=0.5)
    runs = [simulate(federations, algorithm, synchronous(), local_epochs=2, participation=0.6) for algorithm in (none, FedAvg())]
    assert_same_trips(*runs, exact=True, fewest=16)


def path(labels=(0, 1, 0), train=(True, True, True)) -> Batch:
    """Nodes 0 - 1 - 2 of one client, next to a client of one node without a label."""
    none = np.zeros(3, dtype=bool)
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    first = ClientGraph(np.arange(3), np.eye(3, dtype=np.float32), edges, np.array(labels), np.array(train), none, none)
    alone = ClientGraph(np.array([3]), np.ones((1, 3), np.float32), edges[:, :0], np.array([0]), none[:1], none[:1], none[:1])
    return Batch([first, alone], torch.float64, "cpu")


def rows(*first) -> torch.Tensor:
    return torch.tensor([first, [(1.0, 0.0)] * 3], dtype=torch.float64)


def test_the_contrast_of_three_nodes():
    """Cosines of 0, 1 and 2 are those of the axes; node 1 is alone in its class."""
    student, teacher = rows((2.0, 0.0), (0.0, 3.0), (1.0, 0.0)), rows((5.0, 0.0), (0.0, 1.0), (0.0, 4.0))
    near, far = math.exp(2.0), 1.0  # exp(cosine / 0.5)
    ends = -math.log(near / (near + 2 * far)) / 2 - math.log(far / (near + 2 * far)) / 2
    middle = -math.log(near / (2 * near + far))
    got = contrast(student, teacher, path(), Places.of(path()), 0.5)
    torch.testing.assert_close(got, torch.tensor([(2 * ends + middle) / 3, 0.0], dtype=torch.float64))


def test_labels_of_other_nodes_do_not_matter():
    student = teacher = rows((2.0, 1.0), (0.0, 3.0), (1.0, -1.0))
    batches = [path((0, 1, last), (True, True, False)) for last in (0, 1)]
    shown = [contrast(student, teacher, batch, Places.of(batch), 0.1) for batch in batches]
    assert torch.equal(*shown)


def test_the_similarities_of_a_path():
    """The student finds 0 and 1 orthogonal, where the teacher finds them alike; 1 and 2 are alike to both."""
    student = Output(None, rows((1.0, 0.0), (0.0, 1.0), (0.0, 2.0)))
    teacher = Output(None, rows((3.0, 0.0), (1.0, 0.0), (1.0, 0.0)))
    e = math.e
    end = math.log(1 / 2 / (e / (e + 1))) / 2 + math.log(1 / 2 / (1 / (e + 1))) / 2
    middle = 2 / 3 * math.log(1 / 3 / (e / (2 * e + 1))) + math.log(1 / 3 / (1 / (2 * e + 1))) / 3
    got = neighborhoods(student, teacher, path(), 1.0)
    torch.testing.assert_close(got, torch.tensor([(end + middle) / 3, 0.0], dtype=torch.float64), **TIGHT)


def test_the_differences_along_a_path():
    student, teacher = Output(rows((1.0, 0.0), (0.0, 0.0), (0.0, 0.0)), None), Output(rows(*[(0.0, 0.0)] * 3), None)
    p = math.e**2 / (math.e**2 + 1)  # |difference| / 0.5 = (2, 0)
    each = math.log(1 / 2 / p) / 2 + math.log(1 / 2 / (1 - p)) / 2
    got = by_edges(student, teacher, path(), 0.5)
    torch.testing.assert_close(got, torch.tensor([each / 2, 0.0], dtype=torch.float64), **TIGHT)


def test_a_view_is_a_graph_convolution_without_some_edges_and_features():
    federation = small_federation(0)
    batch = Batch(federation.clients, torch.float64, "cpu")
    shown = View(batch, 0.5, 0.4, torch.arange(batch.size))
    model, weight = GCN(hidden=4, layers=2, dropout=0.0), torch.randn(batch.size, 6, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(batch.size, 4, dtype=torch.float64)
    got = model.first({"conv0.weight": weight, "conv0.bias": bias}, shown)
    (gradient,) = torch.autograd.grad((got**2).sum(), weight)
    omitted = []
    thinned = shown.operator(gcn_operator)
    for i, client in enumerate(federation.clients):
        low, high = thinned.edges.bounds[i : i + 2]
        edges = torch.from_numpy(client.edges[::-1].copy())[:, thinned.weights[low:high] > 0]  # source, target
        conv = GCNConv(6, 4).double()
        conv.lin.weight.data.copy_(weight[i].T)
        conv.bias.data.zero_()
        out = conv(torch.from_numpy(client.features).double() * shown.features.mask[i].T, edges)
        torch.testing.assert_close(got[i, : client.num_nodes], out, **TIGHT)
        (expected,) = torch.autograd.grad((out**2).sum(), conv.lin.weight)
        torch.testing.assert_close(gradient[i], expected.T, **TIGHT)
        omitted.append(1 - edges.shape[1] / max(client.edges.shape[1], 1))
    assert 0.3 < np.mean(omitted[:1] + omitted[2:]) < 0.7
    assert 0.2 < 1 - shown.features.mask.mean() < 0.6


def test_views_change_with_every_step_and_client():
    algorithm = method(weak_edge_drop=0.3, strong_edge_drop=0.8, strong_feature_mask=0.5)
    simulate([small_federation(0)], algorithm, synchronous(), rounds=2, local_epochs=2)
    assert algorithm.trips.tolist() == [2] * 5
    batch = Batch([small_federation(0).clients[0]] * 2, torch.float64, "cpu")
    same, other = View(batch, 0.5, 0.0, torch.tensor([1, 1])), View(batch, 0.5, 0.0, torch.tensor([1, 2]))
    for shown, equal in ((same, True), (other, False)):
        first, second = shown.operator(gcn_operator).weights.chunk(2)
        assert torch.equal(first, second) is equal


def test_only_the_model_is_sent():
    run = simulate([small_federation(0)], method(), synchronous(), rounds=2)
    assert run.histories[0].upload.tolist() == [0, 4 * 5 * MODEL_SCALARS, 8 * 5 * MODEL_SCALARS]


def test_edges_of_attention_cannot_be_dropped():
    gat = GAT(8, 2, 0.0, "v1", 2, 1, "elu", 0.0, "conv")
    method().check_choices(gat, None)
    with pytest.raises(Unsuited, match="strong_edge_drop"):
        method(strong_edge_drop=0.1).check_choices(gat, None)
