"""What no method may depend on: batching, and labels outside training. ``fgl-bench check`` promises more, of every method's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fgl_bench.algorithms.base import Peers, SemiAsyncServer
from fgl_bench.models.chebnet import ChebNet
from fgl_bench.models.disengcn import DisenGCN
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.models.mlp import MLP
from fgl_bench.models.sgc import SGC
from fgl_bench.models.unifilter import UniFilter
from tests.algorithms.batching import assert_batching_changes_nothing
from tests.algorithms.leaks import assert_hidden_labels_do_not_matter
from tests.algorithms.peers import decentralized
from tests.reference.small import small_federation
from tests.small_runs import semi_async, synchronous
from tests.test_out_of_core import yaml

LINKS = {"link_failure": 0.2}
DISENGCN = DisenGCN(factors=2, width=3, layers=1, iterations=2, temperature=1.0, dropout=0.35)
UNIFILTER = UniFilter(3, 0.5, 4, 2, 0.5, 0.0, 0.0, "exact", "client", 0.5, False, None, None)
# (method, its keys, what else is not the default of a run; ``scenario`` are keys of the scenario)
CONTRACT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("adafgl", {"federated_rounds": 2, "head_dropout": 0.5}, {"participation": 0.5, "rounds": 5, "local_epochs": 1}),
    ("apfl", {"adapt": "step"}, {"participation": 0.5, "local_epochs": 2}),
    *(("d_psgd", {"order": order, "weights": "uniform"}, {"scenario": {"topology": "random_regular", "degree": 3, **LINKS}})
      for order in ("train_mix", "mix_train", "lian")),
    *(("dfed_sst", {"refresh": 2, "sources": 2, "landmarks": 9, **changes}, {})
      for changes in ({}, {"selection": "random", "degree": "half"}, {"similarity_of": "features"})),
    *(("dfedavgm", {"bits": bits, "lr": 0.05}, {"scenario": {"topology": "random_matching"}}) for bits in (5, None)),
    *(("dis_pfl", {"regrow": regrow}, {"scenario": LINKS}) for regrow in ("gradient", "random")),
    ("ditto", {"penalty": 0.5}, {"participation": 0.5, "local_epochs": 2}),
    ("ditto", {"penalty": 0.5}, {"batch_nodes": 2, "model": MLP(hidden=4, layers=2, dropout=0.5)}),
    ("fed_pub", {"sparsity": 0.01, "blocks": 3, "block_nodes": 7}, {"participation": 0.5, "model": GCN(8, 2, 0.5, "linear")}),
    ("fed_pub", {"masks": "fixed", "blocks": 3, "block_nodes": 7}, {"model": GCN(8, 2, 0.5, "linear")}),
    *(("fedadam", {"rule": rule}, {}) for rule in ("adam", "yogi", "adagrad")),
    ("fedala", {"sample": 0.5}, {"rounds": 4}),
    ("fedala", {}, {"participation": 0.5, "rounds": 5}),
    ("fedasync", {}, {}),
    ("fedavg_finetune", {"federated_rounds": 2}, {"participation": 0.5, "rounds": 4}),
    ("fedavgm", {"momentum": 0.9, "server_lr": 0.5}, {}),
    ("fedbabu", {"federated_rounds": 2}, {"participation": 0.5, "rounds": 4}),
    # Chunks decide how long a client waits for those with more mini-batches; its state must not depend on it.
    ("feddc", {}, {"model": SGC("lazy", 2), "batch_nodes": 2}),
    ("feddc", {"alpha": 0.1, "clip": 0.5}, {"participation": 0.5}),
    *(("feddual", {"gossip_steps": 2, "noise": noise}, {"scenario": LINKS}) for noise in (0.01, 0.0)),
    ("feddep", {"width": 4, "latent": 4, "gen_hidden": [8], "gen_lr": 0.05, "encoder_epochs": 2, "cluster_epochs": [1, 1, 1]},
     {"participation": 0.5, "model": GraphSAGE(4, 2, 0.5), "rounds": 2}),
    ("fedexp", {}, {"participation": 0.5, "local_epochs": 2}),
    *(("fedgcn", {"hops": hops, "exchange": exchange}, {"participation": 0.5}) for hops, exchange in ((2, "sums"), (1, "nodes"))),
    ("fedgl", {"pseudo_graph": 0.3}, {"rounds": 4}),
    ("fedgl", {}, {"participation": 0.5, "rounds": 4}),
    ("fedgnn", {"matches": 3, "ldp": True}, {"participation": 0.5}),
    ("fedgnn", {"matches": 3}, {}),
    ("fedgta", {"moments": "none"}, {"participation": 0.5}),
    ("fedgta", {"weights": "uniform"}, {}),
    ("fediih", {"elbo_weight": 0.5, "inference": "learned"}, {"participation": 0.5, "model": DISENGCN, "rounds": 3, "local_epochs": 1}),
    ("fediih", {}, {"model": DISENGCN, "rounds": 3, "local_epochs": 1}),
    ("fednova", {}, {"participation": 0.5}),
    ("fednova", {}, {"batch_nodes": 2, "model": MLP(hidden=4, layers=2, dropout=0.0)}),
    ("fedper", {"personal_layers": 1}, {"participation": 0.5}),
    ("fedproto", {"term": "prototypes", "average": "samples"}, {"participation": 0.5}),
    ("fedproto", {"prediction": "prototypes"}, {}),
    ("fedsa_gcl", {}, {}),
    ("fedspray", {"width": 4, "confidence": 0.4}, {"participation": 0.5, "local_epochs": 2}),
    *(("fedssa", {"edges": 10, "latent": 4, "node_clusters": 2, "structural_clusters": 2}, {"model": model})
      for model in (UNIFILTER, ChebNet(3, 6, 2, 0.5, "filter"))),
    ("fedstruct", {"width": 4}, {"participation": 0.5}),
    ("fedtgp", {"server_epochs": 2, "server_batch": 4}, {"participation": 0.5}),
    *(("fgssl", {"structure": structure}, {"participation": 0.5, "local_epochs": 2}) for structure in ("neighborhoods", "edges")),
    *((name, {"eps1": 1e9, "eps2": 0.0, "warmup": 2}, {"participation": 0.5, "rounds": 5}) for name in ("gcfl", "gcfl_plus")),
    ("gossip", {"segments": 3, "peers": 2}, {"scenario": LINKS}),
    ("moon", {"previous": 2}, {"participation": 0.5}),
    *(("osgp", {"overlap": overlap}, {"scenario": {"topology": "random_k_out", **LINKS}}) for overlap in (False, True)),
    ("pens", {"sampled": 3, "selected": 2, "first_phase": 0.5}, {"scenario": LINKS}),
    ("pfedme", {}, {"participation": 0.5, "local_epochs": 4}),
    *(("s2fgl", {"projections": each}, {"participation": 0.5, "local_epochs": 2, "rounds": 4}) for each in ("pairs", "space")),
    ("scaffold", {"server_lr": 0.8}, {"participation": 0.5}),
    ("twafl", {}, {}),
]  # fmt: skip
IDS = [" ".join([name, *(f"{key}={value}" for key, value in keys.items()), *more]) for name, keys, more in CONTRACT]


def scenario_of(name: str, keys: Mapping[str, Any]) -> Any:
    method = yaml("algorithm", name)
    make = decentralized if isinstance(method, Peers) else semi_async if isinstance(method, SemiAsyncServer) else synchronous
    return make(**keys)


FIRST = {name: number for number, (name, *_) in reversed(list(enumerate(CONTRACT)))}
CASES = [
    pytest.param(*case, id=text, marks=() if FIRST[case[0]] == number else pytest.mark.nightly)
    for number, (case, text) in enumerate(zip(CONTRACT, IDS, strict=True))
]


@pytest.mark.parametrize(("name", "keys", "more"), CASES)
def test_batching_changes_nothing(name, keys, more):
    more = dict(more)
    links = more.pop("scenario", {})
    assert_batching_changes_nothing(lambda: yaml("algorithm", name, **keys), lambda: scenario_of(name, links), **more)


HIDDEN = [
    ("adafgl", {"federated_rounds": 2}, {"model": GraphSAGE(4, 2, 0.5)}),
    ("fed_pub", {"blocks": 3, "block_nodes": 7}, {"model": GCN(4, 2, 0.0, "linear")}),
    ("fediih", {"elbo_weight": 0.5, "inference": "learned"}, {"model": DISENGCN}),
    ("fedper", {"personal_layers": 1}, {}),
    ("fedsa_gcl", {}, {}),
    ("d_psgd", {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "more"), HIDDEN, ids=[name for name, *_ in HIDDEN])
def test_labels_outside_training_change_nothing(name, keys, more):
    federations = [small_federation(seed) for seed in (0, 1)]
    assert_hidden_labels_do_not_matter(lambda: yaml("algorithm", name, **keys), lambda: scenario_of(name, {}), federations, **more)
