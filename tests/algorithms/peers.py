"""What tests of decentralised methods have in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fgl_bench.algorithms.records import Meeting
from fgl_bench.scenarios.decentralized import Decentralized
from tests.reference.decentralized import run_decentralized
from tests.reference.small import small_federation
from tests.small_runs import simulate
from tests.test_equivalence import assert_same, start

SCENARIO = {
    "topology": "auto", "dynamic": True, "degree": None, "edge_chance": 0.3, "link_failure": 0.0,
    "slow_fraction": 0.0, "lag": [2, 5], "lag_draw": "per_run", "jitter": 0.0,
}  # fmt: skip


def decentralized(**changes) -> Decentralized:
    """Every method's own graph, no failing links, no stragglers."""
    return Decentralized(**{**SCENARIO, **changes})


def run(method, *, federations=None, clients=6, rounds=5, scenario=None, **settings):
    federations = federations or [small_federation(seed, clients=clients) for seed in (0, 1)]
    return simulate(federations, method, scenario or decentralized(), rounds=rounds, **settings)


def alike(clients=4, seed=0, size=6):
    """A federation whose clients have equally many training nodes."""
    federation = small_federation(seed, clients=clients)
    graphs = []
    for client in federation.clients:
        train = np.zeros(client.num_nodes, dtype=bool)
        train[:2] = True
        graphs.append(replace(client, train=train, val=client.val & ~train, test=client.test & ~train))
    return replace(federation, clients=tuple(graphs), observed=tuple(graphs))


def watch_exchanges(method):
    """Every round's exchange and what clients had trained; a list that fills as the method runs."""
    seen, exchange = [], method.exchange

    def recording(meeting):
        trained, received = meeting.trained.clone(), meeting.received.clone()
        result = exchange(meeting)
        seen.append((trained, received, result._replace(models=result.models.clone())))
        return result

    method.exchange = recording
    return seen


def meeting(trained, *, number=0, rounds=10, heard=None, received=None, reports=None, losses=None, moments=()):
    """A round without a scenario around it; everybody hears everybody unless ``heard [C, C]`` says otherwise."""
    clients = trained.shape[1]
    if heard is None:
        heard = ~torch.eye(clients, dtype=torch.bool)
    graph = heard if callable(heard) else lambda time: torch.as_tensor(heard).expand(len(trained), clients, clients)
    return Meeting(
        number, rounds, graph, torch.zeros_like(trained) if received is None else received, trained, trained, reports or {}, losses, moments
    )


def assert_follows(method, plain, *, rounds=5, clients=6, federations=None, scenario=None, tolerance=1e-7, **settings):
    """Engine and plain loop train and mix the same models; ``method`` and ``plain`` make fresh instances."""
    federations = federations or [small_federation(seed, clients=clients, sparse=seed == 1) for seed in (0, 1)]
    algorithm = method()
    exchanges = watch_exchanges(algorithm)
    run = simulate(federations, algorithm, scenario or decentralized(), rounds=rounds, **settings)
    for s, federation in enumerate(federations):
        trace = run_decentralized(federation, plain(federation), start(run, s * clients), rounds=rounds, **settings)
        for number, one in enumerate(trace):
            torch.testing.assert_close(exchanges[number][2].matrix[s], one.mixing, rtol=1e-9, atol=1e-9)
            for i in range(clients):
                received, trained = run.trips[s * clients + i][number]
                assert_same(run, received, one.before[i], tolerance)
                assert_same(run, trained, one.trained[i], tolerance)
                assert_same(run, exchanges[number][2].models[s, i], one.received[i], tolerance)
    return run
