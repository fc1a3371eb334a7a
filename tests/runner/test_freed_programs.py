"""A program goes from memory when it ends, not when Python next looks for cycles: the seeds that follow would need as much again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from fgl_bench.config.compose import composed
from fgl_bench.engine.training import Trainer
from fgl_bench.runner.one import run_one
from fgl_bench.scenarios.simulation import Simulation
from tests.test_rounding import CHANGES, SMALL


@pytest.fixture
def collector_off() -> Iterator[None]:
    torch.optim.Adam([torch.zeros(1)])  # the first one imports what keeps its callers' frames
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("algorithm", ["adafgl", "d_psgd", "fedgraph", "fedsa_gcl", "fedsage_plus"])
def test_nothing_of_a_program_is_left_when_it_has_ended(algorithm, tmp_path):
    folders = f"cache_dir={tmp_path}", f"results_dir={tmp_path}"
    run_one(composed([*SMALL, f"algorithm={algorithm}", *CHANGES.get(algorithm, []), "dtype=float32", "keep_models=best", *folders]))
    assert not sum(isinstance(each, Simulation | Trainer) for each in gc.get_objects())
