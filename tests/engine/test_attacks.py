"""Malicious clients: what they train on and upload, and who is scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench import UserError, run, table
from fgl_bench.data.federation import build_federations
from fgl_bench.data.sparsity import NoSparsity
from fgl_bench.engine.aggregators import Median
from fgl_bench.engine.attacks import ALIE, Forgery, Gaussian, LabelFlip, NoAttack, SignFlip, largest_z
from fgl_bench.engine.shard import ALONE, Shard
from fgl_bench.results.plots.draw import plot
from fgl_bench.utils.world import World
from tests.data.graphs import configured
from tests.engine.worlds import together

TINY = {"dataset__num_nodes": 200, "dataset__num_edges": 500, "num_clients": 5, "rounds": 4, "seeds": [0, 1], "dtype": "float64"}
ATTACKS = ("label_flip", "sign_flip", "gaussian", "alie")


def federation(clients=5, seed=0):
    dataset = configured("dataset", "csbm", num_nodes=200, num_edges=500)
    options = {"num_clients": clients, "seeds": [seed], "data_dir": None, "cache_dir": None}
    return build_federations(dataset, configured("split", "metis"), NoSparsity(), **options)[0]


@pytest.mark.parametrize(("fraction", "count"), [(0, 0), (0.2, 2), (0.25, 2), (0.5, 5), (0.9, 9)])
def test_a_share_of_the_clients_is_malicious_and_every_seed_draws_its_own(fraction, count):
    drawn = [tuple(SignFlip(fraction, 1.0).malicious(seed, 10)) for seed in range(20)]
    assert {sum(each) for each in drawn} == {count} and (len(set(drawn)) > 1) == (0 < count < 10)
    assert drawn[0] == tuple(ALIE(min(fraction, 0.5), None).malicious(0, 10)) or fraction > 0.5, "all attacks have the same attackers"


def test_malicious_clients_are_not_scored_and_honest_ones_are_left_alone():
    before = federation()
    after = LabelFlip(0.4).compromise(before)
    assert len(after.malicious) == 2 and after.observed is after.clients
    for number, (one, other) in enumerate(zip(before.clients, after.clients, strict=True)):
        if number not in after.malicious:
            assert one is other
            continue
        assert not other.val.any() and not other.test.any() and np.array_equal(one.train, other.train)
        flipped = before.num_classes - 1 - one.labels
        assert np.array_equal(other.labels, np.where(one.train, flipped, one.labels))
    assert LabelFlip(0.0).compromise(before) is before and NoAttack().compromise(before) is before
    with pytest.raises(UserError, match="scenario.attack.fraction=0.99: no honest client"):
        SignFlip(0.99, 1.0).compromise(before)


MODELS = torch.tensor([[1.0, 1], [2, 4], [3, 1], [8, 8]], dtype=torch.float64)  # trained, of one seed
RECEIVED = torch.zeros(4, 2, dtype=torch.float64)
MALICIOUS = np.array([[False, False, False, True]])


def forged(attack, rows=(0, 1, 2, 3), time=0):
    forge = Forgery(attack, MALICIOUS, torch.arange(4), ALONE)
    return forge(rows, RECEIVED[list(rows)], MODELS[list(rows)], time)


def test_uploads_by_hand():
    assert forged(SignFlip(0.25, 2.0)).tolist() == [[1, 1], [2, 4], [3, 1], [-16, -16]]
    assert torch.equal(forged(SignFlip(0.25, -1.0)), MODELS)  # the reference without an attack
    assert forged(ALIE(0.25, 0.0))[3].tolist() == [2, 2]
    moved = np.array([2, 2]) - 1.5 * MODELS[:3].numpy().std(0)
    assert forged(ALIE(0.25, 1.5))[3].tolist() == pytest.approx(moved)
    assert torch.equal(forged(ALIE(0.25, 1.5))[:3], MODELS[:3])
    assert torch.equal(forged(SignFlip(0.25, 2.0), rows=(3,)), forged(SignFlip(0.25, 2.0))[3:])


def test_gaussian_noise_depends_on_client_and_round_only():
    attack = Gaussian(0.25, 0.1)
    assert torch.equal(forged(attack)[3:], forged(attack, rows=(3,))) and not torch.equal(forged(attack)[3:], forged(attack, time=1)[3:])
    forge = Forgery(attack, np.ones((1, 1), dtype=bool), torch.arange(1), ALONE)
    noise = forge((0,), torch.zeros(1, 20000), torch.ones(1, 20000), 3)
    assert abs(noise.mean()) < 0.005 and abs(noise.std() - 0.1) < 0.005


def test_the_largest_z_is_that_of_the_paper():
    """Baruch et al., section 3.2: 24 of 50 workers need 2 supporters, so that z is 1.43."""
    assert largest_z(50, 24 / 50) == pytest.approx(1.43, abs=0.005)
    assert largest_z(20, 0.2) == pytest.approx(0.157, abs=0.001), "quantile of 9 / 16"
    assert largest_z(20, 0.05) == 0, "a single attacker of 20 has no room"


def test_the_honest_mean_is_of_the_same_seed():
    models = torch.tensor([[1.0], [100], [5], [100]], dtype=torch.float64)
    forge = Forgery(ALIE(0.5, 0.0), np.array([[False, True], [False, True]]), torch.arange(4), ALONE)
    assert forge((0, 1, 2, 3), torch.zeros_like(models), models, 0).ravel().tolist() == [1, 1, 5, 5]
    assert forge((0, 1, 3), torch.zeros_like(models[:3]), models[[0, 1, 3]], 0).ravel().tolist() == [1, 1, 100], "no honest one to know"


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attackers_change_no_score_and_some_change_them(attack, tmp_path):
    def curve(fraction):
        more = {"scenario__attack": attack, "scenario__attack__fraction": fraction} if fraction is not None else {}
        return run("fedavg", "csbm", results_dir=tmp_path, **TINY, **more)

    plain, none, some = curve(None), curve(0.0), curve(0.4)
    assert none.curve().equals(plain.curve()) and "malicious_clients" not in none.summary
    assert not some.curve().equals(plain.curve())
    assert [len(each) for each in some.summary["malicious_clients"]] == [2, 2]
    assert "2 of 5 clients are malicious and count in no mean" in str(some) and f"attack={attack}" in str(some)
    for clients, per_client in zip(some.summary["malicious_clients"], some.summary["test"]["received"]["per_client"], strict=True):
        assert [i for i, score in enumerate(per_client) if score is None] == clients


def test_seeds_chunks_and_participation_give_the_same_numbers(tmp_path):
    more = {"scenario__attack": "gaussian", "scenario__attack__fraction": 0.4, "participation": 0.6, "aggregator": "median"}
    both = run("fedavg", "csbm", results_dir=tmp_path / "a", **TINY, **more).curve()
    alone = run("fedavg", "csbm", results_dir=tmp_path / "b", **{**TINY, "seeds": [1]}, **more).curve()
    assert both[both["seed"] == 1].reset_index(drop=True).equals(alone)


@pytest.mark.parametrize("method", ["fedasync", "fedbuff", "fedsa_gcl"])
def test_a_semi_asynchronous_server_is_attacked_too(method, tmp_path):
    plain, flipped = (
        run(method, "csbm", results_dir=tmp_path, **TINY, scenario__attack="sign_flip", scenario__attack__fraction=fraction)
        for fraction in (0.0, 0.4)
    )
    honest = run(method, "csbm", results_dir=tmp_path, **TINY)
    assert honest.curve().equals(plain.curve()) and not plain.curve().equals(flipped.curve())
    with pytest.raises(UserError, match="scenario/attack=alie: malicious clients know the uploads of their round"):
        run(method, "csbm", results_dir=tmp_path, **TINY, scenario__attack="alie")


def test_peers_are_attacked_by_labels_only_and_a_server_with_test_nodes_scores_honest_clients(tmp_path):
    run("d_psgd", "csbm", results_dir=tmp_path, **TINY, scenario__attack="label_flip")
    with pytest.raises(UserError, match="scenario/attack=sign_flip: is an attack on a server, and scenario=decentralized has none"):
        run("d_psgd", "csbm", results_dir=tmp_path, **TINY, scenario__attack="sign_flip")
    with pytest.raises(UserError, match="sign_flip: forges the model that a client uploads, and algorithm=fedproto uploads none"):
        run("fedproto", "csbm", results_dir=tmp_path, **TINY, scenario__attack="sign_flip")
    served = run("fedavg", "csbm", split="iid_server", results_dir=tmp_path, **TINY, scenario__attack="sign_flip")
    assert [each.count(None) for each in served.summary["test"]["received"]["per_client"]] == [1, 1]
    run("global", "csbm", results_dir=tmp_path, **TINY, scenario__attack="sign_flip")


def test_workers_that_share_clients_forge_and_aggregate_as_one():
    generator = np.random.default_rng(0)
    models = torch.tensor(generator.normal(size=(2, 5, 3)))
    malicious = np.array([[True, False, False, False, True], [False, True, False, True, False]])
    weights = torch.full((2, 5), 0.2, dtype=torch.float64)
    streams = torch.arange(10).view(2, 5)

    def job(world):
        shard = Shard(5, world)
        mine = shard.of(models)
        rows = tuple(range(2 * mine.shape[1]))
        forge = Forgery(ALIE(0.4, 1.0), malicious, shard.of(streams).flatten(), shard)
        sent = forge(rows, torch.zeros_like(mine).flatten(0, 1), mine.flatten(0, 1), 0).view_as(mine)
        return shard.whole(sent), Median().combine(sent, sent, weights, shard, streams[:, 0])

    alone, two = job(World()), together(2, job)
    for sent, center in two:
        assert torch.allclose(sent, alone[0]) and torch.allclose(center, alone[1])


def test_a_line_of_accuracy_against_the_fraction_of_attackers(tmp_path):
    for aggregator in ("mean", "median"):
        for fraction in (0.0, 0.4):
            more = {"scenario__attack": "sign_flip", "scenario__attack__fraction": fraction, "aggregator": aggregator}
            run("fedavg", "csbm", results_dir=tmp_path, **TINY, **more)
    drawn = table(tmp_path, rows="aggregator", cols="scenario.attack.fraction")
    assert [row for (row,) in drawn.chosen.rows] == ["mean", "median"] and [column for (column,) in drawn.chosen.columns] == ["0", "0.4"]
    said = " ".join(str(drawn).split())
    assert "rounds=4, attack=sign_flip." in said, "a table of attacked runs says so, and names neither rows nor defaults"
    (path,) = plot("lines", drawn, tmp_path / "attack.svg")
    assert path.is_file() and "<!-- fraction -->" in path.read_text(encoding="utf-8")  # the last line of the axis label
    with pytest.raises(UserError, match="lines need one key: "):
        plot("lines", table(tmp_path, rows="algorithm", cols="aggregator,scenario.attack.fraction"), tmp_path / "wrong.svg")
