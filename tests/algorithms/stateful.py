"""Comparing the engine's MOON, SCAFFOLD and FedDC with the plain loop, and the optimiser that their theory presumes."""

from __future__ import annotations

import numpy as np
import torch

from fgl_bench.optimizers.sgd import SGD
from tests.reference.small import small_federation
from tests.reference.stateful import run_stateful
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import assert_same, start


def assert_follows(
    method, plain, *, participation=1.0, rounds=5, clients=6, tolerance=1e-7, federations=None,
    optimizers=(None, torch.optim.Adam), **settings,
):  # fmt: skip
    """Engine and plain loop train the same models in every trip; ``method`` and ``plain`` make fresh instances."""
    scenario, seeds = synchronous(), (0, 1)
    federations = federations or [small_federation(seed, clients=clients, sparse=seed == 1) for seed in seeds]
    run = simulate(federations, method(), scenario, rounds=rounds, participation=participation, optimizer=optimizers[0], **settings)
    count = max(1, round(participation * clients))
    compared = 0
    for s, federation in enumerate(federations):
        chosen = [np.flatnonzero(scenario.draw([federation.seed], t, count, clients)[0]).tolist() for t in range(rounds)]
        if count == clients:
            chosen = None
        kept = {"chosen": chosen, "optimizer": optimizers[1], **settings}
        trace = run_stateful(federation, plain(), start(run, s * clients), rounds=rounds, **kept)
        seen = [0] * clients
        for one in trace:
            for i, expected in one.trained.items():
                received, trained = run.trips[s * clients + i][seen[i]]
                assert_same(run, received, one.received, tolerance)
                assert_same(run, trained, expected, tolerance)
                seen[i] += 1
        compared += sum(seen)
    assert compared == len(federations) * rounds * count == sum(len(trips) for trips in run.trips)
    return run


def use_sgd(monkeypatch):
    """Plain gradient descent in :func:`simulate`."""
    monkeypatch.setattr("tests.small_runs.OPTIMIZER", SGD(momentum=0.0, nesterov=False))


def watch_states(method, *names):
    """Copies of the method's state tensors after every round, by name, with who had arrived: a list that fills as it runs."""
    rounds, mix = [], method.mix

    def recording(reports, arrived):
        mixing = mix(reports, arrived)
        rounds.append({"arrived": arrived.clone(), **{name: getattr(method, name).clone() for name in names}})
        return mixing

    method.mix = recording
    return rounds


def same_rows(a, b):
    """``[S, C]``: where the rows of two stacks ``[S, C, P]`` are equal to the bit."""
    return torch.eq(a, b).all(-1)
