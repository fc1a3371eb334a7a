"""The speed comparison measures the same job on both sides."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from fgl_bench.run import pick_device, prepare

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "bench_speed.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def job(bench, tmp_path):
    """A graph of 240 nodes for four clients, two seeds, ten rounds, no dropout."""
    job = {"dataset": "csbm_cora", "clients": 4, "seeds": 2, "rounds": 10, "device": "cpu", "cache_dir": str(tmp_path), "threads": 1}
    small = {
        "dataset": {"num_nodes": 240, "num_edges": 600, "num_features": 50, "words_per_node": 6.0, "communities_per_class": 2},
        "model": {"dropout": 0.0},
    }
    return OmegaConf.merge(bench.composed(job), small), job


@pytest.mark.parametrize("features", ["dense", "coo"])
def test_both_sides_train_the_same_models(bench, job, features):
    cfg, options = job
    federations, device = prepare(cfg), pick_device("cpu")
    sides = {}
    for rounds in (bench.loop_rounds, bench.engine_rounds):
        train, evaluate, accuracy = rounds(cfg, options | {"features": features}, federations, device, bench.Clock(lambda: None))
        assert all(np.isfinite(seconds) and seconds >= 0.0 for seconds in [*train, *evaluate]) and train and evaluate
        sides[rounds] = accuracy
    for name in ("received", "trained"):
        loop, engine = (sides[side][name] for side in sides)
        assert len(loop) == len(engine) == 2
        assert loop == pytest.approx(engine, abs=0.011), "single precision may turn one node of about a hundred"


def test_the_report_divides_medians(bench, capsys):
    side = {"seeds": 2, "received": [0.5, 0.6], "trained": [0.7, 0.7], "peak_mb": 10.0, "prepared_mb": 4.0, "options": {"threads": 1}}
    bench.report({
        "loop": side | {"train": [0.4, 0.4, 9.0], "evaluate": [0.2, 0.2]},
        "engine": side | {"train": [0.04], "evaluate": [0.02]},
    })  # fmt: skip
    printed = capsys.readouterr().out
    assert "engine faster per seed: 10.0 x (training 10.0 x, evaluation 10.0 x)" in printed
    assert "55.00 ± 7.07" in printed and "300.00" in printed and "30.00" in printed


def test_a_failing_side_ends_the_comparison_with_one_line(bench):
    with pytest.raises(SystemExit, match="the loop side failed"):
        bench.in_a_process({"side": "loop", "dataset": "no_such", "clients": 2, "seeds": 1, "rounds": 5, "device": "cpu",
                            "cache_dir": "x", "threads": 1})  # fmt: skip
