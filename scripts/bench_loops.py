"""The loops that the engine is compared with: ``tests/reference``, client by client, timed round by round."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np


def initial_parameters(model, federation) -> dict:
    """The engine's own initial parameters of this seed, by name."""
    import torch

    from fgl_bench.utils.seeding import derive_seed

    layout = model.layout(federation.num_features, federation.num_classes)
    generator = torch.Generator().manual_seed(derive_seed(federation.seed, "initial"))
    return {name: tensor.float() for name, tensor in model.init_parameters(layout, generator).items()}


def plain_clients(spec, federation, device, storage: str) -> tuple[list, dict]:
    """Reference clients with edges normalized once, and the initial parameters."""
    from tests.reference.training import make_clients

    initial = {name: tensor.to(device) for name, tensor in initial_parameters(spec.model, federation).items()}
    clients = make_clients(
        federation, initial, dropout=spec.model.dropout, lr=spec.settings.lr, weight_decay=spec.settings.weight_decay,
        seed=federation.seed, prenormalized=True, features=storage,
    )  # fmt: skip
    return clients, initial


def synchronous(make: Callable[[], object], spec, federation, device, wait, storage: str, rounds: int) -> tuple[list[float], float, float]:
    """Seconds of every round, and the last models' pooled test accuracies, received and trained."""
    from tests.reference.sync import AGG_WEIGHTS, aggregate, train_all
    from tests.reference.training import normalize, pooled_accuracy

    clients, _ = plain_clients(spec, federation, device, storage)
    method, times = make(), []
    shares = normalize([AGG_WEIGHTS[spec.settings.agg_weight](client) for client in clients])
    for number in range(rounds):
        wait()
        begin = time.perf_counter()
        models = train_all(clients, method, spec.settings.local_epochs, number)
        trained = [client.count_correct() for client in clients]
        aggregate(clients, method, models, shares)
        received = [client.count_correct() for client in clients]
        wait()
        times.append(time.perf_counter() - begin)
    return times, pooled_accuracy(clients, received)[1], pooled_accuracy(clients, trained)[1]


def semi_asynchronous(make: Callable[[], object], spec, federation, device, wait, storage: str, rounds: int):
    """As :func:`synchronous`; a round is as many trips as there are clients, and both models of every client are scored in it."""
    from tests.reference.semi_async import simulate
    from tests.reference.training import pooled_accuracy

    clients, initial = plain_clients(spec, federation, device, storage)
    method, marks, count = make(), [], len(clients)
    report = method.report

    def noting(client):
        reports = report(client)
        wait()
        marks.append(time.perf_counter())
        return reports

    method.report = noting
    schedule = spec.scenario.schedule(federation.seed, count)
    wait()
    begin = time.perf_counter()
    trace = simulate(
        clients, method, initial, trips=rounds * count, schedule=schedule, buffer=spec.algorithm.buffer or max(1, round(count / 4)),
        lag_unit=spec.scenario.lag_unit, local_epochs=spec.settings.local_epochs,
    )  # fmt: skip
    wait()
    ends = [begin, *marks[count - 1 :: count]]
    ends[-1] = time.perf_counter()  # the last evaluation belongs to the last round
    last = trace.evaluations[-1]
    return np.diff(ends).tolist(), pooled_accuracy(clients, last.received)[1], pooled_accuracy(clients, last.trained)[1]


def walk(client, loops: bool):
    """D^-1/2 A D^-1/2 of a reference client as a sparse float64 matrix, made once; with self loops (A + I) on request."""
    import torch

    if not hasattr(client, "bench_walk"):
        n, edges = client.num_nodes, client.observed.edge_index
        if loops:
            edges = torch.cat([edges, torch.arange(n, device=edges.device).expand(2, -1)], 1)
        degree = torch.bincount(edges[0], minlength=n).double()
        scale = torch.where(degree > 0, degree, 1.0).rsqrt() * (degree > 0)
        values = scale[edges[0]] * scale[edges[1]]
        client.bench_walk = torch.sparse_coo_tensor(edges, values, (n, n), check_invariants=False).to_sparse_csr()
        client.bench_degree = torch.bincount(client.observed.edge_index[0], minlength=n).double()
    return client.bench_walk, client.bench_degree


def sparse_fedgta():
    """The reference FedGTA with a sparse adjacency: its own is dense, which would flatter the engine."""
    import math

    import torch

    from tests.reference.sync import MOMENTS, FedGTA

    class SparseFedGTA(FedGTA):
        def report(self, client):
            graph, (matrix, degree) = client.observed, walk(client, loops=True)
            truth, train = graph.train_truth(), graph.train[:, None]
            labels = start = torch.where(train, truth, client.probabilities())
            for _ in range(self.k):
                labels = self.alpha * (matrix @ labels) + (1 - self.alpha) * start + torch.where(train, start, 0.0)
            sharp = torch.where(train, truth, torch.softmax(labels, dim=1))
            flat = torch.where(train, truth, torch.softmax(labels / self.temperature, dim=1))
            certainty = (math.exp(-1) + flat * torch.log(flat + 1e-8)).sum(dim=1)
            return MOMENTS[self.moments](sharp, self.num_moments), float((degree * certainty).sum())

    return SparseFedGTA()


def sparse_fedsa_gcl():
    """The reference FedSA-GCL with a sparse adjacency."""
    import math

    from tests.reference.buffered import FedSAGCL, soft_label_features

    class SparseFedSAGCL(FedSAGCL):
        def report(self, client):
            probabilities, (matrix, degree) = client.probabilities(), walk(client, loops=False)
            labels = probabilities
            for _ in range(self.k):
                labels = self.lam * probabilities + (1 - self.lam) * (matrix @ labels)
            chance = labels.clamp(1e-8, 1.0)
            confidence = float((degree * (math.exp(-1) + chance * chance.log()).sum(dim=1)).sum())
            return soft_label_features(probabilities, client.observed.edge_index), confidence

    return SparseFedSAGCL()


def decentralized(spec, federation, device, wait, storage: str, rounds: int) -> tuple[list[float], float, float]:
    """As :func:`synchronous`, for the reference DFed-SST; its first in-neighbors are drawn."""
    from tests.reference.decentralized import DFedSST
    from tests.reference.training import pooled_accuracy

    clients, _ = plain_clients(spec, federation, device, storage)
    count, draw, times = len(clients), np.random.default_rng(federation.seed), []
    others = [[j for j in range(count) if j != i] for i in range(count)]
    method = DFedSST([set(draw.choice(some, max(1, len(some) // 2), replace=False).tolist()) for some in others], spec.algorithm.refresh)
    for number in range(rounds):
        wait()
        begin = time.perf_counter()
        before = [client.parameters() for client in clients]
        for client in clients:
            client.train(spec.settings.local_epochs, number)
        trained = [client.count_correct() for client in clients]
        _, models = method.exchange(clients, number, before, [client.parameters() for client in clients])
        for client, model in zip(clients, models, strict=True):
            client.load(model)
        received = [client.count_correct() for client in clients]
        wait()
        times.append(time.perf_counter() - begin)
    return times, pooled_accuracy(clients, received)[1], pooled_accuracy(clients, trained)[1]


def fedavg():
    from tests.reference.sync import FedAvg

    return FedAvg()


# A method joins the suite with a line here (and one in bench_floor.EXTRAS where it does more than average).
LOOPS = {
    "fedavg": partial(synchronous, fedavg),
    "fedgta": partial(synchronous, sparse_fedgta),
    "fedsa_gcl": partial(semi_asynchronous, sparse_fedsa_gcl),
    "dfed_sst": decentralized,
}
# The slowest methods, with settings that run all of their phases in a few rounds; those without a loop above are timed alone.
SLOW: dict[str, dict[str, object]] = {
    "fedaas": {}, "fediih": {}, "adafgl": {"algorithm.federated_rounds": 6}, "fedtad": {}, "fedsage_plus": {"algorithm.gen_rounds": 2},
    "dis_pfl": {}, "fedssa": {}, "dfed_sst": {}, "fedsa_gcl": {},
}  # fmt: skip
METHODS = list(dict.fromkeys([*LOOPS, *SLOW]))
