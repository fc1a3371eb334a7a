"""A method of one's own, selected by ``_target_``, without touching the package."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.warm import command

SMALL = [
    "dataset.num_nodes=120", "dataset.num_edges=240", "dataset.num_features=40", "dataset.num_classes=3", "num_clients=4", "rounds=4",
    "seeds=[0,1]", "eval_every=4", "progress=false", "mixing_at=[8]", "cache_dir=cache", "results_dir=runs", "device=cpu",
]  # fmt: skip

METHOD = '''
from __future__ import annotations

from dataclasses import dataclass

import torch

from fgl_bench.algorithms.base import Traffic
from fgl_bench.algorithms.base import ServerRounds
from fgl_bench.engine.mixing import Mixing, normalize


@dataclass
class InverseSizes(ServerRounds):
    """Averages in which small clients count most, n^-power; reports a number that nobody needs."""

    power: float

    def report(self, trips):
        return {"norm": trips.trained.norm(dim=1)}

    def mix(self, reports, arrived):
        assert reports["norm"].shape == arrived.shape and (reports["norm"] > 0).all()
        return Mixing(normalize(self.setting.weights.clamp(min=1) ** -self.power, arrived)[:, None])

    def traffic(self):
        model = {"model": self.setting.layout.count}
        return Traffic(upload={**model, "norm": 1}, download=model)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_method.py").write_text(METHOD)
    return folder


def test_a_class_in_the_current_folder_runs_and_is_reported_under_its_name(folder):
    done = command(folder, "algorithm=fedavg", *SMALL, "algorithm._target_=own_method.InverseSizes", "+algorithm.power=1.0")
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs").rglob("summary.json")
    summary = json.loads(path.read_text())
    assert summary["algorithm"] == "inversesizes" and "inversesizes on csbm" in done.stdout
    assert summary["client_trips"]["total"] == 16
    parameters = 40 * 64 + 64 + 64 * 3 + 3
    assert summary["bytes"] == {"upload": 16 * 4 * (parameters + 1), "download": 16 * 4 * parameters}
    with np.load(path.parent / "mixing.npz") as arrays:
        matrix = arrays["trips_8"]
    assert matrix.shape == (2, 4, 4)
    np.testing.assert_allclose(matrix.sum(-1), 1)
