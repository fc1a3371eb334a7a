"""Clients with backbones of their own: each trains as in a run in which all clients have its backbone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
import torch

import fgl_bench
from fgl_bench.algorithms.local import Local
from fgl_bench.config.compose import composed, mixed_choices
from fgl_bench.errors import UserError
from fgl_bench.models._mixed import mixed
from fgl_bench.models.gat import GAT
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.models.mlp import MLP
from tests.algorithms.batching import assert_batching_changes_nothing
from tests.algorithms.test_fedproto import CLIENTS, method, run
from tests.small_runs import synchronous

KEYS = {"hidden": 8, "layers": 2, "dropout": 0.5}
BACKBONES = {
    "gcn": GCN(**KEYS),
    "gat": GAT(**{**KEYS, "hidden": 12}, version="v2", heads=2, output_heads=1, act="elu", attn_dropout=0.3, head="conv"),
    "sage": GraphSAGE(**KEYS),
    "mlp": MLP(hidden=5, layers=3, dropout=0.0),
}
SMALL = {
    "dataset": "csbm", "dataset.num_nodes": 120, "dataset.num_edges": 300, "dataset.num_features": 12,
    "dataset.words_per_node": 4, "num_clients": 4, "seeds": [0, 1], "rounds": 3, "progress": False,
}  # fmt: skip


def test_the_backbones_are_dealt_evenly_in_an_order_of_the_seed():
    three = mixed(**{name: BACKBONES[name] for name in ("gcn", "gat", "sage")})
    each = [three.dealt(seed, 11) for seed in range(20)]
    assert all(Counter(names) == {"gcn": 4, "gat": 4, "sage": 3} for names in each)
    assert len(set(map(tuple, each))) > 15 and three.dealt(0, 11) == each[0]
    assert Counter(three.dealt(0, 2)) == {"gcn": 1, "gat": 1}, "the first of the list come first"


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_client_trains_as_if_all_had_its_backbone(participation):
    settings = {"participation": participation, "local_epochs": 2, "rounds": 3}
    done = run(Local(), model=mixed(**BACKBONES), **settings)
    layout = done.sim.setting.layout
    assert Counter(layout.names[:CLIENTS]).keys() == set(BACKBONES) and layout.names[:CLIENTS] != layout.names[CLIENTS:]
    for name, backbone in BACKBONES.items():
        alone = run(Local(), model=backbone, **settings)
        for row in [row for row, own in enumerate(layout.names) if own == name]:
            assert len(done.trips[row]) == len(alone.trips[row])
            for ours, theirs in zip(done.trips[row], alone.trips[row], strict=True):
                for mine, other in zip(ours, theirs, strict=True):
                    assert torch.equal(mine[: len(other)], other) and not mine[len(other) :].any()
        for s, (ours, theirs) in enumerate(zip(done.histories, alone.histories, strict=True)):
            own = [i for i in range(CLIENTS) if layout.names[s * CLIENTS + i] == name]
            for model in ("received", "trained"):
                assert (ours.scores[model][:, own] == theirs.scores[model][:, own]).all()


def test_equal_backbones_are_one():
    assert mixed(gcn=GCN(**KEYS), gcn_2=GCN(**KEYS)) == GCN(**KEYS)
    assert set(mixed(gcn=GCN(**KEYS), gcn_2=GCN(**{**KEYS, "layers": 3})).backbones) == {"gcn", "gcn_2"}


def test_batching_changes_nothing():
    assert_batching_changes_nothing(lambda: method(weight=1.0), synchronous, model=mixed(gcn=GCN(**KEYS), sage=GraphSAGE(**KEYS)))


@pytest.mark.parametrize("algorithm", ["fedproto", "local", "fedtgp"])
def test_the_same_backbone_twice_is_that_backbone_to_the_bit(tmp_path, algorithm):
    more = {"algorithm.server_epochs": 2} if algorithm == "fedtgp" else {}
    one, two = (fgl_bench.run(algorithm, **{**SMALL, **more, "model": model, "results_dir": tmp_path}) for model in ("gcn", ["gcn", "gcn"]))
    assert one.folder != two.folder and two.summary["model"] == "gcn+gcn"
    assert one.summary["test"] == two.summary["test"] and one.summary["bytes"] == two.summary["bytes"]
    assert one.curve().equals(two.curve())


def test_a_run_keeps_each_clients_model_under_its_own_names(tmp_path):
    keys = {**SMALL, "model": ["gcn", "graphsage"], "model.graphsage.layers": 3, "keep_models": "final", "results_dir": tmp_path}
    done = fgl_bench.run("local", **keys)
    models, backbones = fgl_bench.load_models(done.folder), done.summary["backbones"]
    assert [sorted(names) for names in backbones] == [["gcn", "gcn", "graphsage", "graphsage"]] * 2
    for seed, names in zip((0, 1), backbones, strict=True):
        for client, name in enumerate(names):
            trained = models[seed][client]["trained"]
            assert max(int(key[4]) for key in trained) == {"gcn": 1, "graphsage": 2}[name]
            assert all(torch.equal(trained[key], value) for key, value in models[seed][client]["received"].items())


REFUSED = [
    ("fedavg", {}, "model=gcn+gat: algorithm=fedavg needs one backbone for all clients; use a method in which no model travels"),
    ("global", {}, "model=gcn+gat: algorithm=global needs one backbone for all clients"),
    ("local", {"split": "iid_server"}, "use split.test=clients"),
    ("local", {"model": ["mlp", "sgc"], "batch_nodes": 4}, "batch_nodes=4 needs one backbone; use batch_nodes=null"),
    ("local", {"model.gat.dropout": 7}, "model.gat.dropout=7: must be between 0 and 1"),
    ("fedproto", {"model.gat.hidden": 32}, "model: prototypes need one width before the last layer, not 32, 64"),
    ("local", {"model": ["gcn", "gaat"]}, "model=gaat: there is no such model; did you mean gat? allowed: bernnet, chebnet"),
    ("local", {"model": ["gcn", "unifilter"], "model.unifilter.filter_lr": 0.1}, "unifilter: parameters with a learning rate"),
]


@pytest.mark.parametrize(("algorithm", "keys", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, algorithm, keys, message):
    with pytest.raises(UserError) as refusal:
        fgl_bench.run(algorithm, **{**SMALL, "model": ["gcn", "gat"], "results_dir": tmp_path, **keys})
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_list_becomes_a_choice_also_in_a_sweep():
    assert mixed_choices(["model=[gcn, gat ,gcn],sgc", "seeds=[0,1]"]) == ["model=gcn+gat+gcn,sgc", "seeds=[0,1]"]
    cfg = composed(["model=gcn+gat+gcn", "model.gcn_2.layers=3"])
    assert [cfg.model[name].layers for name in ("gcn", "gat", "gcn_2")] == [2, 2, 3]


@pytest.mark.nightly
def test_the_command_line_takes_a_list_and_a_sweep_over_lists(tmp_path):
    keys = [f"{key}={str(value).replace(' ', '')}" for key, value in SMALL.items() if key != "progress"]
    line = [sys.executable, "-m", "fgl_bench", "-m", "algorithm=fedproto", "model=[gcn,graphsage],gcn", *keys, f"results_dir={tmp_path}"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = subprocess.run([*line[:3], "table", str(tmp_path), "rows=model"], capture_output=True, text=True).stdout
    assert "gcn+graphsage" in table
