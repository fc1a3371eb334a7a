"""Gradient clipping, learning-rate schedules, early stopping and unseen clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student

from fgl_bench import UserError, load_models, run
from fgl_bench.algorithms.scaffold import CONTROLS
from fgl_bench.data.federation import build_federations
from fgl_bench.data.sparsity import NoSparsity
from fgl_bench.data.unseen import leave_out
from fgl_bench.engine.attacks import unscored
from fgl_bench.engine.schedules import Constant, Cosine, Step, Warmup
from fgl_bench.results.scored import warning
from tests.data.graphs import configured

TINY = {
    "dataset__num_nodes": 200, "dataset__num_edges": 500, "num_clients": 5, "rounds": 4, "seeds": [0, 1], "dtype": "float64", "lr": 0.05,
}  # fmt: skip

SERVER = {"split": "iid_server", "model": "gat"}


def made(tmp_path, method="fedavg", **more):
    return run(method, "csbm", results_dir=tmp_path, **{**TINY, **more})


def parameters(result, client=0):
    return torch.cat([value.flatten() for value in load_models(result.folder)[0][client]["trained"].values()])


def test_defaults_and_keys_without_effect_change_no_score(tmp_path):
    plain = made(tmp_path)
    loose = made(tmp_path, clip_gradient=1e9)
    early = made(tmp_path, patience=100)
    warm = made(tmp_path, lr_schedule="warmup", lr_schedule__rounds=1)
    flat = made(tmp_path, lr_schedule="step", lr_schedule__decay=1.0)
    assert len({result.folder for result in (plain, loose, early, warm, flat)}) == 5
    assert made(tmp_path, finetune_epochs=5, lr_schedule="constant", unseen_clients=0.0).folder == plain.folder
    for other in (loose, early, warm, flat):
        assert other.curve().equals(plain.curve())
    assert early.summary["rounds_trained"] == [4, 4] and flat.summary["lr_schedule"] == "step" and "lr_schedule" not in plain.summary


def test_a_gradient_is_clipped_as_torch_clips_it(tmp_path):
    """One step of plain gradient descent from the same model: the update has the norm of lr times the bound."""
    one = {"rounds": 1, "optimizer": "sgd", "optimizer__momentum": 0.0, "weight_decay": 0.0, "keep_models": "final", "seeds": [0]}
    free, none = (parameters(made(tmp_path, **one, lr=lr)) for lr in (0.05, 1e-12))
    update = free - none
    gradient = torch.nn.Parameter(torch.zeros_like(update))
    gradient.grad = -update / 0.05
    bound = 0.5 * gradient.grad.norm().item()
    clipped = parameters(made(tmp_path, **one, clip_gradient=bound)) - none
    torch.nn.utils.clip_grad_norm_([gradient], bound)
    assert torch.allclose(clipped, -0.05 * gradient.grad, rtol=1e-4, atol=1e-10)
    assert clipped.norm().item() == pytest.approx(0.05 * bound, rel=1e-4)


def test_schedules_by_hand():
    assert [Cosine(0.0).factor(number, 4) for number in range(4)] == pytest.approx([1, (2 + np.sqrt(2)) / 4, 0.5, (2 - np.sqrt(2)) / 4])
    assert [Cosine(0.5).factor(number, 2) for number in range(2)] == pytest.approx([1, 0.75])
    assert [Step(2, 0.1).factor(number, 5) for number in range(5)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert [Warmup(4).factor(number, 9) for number in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert Constant().factor(3, 4) == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "d_psgd"])
def test_the_first_round_of_a_warmup_has_a_lower_rate(method, optimizer, tmp_path):
    """A warm-up over two rounds from twice the rate is the run of the rate, in its first round."""
    warm = made(tmp_path, method, optimizer=optimizer, lr=0.1, lr_schedule="warmup", lr_schedule__rounds=2).curve()
    plain = made(tmp_path, method, optimizer=optimizer, lr=0.05).curve()
    first = warm["round"] <= 1
    assert warm[first].equals(plain[first]) and not warm.equals(plain)


def test_an_early_stop_is_the_beginning_of_the_whole_run(tmp_path):
    more = {"rounds": 30, "lr": 0.3, "split": "louvain"}
    whole, stopped = made(tmp_path, **more), made(tmp_path, **more, patience=3)
    rounds = stopped.summary["rounds_trained"]
    assert max(rounds) < 30 and f"trained for {rounds[0]}, {rounds[1]} rounds" in str(stopped)
    for seed, last in zip((0, 1), rounds, strict=True):
        curve, before = stopped.curve().query(f"seed == {seed}"), whole.curve().query(f"seed == {seed} and round <= {last}")
        pd.testing.assert_frame_equal(curve.reset_index(drop=True), before.reset_index(drop=True))
        seen = curve[curve["round"] < last - 1]  # a point is known a round later, and the round that then begins is the last one
        assert last == max(int(seen[f"val_{model}"].argmax()) for model in ("received", "trained")) + 3 + 2
    alone = made(tmp_path / "alone", **more, patience=3, seeds=[1])
    assert alone.summary["rounds_trained"] == rounds[1:]


@pytest.mark.parametrize("method", ["fedavg", "d_psgd", "fedbuff"])
def test_a_budget_of_virtual_time_gives_the_beginning_of_the_whole_run(method, tmp_path):
    more = {"rounds": 12, "scenario__slow_fraction": 0.4, "eval_every": 1}
    whole, short = made(tmp_path, method, **more), made(tmp_path, method, **more, virtual_time=9.0)
    for seed in (0, 1):
        curve, before = (result.curve().query(f"seed == {seed}").reset_index(drop=True) for result in (short, whole))
        count = len(curve)
        assert 1 < count < len(before) and curve["time"].iloc[-1] >= 9.0 and (curve["time"].iloc[:-2] < 9.0).all()
        assert short.summary["rounds_trained"][seed] == curve["round"].iloc[-1]
        known = ["trip", "round", "val_received", "test_received", "val_trained"]
        pd.testing.assert_frame_equal(curve[known][:-1], before[known][: count - 1])
    alone = made(tmp_path / "alone", method, **more, virtual_time=9.0, seeds=[1])
    ended, scores = short.curve().groupby("seed")["trip"].last(), short.scores().groupby("seed")
    assert (scores["client_trips"].max() == ended).all() and (scores["client_trips"].min() == ended).all()
    assert alone.summary["test"]["received"]["per_seed"] == short.summary["test"]["received"]["per_seed"][1:]


def test_a_virtual_time_that_is_not_reached_is_said(tmp_path, capsys):
    assert "before virtual_time=900; give more" in str(warning(made(tmp_path, virtual_time=900.0).summary))
    assert max(made(tmp_path, virtual_time=9.0, rounds=None).summary["rounds_trained"]) == 9, "of 2,000 trips"


@pytest.mark.parametrize(
    ("method", "more", "why"),
    [
        ("fedasync", {"patience": 3}, "patience=3: scenario=semi_async has no rounds"),
        ("fedasync", {"lr_schedule": "cosine"}, "lr_schedule=cosine: scenario=semi_async has no rounds"),
        ("fedgraph", {"lr_schedule": "cosine", **SERVER}, "lr_schedule=cosine: the clients of algorithm=fedgraph take steps of their own"),
        ("dfedavgm", {"lr_schedule": "cosine"}, "lr_schedule=cosine: the clients of algorithm=dfedavgm take steps of their own"),
        ("fedgraph", {"clip_gradient": 1.0, **SERVER}, "clip_gradient=1: the clients of algorithm=fedgraph"),
        ("fedavg", {"clip_gradient": 0.0}, "clip_gradient=0.0 is out of range; allowed: above 0"),
        ("fedavg", {"patience": 0}, "patience=0 is out of range"),
        ("d_psgd", {"unseen_clients": 0.2}, "unseen_clients=0.2: scenario=decentralized has no server"),
        ("local", {"unseen_clients": 0.2}, "unseen_clients=0.2: algorithm=local has no server's model"),
        ("fed_pub", {"unseen_clients": 0.2}, "unseen_clients=0.2: a model of algorithm=fed_pub needs more"),
        ("fedavg", {"unseen_clients": 0.2, "split": "iid_server"}, "use split.test=clients"),
        ("fedavg", {"unseen_clients": 0.95}, "unseen_clients=0.95: must be lower; it leaves out all of num_clients=5"),
    ],
)
def test_what_has_no_meaning_is_refused(method, more, why, tmp_path):
    with pytest.raises(UserError, match=why):
        made(tmp_path, method, **more)


def test_no_round_for_a_second_stage_is_said(tmp_path, capsys):
    made(tmp_path, "fedavg_finetune", algorithm__federated_rounds=77)
    assert "algorithm.federated_rounds=77 leaves none of rounds=" in capsys.readouterr().err


def federation(**more):
    dataset = configured("dataset", "csbm", num_nodes=200, num_edges=500)
    options = {"num_clients": 5, "seeds": [0], "data_dir": None, "cache_dir": None, **more}
    return build_federations(dataset, configured("split", "metis"), NoSparsity(), **options)[0]


def test_unseen_clients_leave_with_their_edges():
    whole = federation()
    seen = leave_out(whole, 2)
    assert leave_out(whole, 0) is whole and seen.num_clients == 3 and seen.unseen.num_clients == 2 and seen.observed is seen.clients
    left = [client for number, client in enumerate(whole.clients) if number not in seen.unseen.unseen_numbers]
    assert all(one is other for one, other in zip(left, seen.clients, strict=True))
    nodes = set(np.concatenate([client.nodes for client in left]).tolist())
    inside = [pair for pair in whole.cross_edges.T.tolist() if set(pair) <= nodes]
    assert inside and seen.cross_edges.T.tolist() == inside
    bare = tuple(unscored(client) for client in whole.clients)
    with pytest.raises(UserError, match="unseen_clients: no client that is left"):
        leave_out(replace(whole, clients=bare, observed=bare), 1)


def test_unseen_clients_are_scored_with_the_server_s_model(tmp_path):
    """By hand from the saved models: the received model of any client on the test nodes of the unseen ones."""
    more = {"unseen_clients": 0.4, "keep_models": "final", "finetune_epochs": 3, "model": "mlp"}
    result = made(tmp_path, **more)
    unseen = result.summary["unseen"]
    assert [len(clients) for clients in unseen["clients"]] == [2, 2] and unseen["epochs"] == 3
    assert result.summary["num_clients"] == 5 and result.summary["client_trips"]["total"] == 3 * TINY["rounds"]
    assert "2 unseen clients after the last round: received model" in str(result) and "after 3 epochs of fine-tuning" in str(result)
    scores = unseen["received"]["per_seed"]
    for seed, numbers, score in zip((0, 1), unseen["clients"], scores, strict=True):
        weights = {name: value.numpy() for name, value in load_models(result.folder)[seed][0]["received"].items()}
        clients = [federation(seeds=[seed]).clients[number] for number in numbers]
        right = []
        for client in clients:
            hidden = np.maximum(client.features @ weights["linear0.weight"] + weights["linear0.bias"], 0)
            answer = (hidden @ weights["linear1.weight"] + weights["linear1.bias"]).argmax(1)
            right += (answer == client.labels)[client.test].tolist()
        assert np.mean(right) == pytest.approx(score)
    half = student.ppf(0.975, 1) * np.std(scores, ddof=1) / np.sqrt(2)
    assert unseen["received"]["ci95"] == pytest.approx(half) and unseen["fine_tuned"]["per_seed"] != scores
    again = made(tmp_path / "again", **more, seeds=[1])
    assert again.summary["unseen"]["received"]["per_seed"] == scores[1:]


@pytest.mark.parametrize("method", ["fedgta", "scaffold", "fedadam", "fedsage_plus", "fedper"])
def test_methods_leave_clients_out_or_say_why_not(method, tmp_path):
    try:
        assert "unseen" in made(tmp_path, method, unseen_clients=0.2).summary
    except UserError as error:
        assert f"unseen_clients=0.2: a model of algorithm={method} needs more" in str(error) and method == "fedsage_plus"


def test_a_variate_is_scaled_by_the_rate_of_its_round(tmp_path):
    """Scaffold's option II divides a trip's displacement by K lr: with plain gradient steps that is the mean gradient at any rate."""
    more = {"optimizer": "sgd", "optimizer__momentum": 0.0, "weight_decay": 0.0, "lr_schedule": "step", "lr_schedule__every": 1}
    literal, mean = (made(tmp_path, "scaffold", **more, algorithm__control=control).curve() for control in CONTROLS)
    pd.testing.assert_frame_equal(literal, mean, rtol=1e-6)
