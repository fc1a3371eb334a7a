"""The optimizers of clients: every method steps as the plain loop does with torch's own, and what is refused."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from fgl_bench.config.compose import composed
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from fgl_bench.optimizers.adam import DEFAULT
from fgl_bench.optimizers.adamw import AdamW
from fgl_bench.optimizers.sgd import SGD
from fgl_bench.runner.run_store import RunStore
from fgl_bench.runner.spec import resolve
from fgl_bench.runner.validation import check_optimizer, validate
from tests.algorithms import test_feddc, test_moon, test_scaffold
from tests.algorithms.stateful import assert_follows
from tests.reference import buffered, semi_async, stateful, sync
from tests.reference.decentralized import DPSGD as PlainDPSGD
from tests.reference.decentralized import ring, run_decentralized
from tests.reference.small import small_federation
from tests.scenarios.test_decentralized import decentralized
from tests.small_runs import semi_async as stragglers
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import SAGCL, assert_same, compare, start

PAIRS = {
    "sgd": (SGD(0.0, False), torch.optim.SGD),
    "momentum": (SGD(0.9, False), partial(torch.optim.SGD, momentum=0.9)),
    "nesterov": (SGD(0.9, True), partial(torch.optim.SGD, momentum=0.9, nesterov=True)),
    "adamw": (AdamW(0.8, 0.99, 1e-8), partial(torch.optim.AdamW, betas=(0.8, 0.99))),
}
LARGE = {"lr": 0.05, "weight_decay": 0.1}  # so that the decay counts


@pytest.fixture(params=PAIRS)
def pair(request):
    return PAIRS[request.param]


@pytest.mark.parametrize(
    ("method", "plain", "name"),
    [
        (test_scaffold.method, stateful.SCAFFOLD, "momentum"),
        (test_feddc.method, stateful.FedDC, "adamw"),
        (test_moon.method, stateful.MOON, "nesterov"),
    ],
)
def test_methods_that_remember_something_are_the_plain_loop(method, plain, name):
    # Momentum multiplies what rounding leaves in the states.
    assert_follows(method, plain, participation=0.5, local_epochs=2, optimizers=PAIRS[name], tolerance=1e-6, **LARGE)


def test_fedavg_is_the_plain_loop(pair):
    ours, theirs = pair
    federation = small_federation(0)
    run = simulate([federation], FedAvg(), synchronous(), rounds=4, local_epochs=2, optimizer=ours, **LARGE)
    trace = sync.run_sync(federation, sync.FedAvg(), start(run), rounds=4, local_epochs=2, optimizer=theirs, **LARGE)
    for number, expected in enumerate(trace):
        for i in range(federation.num_clients):
            assert_same(run, run.trips[i][number][1], expected.trained[i])


def test_fedsa_gcl_is_the_plain_loop():
    ours, theirs = PAIRS["nesterov"]
    federation, scenario = small_federation(1, clients=6), stragglers()
    run = simulate([federation], FedSAGCL(**SAGCL), scenario, trips=42, local_epochs=2, optimizer=ours, **LARGE)
    trace = semi_async.run_semi_async(
        federation, buffered.FedSAGCL(), start(run), trips=42, schedule=scenario.schedule(1, 6), buffer=2, lag_unit="trips",
        local_epochs=2, optimizer=theirs, **LARGE,
    )  # fmt: skip
    compare(run, trace, 6)


def test_d_psgd_is_the_plain_loop():
    ours, theirs = PAIRS["adamw"]
    federation = small_federation(0, clients=6)
    method = DPSGD(weights="metropolis", order="train_mix")
    run = simulate([federation], method, decentralized(topology="ring"), rounds=4, optimizer=ours, **LARGE)
    trace = run_decentralized(federation, PlainDPSGD(ring(6)), start(run), rounds=4, optimizer=theirs, **LARGE)
    for number, expected in enumerate(trace):
        for i in range(6):
            assert_same(run, run.trips[i][number][1], expected.trained[i])


def test_forgetting_the_velocity_makes_a_first_step_of_every_trip():
    federation = small_federation(0)
    kept, reset, none = (
        simulate([federation], FedAvg(), synchronous(), optimizer=SGD(momentum, False), opt_state=state, model=GCN(4, 2, 0.0), **LARGE)
        for momentum, state in ((0.9, "persist"), (0.9, "reset"), (0.0, "persist"))
    )
    assert torch.equal(kept.trips[0][0][1], reset.trips[0][0][1]) and not torch.allclose(kept.trips[0][1][1], reset.trips[0][1][1])
    torch.testing.assert_close(reset.trips[0][2][1], none.trips[0][2][1])  # one step a trip, at rest before it


def store(spec):
    return RunStore.of(spec.config, spec.names, spec.budget, spec.dataset)


def test_the_default_is_adam():
    spec = resolve(composed(["dataset=csbm", "algorithm=fedavg"]))
    adam = {"_target_": "fgl_bench.optimizers.adam.Adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    assert spec.optimizer == DEFAULT and store(spec).identity["optimizer"] == adam
    other = resolve(composed(["dataset=csbm", "algorithm=fedavg", "optimizer=sgd", "optimizer.momentum=0.9"]))
    assert store(other).identity["optimizer"] == {"_target_": "fgl_bench.optimizers.sgd.SGD", "momentum": 0.9, "nesterov": False}
    assert spec.names["optimizer"] == "adam" and other.names["optimizer"] == "sgd"


@pytest.mark.parametrize("changed", ["optimizer=adamw", "optimizer.beta1=0.5", "optimizer.eps=1e-7"])
def test_any_other_choice_is_another_run(changed):
    plain, other = (resolve(composed(["dataset=csbm", "algorithm=fedavg", *more])) for more in ([], [changed]))
    assert store(plain).folder != store(other).folder


def test_a_method_with_steps_of_its_own_takes_no_other_optimizer():
    check_optimizer(resolve(composed(["dataset=csbm", "algorithm=dfedavgm"])))
    with pytest.raises(UserError, match=r"^optimizer=sgd: algorithm=dfedavgm has its own, heavy-ball steps with algorithm.momentum"):
        check_optimizer(resolve(composed(["dataset=csbm", "algorithm=dfedavgm", "optimizer=sgd"])))


def test_nesterov_needs_momentum(tmp_path):
    with pytest.raises(UserError, match=r"optimizer\.nesterov=true: must be false with optimizer\.momentum=0"):
        validate(composed(["dataset=csbm", "algorithm=fedavg", "optimizer=sgd", "optimizer.nesterov=true", f"results_dir={tmp_path}"]))
