"""The batched engine equals the plain per-client loop over PyTorch Geometric layers, step by step."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedbuff import FedBuff
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.fedprox import FedProx
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from fgl_bench.algorithms.local import Local
from fgl_bench.models.gcn import GCN
from tests.reference import buffered, semi_async, sync
from tests.reference.small import small_federation
from tests.small_runs import counts, simulate, synchronous
from tests.small_runs import semi_async as stragglers

GTA = {
    "steps": 5, "alpha": 0.5, "temperature": 20.0, "orders": 10, "moments": "hybrid", "threshold": 0.5, "propagation": "official",
    "weights": "confidence",
}  # fmt: skip
SAGCL = {
    "threshold": 0.5, "buffer": 2, "steps": 5, "keep": 0.5, "staleness_exponent": 0.5, "staleness": "one_plus", "lsc": "paper",
    "lsc_temperature": None, "weights": "lsc", "clustercast": True, "push": "most_similar", "merge": "at_begin", "clusters": "sfm",
    "orders": 10,
}  # fmt: skip
BUFF = {"buffer": 3, "server_lr": 1.0, "staleness_exponent": 0.5, "weighting": "uniform", "wait": True}


# Adam divides by the root of the second moment: where a gradient is nearly zero it blows rounding (1e-16) up to this.
TOLERANCE = 1e-7


def assert_same(run, row, expected, tolerance=TOLERANCE):
    for name, tensor in run.named(row).items():
        torch.testing.assert_close(tensor, expected[name], rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


def start(run, row=0):
    return {name: tensor.clone() for name, tensor in run.named(run.sim.initial[row]).items()}


@pytest.mark.parametrize(
    ("method", "plain", "epochs", "layers"),
    [
        (lambda: Local(), sync.Local(), 1, 3),
        (lambda: FedAvg(), sync.FedAvg(), 1, 3),
        (lambda: FedProx(mu=0.7), sync.FedProx(mu=0.7), 3, 2),
        (lambda: FedGTA(**GTA), sync.FedGTA(), 1, 3),
        (lambda: FedGTA(**{**GTA, "threshold": 0.98}), sync.FedGTA(threshold=0.98), 3, 2),
    ],
)
def test_synchronous_rounds(method, plain, epochs, layers):
    federations = [small_federation(seed, sparse=seed == 1) for seed in (0, 1)]
    model = GCN(hidden=4, layers=layers, dropout=0.0)
    run = simulate(federations, method(), synchronous(), rounds=4, local_epochs=epochs, model=model)
    clients = federations[0].num_clients
    for s, federation in enumerate(federations):
        trace = sync.run_sync(federation, plain, start(run, s * clients), rounds=4, local_epochs=epochs)
        for number, expected in enumerate(trace):
            for i in range(clients):
                received, trained = run.trips[s * clients + i][number]
                assert_same(run, trained, expected.trained[i])
                if number:
                    assert_same(run, received, trace[number - 1].received[i])
            assert counts(run.histories[s], "trained", number + 1) == expected.trained_counts
            assert counts(run.histories[s], "received", number + 1) == expected.received_counts


def compare(run, trace, clients, s=0):
    seen = [0] * clients
    for arrival in trace.arrivals:
        received, trained = run.trips[s * clients + arrival.client][arrival.trip]
        assert_same(run, trained, arrival.parameters)
        seen[arrival.client] += 1
    history = run.histories[s]
    assert len(history.trips) == len(trace.evaluations)
    for point, expected in enumerate(trace.evaluations):
        assert history.trips[point] == expected.trips
        assert history.time[point] == pytest.approx(expected.time, abs=1e-12)
        assert counts(history, "received", point) == expected.received
        assert counts(history, "trained", point) == expected.trained
        assert (history.upload[point], history.download[point]) == (expected.bytes_up, expected.bytes_down)
    assert sum(seen) == history.trips[-1]


@pytest.mark.parametrize(
    ("method", "plain", "lag_unit"),
    [
        (lambda: FedSAGCL(**SAGCL), buffered.FedSAGCL(), "trips"),
        (lambda: FedSAGCL(**{**SAGCL, "threshold": 0.97, "staleness_exponent": 1.0}), buffered.FedSAGCL(theta_c=0.97, alpha=1.0), "time"),
        (lambda: FedSAGCL(**{**SAGCL, "clustercast": False}), buffered.FedSAGCL(clustercast=False), "trips"),
        (lambda: FedSAGCL(**{**SAGCL, "weights": "uniform"}), buffered.FedSAGCL(weighting="uniform"), "time"),
        (lambda: FedBuff(**{**BUFF, "buffer": 2}), buffered.FedBuff(), "time"),
    ],
)
def test_semi_asynchronous_runs(method, plain, lag_unit):
    federations = [small_federation(seed, clients=6) for seed in (0, 1)]
    scenario = stragglers(lag_unit=lag_unit)
    run = simulate(federations, method(), scenario, trips=60, local_epochs=2)
    for s, federation in enumerate(federations):
        trace = semi_async.run_semi_async(
            federation, plain, start(run, s * 6), trips=60, schedule=scenario.schedule(federation.seed, 6), buffer=2,
            lag_unit=lag_unit, local_epochs=2,
        )  # fmt: skip
        assert len(trace.arrivals) == 60
        compare(run, trace, 6, s)


def test_fedbuff_without_waiting():
    federation = small_federation(3, clients=6)
    scenario = stragglers()
    run = simulate([federation], FedBuff(**{**BUFF, "wait": False, "weighting": "samples"}), scenario, trips=50)
    trace = semi_async.run_semi_async(
        federation, buffered.FedBuff(weighting="train"), start(run), trips=50, schedule=scenario.schedule(3, 6), buffer=3,
        policy="no_wait", lag_unit="trips",
    )  # fmt: skip
    assert len(trace.arrivals) == 50
    for arrival in trace.arrivals:
        assert_same(run, run.trips[arrival.client][arrival.trip][1], arrival.parameters)
