"""Workers that share the clients of a seed: every method that says that they can, here with threads in the workers' places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.config.choices import config_folder
from fgl_bench.config.compose import Composer
from fgl_bench.engine.shard import Shard
from fgl_bench.errors import UserError
from fgl_bench.runner.program import simulate
from fgl_bench.runner.share import check, narrowed, share_of
from fgl_bench.runner.spec import resolve
from fgl_bench.utils.world import World
from tests.engine.worlds import together
from tests.quick import SMALL, prepared

CPU = torch.device("cpu")
SERVER = (
    "fedadam", "fedavg", "fedavgm", "feddc", "fednova", "fedper", "fedprox", "fedgta", "fed_pub", "gcfl", "gcfl_plus", "local", "majority",
    "fedproto", "fedspray", "fedtad", "fedtgp", "fgssl", "label_propagation", "moon", "pfedme", "s2fgl", "scaffold", "apfl", "ditto",
    "fedala", "fedavg_finetune", "fedbabu", "fedexp",
)  # fmt: skip
PEERS = ("d_psgd", "dfed_sst", "dfedavgm", "dis_pfl", "feddual", "gossip", "osgp", "pens")
CHANGES: dict[str, dict[str, Any]] = {
    "dfedavgm": {"algorithm.bits": 4},
    "feddual": {"algorithm.noise": 0.1},
    "fedtad": {"algorithm.outer": 1, "algorithm.pseudo_nodes": 20},
    "fedavg_finetune": {"algorithm.federated_rounds": 2},
    "fedbabu": {"algorithm.federated_rounds": 2},
    "fedtgp": {"algorithm.server_epochs": 2},
    "gcfl_plus": {"algorithm.sequence": 2},
    "pens": {"algorithm.sampled": 3, "algorithm.first_phase": 0.5},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the partitions, which are the same for all methods."""
    return tmp_path_factory.mktemp("shared")


@pytest.mark.parametrize("name", (*SERVER, *PEERS))
def test_three_workers_give_the_scores_of_one(name: str, folder: Path) -> None:
    # Two clients in a round of a server, of which there are five: in every round a worker has no participant.
    changes = {"dtype": "float64", "local_epochs": 2, "mixing_at": [6], **CHANGES.get(name, {})}
    changes |= {"participation": 0.3, "scenario.deadline": 3, "scenario.slow_fraction": 0.5} if name in SERVER else {}
    spec, federations = prepared(name, folder, changes, clients=5, seeds=[3, 1], rounds=2 if name in SERVER else 4)
    one = simulate(spec, federations, CPU)

    def job(world: World):
        shard = Shard(5, world)
        mine = [narrowed(federation, shard) for federation in federations]
        return simulate(spec, mine, CPU, shard=shard)

    for many in together(3, job):
        for whole, shared in zip(one.histories, many.histories, strict=True):
            for model in ("received", "trained"):
                np.testing.assert_allclose(shared.scores[model], whole.scores[model], rtol=0, atol=1e-9)
            assert (whole.losses is None and shared.losses is None) or np.allclose(shared.losses, whole.losses, 1e-9, 0, equal_nan=True)
            assert shared.upload.tolist() == whole.upload.tolist() and shared.download.tolist() == whole.download.tolist()
        assert all(np.allclose(many.mixing[at], one.mixing[at], rtol=0, atol=1e-12) for at in one.mixing)


def test_the_methods_are_those_that_say_so() -> None:
    targets = {path.stem: OmegaConf.load(path)["_target_"] for path in (config_folder() / "algorithm").glob("*.yaml")}
    assert {name for name, target in targets.items() if vars(get_class(target)).get("by_clients")} == {*SERVER, *PEERS}


@dataclass
class More(FedAvg):
    """A method of somebody's own."""


REFUSED = {
    "semi_async": ({"algorithm": "fedsa_gcl"}, "scenario=semi_async: workers cannot share .* at most 2 worker"),
    "exchanges": ({"algorithm": "fedgnn"}, "algorithm=fedgnn: workers cannot share .* shard=seeds"),
    "own": ({"algorithm._target_": "tests.workers.test_shared_clients.More"}, "algorithm=.*: workers cannot share .* shard=seeds"),
    "server": ({"split": "iid_server"}, "split.test=server: workers cannot share .* shard=seeds"),
    "clients": ({"num_clients": 2}, "num_clients=2: 3 workers would share .* start fewer"),
    "seeds": ({"shard": "seeds"}, "shard=seeds: 3 workers for 2 seed.* start 2 at most, or use shard=clients"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_shared_is_refused_with_what_can(why: str, tmp_path: Path) -> None:
    changes, says = REFUSED[why]
    keys = {"algorithm": "fedavg", "num_clients": 5, "seeds": [0, 1], "cache_dir": tmp_path, **changes}
    compose = Composer()
    spec = resolve(compose([f"{key}={value}" for key, value in keys.items()]))
    with pytest.raises(UserError, match=says):
        check(spec, 3, 1 if why == "seeds" else 3)
    check(spec, 2, 1)


class Numbered(World):
    """A worker that is not there."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    def first(self, call):
        return call()

    def team(self, teams):
        ranks = next(ranks for ranks in teams if self.rank in ranks)
        return Numbered(ranks.index(self.rank), len(ranks))


DEALT = {
    (3, "auto"): [((5, 6), 0, 1), ((7, 8), 0, 1), ((9,), 0, 1)],
    (5, "seeds"): [((seed,), 0, 1) for seed in (5, 6, 7, 8, 9)],
    (2, "clients"): [((5, 6, 7, 8, 9), rank, 2) for rank in (0, 1)],
    (7, "auto"): [((5,), 0, 2), ((5,), 1, 2), ((6,), 0, 2), ((6,), 1, 2), ((7,), 0, 1), ((8,), 0, 1), ((9,), 0, 1)],
}


@pytest.mark.parametrize(("size", "shard"), DEALT)
def test_seeds_are_dealt_first_and_then_the_clients_of_each(size: int, shard: str) -> None:
    compose = Composer()
    spec = resolve(compose(["algorithm=fedavg", "seeds=[5,6,7,8,9]", f"shard={shard}"]))
    tasks = [share_of(spec, Numbered(rank, size)) for rank in range(size)]
    assert [(task.seeds, task.shard.world.rank, task.shard.world.size) for task in tasks] == DEALT[size, shard]
    told = [seed for task in tasks if task.reports for seed in task.seeds]
    assert told == [5, 6, 7, 8, 9], "every seed is handed in once"


@pytest.mark.parametrize("sparse", (True, False))
def test_a_worker_keeps_the_graphs_of_its_own_clients(sparse: bool, tmp_path: Path) -> None:
    changes = {} if sparse else {"dataset.words_per_node": "null"}
    _, (federation,) = prepared("fedavg", tmp_path, {**SMALL, **changes}, clients=5, seeds=[0], rounds=1)
    shard = Shard(5, Numbered(1, 2))
    mine = narrowed(federation, shard)
    assert mine.observed is mine.clients
    for number, (whole, client) in enumerate(zip(federation.clients, mine.clients, strict=True)):
        own = number in range(5)[shard.own]
        assert client.features.shape == (whole.features.shape if own else (0, whole.features.shape[1]))
        assert client.edges.shape == (whole.edges.shape if own else (2, 0))
        assert client.train is whole.train and client.labels is whole.labels
        if own and not sparse:
            assert client.features.base is None, "a view would keep the features of all clients"
