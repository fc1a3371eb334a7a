"""A strategy on top of a graph model: it is that method where the model adds nothing, it begins with federation, both are counted."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException

from fgl_bench.algorithms._composition import EXCLUSIVE, Composed
from fgl_bench.algorithms.base import Algorithm, ServerRounds
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedgl import FedGL
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.fedprox import FedProx
from fgl_bench.algorithms.fedsage_plus import FedSagePlus
from fgl_bench.algorithms.powers import POWERS
from fgl_bench.config.choices import config_folder
from fgl_bench.config.groups import build, label
from fgl_bench.config.schema import register_all
from fgl_bench.config.wording import explain
from fgl_bench.errors import UserError
from fgl_bench.runner.validation import validate
from fgl_bench.scenarios.hooks import hooks
from tests.algorithms.batching import assert_batching_changes_nothing
from tests.algorithms.comparing import assert_same_trips, watch
from tests.algorithms.test_fedgl import KEYS as FEDGL
from tests.algorithms.test_fedsage_plus import KEYS as FEDSAGE
from tests.algorithms.test_fedsage_plus import MODEL, SAGE
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous
from tests.test_equivalence import GTA


def configured(name, **changes):
    """The method of conf/algorithm/<name>.yaml."""
    keys = yaml.safe_load((config_folder() / "algorithm" / f"{name}.yaml").read_text(encoding="utf-8"))
    module, _, cls = keys.pop("_target_").rpartition(".")
    keys.pop("defaults", None)
    return getattr(__import__(module, fromlist=[cls]), cls)(**{**keys, **changes})


STRATEGIES = {
    "fedavg": {}, "fedprox": {"mu": 0.5}, "scaffold": {"server_lr": 0.5}, "moon": {}, "feddc": {}, "fedgta": {"threshold": 0.9},
    "gcfl": {"eps1": 1e9, "eps2": 0.0, "warmup": 1}, "fed_pub": {"blocks": 2, "block_nodes": 5}, "fedper": {},
    "fedtad": {"outer": 1, "pseudo_nodes": 9}, "local": {},
}  # fmt: skip


def sage(strategy=None, **changes):
    return FedSagePlus(**{**FEDSAGE, "strategy": strategy, **changes})


def gl(strategy=None, **changes):
    return FedGL(**{**FEDGL, "strategy": strategy, **changes})


def run(made, seeds=(0, 1), **settings):
    federations = [small_federation(seed) for seed in seeds]
    return simulate(federations, made, synchronous(), **{"rounds": 4, "model": SAGE, "local_epochs": 2, **settings})


@pytest.mark.parametrize(("name", "participation"), [(name, (1.0, 0.6)[i % 2]) for i, name in enumerate(STRATEGIES)])
def test_on_a_model_that_adds_nothing_it_is_the_strategy_itself(name, participation):
    alone = run(configured(name, **STRATEGIES[name]), participation=participation)
    for host in (sage(max_neighbours=0, strategy=configured(name, **STRATEGIES[name])), gl(configured(name, **STRATEGIES[name]), weight=0)):
        result = run(host, participation=participation)
        assert_same_trips(result, alone, exact=True, fewest=24)
        for left, right in zip(result.histories, alone.histories, strict=True):
            assert left.upload.tolist() == right.upload.tolist() and left.download.tolist() == right.download.tolist()


def test_no_strategy_is_the_models_own_average():
    """FedAvg as a strategy weighs by size, FedSage+ itself counts clients alike."""
    assert_same_trips(run(sage(weighting="samples")), run(sage(FedAvg())), exact=True, fewest=40)
    assert_same_trips(run(gl()), run(gl(FedAvg())), exact=True, fewest=40)


# ---- FedSage+


def test_the_strategy_begins_with_the_mended_graphs():
    strategy = FedGTA(**{**GTA, "threshold": -1.0})
    host = sage(strategy, gen_rounds=2)
    mixed, reported = watch(strategy, "mix"), []
    report = strategy.report
    strategy.report = lambda trips: reported.append(trips.batch) or report(trips)
    result = run(host, rounds=5)
    assert len(mixed) == len(reported) == 3
    for trips in result.trips:
        for number in (1, 2):
            assert torch.equal(trips[number][0], trips[number - 1][1]), "in phase 0 nothing is aggregated"
    assert all(batch is host.setting.batch and batch is strategy.setting.batch for batch in reported)
    for (reports, _), mixing in mixed:
        expected = reports["confidence"] / reports["confidence"].sum(1, keepdim=True)
        torch.testing.assert_close(mixing.matrix(), expected[:, None].expand(-1, 5, -1))


def test_both_messages_are_counted():
    gta = run(sage(FedGTA(**GTA)), rounds=5).histories[0]
    own = run(sage(), rounds=5).histories[0]
    assert (gta.upload - own.upload).tolist() == [0, 0, 0, *(4 * 5 * n * 61 for n in (1, 2, 3))]
    assert gta.download.tolist() == own.download.tolist()
    assert own.download[-1] - own.download[-2] == 4 * 5 * MODEL


def test_local_terms_of_both_enter():
    class Penalised(FedAvg):
        def local_penalty(self, step):
            return 3.0 + 0 * step.output.logits.sum((1, 2))

        def correct_gradient(self, step, gradient):
            return gradient * 0

    host = gl(Penalised(), confidence=0.0)
    terms, penalty = [], host.local_penalty
    host.local_penalty = lambda step: terms.append(penalty(step)) or terms[-1]
    result = run(host, rounds=2)
    assert_same_trips(result, run(Penalised(), rounds=2), exact=True)
    first, later = terms[0], terms[-1]
    assert first.tolist() == [3.0] * 10 and (later[:4] > 3.0).all()


# ---- every hook is passed on

HOOKS = {hook for base in (Algorithm, ServerRounds, *POWERS) for hook in hooks(base)}
NOT_PASSED_ON = dict.fromkeys(EXCLUSIVE, "a strategy that has its own is refused")
PASSED_ATTRIBUTES = {"reset_optimizer", "uses_validation", "own_optimizer", "unsent", "frozen", "predicts_alone"}
OWN_ATTRIBUTES = {
    "pairing": "of the command line's choice",
    "ranges": "of the model's own keys; the strategy's are checked with it",
    "trains": "a strategy that does not is refused",
    "tasks": "of the model, whose graphs or labels are those of nodes",
    "node_batches": "models that change graphs need all nodes",
    "multilabel": "both models read classes",
    "labeled_only": "both models ask for every node",
    "by_clients": "no graph model shares a seed's clients among workers",
    "own_reports": "of workers that share clients",
    "replayable": "what a model adds to its strategy's steps is not the same in every trip",
    "rebuilt": "a checkpoint asks the host and its strategy, each for itself",
}


def strategy_that_notes(calls):
    """A strategy with every hook; it notes who is called with what."""

    def noting(name):
        return lambda self, *arguments: calls.append((name, arguments))

    bases = (ServerRounds, *(power for power in POWERS if not set(hooks(power)) & set(EXCLUSIVE)))
    return type("Noting", bases, {name: noting(name) for name in HOOKS - set(NOT_PASSED_ON)})()


@pytest.mark.parametrize("hook", sorted(HOOKS - set(NOT_PASSED_ON)))
def test_a_hook_is_passed_on_with_its_arguments(hook):
    host, calls = gl(), []
    host.server = strategy_that_notes(calls)
    own = vars(Composed)[hook]
    if isinstance(own, property):
        assert own.fget(host) == getattr(host.server, hook)
        return
    base = next(base for base in (Algorithm, ServerRounds, *POWERS) if hook in hooks(base))
    arguments = tuple(list(inspect.signature(getattr(base, hook)).parameters)[1:])
    own(host, *arguments)
    assert calls == [(hook, arguments)]


def test_a_class_attribute_is_the_strategy_s_or_for_a_reason_the_model_s():
    assert {name for name in vars(Algorithm)["__annotations__"]} <= PASSED_ATTRIBUTES | set(OWN_ATTRIBUTES)
    for name in PASSED_ATTRIBUTES:
        host = gl()
        host.server = SimpleNamespace(**{name: "its own"})
        assert getattr(host, name) == "its own"


def test_what_a_strategy_does_not_have_is_neutral():
    host = gl(FedAvg())
    assert host.similarity({}) is None and host.final_state([]) == host.costs() == host.cost_history() == {} and host.exchanged() is None
    trips = SimpleNamespace(output=SimpleNamespace(logits=2), batch=3)
    assert host.score_trained(lambda logits, batch: (logits, batch), trips) == (2, 3)


# ---- what cannot be a strategy


@pytest.mark.parametrize("name", ["majority", "global", "fedasync", "fedsa_gcl", "d_psgd"])
def test_what_cannot_be_a_strategy(name):
    with pytest.raises(UserError, match=r"^algorithm\.strategy=\w+: .*; allowed are methods such as"):
        gl(configured(name))


@pytest.mark.parametrize("name", ["adafgl", "fedgnn", "fediih", "fedaas", "fedcross", "fedgraph", "graphfed"])
def test_what_a_model_would_not_pass_on_is_no_strategy(name):
    """Stages and exchanges during training would be left out without a word, and FedAvg would remain."""
    with pytest.raises(UserError, match=r"^algorithm\.strategy=\w+: it has its own \w+ and cannot stand on another method"):
        gl(configured(name))


def test_a_model_is_no_strategy():
    with pytest.raises(UserError, match=r"algorithm\.strategy=FedSagePlus: it has its own regraph"):
        gl(sage())


@pytest.mark.parametrize("make", [lambda: gl(FedProx(mu=0.3), pseudo_graph=0.2), lambda: sage(FedGTA(**GTA))])
def test_batching_changes_nothing(make):
    assert_batching_changes_nothing(make, synchronous, participation=0.5, rounds=4, model=SAGE)


# ---- the command line


@pytest.fixture
def composed():
    register_all(ConfigStore.instance())
    with initialize_config_dir(version_base="1.3", config_dir=str(config_folder())):
        yield lambda *overrides: compose("config", ["results_dir=/tmp", *overrides])


@pytest.mark.parametrize("host", ["fedsage_plus", "fedgl"])
def test_one_word_puts_a_strategy_on_a_model(composed, host):
    cfg = composed(f"algorithm={host}", "algorithm@algorithm.strategy=fedgta", "algorithm.strategy.threshold=0.7")
    validate(cfg)
    made = build(cfg.algorithm)
    assert isinstance(made.strategy, FedGTA) and made.strategy.threshold == 0.7 and made.server is made.strategy
    assert label(cfg, "algorithm") == f"{host}+fedgta"
    plain = composed(f"algorithm={host}")
    assert build(plain.algorithm).strategy is None and label(plain, "algorithm") == host


def test_wrong_keys_of_a_strategy(composed):
    cfg = composed("algorithm=fedgl", "algorithm@algorithm.strategy=fedgta", "algorithm.strategy.moments=all")
    with pytest.raises(UserError, match=r"^algorithm\.strategy\.moments=all: must be one of hybrid, raw, central, none"):
        validate(cfg)
    cfg = composed("algorithm=fedgl", "+algorithm.strategy={_target_: fgl_bench.algorithms.fedprox.FedProx, nu: 1}")
    with pytest.raises(UserError, match=r"^algorithm\.strategy\.nu: unknown key"):
        validate(cfg)


def test_a_method_that_takes_no_strategy(composed):
    with pytest.raises(HydraException) as caught:
        composed("algorithm=fedavg", "algorithm@algorithm.strategy=fedgta")
    expected = "algorithm@algorithm.strategy: this algorithm takes no strategy; allowed with fedgl, fedsage_plus"
    assert explain(caught.value) == expected
