"""Checkpoints of a run: which one is used, what is said of the others, and what happens where none can be written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import Outcome
from fgl_bench.results import checkpoints as store
from fgl_bench.results.callbacks import Callback, Callbacks, Report
from fgl_bench.runner.checkpoints import Checkpoints
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulate
from fgl_bench.utils.files import lock
from tests.quick import prepared

CPU = torch.device("cpu")
ROUNDS, SEEDS = 8, [0, 1, 2]
TOGETHER, APART = Plan(3, None), Plan(1, None)


class Counting(Callback):
    """Interrupts after a number of reports."""

    pause = 0.0

    def __init__(self, last: int | None = None):
        self.last, self.reports = last, 0

    def report(self, report: Report) -> None:
        self.reports += 1
        if self.reports == self.last:
            raise KeyboardInterrupt


@dataclass
class Run:
    """A run in a test's folder that may be interrupted."""

    spec: Any
    federations: Any
    folder: Path
    identity: str = "0123456789ab"

    def __call__(self, last: int | None = None, plan: Plan = TOGETHER, kept: bool = True, interval: float = 0.0) -> tuple[Outcome, int]:
        """The outcome, and how many rounds (and a last evaluation of every program) it took from where it went on."""
        progress = Counting(last)
        keeps = Checkpoints(self.folder, self.identity, interval, "fedadam") if kept else None
        return simulate(self.spec, self.federations, CPU, Callbacks([progress]), plan, checkpoints=keeps), progress.reports

    def interrupted(self, last: int, plan: Plan = TOGETHER, interval: float = 0.0) -> None:
        with pytest.raises(KeyboardInterrupt):
            self(last, plan, interval=interval)

    def files(self) -> list[Path]:
        return sorted(store.checkpoint_folder(self.folder).glob("seeds-*/[0-9]*"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(
        *prepared("fedadam", tmp_path / "cache", {"mixing_at": [12]}, seeds=SEEDS, rounds=ROUNDS), tmp_path / "runs" / "0123456789ab"
    )


def equal(one: Outcome, other: Outcome) -> bool:
    pairs = zip(one.histories, other.histories, strict=True)
    same = all(
        np.array_equal(a.scores[m], b.scores[m]) and np.array_equal(a.losses, b.losses, equal_nan=True) for a, b in pairs for m in a.scores
    )
    return same and all(np.array_equal(one.mixing[at], other.mixing[at]) for at in one.mixing)


def rewritten(path: Path, change: Callable[[dict], Any]) -> None:
    known = json.loads(path.read_text())
    change(known)
    path.write_text(json.dumps(known))


def test_a_run_goes_on_after_the_last_round_that_was_kept(run: Run, capsys: pytest.CaptureFixture) -> None:
    whole, reports = run(kept=False)
    run.interrupted(6)
    assert [path.name for path in run.files()] == ["000000000004", "000000000005"], "the newest and the one before"
    again, rest = run()
    assert equal(again, whole) and rest == reports - 5
    assert capsys.readouterr().err == f"fgl-bench: resuming at round 5 of 8 from {store.checkpoint_folder(run.folder)}\n"


def flipped(path: Path) -> None:
    data = bytearray((path / store.STATE).read_bytes())
    data[len(data) // 2] ^= 1
    (path / store.STATE).write_bytes(bytes(data))


def torn(path: Path) -> None:
    (path / store.ABOUT).write_text("{")


def absent(path: Path) -> None:
    (path / store.STATE).unlink()


@pytest.mark.parametrize("damage", [flipped, torn])
def test_of_a_damaged_checkpoint_the_one_before_is_used(run: Run, damage: Callable, capsys: pytest.CaptureFixture) -> None:
    whole, reports = run(kept=False)
    run.interrupted(6)
    newest = run.files()[-1]
    damage(newest)
    again, rest = run()
    assert equal(again, whole) and rest == reports - 4
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"fgl-bench: the checkpoint {newest} is not used: it is damaged" and "resuming at round 4 of 8" in second


def test_a_run_that_began_anew_keeps_its_own_checkpoints(run: Run) -> None:
    run.interrupted(6)
    for path in run.files():
        rewritten(path / store.ABOUT, other_code)
    run.interrupted(4)
    assert [path.name for path in run.files()] == ["000000000002", "000000000003"]


def other_code(known: dict) -> None:
    known["code"]["source"] = "another"


def other_run(known: dict) -> None:
    known["identity"] = "another"


@pytest.mark.parametrize(
    ("change", "words"), [(other_code, "it was made by another version of the code"), (other_run, "it belongs to another run")]
)
def test_checkpoints_of_another_run_or_code_are_not_used_and_it_is_said(
    run: Run, change: Callable, words: str, capsys: pytest.CaptureFixture
) -> None:
    whole, reports = run(kept=False)
    run.interrupted(6)
    for path in run.files():
        rewritten(path / store.ABOUT, change)
    again, rest = run()
    assert equal(again, whole) and rest == reports
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and all(line.endswith(f"is not used: {words}") for line in errors)


def test_a_run_that_began_anew_is_kept_beside_what_is_of_no_use(run: Run) -> None:
    run.interrupted(6)
    (store.program(run.folder, SEEDS) / f"{store.PART}of-a-killed-process").mkdir()
    for path in run.files():
        rewritten(path / store.ABOUT, other_code)
    run.interrupted(2)
    assert [path.name for path in run.files()] == ["000000000001", "000000000005"]
    assert run()[1] == ROUNDS, "it resuming at round 1"
    assert not list(store.program(run.folder, SEEDS).glob(f"{store.PART}*"))


class Harmful:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.mark.parametrize("state", [{"method": {}}, {"method": {"callback": Harmful()}}], ids=["incomplete", "harmful"])
def test_a_state_that_does_not_fit_is_not_used(run: Run, state: Any, capsys: pytest.CaptureFixture) -> None:
    """A correct check sum does not make a file safe: no function is called that a checkpoint may not name."""
    whole, _ = run(kept=False)
    run.interrupted(6)
    for path in run.files():
        torch.save(state, path / store.STATE)
    assert equal(run()[0], whole)
    assert capsys.readouterr().err.count("it does not fit (") == 2


@pytest.mark.parametrize(("before", "after"), [(TOGETHER, APART), (APART, TOGETHER), (TOGETHER, Plan(3, 4))])
def test_seeds_go_on_in_the_groups_that_they_were_in(run: Run, before: Plan, after: Plan) -> None:
    whole, _ = run(kept=False)
    run.interrupted(6, before)
    groups = {path.parent.name for path in run.files()}
    again, _ = run(plan=after)
    assert equal(again, whole) and groups == ({"seeds-0-1-2"} if before.seeds == 3 else {"seeds-0"})


def test_a_program_that_has_ended_is_kept_for_those_to_come(run: Run) -> None:
    """Its last checkpoint is its end, however short it was beside the interval."""
    run.interrupted(2 * (ROUNDS + 1) + 3, APART, interval=1e-3)
    assert [json.loads((path / store.ABOUT).read_text())["done"] for path in run.files() if "seeds-0" in str(path)][-1] == ROUNDS
    whole, _ = run(kept=False)
    again, rest = run(plan=APART, interval=1e9)
    assert equal(again, whole) and rest <= 1 + 1 + (ROUNDS + 1), "of the first two only what comes after the last round"


def test_a_full_disk_costs_the_checkpoint_and_not_the_run(run: Run, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = run(kept=False)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    assert equal(run()[0], whole)
    where = store.program(run.folder, SEEDS)
    assert capsys.readouterr().err == f"fgl-bench: no checkpoint in {where} (No space left on device); the run continues\n"
    assert not list(where.iterdir()), "nothing half-written"


def test_two_processes_that_make_one_run_do_not_share_checkpoints(run: Run, capsys: pytest.CaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr("fgl_bench.runner.checkpoints.PATIENCE", 0.0)
    where = store.program(run.folder, SEEDS)
    where.mkdir(parents=True)
    held = lock(where)
    assert held is not None
    run()
    assert not list(where.iterdir())
    assert capsys.readouterr().err.splitlines() == [
        f"fgl-bench: another process keeps this run in {where}; this one continues without checkpoints"
    ]


class Iterating(FedAvg):
    """Holds what cannot be stored."""

    def prepare(self, setting: Any) -> None:
        super().prepare(setting)
        self.turns: Any = iter([1, 2, 3])


def test_a_method_of_ones_own_that_cannot_be_kept_runs_with_a_warning(run: Run, capsys: pytest.CaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr(type(run.spec), "fresh_algorithm", lambda spec: Iterating())
    run()
    told = capsys.readouterr().err
    assert told == (
        "fgl-bench: algorithm=fedadam: method.turns (an object of builtins.iter) cannot be stored in a checkpoint; "
        "the run continues without checkpoints\n"
    )


def test_a_method_of_the_package_must_be_one_that_can_be_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run.spec.fresh_algorithm()
    made.turns = iter([1])
    monkeypatch.setattr(type(run.spec), "fresh_algorithm", lambda spec: made)
    with pytest.raises(UserError, match=r"algorithm=fedadam: method.turns .* use checkpoint_minutes=null"):
        run()
