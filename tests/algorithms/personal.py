"""Comparing methods with personal models with the plain loop."""

from __future__ import annotations

import numpy as np

from tests.reference.personal import run_personal
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import assert_same

CLIENTS, SEEDS = 6, (0, 1)


def assert_follows(method, plain, *, participation=1.0, rounds=5, local_epochs=2, tolerance=1e-7, lr=0.01):
    """Engine and plain loop receive and train the same models in every trip; ``method`` and ``plain`` make fresh instances."""
    scenario, federations = synchronous(), [small_federation(seed, clients=CLIENTS, sparse=seed == 1) for seed in SEEDS]
    run = simulate(federations, method(), scenario, rounds=rounds, participation=participation, local_epochs=local_epochs, lr=lr)
    count, compared = max(1, round(participation * CLIENTS)), 0
    for s, federation in enumerate(federations):
        initial = {name: value for name, value in run.named(run.sim.initial[s * CLIENTS]).items() if name.startswith("conv")}
        chosen = [np.flatnonzero(scenario.draw([federation.seed], t, count, CLIENTS)[0]).tolist() for t in range(rounds)]
        trips = [iter(run.trips[s * CLIENTS + i]) for i in range(CLIENTS)]
        for one in run_personal(federation, plain(), initial, rounds=rounds, local_epochs=local_epochs, chosen=chosen, lr=lr):
            for i, expected in one.items():
                for row, parameters in zip(next(trips[i]), expected, strict=True):
                    assert_same(run, row, parameters, tolerance)
                compared += 1
    assert compared == len(federations) * rounds * count
    return run


def assert_same_scores(left, right):
    """Two runs score all received and trained models alike, to the bit."""
    for a, b in zip(left.histories, right.histories, strict=True):
        for name, scores in a.scores.items():
            np.testing.assert_array_equal(scores, b.scores[name])
