"""The oracle's own sanity: hand-calculated values, reduction laws, and the event loop on toy clients."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch_geometric.nn import GCNConv

from .buffered import FedBuff, FedSAGCL, Message, Upload, smoothness_confidence, soft_label_features
from .models import GCN, flatten, initial_parameters, widths_of, write_parameters
from .semi_async import simulate
from .small import SmallSchedule, random_schedule, small_federation
from .sync import FedAvg, FedGTA, FedProx, Local, propagate_labels, run_sync
from .training import Client

E1 = math.exp(-1)
K2 = torch.tensor([[0, 1], [1, 0]])


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def start_for(federation, hidden: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64):
    return initial_parameters(federation.num_features, federation.num_classes, hidden=hidden, seed=seed, dtype=dtype)


def same(left, right, tolerance: float = 1e-12) -> bool:
    return torch.allclose(flatten(left), flatten(right), rtol=0.0, atol=tolerance)


def single(federation, number: int = 0):
    client = federation.clients[number]
    return replace(federation, clients=(client,), observed=(client,))


# ---- backbone ------------------------------------------------------------------------------------------------------


# ---- local training and synchronous methods ------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Local(), FedAvg(), FedProx(0.0), FedGTA()])
def test_one_client_is_plain_training(method):
    federation = single(small_federation(0))
    initial, graph = start_for(federation), federation.clients[0]
    first, second = GCNConv(6, 4).double(), GCNConv(4, 3).double()
    with torch.no_grad():
        for layer, conv in enumerate((first, second)):
            conv.lin.weight.copy_(initial[f"conv{layer}.weight"].t())
            conv.bias.copy_(initial[f"conv{layer}.bias"])
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=5e-4)
    x, edges, y = torch.tensor(graph.features).double(), torch.tensor(graph.edges), torch.tensor(graph.labels)
    for _ in range(5 * 2):
        optimizer.zero_grad()
        functional.cross_entropy(second(first(x, edges).relu(), edges)[graph.train], y[graph.train]).backward()
        optimizer.step()
    trace = run_sync(federation, method, initial, rounds=5, local_epochs=2)
    for parameters in (trace[-1].trained[0], trace[-1].received[0]):
        assert torch.allclose(parameters["conv0.weight"], first.lin.weight.t(), atol=1e-12)
        assert torch.allclose(parameters["conv1.bias"], second.bias, atol=1e-12)


def test_fedprox_second_step_is_adam_on_the_pulled_gradient():
    """Two steps of Adam written out: the pull is +mu (theta - w), on coordinates that went up and on ones that went down."""
    federation = single(small_federation(0))
    initial, mu = start_for(federation), 0.7
    client = Client(federation.clients[0], federation.clients[0], initial, num_classes=3)
    names = list(initial)

    def gradient(at):
        leaves = [at[name].clone().requires_grad_() for name in names]
        graph = client.observed
        loop = graph.adjacency() + torch.eye(graph.num_nodes, dtype=torch.float64)
        scale = loop.sum(1).rsqrt()
        s = scale[:, None] * loop * scale
        logits = s @ ((s @ (graph.x @ leaves[0]) + leaves[1]).relu() @ leaves[2]) + leaves[3]
        loss = functional.cross_entropy(logits[graph.train], graph.y[graph.train])
        return dict(zip(names, torch.autograd.grad(loss, leaves), strict=True))

    theta = dict(initial)
    m, v = ({name: torch.zeros_like(value) for name, value in initial.items()} for _ in range(2))
    ups = downs = 0
    for step in (1, 2):
        g = gradient(theta)
        for name in names:
            moved = theta[name] - initial[name]
            if step == 2:
                ups, downs = ups + int((moved > 1e-3).sum()), downs + int((moved < -1e-3).sum())
            full = g[name] + mu * moved + 5e-4 * theta[name]
            m[name] = 0.9 * m[name] + 0.1 * full
            v[name] = 0.999 * v[name] + 0.001 * full**2
            hat = m[name] / (1 - 0.9**step), v[name] / (1 - 0.999**step)
            theta[name] = theta[name] - 0.01 * hat[0] / (hat[1].sqrt() + 1e-8)
    assert ups > 5 and downs > 5
    assert same(run_sync(federation, FedProx(mu), initial, rounds=1, local_epochs=2)[0].trained[0], theta, 1e-10)


def test_fedavg_weighs_by_training_nodes_and_everyone_receives_the_same():
    federation = small_federation(0)
    last = run_sync(federation, FedAvg(), start_for(federation), rounds=2)[-1]
    counts = double([float(client.train.sum()) for client in federation.observed])
    expected = sum(n * flatten(p) for n, p in zip(counts / counts.sum(), last.trained, strict=True))
    assert all(torch.allclose(flatten(received), expected, atol=1e-13) for received in last.received)
    sizes = double([client.num_nodes for client in federation.clients])
    by_nodes = run_sync(federation, FedAvg(), start_for(federation), rounds=1, agg_weight="nodes")[0].mixing
    assert torch.allclose(by_nodes, (sizes / sizes.sum()).expand(5, 5), atol=1e-13)


def test_training_reads_the_observed_graph_and_scores_the_clean_one():
    federation = small_federation(0)
    blind = tuple(replace(client, features=0 * client.features) for client in federation.clients)
    initial = start_for(federation)
    clean = run_sync(federation, Local(), initial, rounds=2)
    hidden = run_sync(replace(federation, observed=blind), Local(), initial, rounds=2)
    assert not same(clean[-1].trained[0], hidden[-1].trained[0], 1e-6)
    for client, parameters, counted in zip(federation.clients, hidden[-1].trained, hidden[-1].trained_counts, strict=True):
        model = GCN(widths_of(initial)).double().eval()
        write_parameters(model, parameters)
        guess = model(torch.tensor(client.features).double(), torch.tensor(client.edges)).argmax(1).numpy()
        assert counted == tuple(int((guess == client.labels)[mask].sum()) for mask in (client.val, client.test))


def test_moments_of_adam_survive_the_download():
    """With a fresh optimiser every round would start with steps of full length; a kept one gives one long run's steps."""
    federation = small_federation(0)
    initial = start_for(federation)
    in_rounds = run_sync(federation, Local(), initial, rounds=6, local_epochs=1)[-1].trained[0]
    at_once = run_sync(federation, Local(), initial, rounds=1, local_epochs=6)[-1].trained[0]
    assert same(in_rounds, at_once, 0.0)


# ---- FedGTA --------------------------------------------------------------------------------------------------------


def test_label_propagation_by_hand():
    """Two joined nodes, all entries of the looped normalised adjacency 1/2; the first is a training node of class 0."""
    predictions = double([[0.2, 0.8], [0.4, 0.6]])
    truth, train = double([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([True, False])
    adjacency = double([[0.0, 1.0], [1.0, 0.0]])
    once = propagate_labels(predictions, truth, train, adjacency, 1, 0.5)
    assert torch.allclose(once, double([[1.85, 0.15], [0.55, 0.45]]), atol=1e-12)
    twice = propagate_labels(predictions, truth, train, adjacency, 2, 0.5)  # neighbours' mean (1.2, 0.3)
    assert torch.allclose(twice, double([[2.1, 0.15], [0.8, 0.45]]), atol=1e-12)


def test_fedgta_report_by_hand():
    probabilities = double([[0.2, 0.8], [0.4, 0.6]])
    graph = SimpleNamespace(
        train=torch.tensor([True, False]),
        train_truth=lambda: double([[1.0, 0.0], [0.0, 0.0]]),
        adjacency=lambda: double([[0.0, 1.0], [1.0, 0.0]]),
    )
    client = SimpleNamespace(observed=graph, probabilities=lambda: probabilities)
    moments, confidence = FedGTA(k=1, num_moments=2, temperature=20.0).report(client)
    q = 1 / (1 + math.exp(-(0.55 - 0.45)))  # softmax of (0.55, 0.45)
    raw = [(1 + q) / 2, (1 - q) / 2, (1 + q * q) / 2, (1 - q) ** 2 / 2]
    half = (1 - q) / 2
    assert moments.tolist() == pytest.approx([*raw, 0.0, 0.0, half**2, half**2], abs=1e-12)
    r = 1 / (1 + math.exp(-0.1 / 20))
    expected = 4 * E1 + sum(p * math.log(p + 1e-8) for p in (1.0, r, 1 - r))
    assert confidence == pytest.approx(expected, abs=1e-12)


# ---- FedBuff and FedSA-GCL -----------------------------------------------------------------------------------------


def scalar(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([value], dtype=torch.float64)}


def test_fedbuff_step_by_hand():
    """Deltas +1 (fresh) and -4 (three versions old, so halved): the mean is -1/2; times eta = 0.7."""
    method = FedBuff(eta=0.7)
    method.start(scalar(10.0), [SimpleNamespace()] * 2)
    batch = [
        Upload(0, Message(scalar(10.0), 3), scalar(11.0), None),
        Upload(1, Message(scalar(6.0), 0), scalar(2.0), None),
    ]
    step = method.step(batch, 4)
    assert float(method.model["w"]) == pytest.approx(10.0 - 0.35, abs=1e-12)
    assert set(step.replies) == {0, 1} and step.replies[0].version == 4 and not step.pushes
    weighted = FedBuff(exponent=0.0, weighting="train")
    weighted.start(scalar(10.0), [SimpleNamespace(num_train=3), SimpleNamespace(num_train=1)])
    weighted.step(batch, 4)
    assert float(weighted.model["w"]) == pytest.approx(10.0 + 0.75 - 1.0, abs=1e-12)


def test_fedsa_gcl_client_reports_by_hand():
    probabilities = double([[0.9, 0.1], [0.5, 0.5]])
    features = soft_label_features(probabilities, K2)
    assert torch.allclose(features, double([[0.9, 0.5], [0.5, 0.1]]))
    adjacency = double([[0.0, 1.0], [1.0, 0.0]])
    mean = 2 * (2 * E1 + 0.7 * math.log(0.7) + 0.3 * math.log(0.3))  # one step with lambda 1/2: both rows (0.7, 0.3)
    assert smoothness_confidence(probabilities, adjacency, 1, 0.5) == pytest.approx(mean, abs=1e-12)
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # degrees 1, 2, 1
    soft = double([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    # node 1 with its neighbours' sum (1.5, 0.5), times degrees 2 * 1, in both directions
    assert torch.allclose(soft_label_features(soft, path), double([[0.0, 3.0], [3.0, 2.0]]))


def upload(client: int, value: float, features: list[float], confidence: float, version: int) -> Upload:
    return Upload(client, Message(scalar(0.0), version), scalar(value), (double(features), confidence))


def test_fedsa_gcl_server_by_hand():
    method = FedSAGCL(theta_c=0.8, alpha=1.0)
    method.start(scalar(0.0), [SimpleNamespace(observed=SimpleNamespace(num_classes=2))])
    first = method.step([upload(2, 8.0, [1.0, 0.5], 6.0, 0), upload(3, 5.0, [0.0, 1.0], 1.0, 0)], 1)
    assert first.weights == {2: {2: 1.0}, 3: {3: 1.0}} and not first.pushes
    # version 3: the knowledge of client 2 is two versions old (weight 6 / 3), the new uploads are fresh and one old
    step = method.step([upload(0, 1.0, [1.0, 0.0], 2.0, 2), upload(1, -4.0, [1.0, 0.6], 4.0, 1)], 3)
    assert step.weights[0] == pytest.approx({0: 2 / 6, 1: 2 / 6, 2: 2 / 6})
    assert step.weights[1] == pytest.approx({0: 2 / 6, 1: 2 / 6, 2: 2 / 6})
    assert float(step.replies[0].payload["w"]) == pytest.approx(5 / 3)
    assert step.pushed_by == {2: 1}, "client 2 is nearer to 1 than to 0"
    assert step.pushes[2].version == 3 and step.pushes[2].confidence == pytest.approx(12.0)
    assert step.replies[0].confidence is None
    calm = replace(method, clustercast=False)
    calm.start(scalar(0.0), [SimpleNamespace(observed=SimpleNamespace(num_classes=2))])
    calm.known = dict(method.known)
    assert not calm.step([upload(0, 1.0, [1.0, 0.0], 2.0, 2)], 4).pushes


# ---- the event loop on clients that are one number ------------------------------------------------------------------


class Toy:
    """A client whose model is a number that each trip moves a tenth of the way to the client's own number."""

    num_train = num_nodes = 1
    observed = SimpleNamespace(num_classes=2)

    def __init__(self, index: int):
        self.index = index

    def load(self, parameters):
        self.value = parameters["w"].clone()

    def train(self, epochs: int, trip: int):
        self.value = self.value - 0.1 * (self.value - self.index)

    def parameters(self):
        return {"w": self.value.clone()}

    def count_correct(self):
        return 0, 0


class ToySA(FedSAGCL):
    """FedSA-GCL between toys whose features are fixed directions spread over a quarter circle."""

    def report(self, client):
        angle = torch.tensor(0.5 * math.pi * client.index / 20)
        return torch.stack([angle.cos(), angle.sin()]).double(), 1.0 + client.index


def toys(method, schedule, trips, buffer, **options):
    clients = [Toy(index) for index in range(len(schedule.lag))]
    return simulate(clients, method, scalar(0.0), trips=trips, schedule=schedule, buffer=buffer, **options)


TWENTY = SmallSchedule(
    (5, 1, 1, 1, 4, 4, 1, 1, 5, 1, 4, 1, 4, 1, 1, 1, 1, 1, 1, 1), (5, 4, 11, 16, 10, 2, 15, 1, 6, 17, 9, 3, 14, 8, 0, 18, 12, 19, 13, 7)
)


@pytest.mark.parametrize(
    ("lag_unit", "buffer", "versions", "time", "staleness", "largest", "slow", "forced"),
    [
        ("time", 1, 2000, 130.0, 37721, 78, [26, 32, 32, 26, 32, 32], 0),
        ("time", 5, 400, 155.0, 5940, 13, [30, 38, 38, 30, 38, 38], 0),
        ("time", 14, 142, 143.0, 841, 4, [28, 35, 35, 28, 35, 35], 0),
        ("time", 20, 100, 500.0, 0, 0, [100] * 6, 0),
        ("trips", 1, 2000, 134.0, 37616, 103, [19, 24, 24, 19, 24, 23], 0),
        ("trips", 5, 400, 167.0, 5950, 20, [19, 23, 23, 19, 23, 23], 0),
        ("trips", 15, 133, 134.0, 650, 6, [19, 24, 24, 19, 24, 23], 42),
        ("trips", 20, 100, 100.0, 0, 0, [100] * 6, 600),
    ],
)
def test_the_event_loop_gives_the_numbers_of_an_independent_simulator(lag_unit, buffer, versions, time, staleness, largest, slow, forced):
    """Twenty clients without jitter, 2000 trips; expected values from another implementation of the same rules."""
    trace = toys(FedBuff(), TWENTY, 2000, buffer, lag_unit=lag_unit)
    used = [arrival.staleness for arrival in trace.arrivals if arrival.staleness is not None]
    assert (len(trace.steps), trace.arrivals[-1].time, sum(used), max(used)) == (versions, time, staleness, largest)
    assert [sum(arrival.client == i for arrival in trace.arrivals) for i in TWENTY.slow] == slow
    assert trace.forced == forced and trace.unused == 2000 - versions * buffer


@given(
    count=st.integers(3, 25), data=st.data(), seed=st.integers(0, 1000), lag_unit=st.sampled_from(["time", "trips"]),
    policy=st.sampled_from(["wait", "no_wait", "clustercast"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_trip_is_accounted_for(count, data, seed, lag_unit, policy):
    buffer = data.draw(st.integers(1, count))
    schedule = random_schedule(count, seed)
    method = ToySA(theta_c=data.draw(st.sampled_from([0.5, 0.9, 0.99]))) if policy == "clustercast" else FedBuff()
    trace = toys(method, schedule, 200, buffer, lag_unit=lag_unit, policy=policy)
    assert len(trace.arrivals) == 200 == buffer * len(trace.steps) + trace.unused
    assert [len(step.batch) for step in trace.steps] == [buffer] * len(trace.steps)
    times = [arrival.time for arrival in trace.arrivals]
    assert times == sorted(times)
    for i in range(count):
        mine = [(number, arrival) for number, arrival in enumerate(trace.arrivals) if arrival.client == i]
        assert [arrival.trip for _, arrival in mine] == list(range(len(mine)))
        if lag_unit == "time":
            shortest = schedule.lag[i] * (1 - schedule.jitter)
            assert all(arrival.time >= (arrival.trip + 1) * shortest - 1e-9 for _, arrival in mine)
        elif i in schedule.slow and not trace.forced:
            numbers = [number for number, _ in mine]
            assert all(later - earlier >= schedule.lag[i] * count for earlier, later in zip(numbers, numbers[1:], strict=False))


def test_a_cached_push_is_merged_at_the_next_start_by_hand():
    """Two clients, buffer 1: client 1's first upload makes version 2 and pushes to client 0, which is under way."""
    trace = toys(ToySA(theta_c=0.5, alpha=0.0), SmallSchedule((1, 1), (0, 1)), 4, 1)
    # trip 0: w0 = 0, w1 = 0.1; version 1 = {0: 0}; version 2 over {0, 1} with confidences 1, 2: 0.2 / 3, pushed to 0
    assert [(a.client, a.base_version) for a in trace.arrivals] == [(0, 0), (1, 0), (0, 1), (1, 2)]
    assert trace.steps[1].step.pushed_by == {0: 1} and trace.steps[1].step.pushes[0].confidence == 3.0
    assert float(trace.steps[1].step.replies[1].payload["w"]) == pytest.approx(0.2 / 3)
    # client 0 ends its trip at 0, then starts from the push: 3/4 of it and 1/4 of its own model
    assert float(trace.arrivals[2].parameters["w"]) == 0.0
    longer = toys(ToySA(theta_c=0.5, alpha=0.0), SmallSchedule((1, 1), (0, 1)), 5, 1)
    assert longer.arrivals[4].base_version == 2 and longer.pushes_used >= 1
    assert float(longer.arrivals[4].parameters["w"]) == pytest.approx(0.9 * 0.75 * 0.2 / 3)


# ---- small helpers -------------------------------------------------------------------------------------------------
