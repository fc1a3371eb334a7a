"""Running from Python: the same runs as the command line's, with objects in the place of choices."""

from __future__ import annotations

import doctest
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fgl_bench
from fgl_bench import UserError, load_results, run
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.config.values import shown
from fgl_bench.data.datasets.custom import Custom
from fgl_bench.models.mlp import MLP
from tests.warm import command

TINY = {"dataset__num_nodes": 120, "dataset__num_edges": 300, "num_clients": 3, "rounds": 2, "seeds": [0, 1]}
LINE = [f"{name.replace('__', '.')}={value}" for name, value in TINY.items()]


@dataclass
class HalfWay(FedAvg):
    """Starts with a shrunken model."""

    share: float = 0.5

    def initialize(self, initial):
        return self.share * initial


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("module", ["fgl_bench", "fgl_bench.runner.api"])
def test_the_examples_of_the_documentation_are_true(module):
    result = doctest.testmod(sys.modules[module])
    assert result.attempted > 1 and result.failed == 0


def test_the_command_line_finds_the_run_that_python_made(here):
    result = run("fedprox", "csbm", algorithm__mu=0.1, **TINY)
    again = command(here, "algorithm=fedprox", "dataset=csbm", "algorithm.mu=0.1", *LINE, "progress=false")
    assert "complete already" in again.stdout and str(result.folder) in again.stdout
    assert result.folder.parent.name == "fedprox" and str(result) in again.stdout


def test_importing_loads_no_heavy_library_and_leaves_the_process_as_it_is():
    script = "import sys, fgl_bench; dir(fgl_bench); print(sorted({'torch', 'numpy', 'hydra', 'ctypes'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there():
    assert {name for name in dir(fgl_bench) if not name.startswith("_")} == set(fgl_bench.__all__)
    assert all(getattr(fgl_bench, name) for name in fgl_bench.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        fgl_bench.nope  # noqa: B018


def test_objects_take_the_place_of_choices(here):
    dice = np.random.default_rng(0)
    np.savez(here / "graph.npz", x=dice.random((60, 8)), edge_index=dice.integers(0, 60, (2, 200)), y=dice.integers(0, 3, 60))
    changes = {name: value for name, value in TINY.items() if "__" not in name}
    graph = Custom("custom", [0.2, 0.4, 0.4], "accuracy", False, path="graph.npz")
    result = run(HalfWay(share=0.25), graph, model=MLP(hidden=8, layers=2, dropout=0.0), **changes)
    assert result.summary["algorithm"] == "halfway" and result.summary["dataset"] == "custom" and result.summary["model"] == "mlp"
    assert result.summary["config"]["algorithm"]["share"] == 0.25 and result.summary["scenario"] == "sync"
    assert list(result.summary["config"]["code"]) and run(HalfWay(share=1.0), "csbm", **TINY).folder != result.folder


def test_results_are_a_row_a_run_seed_and_model(here):
    first, second = run("fedavg", "csbm", lr=0.1, **TINY), run("local", "csbm", **TINY)
    (here / "results/runs/csbm/broken").mkdir()
    (here / "results/runs/csbm/broken/summary.json").write_text("{")
    found = load_results("results/runs", keys=("lr", "algorithm.mu"))
    assert len(found) == 2 * 2 * 2 and set(found["algorithm"]) == {"fedavg", "local"}
    assert found.groupby("algorithm")["lr"].first().to_dict() == {"fedavg": 0.1, "local": second.summary["config"]["lr"]}
    assert found["algorithm.mu"].isna().all()
    received = found.query("algorithm == 'fedavg' and evaluated == 'received'").set_index("seed")["score"]
    assert received.tolist() == first.summary["test"]["received"]["per_seed"]
    clients, curve = first.clients(), first.curve()
    assert len(clients) == 2 * 2 * 3 and set(curve["seed"]) == {0, 1}
    at = first.scores().query("evaluated == 'trained' and seed == 1").iloc[0]
    point = curve.query("seed == 1").set_index("trip").loc[at["trip"]]
    assert point["test_trained"] == pytest.approx(at["score"], abs=1e-6)
    assert point["val_trained"] == curve.query("seed == 1")["val_trained"].max()


def test_a_class_that_other_processes_cannot_find_is_refused():
    @dataclass
    class Hidden(FedAvg):
        pass

    with pytest.raises(UserError, match="no class at the top of a module"):
        run(Hidden(), "csbm", **TINY)


def test_values_are_written_as_the_command_line_reads_them():
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values = [None, True, 0.1, -3, 1e-30, "a'b", "x y", "\\", "${lr}", "[1]", [1, "a,b", None], {"a": [1.5]}, Path("a b"), (1, 2)]
    for value in values:
        read = OverridesParser.create().parse_override(f"x={shown(value)}").value()
        plain = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
        assert read == plain
