"""Who is slow, by how much, and for how long."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench import run
from fgl_bench.errors import UserError
from fgl_bench.scenarios.devices import Device, known_devices
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


def test_jitter_is_a_share_of_the_lag():
    schedule = Schedule.draw(0, 10, 0.5, (4, 4), 0.1)
    slow = schedule.slow[0]
    durations = [schedule.duration(slow, trip) for trip in range(200)]
    assert 3.6 <= min(durations) < 3.65 and 4.35 < max(durations) <= 4.4


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


def test_a_device_computes_at_its_pace_and_sends_at_its_links_rates():
    schedule = Schedule.draw(0, 4, 0.5, (2, 2), 0.0).on_devices([Device(3, 8, 80, 50)], 0.5, (1e6, np.array([1e6, 2e6, 0, 0])))
    for client, down in enumerate((1e6, 2e6, 0, 0)):
        # 0.5 s a cycle on the fastest device, a megabyte a second up, ten down, 50 ms either way
        assert schedule.duration(client, 0) == pytest.approx(schedule.lag[client] * 0.5 * 3 + 1.0 + down / 1e7 + 0.1)


def test_every_class_of_devices_is_drawn_and_the_stragglers_stay():
    plain = Schedule.draw(1, 60, 0.3, (2, 5), 0.1)
    placed = plain.on_devices([Device(1, 1, 1, 0), Device(2, 1, 1, 0), Device(4, 1, 1, 0)], 1.0, (0, 0))
    assert sorted(set(placed.pace)) == [1, 2, 4] and min(placed.pace.count(pace) for pace in (1, 2, 4)) > 8
    assert (placed.slow, placed.lag, placed.priority) == (plain.slow, plain.lag, plain.priority)
    assert placed == plain.on_devices([Device(1, 1, 1, 0), Device(2, 1, 1, 0), Device(4, 1, 1, 0)], 1.0, (0, 0))


def test_the_table_of_devices_names_where_its_numbers_come_from():
    assert {"mobile", "home", "edge", "server"} <= set(known_devices())
    rows = files("fgl_bench.scenarios").joinpath("devices.csv").read_text(encoding="utf-8").splitlines()
    assert all("assumed" in row or "Ookla" in row or "arXiv" in row for row in rows[1:])
    assert all(min(known[:3]) > 0 <= known.latency_ms for known in known_devices().values())


TINY = {"dataset__num_nodes": 120, "dataset__num_edges": 300, "num_clients": 4, "seeds": [0], "mixing_at": []}


@pytest.mark.parametrize("algorithm", ["fedavg", "d_psgd"])
def test_devices_move_the_clock_and_no_score(algorithm, tmp_path):
    keys = {"rounds": 3, "results_dir": str(tmp_path), **TINY}
    plain = run(algorithm, "csbm", **keys)
    placed = run(algorithm, "csbm", scenario__devices=["mobile"], scenario__cycle_seconds=2.0, **keys)
    before, after = plain.curve(), placed.curve()
    assert before.drop(columns="time").equals(after.drop(columns="time"))
    trips = placed.summary["client_trips"]["total"]
    bytes_ = placed.summary["bytes"]["upload"] / trips
    mobile = known_devices()["mobile"]
    each = 2.0 * mobile.slowdown + mobile.travel(bytes_, bytes_)
    assert list(before["time"]) == [0, 1, 2, 3]
    assert list(after["time"]) == pytest.approx([0, each, 2 * each, 3 * each])


def test_a_slow_link_makes_uploads_late(tmp_path):
    keys = {"trips": 60, "results_dir": str(tmp_path), "scenario__slow_fraction": 0.0, "scenario__jitter": 0.0, **TINY}
    alike = run("fedbuff", "csbm", scenario__devices=["server"], **keys)
    mixed = run("fedbuff", "csbm", scenario__devices=["server", "mobile"], scenario__cycle_seconds=0.1, **keys)
    assert mixed.curve()["staleness_max"].max() > alike.curve()["staleness_max"].max()


def test_an_unknown_device_is_named(tmp_path):
    with pytest.raises(UserError, match=r"scenario.devices: there is no fridge; allowed: mobile, mobile_5g, home, edge, server"):
        run("fedavg", "csbm", rounds=1, results_dir=str(tmp_path), scenario__devices=["fridge"], **TINY)
    with pytest.raises(UserError, match=r"scenario.cycle_seconds"):
        run("fedavg", "csbm", rounds=1, results_dir=str(tmp_path), scenario__devices=["home"], scenario__cycle_seconds=0, **TINY)
