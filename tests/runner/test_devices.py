"""Seeds dealt over several devices; without GPUs the CPU stands for each of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from fgl_bench.errors import UserError
from fgl_bench.results.callbacks import Callback, Callbacks
from fgl_bench.runner.devices import pick_devices, run_on
from fgl_bench.runner.program import simulate
from fgl_bench.utils.processes import JOB
from tests.quick import prepared

CPU = torch.device("cpu")


@pytest.mark.parametrize("algorithm", ["fedgta", "fedsa_gcl", "fedaas"])
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.nightly), 5])
def test_scores_do_not_depend_on_the_number_of_devices(algorithm, count, tmp_path):
    changes = {"fedgta": {"mixing_at": [12]}, "fedaas": {"split": "iid_server", "model": "gat"}}.get(algorithm, {})
    spec, federations = prepared(algorithm, tmp_path, changes, seeds=[3, 1, 4], rounds=4)
    used, reports = [], {}

    class Counted(Callback):
        def report(self, report):
            reports[report.seeds] = report.trips

    callbacks = Callbacks([Counted()])

    def watched(part, device):
        used.append([federation.seed for federation in part])
        return simulate(spec, part, device, callbacks)

    one = run_on([CPU], federations, partial(simulate, spec), callbacks.cancel)
    several = run_on([CPU] * count, federations, watched, callbacks.cancel)
    assert sorted(used) == ([[1], [3], [4]] if count == 5 else [[3, 1], [4]])
    assert sum(reports.values()) == spec.trips * 3, "no program's report takes another one's place"
    for whole, dealt in zip(one.histories, several.histories, strict=True):
        assert whole.seed == dealt.seed
        for model in ("received", "trained"):
            np.testing.assert_array_equal(whole.scores[model], dealt.scores[model])
    assert all(np.array_equal(one.mixing[at], several.mixing[at]) for at in one.mixing) and one.costs.keys() == several.costs.keys()


def test_a_device_that_fails_ends_the_others(tmp_path):
    spec, federations = prepared("fedavg", tmp_path, {}, seeds=[0, 1], rounds=4)
    callbacks = Callbacks()

    def failing(part, device):
        if part[0].seed:
            raise UserError("this device is broken")
        return simulate(spec, part, device, callbacks)

    with pytest.raises(UserError, match="this device is broken"):
        run_on([CPU, CPU], federations, failing, callbacks.cancel)
    assert callbacks.canceled


@pytest.mark.parametrize(
    ("name", "gpus", "job", "wanted"),
    [
        ("auto", 0, None, ["cpu"]), ("auto", 1, None, ["cuda"]), ("auto", 3, None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cpu", 3, "1", ["cpu"]), ("cuda", 2, None, ["cuda:0", "cuda:1"]), ("cuda:1", 2, None, ["cuda:1"]),
        ("cuda:1", 2, "0", ["cuda:1"]), ("cuda", 2, "5", ["cuda:1"]), ("auto", 3, "3", ["cuda:0"]),
    ],
)  # fmt: skip
def test_all_gpus_are_used_and_a_job_of_a_launcher_takes_one(name, gpus, job, wanted, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv(JOB, raising=False)
    if job is not None:
        monkeypatch.setenv(JOB, job)
    assert pick_devices(name) == [torch.device(each) for each in wanted]
