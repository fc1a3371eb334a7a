"""What a GPU would meet, without one: small runs of every method, every backbone and many variants on a pretended device.

Where a change lowers what is recorded, ``python -m tests.device_cases CASE...`` records it; what rises is for its author to explain.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fgl_bench.engine.transfer import put
from tests.device_cases import CASES, METHODS, launches, recorded_launches, recorded_waits, run, waits
from tests.pretend_cuda import CUDA, DeviceMix, Ledger, pretended

WAITS, LAUNCHES = recorded_waits(), recorded_launches()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("device")


SOON = [name if name in METHODS else pytest.param(name, marks=pytest.mark.nightly) for name in CASES]


@pytest.mark.parametrize("case", SOON)
def test_device_is_used_as_recorded(case: str, folder: Path):
    """No operation mixes devices, or the run would fail."""
    host, device, ledger = run(case, folder)
    for one, other in zip(host.histories, device.histories, strict=True):
        for model in one.scores:
            if "bfloat16" not in case:  # which leaves too few digits for sums in another order
                np.testing.assert_array_equal(one.scores[model], other.scores[model])
        if "bfloat16" not in case and one.losses is not None:
            np.testing.assert_allclose(other.losses, one.losses, rtol=1e-9)
    assert not ledger.mean(ledger.atomics), "the order of a sum would decide its last bits"
    assert waits(ledger) == WAITS.get(case, {})
    assert launches(ledger) <= 1.05 * LAUNCHES[case]


def test_records_are_of_cases_that_there_are():
    assert set(LAUNCHES) == set(CASES) and set(WAITS) <= set(CASES)


def on_device(*values: object) -> list[torch.Tensor]:
    return [torch.tensor(value, device="cuda:0") for value in values]


class TestPretendedDevice:
    """What the tests above rely on."""

    def test_tensors_of_two_devices_do_not_meet_but_for_scalars(self):
        with pretended(Ledger()):
            (x,) = on_device([1.0, 2.0])
            assert x.device == (x * torch.tensor(2.0)).device == CUDA
            with pytest.raises(DeviceMix):
                x + torch.ones(2)
            with pytest.raises(DeviceMix):
                torch.cat([x, torch.ones(2)])

    @pytest.mark.parametrize(
        ("reason", "operation"),
        [
            ("item", lambda x: float(x[0])),
            ("item", lambda x: bool((x > 0).all())),
            ("nonzero", lambda x: x.nonzero()),
            ("mask as index", lambda x: x[x > 0]),
            ("host index", lambda x: x[torch.tensor([0])]),
            ("copy to host", lambda x: x.cpu()),
            ("copy to host", lambda x: x.tolist()),
            ("copy from host", lambda x: torch.ones(2).to(x.device)),
            ("copy from host", lambda x: x.copy_(torch.ones(2))),
            ("copy from host", lambda x: x.__setitem__(put([0], x.device), 0.0)),
            ("repeat_interleave", lambda x: torch.repeat_interleave(x, x.long())),
            (None, lambda x: put([1.0], x.device)),
            (None, lambda x: (x * 2).sum().sqrt() + torch.where(x > 0, x, 0.0).max()),
        ],
    )
    def test_ledger_has_what_the_host_waits_for(self, reason, operation):
        ledger = Ledger()
        with pretended(ledger):
            (x,) = on_device([1.0, 2.0])
            ledger.turn()
            operation(x)
        assert {what for what, _ in ledger.waits[-1]} == ({reason} if reason else set())

    def test_sums_with_repeated_places_are_atomic(self):
        ledger = Ledger()
        with pretended(ledger):
            x, ones, once, twice = on_device([0.0, 0.0], [1.0, 1.0], [1, 0], [0, 0])
            x.index_add(0, once, ones), x.scatter_add(0, once, ones), ones.long().index_add(0, twice, ones.long())
            assert not ledger.atomics[-1]
            x.index_add(0, twice, ones), x.scatter_add(0, twice, ones)
        assert sum(ledger.atomics[-1].values()) == 2

    def test_views_cost_nothing_and_other_operations_a_launch(self):
        ledger = Ledger()
        with pretended(ledger):
            (x,) = on_device([[1.0, 2.0], [3.0, 4.0]])
            ledger.turn()
            y = x.t()[0].view(2) + 1
        assert sum(ledger.launches[-1].values()) == 1
        with pytest.raises(RuntimeError, match="outside"):
            y + 1

    def test_a_graph_does_again_what_was_captured_and_nothing_else(self):
        ledger, seen = Ledger(), []
        with pretended(ledger):
            x, total = on_device([1.0, 2.0], [0.0, 0.0])
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                seen.append("Python")
                total += x * torch.tensor(2.0)
                doubled = total * 2
            assert total.tolist() == [0.0, 0.0], "a capture runs nothing"
            ledger.turn()
            graph.replay()
            x.mul_(10)
            graph.replay()
            assert total.tolist() == [22.0, 44.0] and doubled.tolist() == [44.0, 88.0]
        assert len(seen) == 1 and sum(ledger.launches[-1].values()) == 3, "a replay is one launch"

    @pytest.mark.parametrize("waiting", [lambda x: float(x[0]), lambda x: x.nonzero(), lambda x: x.cpu(), lambda x: put([1.0], x.device)])
    def test_nothing_waits_in_a_capture(self, waiting):
        with pretended(Ledger()):
            (x,) = on_device([1.0, 2.0])
            with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
                waiting(x)
