"""The event loop of the oracle on toy clients."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .buffered import FedBuff, FedSAGCL
from .semi_async import simulate
from .small import SmallSchedule, random_schedule


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def scalar(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([value], dtype=torch.float64)}


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
