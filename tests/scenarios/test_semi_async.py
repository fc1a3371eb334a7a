"""The event loop: timetables worked out by hand, what holds for every setting, and how few batches it trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.algorithms.fedbuff import FedBuff
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from fgl_bench.errors import UserError
from fgl_bench.scenarios.semi_async import _Loop
from tests.reference.small import small_federation
from tests.scenarios.loops import counted_batches, fixed, tiny, watched_loops
from tests.small_runs import semi_async, simulate
from tests.test_equivalence import BUFF, SAGCL


def buff(**changes):
    return FedBuff(**{**BUFF, **changes})


def gcl(**changes):
    return FedSAGCL(**{**SAGCL, **changes})


def run(method, scenario, clients=4, trips=12, seeds=(0,), **changes):
    with watched_loops() as loops:
        result = simulate(tiny(clients, seeds), method, scenario, trips=trips, **changes)
    return result, loops


def test_a_timetable_on_the_clock():
    """Four clients, client 3 takes three cycles, K = 2, ties by number. By hand (``c/v``: client c, trip begun at version v):

    =====  =======  =============================  ==========================================
    t      arrives  queue, then                    begins
    =====  =======  =============================  ==========================================
    1      0/0      0
    1      1/0      0 1 -> version 1, stale 0 0    0, 1 at version 1, due at 2
    1      2/0      2
    2      0/1      2 0 -> version 2, stale 1 0    2, 0 at version 2, due at 3
    2      1/1      1
    3      0/2      1 0 -> version 3, stale 1 0    1, 0 at version 3, due at 4
    3      2/2      2
    3      3/0      2 3 -> version 4, stale 1 3    2 at version 4, due at 4; 3, due at 6
    4      0/3      0
    4      1/3      0 1 -> version 5, stale 1 1    0, 1 at version 5, due at 5
    4      2/4      2
    5      0/5      2 0 -> version 6, stale 1 0
    =====  =======  =============================  ==========================================
    """
    result, (loop,) = run(buff(buffer=2), fixed((1, 1, 1, 3), lag_unit="time"), eval_every=1)
    assert loop.trace == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0), (3, 2), (3, 3), (4, 0), (4, 1), (4, 2), (5, 0)]
    assert loop.steps == [
        (1, 1, [(0, 0, 0), (1, 0, 0)]),
        (2, 2, [(2, 0, 1), (0, 1, 0)]),
        (3, 3, [(1, 1, 1), (0, 2, 0)]),
        (4, 3, [(2, 2, 1), (3, 0, 3)]),
        (5, 4, [(0, 3, 1), (1, 3, 1)]),
        (6, 5, [(2, 4, 1), (0, 5, 0)]),
    ]
    history = result.histories[0]
    assert history.trips.tolist() == list(range(13))
    assert history.time.tolist() == [0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5]
    assert history.version.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    stale = {2: (0, 0), 4: (0.5, 1), 6: (0.5, 1), 8: (2, 3), 10: (1, 1), 12: (0.5, 1)}
    for trip, (mean, most) in stale.items():
        assert history.staleness[trip].tolist() == [mean, most]
    assert np.isnan(np.delete(history.staleness, list(stale), 0)).all()


def test_a_timetable_of_atomic_trips():
    """The timetable above: fast clients upload when they did, and are fresh after their first trips.

    At 2 client 0 downloads version 1; 1 downloads 2, which 0 makes. At 3 client 0 downloads 2, 2 downloads 3; 3 began at 0. At 4, clients
    0 and 1 download 4, 2 downloads 5. At 5 client 0 downloads 5.
    """
    result, (loop,) = run(buff(buffer=2), fixed((1, 1, 1, 3), lag_unit="time", fast_trips="atomic"), eval_every=1)
    assert loop.trace == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0), (3, 2), (3, 3), (4, 0), (4, 1), (4, 2), (5, 0)]
    assert loop.steps == [
        (1, 1, [(0, 0, 0), (1, 0, 0)]),
        (2, 2, [(2, 0, 1), (0, 1, 0)]),
        (3, 3, [(1, 2, 0), (0, 2, 0)]),
        (4, 3, [(2, 3, 0), (3, 0, 3)]),
        (5, 4, [(0, 4, 0), (1, 4, 0)]),
        (6, 5, [(2, 5, 0), (0, 5, 0)]),
    ]
    assert result.histories[0].trips.tolist() == list(range(13))


@pytest.mark.parametrize("wait", [True, False])
def test_atomic_trips_of_fast_clients_hand_the_model_on(wait):
    """K = 1, no stragglers: after the first cycle every trip starts from what the one before it has trained."""
    scenario = semi_async(slow_fraction=0.0, fast_trips="atomic")
    result, (loop,) = run(buff(buffer=1, wait=wait), scenario, clients=4, trips=20)
    place, order = [0] * 4, []
    for _, client in loop.trace:
        order.append(result.trips[client][place[client]])
        place[client] += 1
    for (_, before), (received, _) in zip(order[4:], order[5:], strict=False):
        torch.testing.assert_close(received, before)
    assert [uploads[0][2] for *_, uploads in loop.steps[4:]] == [0] * 16


def test_an_atomic_trip_starts_from_the_newest_message():
    method, newest, begun = gcl(buffer=2, threshold=-1.0), {}, []
    serve, begin = method.serve, method.begin

    def serving(server, arrivals):
        messages = serve(server, arrivals)
        newest.update({message.client: message.model.clone() for message in messages})
        return messages

    def beginning(message, trained, reports):
        begun.append(torch.equal(message.model, newest[message.client]))
        return begin(message, trained, reports)

    method.serve, method.begin = serving, beginning
    run(method, semi_async(slow_fraction=0.0, fast_trips="atomic"), clients=6, trips=40)
    assert len(begun) >= 30 and all(begun)


def test_staleness_from_the_last_upload_ages_the_uploads_that_are_mixed_again():
    method, seen = gcl(buffer=2), []
    serve, last = method.serve, np.full(6, -1)

    def serving(server, arrivals):
        last[[upload.client for upload in arrivals]] = server.version
        seen.append((server.version - 1 - server.base_version[server.known]).tolist())
        assert seen[-1] == (server.version - last[server.known]).tolist() and not any(upload.staleness for upload in arrivals)
        return serve(server, arrivals)

    method.serve = serving
    result, _ = run(method, semi_async(staleness_from="upload"), clients=6, trips=40)
    assert len(seen) == 20 and max(map(max, seen)) > 1
    assert result.histories[0].staleness[-1, 1] > 0, "what is recorded is from the version that trips started from"


def test_staleness_from_the_last_upload_changes_weights_only():
    federations = tiny(6)
    base, upload, ageless, plain = (
        simulate(federations, gcl(buffer=2, staleness_exponent=exponent), semi_async(staleness_from=kind), trips=40).trips[0][-1][1]
        for exponent, kind in ((2.0, "base"), (2.0, "upload"), (0.0, "base"), (0.0, "upload"))
    )
    assert torch.equal(ageless, plain) and not torch.allclose(base, upload)


def test_a_timetable_by_trips():
    """Client 0 lags two cycles of four trips, so its first upload is released once eight trips are counted, wherever the clock
    then stands, and the second at 10 + 8 trips. By hand:

    t = 1: 1, 2 -> version 1; 3 queues. t = 2: 1 -> version 2 with 3; 2 queues. t = 3: 1 -> version 3 with 2; 3 queues.
    t = 4: 1 -> version 4 with 3, the eighth trip, which releases client 0: it is before 2, and both -> version 5, ten trips.
    t = 5: 1, 2 -> version 6; 3 queues. t = 6: 1 -> version 7 with 3; 2 queues. t = 7: 1 -> version 8 with 2; 3 queues.
    t = 8: 1, the 18th trip, -> version 9 with 3, and client 0 is released: 0, 2 -> version 10.
    """
    _, (loop,) = run(buff(buffer=2), fixed((2, 1, 1, 1), lag_unit="trips"), trips=20)
    assert loop.trace == [
        (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 0), (4, 2),
        (5, 1), (5, 2), (5, 3), (6, 1), (6, 2), (7, 1), (7, 3), (8, 1), (8, 0), (8, 2),
    ]  # fmt: skip
    assert [step[2] for step in loop.steps][:5] == [
        [(1, 0, 0), (2, 0, 0)],
        [(3, 0, 1), (1, 1, 0)],
        [(2, 1, 1), (1, 2, 0)],
        [(3, 2, 1), (1, 3, 0)],
        [(0, 0, 4), (2, 3, 1)],
    ]
    assert loop.steps[-1] == (10, 8, [(0, 5, 4), (2, 8, 1)])
    assert loop.forced == 0


def test_a_slow_upload_is_released_early_where_everybody_else_waits_for_it():
    """K = C: in every round the three fast uploads wait, and the clock does not move for the slow one."""
    _, (loop,) = run(buff(buffer=4), fixed((1, 1, 1, 5), lag_unit="trips"))
    assert loop.forced == 3
    assert loop.trace == [(t, c) for t in (1, 2, 3) for c in range(4)]


def test_without_stragglers_and_jitter_uploads_come_in_order_and_staleness_is_a_cycle():
    """K = 1: 0, 1, ..., C - 1 in the first cycle, C - 1 ever after."""
    _, (loop,) = run(buff(buffer=1), fixed((1,) * 5), clients=5, trips=20)
    assert [client for _, client in loop.trace] == [0, 1, 2, 3, 4] * 4
    assert [uploads[0][2] for *_, uploads in loop.steps] == [0, 1, 2, 3] + [4] * 16


# ---- what holds for every setting


@given(
    clients=st.integers(3, 12),
    buffer=st.integers(1, 12),
    seed=st.integers(0, 50),
    lag_unit=st.sampled_from(["trips", "time"]),
    lag_draw=st.sampled_from(["per_run", "per_trip"]),
    slow_fraction=st.sampled_from([0.0, 0.3, 1.0]),
    method=st.sampled_from(["wait", "no_wait", "clustercast"]),
    fast_trips=st.sampled_from(["concurrent", "atomic"]),
)
@settings(max_examples=40)
def test_the_loop_ends_and_its_counts_agree(clients, buffer, seed, lag_unit, lag_draw, slow_fraction, method, fast_trips):
    buffer = min(buffer, clients)
    makers = {
        "wait": lambda: buff(buffer=buffer),
        "no_wait": lambda: buff(buffer=buffer, wait=False),
        "clustercast": lambda: gcl(buffer=buffer),
    }
    scenario = semi_async(lag_unit=lag_unit, lag_draw=lag_draw, slow_fraction=slow_fraction, fast_trips=fast_trips)
    trips = 3 * clients + 2
    with counted_batches() as batches:
        result, (loop,) = run(makers[method](), scenario, clients, trips, seeds=(seed,))
    # watched_loops also asserts that nobody waits after a step and that no staleness is negative.
    arrived = np.bincount([client for _, client in loop.trace], minlength=clients)
    assert arrived.sum() == loop.trips == trips == loop.ended.sum()
    assert (arrived == loop.ended).all() and ((loop.begun - loop.ended) <= 1).all()
    assert loop.server.version == len(loop.steps)
    assert trips - len(loop.queue) == sum(len(uploads) for *_, uploads in loop.steps)
    assert all(len(uploads) == buffer for *_, uploads in loop.steps)
    times = [time for time, _ in loop.trace]
    assert times == sorted(times) and np.isfinite(times).all()
    assert sum(batches) == sum(len(done) for done in result.trips) >= trips
    history = result.histories[0]
    assert history.trips[0] == 0 and history.trips[-1] == trips and (np.diff(history.trips) > 0).all()
    assert all((np.diff(getattr(history, name)) >= 0).all() for name in ("version", "time", "upload", "download"))


@pytest.mark.parametrize("lag", [2, 3])
def test_a_slow_client_keeps_its_distance(lag):
    """On the clock it manages one trip in ``lag`` cycles; by trips, one in ``lag * C``."""
    lags, trips = (1, 1, 1, 1, lag), 120
    _, (clock,) = run(buff(buffer=2), fixed(lags, lag_unit="time"), 5, trips)
    slow = [time for time, client in clock.trace if client == 4]
    assert np.diff(slow).min() >= lag and len(slow) <= clock.time / lag
    _, (count,) = run(buff(buffer=2), fixed(lags, lag_unit="trips"), 5, trips)
    places = [n for n, (_, client) in enumerate(count.trace, 1) if client == 4]
    assert count.forced == 0 and places[0] > lag * 5 and np.diff(places).min() >= lag * 5


def test_seeds_meet_their_own_stragglers_and_do_not_disturb_each_other():
    _, together = run(gcl(), semi_async(), 8, 60, seeds=(0, 1, 2))
    _, (alone,) = run(gcl(), semi_async(), 8, 60, seeds=(1,))
    assert together[1].trace == alone.trace
    assert together[0].trace != alone.trace


def test_evaluation_points_lie_on_a_grid_and_at_the_ends():
    result, _ = run(buff(buffer=2), semi_async(), 4, 10, eval_every=4)
    assert result.histories[0].trips.tolist() == [0, 4, 8, 10]


# ---- what was measured


def test_scores_at_a_point_are_those_of_the_models_that_clients_then_have():
    """Recomputed from the models themselves: the received model is what the trip under way started from."""
    federation = small_federation(0, clients=5)
    with watched_loops() as loops:
        result = simulate([federation], gcl(), semi_async(), trips=30, eval_every=7)
    trainer, history, (loop,) = result.sim.trainer, result.histories[0], loops
    for point, done in enumerate(history.trips):
        finished = np.bincount([client for _, client in loop.trace[:done]], minlength=5)
        for i in range(5):
            trips, n = result.trips[i], int(finished[i])
            under_way = loop.records[point][3][i]
            assert under_way in (n, n - 1), "a client that waits for an answer has not begun its next trip"
            if under_way < len(trips):
                received = trainer.evaluate(trips[under_way][0][None], [i])[0]
                np.testing.assert_array_equal(history.scores["received"][point][i], received)
            model = trips[n - 1][1] if n else trips[0][0]
            np.testing.assert_array_equal(history.scores["trained"][point][i], trainer.evaluate(model[None], [i])[0])


# ---- batching


def test_under_wait_there_is_at_most_one_batch_for_every_server_step():
    """Trips begin at the start and at server steps only, and all that are under way are trained together."""
    with counted_batches() as batches:
        _, (loop,) = run(buff(buffer=5), semi_async(), 20, 200)
    assert len(batches) <= loop.server.version + 1 <= 200 / 5 + 1


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2, 3, 4)])
def test_seeds_share_their_batches(seeds):
    with counted_batches() as batches:
        run(buff(buffer=5), semi_async(), 20, 200, seeds=seeds)
    assert len(batches) <= 200 / 5 + 1, "no more batches for five seeds than for one"
    assert sum(batches) >= 200 * len(seeds)


def test_clustercast_trains_many_trips_at_once_too():
    with counted_batches() as batches:
        run(gcl(), semi_async(), 20, 200)
    assert len(batches) < 200 / 2


def test_every_trip_is_trained_once():
    with counted_batches() as batches:
        result, loops = run(gcl(), semi_async(), 8, 80, seeds=(0, 1))
    assert sum(batches) == sum(len(done) for done in result.trips)
    for loop in loops:
        done = [len(trips) for trips in result.trips[loop.first : loop.first + 8]]
        assert all(ended <= trained <= begun for ended, trained, begun in zip(loop.ended, done, loop.begun, strict=True))


def test_a_buffer_keeps_both_uploads_of_a_client_that_comes_twice():
    method, sent, twice = gcl(buffer=3, threshold=-1.0), [], []
    serve = method.serve

    def serving(server, arrivals):
        clients = [upload.client for upload in arrivals]
        twice.extend(client for client in clients if clients.count(client) > 1)
        sent.extend((upload.client, upload.payload.clone()) for upload in arrivals)
        return serve(server, arrivals)

    method.serve = serving
    result, _ = run(method, semi_async(slow_fraction=0.5), clients=6, trips=200)
    done = [0] * 6
    for client, payload in sent:
        assert torch.equal(payload, result.trips[client][done[client]][1]), "every payload is what its own trip has trained"
        done[client] += 1
    assert twice, "nobody came twice: choose another setting"


def test_a_push_that_waits_longer_than_a_server_step_keeps_its_own_model_only(monkeypatch):
    """A server's step makes all its models in one block. Here every other step pushes."""
    method, serve, waited, pushed = gcl(buffer=2, threshold=-1.0), _Loop._serve, [], {}
    answers = method.serve
    method.serve = lambda server, arrivals: [m for m in answers(server, arrivals) if m.confidence is None or server.version % 2]

    def watched(loop):
        pushed.update({client: push[0].model.clone() for client, push in enumerate(loop.inbox) if push is not None})
        serve(loop)
        for client, push in enumerate(loop.inbox):
            if push is not None and push[1] < loop.server.version:
                waited.append(client)
                assert push[0].model.untyped_storage().nbytes() == push[0].model.nbytes
                assert torch.equal(push[0].model, pushed[client])

    monkeypatch.setattr(_Loop, "_serve", watched)
    run(method, semi_async(slow_fraction=0.5), clients=6, trips=60)
    assert waited, "nobody waited: choose another setting"


def test_a_message_that_is_changed_after_it_was_sent_is_refused():
    method = gcl(buffer=2)
    serve = method.serve

    def changing(server, arrivals):
        for message in serve(server, arrivals):
            model = message.model.clone()
            yield message._replace(model=model)
            model.add_(1)

    method.serve = changing
    with pytest.raises(UserError, match=r"^serve\(\): the model sent to client \d was changed after it was sent; send a copy$"):
        run(method, semi_async(), clients=6, trips=20)
