"""Differential privacy of clients: clipping and noise by hand, the accountant against the exact formula, and what is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from fgl_bench import UserError, run, table
from fgl_bench.engine import privacy
from fgl_bench.engine.privacy import DP
from fgl_bench.engine.shard import ALONE, Shard
from fgl_bench.utils.world import World
from tests.engine.worlds import together

TINY = {"dataset__num_nodes": 200, "dataset__num_edges": 500, "num_clients": 5, "rounds": 4, "seeds": [0, 1], "dtype": "float64"}
PRIVATE = {"privacy": "dp", "privacy__clip": 0.5, "privacy__noise": 2.0}
KEY = torch.tensor([7])
needs_accountant = pytest.mark.skipif(importlib.util.find_spec("dp_accounting") is None, reason="dp-accounting is not installed")


@pytest.fixture
def accountant(monkeypatch):
    """Runs need no accountant, but for their summary."""
    if importlib.util.find_spec("dp_accounting") is None:
        monkeypatch.setattr(DP, "check_installed", lambda self: None)
        monkeypatch.setattr(DP, "epsilon", lambda self, participations: 1.5 * participations if self.noise else None)


def rows(values):
    return torch.tensor([values], dtype=torch.float64)


def test_updates_are_clipped_by_hand():
    """Norms 5, 1 and 10 of updates from (1, 1) are clipped to 2.5, so that one is halved, one stays and one is quartered."""
    received, uploads = rows([[1, 1]] * 3), rows([[4, 5], [1, 2], [7, -7]])
    weights = rows([0.5, 0.25, 0.25])
    mean = DP(2.5, 0.0, 1e-5).combine(uploads, received, weights, ALONE, KEY)
    expected = 0.5 * np.array([2.5, 3]) + 0.25 * np.array([1, 2]) + 0.25 * np.array([2.5, -1])
    assert mean[0].tolist() == pytest.approx(expected)
    unclipped = DP(100.0, 0.0, 1e-5).combine(uploads, received, weights, ALONE, KEY)
    assert torch.equal(unclipped, (weights[:, None] @ uploads)[:, 0])
    broken = uploads.clone()
    broken[0, 2] = torch.nan
    assert DP(2.5, 0.0, 1e-5).combine(broken, received, weights, ALONE, KEY).isfinite().all(), "counts as no update"


def test_the_noise_has_the_deviation_of_the_largest_weight():
    models = torch.zeros(1, 2, 50_000, dtype=torch.float64)
    drawn = DP(0.5, 4.0, 1e-5).combine(models, models, rows([0.25, 0.75]), ALONE, KEY)
    assert drawn.std().item() == pytest.approx(4 * 0.5 * 0.75, rel=0.02) and abs(drawn.mean()) < 0.03
    assert torch.equal(drawn, DP(0.5, 4.0, 1e-5).combine(models, models, rows([0.25, 0.75]), ALONE, KEY))
    assert not torch.equal(drawn, DP(0.5, 4.0, 1e-5).combine(models, models, rows([0.25, 0.75]), ALONE, KEY + 1))


def test_workers_that_share_clients_add_the_same_noise():
    models = torch.tensor(np.random.default_rng(0).normal(size=(2, 5, 3)))
    weights, key = torch.full((2, 5), 0.2, dtype=torch.float64), torch.tensor([1, 2])

    def job(world):
        shard = Shard(5, world)
        return DP(0.5, 1.0, 1e-5).combine(shard.of(models), torch.zeros_like(shard.of(models)), weights, shard, key)

    alone, one, other = job(World()), *together(2, job)
    assert torch.equal(one, other) and torch.allclose(one, alone)


def exact(noise, count, delta):
    """Balle and Wang, ICML 2018, theorem 8, for a sum of ``count`` Gaussian mechanisms."""
    z = noise / np.sqrt(count)
    return brentq(lambda e: norm.cdf(1 / (2 * z) - e * z) - np.exp(e) * norm.cdf(-1 / (2 * z) - e * z) - delta, 0, 60)


@needs_accountant
@pytest.mark.parametrize(("noise", "count"), [(1.0, 1), (5.0, 100), (10.0, 100), (2.0, 3)])
def test_epsilon_bounds_the_exact_one_closely(noise, count):
    assert exact(noise, count, 1e-5) <= DP(1.0, noise, 1e-5).epsilon(count) <= 1.12 * exact(noise, count, 1e-5)
    assert DP(1.0, 0.0, 1e-5).epsilon(1) is None


@needs_accountant
def test_the_accountant_leaves_a_stream_of_the_user_open():
    """Its library's logger closes its handler's stream when logging is configured anew, as Hydra does."""
    code = (
        "import io, logging.config, sys; from fgl_bench.engine.privacy import DP; sys.stderr = mine = io.StringIO(); "
        "DP(1.0, 1.0, 1e-5).epsilon(1); sys.stderr = sys.__stderr__; logging.config.dictConfig({'version': 1}); print(mine.closed)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.usefixtures("accountant")
def test_a_run_says_what_it_spent(tmp_path):
    whole, part, clipped = (
        run("fedavg", "csbm", results_dir=tmp_path, **{**TINY, **PRIVATE, **more})
        for more in ({}, {"participation": 0.4}, {"rounds": 5, "privacy__noise": 0.0})
    )
    spent = whole.summary["privacy_spent"]
    assert spent["participations"] == 4 and spent["delta"] == 1e-5 and spent["epsilon"] > 0
    assert 1 <= part.summary["privacy_spent"]["participations"] <= 4
    assert f"epsilon {spent['epsilon']:.3g}, delta 1e-05, for 4 rounds" in " ".join(str(whole).split())
    assert clipped.summary["privacy_spent"]["epsilon"] is None and "nothing is guaranteed" in str(clipped)
    assert f"epsilon {spent['epsilon']:.3g}" in " ".join(str(table(tmp_path, where="participation=1,rounds=4")).split())
    assert table(tmp_path, where="participation=1,rounds=4").frame()["epsilon"].tolist() == [spent["epsilon"]] * 2


@pytest.mark.usefixtures("accountant")
def test_no_privacy_changes_no_score_and_a_large_clip_hardly_any(tmp_path):
    plain, none, loose, private = (
        run("fedavg", "csbm", results_dir=tmp_path, **TINY, **more)
        for more in ({}, {"privacy": "none"}, {**PRIVATE, "privacy__clip": 1e6, "privacy__noise": 0.0}, PRIVATE)
    )
    assert plain.folder == none.folder and "privacy" not in plain.summary
    assert loose.curve().equals(plain.curve()) and not private.curve().equals(plain.curve())


@pytest.mark.usefixtures("accountant")
@pytest.mark.parametrize(
    ("method", "more", "why"),
    [
        ("fedgta", {}, "privacy=dp: DP makes one model of all uploads, and the server of FedGTA does not; use privacy=none"),
        ("scaffold", {}, "privacy=dp: DP covers the models that clients upload, and those of Scaffold send more"),
        ("fednova", {}, "those of FedNova send more"),
        ("fedtad", {}, "those of FedTAD send more"),
        ("fedgcn", {"algorithm__hops": 1}, "those of FedGCN send more"),
        ("fedala", {}, "this method's clients start from others"),
        ("fedasync", {}, "privacy=dp: scenario=semi_async has no rounds of a server"),
        ("d_psgd", {}, "privacy=dp: scenario=decentralized has no rounds of a server"),
        ("fedavg", {"aggregator": "median"}, "privacy=dp: its noise is made for a mean; use aggregator=mean"),
    ],
)
def test_what_it_does_not_cover_is_refused(method, more, why, tmp_path):
    with pytest.raises(UserError, match=why):
        run(method, "csbm", results_dir=tmp_path, **{**TINY, **PRIVATE, **more})


@pytest.mark.usefixtures("accountant")
@pytest.mark.parametrize("method", ["fedadam", "fedper", "ditto", "moon"])
def test_methods_with_one_upload_compose(method, tmp_path):
    assert run(method, "csbm", results_dir=tmp_path, **TINY, **PRIVATE).summary["privacy"] == "dp"


def test_a_missing_accountant_is_said_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(privacy.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"privacy=dp needs dp-accounting, which is not installed: pip install 'fgl-bench\[privacy\]'"):
        run("fedavg", "csbm", results_dir=tmp_path, **TINY, **PRIVATE)
