"""Runs on graphs in files: the same numbers, a chunk of clients in memory at a time, hops of propagation written once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf

from fgl_bench.algorithms.base import Peers, SemiAsyncServer, ServerRounds
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.data.federation import build_federations
from fgl_bench.engine.batch import Batch, DenseBlocks, gcn_operator, mean_operator
from fgl_bench.engine.derived import Derived
from fgl_bench.engine.propagation import OneHop
from fgl_bench.models.gcn import GCN
from tests.algorithms.peers import decentralized
from tests.data.graphs import CONF, configured
from tests.small_runs import semi_async, simulate, synchronous

SMALL = {"num_nodes": 300, "num_edges": 900, "num_features": 8, "words_per_node": None}


def federations(cache_dir=None, seeds=(0, 1)):
    return build_federations(
        configured("dataset", "csbm", **SMALL),
        configured("split", "metis"),
        configured("scenario/sparsity", "none"),
        num_clients=5,
        seeds=list(seeds),
        data_dir=None,
        cache_dir=cache_dir,
        out_of_core=cache_dir is not None,
    )


def yaml(group, name, **changes):
    """What a yaml describes."""
    keys = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
    keys.pop("defaults", None)
    return get_class(keys["_target_"])(**{key: value for key, value in keys.items() if key != "_target_"} | changes)


MODELS = {
    "gcn": lambda: GCN(hidden=4, layers=2, dropout=0.5),
    "sgc": lambda: yaml("model", "sgc", propagation="precomputed"),
    "sign": lambda: yaml("model", "sign", propagation="precomputed", hidden=4),
}


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("model", MODELS)
def test_a_run_gives_the_numbers_that_it_gives_in_memory(model, participation, chunk, tmp_path):
    runs = [
        simulate(given, FedAvg(), synchronous(), rounds=3, model=MODELS[model](), chunk=size, participation=participation)
        for given, size in ((federations(), None), (federations(tmp_path), chunk))
    ]
    for held, kept in zip(runs[0].histories, runs[1].histories, strict=True):
        for which in ("received", "trained"):
            np.testing.assert_array_equal(held.scores[which], kept.scores[which])
    for held, kept in zip(runs[0].trips, runs[1].trips, strict=True):
        for one, other in zip(held, kept, strict=True):
            torch.testing.assert_close(one, other)


DECOUPLED = ("gamlp", "gbp", "s2gc", "sgc", "sign")
LABELED_ONLY = sorted(
    name
    for name in (path.stem for path in (CONF / "algorithm").glob("*.yaml"))
    if vars(get_class(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")._target_)).get("labeled_only")
)


def sparsely_labeled(given):
    """Federations in which a node in two, three or more has a label, by client, and a client none."""
    found = []
    for federation in given:
        clients = []
        for number, client in enumerate(federation.clients):
            known = np.arange(client.num_nodes) % (2 + number) == 0 if number != 2 else np.zeros(client.num_nodes, bool)
            masks = {name: getattr(client, name) & known for name in ("train", "val", "test")}
            clients.append(replace(client, labels=np.where(known, client.labels, -1), **masks))
        same = tuple(clients)
        found.append(replace(federation, clients=same, observed=same))
    return found


@pytest.mark.parametrize(("algorithm", "model"), [*((name, "sgc") for name in LABELED_ONLY), *(("fedavg", name) for name in DECOUPLED)])
def test_nodes_without_labels_change_no_score_and_are_not_held(algorithm, model, tmp_path):
    keys = {"head_layers": 0} if algorithm == "fedbabu" else {}  # SGC has one layer
    chosen = yaml("algorithm", algorithm, **keys)
    kinds = {ServerRounds: synchronous, SemiAsyncServer: semi_async, Peers: decentralized}
    scenario = next(make() for kind, make in kinds.items() if isinstance(chosen, kind))
    network = yaml("model", model, propagation="precomputed", **({} if model in ("sgc", "s2gc") else {"dropout": 0.0}))
    runs = [
        simulate(given, yaml("algorithm", algorithm, **keys), scenario, rounds=3, model=network, agg_weight="nodes")
        for given in (sparsely_labeled(federations()), sparsely_labeled(federations(tmp_path)))
    ]
    for held, kept in zip(runs[0].histories, runs[1].histories, strict=True):
        for which in ("received", "trained"):
            np.testing.assert_allclose(held.scores[which], kept.scores[which], atol=1e-9)
    for held, kept in zip(runs[0].trips, runs[1].trips, strict=True):
        for one, other in zip(held, kept, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert runs[1].sim.trainer.batch.nodes == max((client.labels >= 0).sum() for client in runs[1].sim.trainer.batch.clients)
    assert runs[1].sim.trainer.batch.nodes < runs[0].sim.trainer.batch.nodes


def test_only_a_chunk_of_the_features_is_ever_in_memory(monkeypatch, tmp_path):
    stacked, stack = [], Batch._stack_features

    def recorded(self):
        stacked.append(self.size)
        return stack(self)

    monkeypatch.setattr(Batch, "_stack_features", recorded)
    given = federations(tmp_path)
    stacked.clear()
    run = simulate(given, yaml("algorithm", "fedgta"), synchronous(), rounds=2, model=MODELS["gcn"](), chunk=2)
    assert max(stacked) == 2 and sum(stacked) >= 2 * 10
    trainer = run.sim.trainer
    assert sum(part.size for part in trainer._parts.values()) <= 2, "chunks of graphs on disk are not kept"
    assert "features" not in trainer.batch.__dict__


class Counted(Derived):
    """Twice the features; counts how often it is made."""

    made = 0

    @property
    def copies(self):
        return 1

    def fill(self, client, out):
        Counted.made += 1
        out[0] = 2 * client.features


def test_what_is_derived_is_written_once_and_read_from_then_on(tmp_path):
    (given,) = federations(tmp_path, seeds=(0,))
    Counted.made = 0
    for rows in ([0, 1], [2, 3, 4], [0, 1]):
        batch = Batch(given.clients, torch.float32, "cpu").select(rows)
        values = batch.derived(Counted()).stacked()
        for place, row in enumerate(rows):
            held = torch.from_numpy(np.array(given.clients[row].features))
            torch.testing.assert_close(values[place, 0, : len(held)], 2 * held)
            assert not values[place, 0, len(held) :].any()
    assert Counted.made == 5, "once a client"
    batch = Batch(given.clients, torch.float64, "cpu")
    derived = batch.derived(Counted())
    assert Counted.made == 10, "another type of numbers is another file"
    batch.unload()
    assert batch.derived(Counted()) is not derived, "read again"


def test_an_interrupted_propagation_goes_on(monkeypatch, tmp_path):
    (given,) = federations(tmp_path, seeds=(0,))
    Counted.made, fill = 0, Counted.fill

    def interrupted(self, client, out):
        if Counted.made == 3:
            raise KeyboardInterrupt
        fill(self, client, out)

    monkeypatch.setattr(Counted, "fill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Batch(given.clients, torch.float32, "cpu").derived(Counted())
    monkeypatch.setattr(Counted, "fill", fill)
    Batch(given.clients, torch.float32, "cpu").derived(Counted())
    assert Counted.made == 5, "the three that were finished are kept"


def test_a_part_on_disk_has_the_numbers_of_a_part_in_memory(tmp_path):
    held, kept = (Batch(f[0].clients, torch.float64, "cpu").select([3, 1]) for f in (federations(), federations(tmp_path)))
    weight = torch.randn(2, 8, 3, dtype=torch.float64)
    torch.testing.assert_close(held.features @ weight, kept.features @ weight)
    wide = torch.randn(2, held.nodes, 3, dtype=torch.float64)
    torch.testing.assert_close(held.operator(gcn_operator) @ wide, kept.operator(gcn_operator) @ wide)
    for name in ("labels", "train", "valid", "degree", "replicas"):
        torch.testing.assert_close(getattr(held, name), getattr(kept, name))
    assert held.nodes == kept.nodes


def test_one_hop_has_one_name_for_each_operator_in_every_process():
    names = [OneHop(by=operator).key for operator in (gcn_operator, mean_operator)]
    assert names[0] != names[1] and not any(" at 0x" in name for name in names)


def test_what_is_derived_from_replaced_features_is_theirs():
    (given,) = federations(seeds=(0,))
    batch = Batch(given.clients, torch.float64, "cpu")
    batch.features = DenseBlocks(1 + batch.features.select(range(batch.size)).values)
    for i, client in enumerate(given.clients):
        values = batch.derived(Counted()).stacked()[i, 0, : client.num_nodes]
        torch.testing.assert_close(values, 2 * (1 + torch.from_numpy(np.array(client.features)).double()))
