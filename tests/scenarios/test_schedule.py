"""Who is slow, by how much, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.errors import UserError
from fgl_bench.scenarios.schedule import Schedule
from tests.small_runs import semi_async, synchronous


@given(st.integers(0, 1000), st.integers(1, 40), st.floats(0, 1), st.integers(1, 4), st.integers(0, 4))
def test_the_number_and_the_range_of_lags(seed, clients, fraction, low, more):
    schedule = Schedule.draw(seed, clients, fraction, (low, low + more), 0.1)
    assert len(schedule.slow) == round(fraction * clients) == len(set(schedule.slow))
    assert sorted(schedule.priority) == list(range(clients))
    for client, lag in enumerate(schedule.lag):
        assert low <= lag <= low + more if client in schedule.slow else lag == 1
        for trip in range(3):
            assert 0.9 * lag <= schedule.duration(client, trip) <= 1.1 * lag


def test_a_schedule_belongs_to_its_seed():
    one, again, other = (Schedule.draw(seed, 20, 0.3, (2, 5), 0.1) for seed in (3, 3, 4))
    assert one == again and one.duration(2, 5) == again.duration(2, 5)
    assert one != other and one.duration(2, 5) != other.duration(2, 5)


def test_durations_vary_between_trips_and_clients_without_leaning():
    schedule = Schedule.draw(0, 20, 0.0, (2, 5), 0.1)
    durations = [schedule.duration(client, trip) for client in range(20) for trip in range(50)]
    assert len(set(durations)) == 1000
    assert sum(durations) / 1000 == pytest.approx(1, abs=5 * 0.1 / 3**0.5 / 1000**0.5)
    assert min(durations) < 0.91 and max(durations) > 1.09


def test_without_jitter_a_trip_lasts_its_lag():
    schedule = Schedule.draw(0, 10, 0.5, (2, 5), 0.0)
    assert [schedule.duration(i, 7) for i in range(10)] == list(schedule.lag)


def test_lags_can_be_drawn_for_every_trip():
    schedule = Schedule.draw(0, 10, 0.5, (2, 5), 0.0, redraw=True)
    for client in range(10):
        lags = [schedule.cycles(client, trip) for trip in range(60)]
        assert lags == [schedule.cycles(client, trip) for trip in range(60)]
        assert set(lags) == ({2, 3, 4, 5} if client in schedule.slow else {1})
        assert [schedule.duration(client, trip) for trip in range(60)] == lags


def test_who_is_slow_does_not_depend_on_how_lags_are_drawn():
    per_run, per_trip = (Schedule.draw(0, 20, 0.3, (2, 5), 0.1, redraw) for redraw in (False, True))
    assert (per_run.slow, per_run.priority) == (per_trip.slow, per_trip.priority)


@pytest.mark.parametrize("scenario", [semi_async, synchronous])
@pytest.mark.parametrize(
    ("key", "value"),
    [("slow_fraction", -0.1), ("slow_fraction", 1.1), ("lag", [2]), ("lag", [0, 2]), ("lag", [5, 2]), ("jitter", 1.0), ("jitter", -0.1)],
)
def test_keys_out_of_range_are_named(scenario, key, value):
    with pytest.raises(UserError, match=rf"^scenario\.{key}=.*allowed"):
        scenario(**{key: value}).schedule(0, 10)
