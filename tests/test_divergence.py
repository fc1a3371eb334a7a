"""A run that diverges ends well, says so, and reports no score of a model that is not finite."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.powers import federated
from fgl_bench.evaluation import summary as summaries
from fgl_bench.evaluation.history import History, Point, history_rows
from fgl_bench.evaluation.metrics import METRICS
from fgl_bench.evaluation.summary import best, divergence, trips_to
from fgl_bench.runner.build import simulation
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulate
from tests.engine.graphs import make_client
from tests.evaluation.test_history import history
from tests.evaluation.test_metrics import batch_of
from tests.hostile.worker import Answer, answer
from tests.quick import prepared

NAN = float("nan")
GRAPH = ("dataset=csbm", "dataset.num_nodes=120", "dataset.num_edges=240", "num_clients=3", "rounds=3", "progress=false", "device=cpu")


def ran(folder: Path, *arguments: str, files: dict[str, str] | None = None) -> tuple[Answer, dict, list[dict[str, str]]]:
    """Run the command: what it said, its summary and its history; runs are kept in ``folder``."""
    said = answer([*GRAPH, *arguments, f"results_dir={folder}"], files or {}, {})
    [path] = folder.rglob("summary.json")
    rows = list(csv.DictReader((path.parent / "history.csv").read_text(encoding="utf-8").splitlines()))
    return said, json.loads(path.read_text(encoding="utf-8")), rows


@pytest.fixture(autouse=True)
def back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # the command runs in a folder that is gone afterwards


# ---- the command


def test_a_run_with_an_absurd_learning_rate_ends_well_and_says_so(tmp_path: Path) -> None:
    said, summary, rows = ran(tmp_path, "seeds=[0]", "algorithm=fedavg", "dataset.metric=auc", "dataset.num_classes=2", "lr=1e30")
    assert said.status == 0
    [warning] = said.stderr.strip().splitlines()
    assert warning.startswith("warning: 3 of 3 clients of seed 0 diverged (first in round 1)") and "lower lr" in warning
    assert "1 of 1 seeds" in said.stdout and "diverged: 1 of 1 seeds (seed 0: 3 of 3 clients, first in round 1)" in said.stdout
    # The first step makes weights of 1e30, so the model after round 1 answers infinity and NaN; its loss is seen in round 2.
    models = {"0": {"clients": 3, "round": 1, "trip": 3, "per_client": [3, 3, 3]}}
    losses = {"0": {"clients": 3, "round": 2, "trip": 6, "per_client": [2, 2, 2]}}
    assert summary["diverged"] == {"received": models, "trained": models, "train_loss": losses}
    for model in ("received", "trained"):
        [score], [trip] = summary["test"][model]["per_seed"], summary["test"][model]["selected_trips"]
        assert 0 <= score <= 1 and trip == 0, "the only point with a model that is finite"
        assert summary["test"][model]["last"]["per_seed"] == [None]
        assert [row[f"test_{model}"] != "" for row in rows] == [True, False, False, False]
        assert [int(row[f"diverged_{model}"]) for row in rows] == [0, 3, 3, 3]
    assert [row["train_loss"] != "" for row in rows] == [False, True, False, False]
    assert float(rows[1]["train_loss"]) == pytest.approx(np.log(2), abs=0.1), "two classes, a model that knows nothing"


POISONED = '''
from dataclasses import dataclass

from fgl_bench.algorithms.fedavg import FedAvg


@dataclass
class Poisoned(FedAvg):
    """In round 2 the server of the second seed sends NaN."""

    def prepare(self, setting):
        super().prepare(setting)
        self.rounds = 0

    def refine(self, previous, received, trained, arrived):
        self.rounds += 1
        if self.rounds == 2:
            received = received.clone()
            received[[s for s, seed in enumerate(self.setting.seeds) if seed == 1]] = float("nan")
        return received
'''


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_a_seed_that_diverges_harms_no_other_and_is_selected_before(tmp_path: Path, metric: str) -> None:
    settings = ("seeds=[0,1]", "rounds=4", "lr=0.05", f"dataset.metric={metric}", "algorithm=fedavg")
    said, summary, rows = ran(tmp_path / "poisoned", *settings, "algorithm._target_=poisoned.Poisoned", files={"poisoned.py": POISONED})
    _, plain, expected = ran(tmp_path / "plain", *settings)
    assert said.status == 0 and plain["diverged"] is None
    assert {name: {seed: (one["round"], one["clients"]) for seed, one in found.items()} for name, found in summary["diverged"].items()} == {
        "received": {"1": (2, 3)}, "trained": {"1": (3, 3)}, "train_loss": {"1": (3, 3)},
    }  # fmt: skip
    for model, last in (("received", 3), ("trained", 6)):
        ours, theirs = summary["test"][model], plain["test"][model]
        assert ours["per_seed"][0] == theirs["per_seed"][0] and ours["selected_trips"][0] == theirs["selected_trips"][0]
        assert ours["selected_trips"][1] <= last and 0 < ours["per_seed"][1] <= 1
        defined = [row for row in expected if row["seed"] == "1" and int(row["trip"]) <= last]
        first = max(defined, key=lambda row: float(row[f"val_{model}"]))  # the earliest of equals
        assert ours["per_seed"][1] == pytest.approx(float(first[f"test_{model}"]), abs=1e-6)
        assert ours["last"]["per_seed"][1] is None and ours["last"]["mean"] == ours["last"]["per_seed"][0] == theirs["last"]["per_seed"][0]
    new = {"diverged_received", "diverged_trained"}
    assert [{k: v for k, v in row.items() if k not in new} for row in rows[:5]] == [
        {k: v for k, v in row.items() if k not in new} for row in expected[:5]
    ], "the first seed's history"


def test_a_seed_without_any_finite_model_has_no_score(tmp_path: Path) -> None:
    broken = POISONED.replace("rounds == 2", "rounds == 99") + (
        "\n    def initialize(self, initial):\n        return torch.where(torch.arange(len(initial))[:, None] < 3, initial, float('nan'))\n"
    )
    settings = ("seeds=[0,1]", "algorithm=fedavg", "algorithm._target_=poisoned.Poisoned", "seeds_per_chunk=2", "metrics=[micro_f1]")
    said, summary, _ = ran(tmp_path, *settings, files={"poisoned.py": broken.replace("from dataclasses", "import torch\nfrom dataclasses")})
    assert said.status == 0, said.stderr
    for model in ("received", "trained"):
        test = summary["test"][model]
        assert test["per_seed"][1] is None and test["selected_trips"][1] is None and test["per_client"][1] == [None] * 3
        assert test["mean"] == test["per_seed"][0] and test["val"]["std"] is None
        assert summary["metrics"]["micro_f1"][model]["per_seed"][1] is None
        assert summary["diverged"][model] == {"1": {"clients": 3, "round": 0, "trip": 0, "per_client": [4, 4, 4]}}
    assert said.stdout.count("(1/2)") >= 4, "the means say how many seeds they are of"


# ---- scores


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("value", [NAN, -float("inf")])
def test_a_score_is_undefined_where_a_scored_node_has_a_logit_that_is_not_finite(name: str, value: float) -> None:
    clients = [make_client(30, classes=2, seed=0), make_client(20, classes=2, seed=1), make_client(25, classes=2, seed=2)]
    batch = batch_of(*clients)
    logits = torch.randn(3, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = METRICS[name](logits, batch)
    assert before.isfinite().all()
    logits[1, 20:] = value  # padding
    logits[2, torch.from_numpy(np.flatnonzero(clients[2].train))] = value
    torch.testing.assert_close(METRICS[name](logits, batch), before)
    for mask in ("val", "test"):
        broken = logits.clone()
        broken[0, int(np.flatnonzero(getattr(clients[0], mask))[-1]), 1] = value
        after = METRICS[name](broken, batch)
        assert after[0].isnan().all(), "neither validation nor test: the model is broken"
        torch.testing.assert_close(after[1:], before[1:])


def test_a_client_whose_model_is_not_finite_makes_the_pooled_score_undefined_and_one_without_nodes_does_not() -> None:
    # The second client's model is broken at the second point; the third has no validation nodes, and at the third point a broken model.
    scores = [[[2, 1], [3, 2], [0, 4]], [[4, 4], [NAN, NAN], [0, 5]], [[3, 3], [4, 4], [NAN, NAN]], [[2, 2], [4, 3], [0, 5]]]
    h = history(scores, [[4, 4], [4, 4], [0, 5]])
    pooled = h.pooled("received")
    assert pooled[0].tolist() == [5 / 8, 7 / 13] and np.isnan(pooled[1]).all()
    assert pooled[2, 0] == 7 / 8 and np.isnan(pooled[2, 1]), "its validation nodes are none, so it does not count there"
    assert h.selectable("received").tolist() == [5 / 8, -np.inf, -np.inf, 6 / 8]
    assert best(h, "received") == 3 and trips_to(h, "received", 0.7) == 30 and trips_to(h, "received", 0.8) is None
    weighted = h.pooled("received", np.array([1, 3, 2]))
    assert weighted[0].tolist() == [(1 * 0.5 + 3 * 0.75) / 4, pytest.approx((0.25 + 3 * 0.5 + 2 * 0.8) / 6)] and np.isnan(weighted[1]).all()
    assert h.diverged("received").tolist() == [[False] * 3, [False, True, False], [False, False, True], [False] * 3]
    found = summaries.test_scores([h], "received")
    assert found["per_seed"] == [10 / 13] and found["selected_trips"] == [30]
    rows = history_rows([h])
    assert [row["val_received"] for row in rows] == [0.625, None, 0.875, 0.75] and [row["diverged_trained"] for row in rows] == [0, 1, 1, 0]
    json.dumps(rows, allow_nan=False)


def test_what_has_diverged_is_counted_by_seed_and_client() -> None:
    fine = history([[[1, 1], [1, 1]]] * 3, [[2, 2], [2, 2]], seed=4)
    assert divergence([fine]) is None
    trained = [[[1, 1], [1, 1]], [[1, 1], [NAN, NAN]], [[NAN, NAN], [NAN, NAN]]]
    lost = history([[[1, 1], [1, 1]]] * 3, [[2, 2], [2, 2]], trained=trained, seed=7)
    lost.version[:] = [0, 2, 4]
    assert divergence([fine, lost]) == {"trained": {"7": {"clients": 2, "round": 2, "trip": 10, "per_client": [1, 2]}}}


# ---- the training loss


def test_the_training_loss_is_the_mean_over_clients_weighted_by_training_nodes() -> None:
    log = np.array([[0.5], [2.0], [NAN], [1.0]])
    points = [
        Point(t, t, t, np.zeros(3, int), np.zeros(3, int), 0, 0, loss=np.array(at))
        for t, at in enumerate(([-1, -1, -1], [0, -1, 3], [0, 1, 3], [0, 2, 3]))
    ]
    made = History.of(0, points, np.zeros((1, 2)), np.ones((3, 2), int), losses=log, train_nodes=np.array([1, 3, 0]))
    found = made.train_loss()
    assert np.isnan(found[0]), "nothing has been trained"
    assert found[1] == 0.5, "the second has ended no trip, the third has no training nodes"
    assert found[2] == pytest.approx((0.5 + 3 * 2.0) / 4)
    assert np.isnan(found[3]) and divergence([made]) == {
        "train_loss": {"0": {"clients": 1, "round": 3, "trip": 3, "per_client": [0, 1, 0]}}
    }


STILL = {"lr": 1e-30, "weight_decay": 0, "model.dropout": 0.0}


@pytest.mark.parametrize(
    ("algorithm", "changes", "replicas"),
    [
        ("fedavg", {"local_epochs": 3}, 4),
        ("fedavg", {"participation": 0.5}, None),
        ("fedavg", {"eval_every": 20}, None),
        ("fedavg", {"model": "mlp", "batch_nodes": 4, "local_epochs": 2}, 5),
        ("fedsa_gcl", {"scenario": "semi_async"}, None),
        ("d_psgd", {"scenario": "decentralized"}, 3),
        ("fedlocal", {"split": "iid_server", "model": "graphsage", "algorithm.fanout": "null", "local_epochs": 2}, None),
        ("global", {}, None),
    ],
)
def test_while_the_models_stand_still_the_training_loss_is_the_initial_models(
    algorithm: str, changes: dict, replicas: int | None, tmp_path: Path
) -> None:
    """Whichever scenario and however many steps and chunks: what is recorded is a mean of the same cross-entropies."""
    spec, federations = prepared(algorithm, tmp_path, {**STILL, **changes}, seeds=[0, 1], rounds=4)
    outcome = simulate(spec, federations, torch.device("cpu"), plan=Plan(2, replicas))
    pooled = outcome.histories[0].losses.shape[1] == 1
    for seed, made in enumerate(outcome.histories):
        found = made.train_loss()
        assert np.isnan(found[0]) and not np.isnan(found[1:]).any() and divergence([made]) is None
        if "participation" not in changes and "scenario" not in changes:
            assert found[1:] == pytest.approx(expected(spec, federations[seed], pooled), rel=1e-5)
        seen = made.losses[-1]
        np.testing.assert_allclose(seen, np.fmax.reduce(made.losses), rtol=1e-5)
        by = np.where(np.isnan(seen), 0, made.train_nodes)
        assert found[-1] == pytest.approx((np.nan_to_num(seen) * by).sum() / by.sum())


def expected(spec, federation, pooled: bool) -> float:
    """The initial model's mean cross-entropy over all training nodes, by the trainer's plain forward pass."""
    from fgl_bench.runner.memory import network

    method = spec.fresh_algorithm()
    (federation,) = federated(method, [federation])
    device = torch.device("cpu")
    sim = simulation(spec.settings, [federation], network(spec, [federation], device), method, device, 1, 1)
    losses, nodes = sim.trainer.losses(sim.initial).double().numpy(), np.array([c.train.sum() for c in federation.observed])
    assert len(losses) == (1 if pooled else federation.num_clients)
    return float((losses * nodes).sum() / nodes.sum())


def test_without_rounds_the_loss_of_the_last_trip_counts(tmp_path: Path) -> None:
    settings = ("seeds=[0]", "algorithm=fedsa_gcl", "scenario=semi_async", "lr=1e30", "rounds=6", "eval_every=1")
    _, summary, rows = ran(tmp_path, *settings)
    lost = summary["diverged"]["train_loss"]["0"]
    assert lost["trip"] > summary["diverged"]["trained"]["0"]["trip"], "a first trip's loss is that of the initial model"
    assert [row["train_loss"] != "" for row in rows] == [0 < int(row["trip"]) < lost["trip"] for row in rows]
