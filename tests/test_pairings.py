"""Any algorithm on any model: a pair of ``conf/algorithm`` and ``conf/model`` trains for a round, or says why it cannot.

Every method runs on GCN and on its own model, and every model under a method of every scenario; the other pairs are for the night.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

import fgl_bench.config.groups
import fgl_bench.config.pairing
import fgl_bench.runner.program
import fgl_bench.runner.run
from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.local import Alone
from fgl_bench.config.choices import config_folder
from fgl_bench.config.groups import check_node
from fgl_bench.config.pairing import suited
from fgl_bench.config.schema import register_all
from fgl_bench.data.federation import Federation
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import History
from fgl_bench.runner.spec import resolve
from fgl_bench.runner.validation import validate

CONF = config_folder()
ALGORITHMS, MODELS = (sorted(path.stem for path in (CONF / group).glob("[!_]*.yaml")) for group in ("algorithm", "model"))
SMALL = [
    "dataset=csbm", "dataset.num_nodes=64", "dataset.num_edges=140", "dataset.num_features=24", "dataset.words_per_node=4",
    "dataset.num_classes=3", "num_clients=3", "seeds=[0]", "mixing_at=[]", "device=cpu", "progress=false",
]  # fmt: skip
# What makes a method's rounds cheap, or lets the run show all that the method does; the others run one round as they are.
CHANGES = {
    "fedsa_gcl": ["algorithm.threshold=-1"],
    "fedgta": ["algorithm.threshold=-1"],
    "adafgl": ["algorithm.federated_rounds=0"],
    "fedtgp": ["algorithm.server_epochs=2"],
    "fedtad": ["algorithm.outer=1", "algorithm.generator_steps=1", "algorithm.student_steps=1", "algorithm.pseudo_nodes=12"],
    "feddep": ["algorithm.gen_hidden=[16]", "algorithm.encoder_epochs=1", "algorithm.cluster_epochs=[0,0,1]"],
    "fedsage_plus": ["algorithm.gen_rounds=1", "algorithm.gen_hidden=[16]", "algorithm.latent=8"],
}
# One before the graphs are mended and one after; messages that are on the way for a round; prototypes, which clients get in the second.
ROUNDS = {"fedsage_plus": 2, "osgp": 2, "fedproto": 2, "fedtgp": 2}
PREPARED: dict[str, list[Federation]] = {}


@dataclass
class Seen:
    """What one run did.

    Attributes:
        trained: by replica, its model before and after its last trip.
        received: by replica, the model that was scored last.
    """

    trained: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    received: dict[int, torch.Tensor] = field(default_factory=dict)
    histories: list[History] = field(default_factory=list)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    register_all(ConfigStore.instance())
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield str(tmp_path_factory.mktemp("pairings"))
    for kept in (algorithm_config, model_config):
        kept.cache_clear()
    PREPARED.clear()


def class_of(algorithm: str) -> type[Algorithm]:
    return get_class(OmegaConf.load(CONF / "algorithm" / f"{algorithm}.yaml")._target_)


@cache
def algorithm_config(name: str, folder: str) -> DictConfig:
    where = [f"results_dir={folder}", f"cache_dir={folder}"]
    pairing = class_of(name).pairing
    chosen = [f"algorithm={name}", *(f"{group}={choice}" for group, choice in pairing.items()), *SMALL, f"rounds={ROUNDS.get(name, 1)}"]
    chosen += [*CHANGES.get(name, []), *where]
    cfg = compose("config", chosen)
    validate(cfg)
    return cfg


def federations(cfg: DictConfig) -> list[Federation]:
    """Made once for all methods on the same split."""
    key = str((cfg.split, cfg.cache_dir))
    if key not in PREPARED:
        PREPARED[key] = fgl_bench.runner.run.prepare(resolve(cfg))
    return PREPARED[key]


@cache
def model_config(name: str) -> DictConfig:
    return compose("config", [f"model={name}"]).model


@pytest.fixture(scope="module", autouse=True)
def each_node_is_checked_once() -> Iterator[None]:
    """What is built again and again is the same few nodes, and checking one takes as long as training it."""
    checked: dict[str, tuple[type, DictConfig]] = {}

    def check(node: DictConfig) -> tuple[type, DictConfig]:
        key = f"{node._get_full_key(None)} {node}"
        if key not in checked:
            checked[key] = check_node(node)
        return checked[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fgl_bench.config.groups, "check_node", check)
        yield


def run(algorithm: str, model: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> Seen:
    cfg = OmegaConf.create({**algorithm_config(algorithm, folder), "model": model_config(model)})
    seen, make = Seen(), fgl_bench.runner.program.simulation

    def watched(*args, **kwargs):
        sim = make(*args, **kwargs)
        trips, evaluate = sim.trainer.trips, sim.trainer.evaluate

        def watched_trips(rows, received, out, **more):
            before = received.clone()
            done = trips(rows, received, out, **more)
            seen.trained |= {row: (before[i], out[i].clone()) for i, row in enumerate(done.rows)}
            return done

        def watched_evaluate(models, rows=None, **more):
            names = sim.trainer.everyone if rows is None else rows
            seen.received |= {int(row): models[i].clone() for i, row in enumerate(names)}
            return evaluate(models, rows, **more)

        sim.trainer.trips, sim.trainer.evaluate = watched_trips, watched_evaluate
        return sim

    monkeypatch.setattr(fgl_bench.runner.program, "simulation", watched)
    spec = resolve(cfg)
    with suited(algorithm, spec.algorithm.pairing, spec.overrides):
        outcome = fgl_bench.runner.program.simulate(spec, federations(cfg), torch.device("cpu"))
    seen.histories = outcome.histories
    return seen


def pairs() -> Iterator[Any]:
    for algorithm in ALGORITHMS:
        own = class_of(algorithm).pairing.get("model")
        for model in MODELS:
            soon = model in ("gcn", own) or algorithm in ("fedavg", "fedsa_gcl", "d_psgd")
            yield pytest.param(algorithm, model, marks=() if soon else pytest.mark.nightly)


@pytest.mark.parametrize(("algorithm", "model"), list(pairs()))
def test_every_pair_trains_or_says_why_not(algorithm, model, folder, monkeypatch):
    method, _ = check_node(algorithm_config(algorithm, folder).algorithm)
    usual = algorithm_config(algorithm, folder).model
    try:
        seen = run(algorithm, model, folder, monkeypatch)
    except UserError as refusal:
        # A refusal says in one line what the model lacks and which one has it; a method runs on its own model, and FedAvg on all.
        text = str(refusal)
        assert re.match(f"algorithm={algorithm}: (needs|cannot) .*; try: fgl-bench .*model={method.pairing.get('model')}", text), text
        assert "\n" not in text and algorithm != "fedavg" and model_config(model)._target_ != usual._target_, text
        return
    (history,) = seen.histories
    for name, scores in history.scores.items():
        scored = scores if history.always_scored(name) else scores[history.trained_scored]  # on a server's graph at the last point only
        assert scored.size and np.isfinite(scored).all() and (scored >= 0).all()
    assert all(torch.isfinite(row).all() for row in (*seen.received.values(), *(after for _, after in seen.trained.values())))
    assert method.trains == any(not torch.equal(before, after) for before, after in seen.trained.values())
    # Who sends models receives another than it trained; who sends nothing, or other things, goes on with what it trained.
    mixed = any(not torch.equal(seen.received[row], after) for row, (_, after) in seen.trained.items() if row in seen.received)
    sends = history.upload[-1] > 0
    assert sends == (history.download[-1] > 0) and (sends or not mixed)
    assert mixed == sends or issubclass(method, Alone)
