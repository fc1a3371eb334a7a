"""Synchronous rounds: the clock, the deadline, participation, and what a round launches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.local import Local
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from fgl_bench.scenarios.base import Participants, _moved
from fgl_bench.scenarios.schedule import Schedule
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.engine.graphs import federation, make_client
from tests.reference.small import small_federation
from tests.scenarios.loops import tiny
from tests.small_runs import counts, simulate, synchronous
from tests.test_equivalence import GTA


def lagging(lags, **changes):
    scenario = synchronous(**changes)
    slow = tuple(i for i, lag in enumerate(lags) if lag > 1)
    scenario.schedule = lambda seed, clients: Schedule(slow, lags, tuple(range(clients)), seed, 0.0)
    return scenario


def test_a_round_lasts_as_long_as_its_slowest_trip_and_nothing_else_changes():
    one = simulate(tiny(4), FedAvg(), synchronous(), rounds=3)
    slow = simulate(tiny(4), FedAvg(), lagging((1, 1, 3, 2)), rounds=3)
    assert one.histories[0].time.tolist() == [0, 1, 2, 3]
    assert slow.histories[0].time.tolist() == [0, 3, 6, 9]
    assert_same_trips(one, slow, exact=True, fewest=12)


def test_a_deadline_leaves_late_uploads_out_but_counts_their_trips():
    federated = small_federation(0)
    result = simulate([federated], FedAvg(), lagging((1, 2, 1, 1, 1), deadline=1.5), rounds=3, mixing_at=(5, 10))
    history = result.histories[0]
    assert history.time.tolist() == [0, 1.5, 3, 4.5] and history.trips.tolist() == [0, 5, 10, 15]
    sizes = np.array([c.train.sum() for c in federated.clients], dtype=float)
    sizes[1] = 0
    for matrix in result.sim.mixing.values():
        np.testing.assert_allclose(matrix[0], np.tile(sizes / sizes.sum(), (5, 1)))
    for trip in result.trips:  # the late one, too, starts again from the newest model
        torch.testing.assert_close(trip[1][0], result.trips[0][1][0], **TIGHT)


@pytest.mark.parametrize("method", [FedAvg, lambda: FedGTA(**GTA)])
def test_a_round_that_nobody_finishes_in_time_changes_no_model(method):
    result = simulate([small_federation(0)], method(), lagging((2, 2, 2, 2, 2), deadline=1.0), rounds=3)
    for trips in result.trips:
        for received, _ in trips:
            torch.testing.assert_close(received, result.sim.initial[0], **TIGHT)


@pytest.mark.parametrize("lags", [(2, 2, 2, 2, 2), (1, 2, 1, 1, 1)])
def test_nobody_is_late_where_nothing_travels(lags):
    late, free = (simulate([small_federation(0)], Local(), lagging(lags, deadline=limit), rounds=3) for limit in (1.0, None))
    assert_same_trips(late, free, exact=True, fewest=15)


def test_a_model_of_another_precision_is_refused():
    class Half(FedAvg):
        refines = True

        def refine(self, previous, received, uploaded, arrived):
            return received.float()

    with pytest.raises(UserError, match=r"refine\(\) returned torch.float32 on cpu; expected torch.float64 on cpu"):
        simulate([small_federation(0)], Half(), synchronous(), rounds=1)


def test_what_a_late_client_reports_is_not_heard():
    method, heard = FedGTA(**GTA), []
    mix = method.mix
    method.mix = lambda reports, arrived: heard.append(reports["moments"].clone()) or mix(reports, arrived)
    simulate([small_federation(0)], method, lagging((1, 2, 1, 1, 1), deadline=1.5), rounds=2)
    for moments in heard:
        assert not moments[0, 1].any() and moments[0, [0, 2, 3, 4]].any(1).all()


def test_participants_are_drawn_anew_for_every_round_and_seed():
    federations = [small_federation(seed, clients=6) for seed in (0, 1)]
    result = simulate(federations, FedAvg(), synchronous(), rounds=20, participation=0.5)
    counts = np.array([len(trips) for trips in result.trips]).reshape(2, 6)
    assert counts.sum(1).tolist() == [60, 60]
    assert (counts > 0).all() and (counts < 20).all()
    assert counts[0].tolist() != counts[1].tolist()
    one, all_ = (simulate(federations[:1], FedAvg(), synchronous(), rounds=2, participation=p) for p in (0.01, 1.0))
    assert sum(len(trips) for trips in one.trips) == 2, "at least one"
    assert sum(len(trips) for trips in all_.trips) == 12


class Launched(TorchDispatchMode):
    """Names of the operations that compute something; views and allocations do not."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and not func.name().startswith("aten::empty"):
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def launched(seeds, clients, rounds, size=6):
    federations = [federation([make_client(size + i % 3, seed=i) for i in range(clients)], seed=s) for s in range(seeds)]
    with Launched() as mode:
        simulate(federations, FedAvg(), synchronous(), rounds=rounds, model=GCN(hidden=4, layers=2, dropout=0.5), eval_every=10**6)
    return mode.names


def per_round(seeds, clients):
    """Operations of two more rounds, so that setting up and the last evaluation cancel."""
    launched(seeds, clients, 1)  # what is made once a process
    few, many = launched(seeds, clients, 3), launched(seeds, clients, 5)
    assert (len(many) - len(few)) % 2 == 0
    return (len(many) - len(few)) // 2


def test_a_round_launches_as_much_for_many_clients_as_for_few():
    """Copies that the recording test harness makes (one ``clone`` of two models a trip) are the only ones that grow."""
    few, many = per_round(1, 4), per_round(1, 12)
    assert many - few == 2 * (12 - 4)


def test_seeds_add_no_more_than_their_own_aggregation():
    one, five = per_round(1, 4) - 2 * 4, per_round(5, 4) - 2 * 20
    assert five - one <= 2 * 4, "one product a seed on a CPU, and writing it"


def test_the_trained_model_of_a_client_that_has_not_trained_is_its_initial_one():
    federations = [small_federation(seed) for seed in (1, 2)]
    result = simulate(federations, FedAvg(), synchronous(), rounds=1, participation=0.5)
    for s, history in enumerate(result.histories):
        clients = federations[s].num_clients
        absent = [i for i in range(clients) if not result.trips[s * clients + i]]
        assert absent and len(absent) < clients
        initial, after = (counts(history, "trained", point) for point in (0, 1))
        assert initial == counts(history, "received", 0)
        assert [after[i] for i in absent] == [initial[i] for i in absent]


@pytest.mark.parametrize("seed", range(4))
def test_the_last_message_of_a_client_is_the_last_that_arrived(seed):
    """Some rounds with random participants and late messages, against a loop over clients."""
    rng, known, expected = np.random.default_rng(seed), None, np.zeros((6, 2))
    for _ in range(8):
        chosen = rng.random((2, 3)) < rng.choice([0.5, 1.1])
        who = Participants(chosen, chosen & (rng.random((2, 3)) < rng.choice([0.5, 1.1])), torch.ones(2, 3, dtype=torch.bool))
        fresh = torch.from_numpy(rng.random((int(chosen.sum()), 2)))
        known = who.update(known, fresh)
        for k, row in enumerate(who.rows):
            if who.arrived.flat[row]:
                expected[row] = fresh[k]
        np.testing.assert_array_equal(known, expected)
        assert torch.equal(who.mask, torch.from_numpy(who.arrived)) and who.all == chosen.all()


def test_positions_of_an_evaluation_point_stay_when_later_trips_are_scored():
    before = np.arange(6).reshape(2, 3)
    after = _moved(before, (1, 5), 10)
    assert after.tolist() == [[0, 10, 2], [3, 4, 11]] and before.tolist() == [[0, 1, 2], [3, 4, 5]]
