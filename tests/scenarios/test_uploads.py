"""What clients upload, not what they trained, is aggregated; what they trained is scored, and stays with them where nothing is shared."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from fgl_bench.algorithms.base import MixingPeers
from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedper import FedPer
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.mixing import Mixing, alone, normalize
from fgl_bench.scenarios.sync import Sync
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.algorithms.peers import decentralized
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous


def run(algorithm, scenario=None, **settings):
    return simulate([small_federation(seed) for seed in (0, 1)], algorithm, scenario or synchronous(), **{"rounds": 4, **settings})


class Negative:
    """Clients upload their change with the other sign, and the number of the replica in the first place."""

    def upload(self, rows, received, trained):
        uploaded = received - trained
        uploaded[:, 0] = torch.tensor(rows)
        return uploaded


@dataclass
class NegativeFedAvg(Negative, FedAvg):
    def refine(self, previous, received, uploaded, arrived):
        self.seen.append((previous.clone(), received.clone(), uploaded.clone(), arrived.clone()))
        return previous - received


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_the_server_averages_the_last_uploads(participation, chunk):
    method = NegativeFedAvg()
    method.seen = []
    result = run(method, participation=participation, chunk=chunk)
    last, done = {}, [0] * len(result.trips)
    assert len(method.seen) == 4
    for previous, received, uploaded, arrived in method.seen:
        for row in arrived.flatten().nonzero()[:, 0].tolist():
            before, after = result.trips[row][done[row]]
            assert torch.equal(before, previous.flatten(0, 1)[row])
            last[row], done[row] = before - after, done[row] + 1
        for row, upload in enumerate(uploaded.flatten(0, 1)):
            assert torch.equal(upload[1:], last[row][1:] if row in last else torch.zeros_like(upload[1:])), "absent clients' stay"
            assert upload[0] == (row if row in last else 0)
        share = normalize(result.sim.setting.weights, arrived)
        torch.testing.assert_close(received[:, 0], torch.einsum("sc,scp->sp", share, uploaded), **TIGHT)


def test_trained_models_are_scored():
    @dataclass
    class Nothing(FedAvg):
        def upload(self, rows, received, trained):
            return torch.zeros_like(trained)

    method = Nothing()
    scores = [history.scores["trained"][1] for history in run(method, rounds=1).histories]
    assert all((a == b.scores["trained"][1]).all() for a, b in zip(scores, run(FedAvg(), rounds=1).histories, strict=True))


def test_what_is_not_shared_stays_as_it_was_trained():
    @dataclass
    class Halved(FedPer):
        def upload(self, rows, received, trained):
            return 0.5 * trained

    method = Halved(personal_layers=1)
    result = run(method, rounds=2)
    layout = result.sim.setting.layout
    for (_, trained), (received, _) in result.trips:
        for name in layout.shapes:
            own, new = (layout.view(model[None], name) for model in (trained, received))
            assert torch.equal(own, new) == (name not in method.shared)


def test_who_goes_on_alone_goes_on_with_the_trained_model():
    @dataclass
    class Silent(Local):
        def upload(self, rows, received, trained):
            return 0 * trained

    for scenario in (synchronous(), decentralized()):
        assert_same_trips(run(Silent(), scenario), run(Local(), scenario), exact=True, fewest=20)


@dataclass
class Mean(MixingPeers):
    def mix(self, reports, arrived):
        return Mixing(normalize(self.setting.weights)[:, None])


@pytest.mark.parametrize("base", [Mean, lambda: DPSGD(weights="uniform", order="train_mix")])
def test_neighbours_hear_uploads(base):
    method = base()
    method.upload = lambda rows, received, trained: 2 * trained
    heard, exchange = [], method.exchange
    method.exchange = lambda meeting: heard.append((meeting.trained.clone(), meeting.uploaded.clone(), exchange(meeting))) or heard[-1][2]
    run(method, decentralized(topology="complete"), rounds=3)
    for trained, uploaded, made in heard:
        assert torch.equal(uploaded, 2 * trained)
        torch.testing.assert_close(made.models, made.matrix.to(uploaded.dtype) @ uploaded, **TIGHT)


def test_the_trained_model_is_uploaded_without_a_copy(monkeypatch):
    places, aggregate = [], Sync.aggregate
    monkeypatch.setattr(Sync, "aggregate", lambda *given: places.append([m.data_ptr() for m in given[2][3:5]]) or aggregate(*given))
    run(FedAvg())
    run(FedAvg(), participation=0.5)
    assert len(places) == 8 and all(uploaded == trained for uploaded, trained in places)


def test_who_uploads_otherwise_for_some_rounds_only():
    """What was uploaded before does not stand in for what is."""

    @dataclass
    class Alternating(FedAvg):
        number: int = 0

        def upload(self, rows, received, trained):
            return 1 * trained if self.number % 2 else trained

        def mix(self, reports, arrived):
            self.number += 1
            return super().mix(reports, arrived)

    for participation in (1.0, 0.6):
        one, other = (run(method(), participation=participation) for method in (Alternating, FedAvg))
        assert_same_trips(one, other, exact=True, fewest=20)


def test_alone_is_the_identity_of_trained_models():
    uploaded, trained = torch.ones(1, 2, 3), torch.zeros(1, 2, 3)
    assert torch.equal(alone(torch.ones(1, 2)).apply(uploaded, torch.ones(1, 2, 3), None, trained), trained)
