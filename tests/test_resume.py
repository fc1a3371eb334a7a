"""Runs that are killed, told to end or disturbed: the same command goes on, and its numbers are those of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.warm import begun, command

TINY = (
    "dataset=csbm", "dataset.num_nodes=160", "dataset.num_edges=420", "dataset.num_features=24", "dataset.words_per_node=4",
    "num_clients=5", "seeds=[0,1]", "progress=false", "device=cpu", "checkpoint_minutes=0.001", "threads=2", "mixing_at=[60,300]",
)  # fmt: skip
SCENARIOS = {
    "sync": ("algorithm=fedadam", "rounds=300", "scenario.slow_fraction=0.4", "scenario.deadline=2", "participation=0.6"),
    "semi_async": ("algorithm=fedsa_gcl", "trips=1200"),
    "decentralized": ("algorithm=osgp", "rounds=300"),
    "own": ("algorithm=fedavg", "algorithm._target_=nova.FedNova", "rounds=300", "participation=0.6"),
}
ROOT = Path(__file__).parents[1]
NOVA = re.search(r"```python\n(.*?class FedNova.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)[1]  # type: ignore[index]
TIMES = {"seconds", "finished", "code", "device"}  # and the number of threads
RESUMING = re.compile(r"resuming at (?:round|trip) (\d+)(?: and (\d+))? of \d+ from")


def stored(folder: Path) -> dict[str, Any]:
    """What the only run in ``folder`` has stored, but for times."""
    (summary,) = folder.glob("results/runs/*/*/*/*/*/summary.json")
    found = {key: value for key, value in json.loads(summary.read_text()).items() if key not in TIMES}
    return {**found, "history": (summary.parent / "history.csv").read_text(), "mixing": (summary.parent / "mixing.npz").read_bytes()}


def checkpoints(folder: Path) -> list[Path]:
    while True:
        with suppress(FileNotFoundError):  # a folder that went while it was being looked through
            return sorted(folder.glob("results/runs/*/*/*/*/.*.checkpoint/seeds-*/[0-9]*/checkpoint.json"))


def until(condition: Any, seconds: float = 200.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.01)


@pytest.fixture(scope="module", params=["sync", *(pytest.param(name, marks=pytest.mark.nightly) for name in SCENARIOS if name != "sync")])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The arguments of a scenario, and what an undisturbed run without checkpoints stores."""
    folder, arguments = tmp_path_factory.mktemp("whole"), (*TINY, *SCENARIOS[request.param])
    (folder / "nova.py").write_text(NOVA)
    done = command(folder, *arguments, "checkpoint_minutes=null", "threads=1")
    assert done.returncode == 0, done.stderr
    return arguments, stored(folder)


@pytest.mark.nightly
def test_a_run_that_is_killed_five_times_ends_with_the_same_numbers(whole: Any, tmp_path: Path) -> None:
    arguments, expected = whole
    (tmp_path / "nova.py").write_text(NOVA)
    rng, reached = random.Random(0), 0
    for _ in range(5):
        before = checkpoints(tmp_path)
        (tmp_path / "stderr").unlink(missing_ok=True)
        with begun(tmp_path, *arguments) as process:
            until(lambda: checkpoints(tmp_path) != before or not process.is_alive())  # noqa: B023 (called here)
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
            process.join()
        told = RESUMING.search((tmp_path / "stderr").read_text())
        assert bool(told) == bool(before), "what was kept is used"
        if told:
            at = min(int(number) for number in told.groups() if number)
            assert at >= reached, "nothing is done twice that was kept"
            reached = at
    left, last = checkpoints(tmp_path), command(tmp_path, *arguments)
    assert last.returncode == 0 and bool(RESUMING.search(last.stderr)) == bool(left), last.stderr
    assert reached > 0 and stored(tmp_path) == expected
    assert not list(tmp_path.glob("results/runs/*/*/*/*/.*")), "a complete run leaves no checkpoint"


def test_a_signal_ends_a_run_in_one_line_after_a_checkpoint(whole: Any, tmp_path: Path) -> None:
    arguments, expected = whole
    (tmp_path / "nova.py").write_text(NOVA)
    name = {"algorithm=fedsa_gcl": "SIGINT", "algorithm=osgp": "SIGUSR1"}.get(arguments[len(TINY)], "SIGTERM")
    number = signal.Signals[name]
    with begun(tmp_path, *arguments) as process:
        until(lambda: checkpoints(tmp_path) or not process.is_alive())
        os.kill(process.pid, number)
        process.join(60)
        assert process.exitcode == 128 + number
    how = "interrupted" if name == "SIGINT" else f"ended by {name}"
    told = (tmp_path / "stderr").read_text()
    message = rf"fgl-bench: {how}; kept: (a checkpoint after \w+ \d+ of \d+(, )?)+; give the same command to resume\n"
    assert re.fullmatch(message, told), told
    assert len({path.parents[1] for path in checkpoints(tmp_path)}) == 2, "of each program"
    last = command(tmp_path, *arguments)
    assert last.returncode == 0 and RESUMING.search(last.stderr), last.stderr
    assert stored(tmp_path) == expected
