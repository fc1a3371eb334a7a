"""Checkpoints and models of workers that share the clients of a seed: what is kept, what is used again, and what is said."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fgl_bench.engine.shard import Shard
from fgl_bench.evaluation.history import Outcome
from fgl_bench.results import checkpoints as store
from fgl_bench.results.callbacks import Callbacks
from fgl_bench.runner.checkpoints import Checkpoints
from fgl_bench.runner.memory import Plan
from fgl_bench.runner.program import simulate
from fgl_bench.runner.share import narrowed
from fgl_bench.utils.group import GONE
from fgl_bench.utils.world import World
from tests.engine.worlds import together
from tests.quick import prepared
from tests.runner.test_checkpoints import Counting, absent, equal, torn
from tests.test_resume import RESUMING, TINY, checkpoints, stored, until
from tests.warm import begun

CPU = torch.device("cpu")
ROUNDS, SEEDS, CLIENTS = 8, [3, 1], 5


@dataclass
class Shared:
    """A run in a test's folder, made by workers that are threads; after ``last`` rounds they may be interrupted together."""

    spec: Any
    federations: Any
    folder: Path
    models: str = "none"
    sent: list[int] = field(default_factory=list)

    def __call__(self, size: int = 2, last: int | None = None, keeps: bool = True) -> tuple[Outcome, int]:
        """What worker 0 has in the end, and how many rounds (and a last evaluation) it took."""
        progress = [Counting(last) for _ in range(size)]

        def job(world: World) -> Outcome:
            shard = Shard(CLIENTS, world)
            mine = [narrowed(federation, shard) for federation in self.federations]
            run = Checkpoints(self.folder, "0123456789ab", 0.0, "some", world=world) if keeps else None
            return simulate(self.spec, mine, CPU, Callbacks([progress[world.rank]]), Plan(len(SEEDS), None), shard, run)

        outcomes = together(size, job)
        assert all(equal(other, outcomes[0]) and not other.models for other in outcomes[1:])
        return outcomes[0], progress[0].reports

    def interrupted(self, last: int, size: int = 2) -> None:
        with pytest.raises(KeyboardInterrupt):
            self(size, last)

    def files(self, rank: int, size: int = 2) -> list[Path]:
        return sorted(store.of_worker(store.program(self.folder, SEEDS), rank, size).glob("[0-9]*"))


def shared(name: str, folder: Path, changes: dict[str, Any] | None = None) -> Shared:
    settings = {"mixing_at": [10], **(changes or {})}
    what = prepared(name, folder / "cache", settings, clients=CLIENTS, seeds=SEEDS, rounds=ROUNDS)
    return Shared(*what, folder / "runs" / "0123456789ab", settings.get("keep_models", "none"))


@pytest.fixture
def run(tmp_path: Path) -> Shared:
    return shared("scaffold", tmp_path)


STATEFUL = {
    "fedadam": {"participation": 0.5, "scenario.slow_fraction": 0.5, "scenario.deadline": 2.0},
    "moon": {},
    "fed_pub": {"participation": 0.5},
    "gcfl_plus": {"algorithm.sequence": 2},
    "osgp": {},
    "dis_pfl": {},
    "dfed_sst": {},
}


@pytest.mark.parametrize("name", STATEFUL)
def test_workers_go_on_together_with_the_same_numbers(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = shared(name, tmp_path, STATEFUL[name])
    whole, rounds = run(keeps=False)
    run.interrupted(6)
    assert [[path.name for path in run.files(rank)] for rank in (0, 1)] == [["000000000004", "000000000005"]] * 2
    again, rest = run()
    assert equal(again, whole) and rest == rounds - 5
    said = f"fgl-bench: resuming at round 5 of {rounds - 1} from {store.checkpoint_folder(run.folder)}\n"
    assert capsys.readouterr().err == said, "one speaks"


@pytest.mark.parametrize("damage", [torn, absent])
def test_of_a_damaged_part_the_checkpoint_before_is_used(run: Shared, damage: Any, capsys: pytest.CaptureFixture) -> None:
    whole, rounds = run(keeps=False)
    run.interrupted(6)
    newest = run.files(1)[-1]
    damage(newest)
    again, rest = run()
    assert equal(again, whole) and rest == rounds - 4
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"fgl-bench: the checkpoint {newest} is not used: it is damaged" and "resuming at round 4 of 8" in second


def gone(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def test_where_no_checkpoint_has_all_its_parts_the_run_begins_anew(run: Shared, capsys: pytest.CaptureFixture) -> None:
    run.interrupted(6)
    for path in run.files(1):
        gone(path)
    assert run()[1] == ROUNDS + 1
    where = store.program(run.folder, SEEDS)
    assert capsys.readouterr().err == f"fgl-bench: the checkpoints in {where} are not used: none has the parts of all 2 workers\n"


def test_the_older_checkpoint_stays_until_every_worker_has_written_the_newer(run: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 is killed while it writes; worker 0 has written its part."""
    write = store.write

    def killed(folder: Path, about: Any, *parts: Any) -> int:
        if about["done"] == 6 and folder.name.startswith("worker-1"):
            raise KeyboardInterrupt
        return write(folder, about, *parts)

    monkeypatch.setattr(store, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        run()
    names = [{path.name[-1] for path in run.files(rank)} for rank in (0, 1)]
    assert names[0] - {"6"} == names[1] == {"4", "5"}


@pytest.mark.parametrize("keep", ("final", "best"))
@pytest.mark.parametrize("name", ("fedadam", "osgp"))
def test_the_models_of_all_clients_are_kept(name: str, keep: str, tmp_path: Path) -> None:
    """Half of the clients take part, so some keep a model of an earlier round; and one worker more than before an interruption."""
    changes = {"keep_models": keep, "dtype": "float64", **({"participation": 0.4} if name == "fedadam" else {})}
    run = shared(name, tmp_path, changes)
    alone = simulate(run.spec, run.federations, CPU)
    run.interrupted(6, size=3)
    for outcome in (run(size=3)[0], run(size=2, keeps=False)[0]):
        assert outcome.models.keys() == alone.models.keys()
        for key, value in outcome.models.items():
            np.testing.assert_allclose(value, alone.models[key], rtol=0, atol=1e-9)
    assert len(alone.models) > 2 * len(SEEDS) * CLIENTS


def test_an_error_of_one_thread_is_that_of_all() -> None:
    def job(world: World) -> list[int]:
        world.gather(0)
        if world.rank == 1:
            raise ValueError("no")
        return world.gather(0)

    with pytest.raises(ValueError, match="no"):
        together(3, job)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_another_number_of_workers_starts_from_the_beginning_and_says_so(run: Shared, size: int, capsys: pytest.CaptureFixture) -> None:
    whole, rounds = run(3, keeps=False)
    run.interrupted(6, size)
    again, rest = run(3)
    assert equal(again, whole) and rest == rounds
    where = store.program(run.folder, SEEDS)
    said = f"fgl-bench: the checkpoints in {where} are of {size} worker(s), and this run has 3: it starts from the beginning\n"
    assert capsys.readouterr().err == said


# ---- processes

LONG = (
    *TINY, "checkpoint_minutes=0.0003", "algorithm=scaffold", "rounds=200", "seeds=[0]", "shard=clients", "keep_models=final",
    "dtype=float64", "threads=1",
)  # fmt: skip


@contextmanager
def group(folder: Path, size: int, *arguments: str) -> Iterator[list[Any]]:
    """Workers under way, started without a launcher; they share ``folder``, and each writes to a folder of its own in it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(size)}
    with ExitStack() as stack:
        started = []
        for rank in range(size):
            own = folder / f"rank{rank}"
            own.mkdir(exist_ok=True, parents=True)
            (own / "stderr").unlink(missing_ok=True)
            where = {"RANK": str(rank), "FGL_BENCH_CACHE": str(folder / "cache"), **meet}
            started.append(stack.enter_context(begun(own, *arguments, f"results_dir={folder / 'results' / 'runs'}", **where)))
        yield started


def ended(processes: Sequence[Any]) -> list[int]:
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def child(process: Any) -> int:
    """The worker, whose end the process that was started awaits."""
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (one / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1] == str(process.pid):
                return int(one.name)
    raise AssertionError("no worker")


def told(folder: Path, rank: int) -> str:
    return (folder / f"rank{rank}" / "stderr").read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_that_are_killed_or_told_to_end_go_on_with_the_same_numbers(tmp_path: Path) -> None:
    """In turn: one is killed, all are, one is told to end; what is stored at last is what two undisturbed workers store."""
    with group(tmp_path / "whole", 2, *LONG, "checkpoint_minutes=null") as processes:
        assert ended(processes) == [0, 0], told(tmp_path / "whole", 0)
    part, last = tmp_path / "part", 0

    def reached() -> int:
        return max((int(path.parent.name) for path in shared_checkpoints(part)), default=0)

    for how in ("one", "all", "told"):
        with group(part, 2, *LONG) as processes:
            until(lambda: reached() > last or not all(process.is_alive() for process in processes))  # noqa: B023 (called here)
            for process in processes if how == "all" else processes[1:]:
                os.kill(child(process), signal.SIGTERM if how == "told" else signal.SIGKILL)
            codes = ended(processes)
        ours = told(part, 0).splitlines()
        assert not last or RESUMING.search(ours.pop(0)), "what was kept is used"
        if how == "one":
            assert codes[0] == 1 and ours == [f"fgl-bench: error: {GONE}"]
        if how == "told":
            assert codes == [128 + signal.SIGTERM] * 2, "one is told, all end"
            kept_at = r"fgl-bench: ended by SIGTERM; kept: a checkpoint after round \d+ of 200; give the same command to resume"
            assert len(ours) == 1 and re.fullmatch(kept_at, ours[0])
        killed = "fgl-bench: error: worker 1 of 2 was killed by signal 9 (SIGKILL)\n"
        assert reached() >= last and told(part, 1) == ("" if how == "told" else killed)
        last = reached()
    with group(part, 2, *LONG, "checkpoint_minutes=10") as processes:
        assert ended(processes) == [0, 0] and RESUMING.search(told(part, 0)), told(part, 0)
    assert stored(part) == stored(tmp_path / "whole") and stored(part)["worker_bytes"] > 0
    assert models(part).keys() == models(tmp_path / "whole").keys()
    assert all(np.array_equal(value, models(part)[name]) for name, value in models(tmp_path / "whole").items())
    assert not list(part.glob("results/runs/*/*/*/*/.*")), "a complete run leaves no checkpoint"


def shared_checkpoints(folder: Path) -> list[Path]:
    while True:
        with suppress(FileNotFoundError):  # a folder that went while it was being looked through
            return list(folder.glob("results/runs/*/*/*/*/.*.checkpoint/seeds-*/worker-1-of-2/[0-9]*/checkpoint.json"))


def models(folder: Path) -> dict[str, np.ndarray]:
    (path,) = folder.glob("results/runs/*/*/*/*/*/models.safetensors")
    return load_file(path)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_seeds_go_on_whatever_the_number_of_workers_that_share_them(tmp_path: Path) -> None:
    seeds = (*TINY, "checkpoint_minutes=0.0003", "algorithm=scaffold", "rounds=150", "dtype=float64")
    with group(tmp_path / "whole", 1, *seeds, "checkpoint_minutes=null") as processes:
        assert ended(processes) == [0], told(tmp_path / "whole", 0)
    part, before = tmp_path / "part", []
    for size in (1, 2):
        with group(part, size, *seeds) as processes:
            until(lambda: len({path.parents[1] for path in set(checkpoints(part)) - set(before)}) == 2)  # noqa: B023 (called here)
            for process in processes:
                os.kill(child(process) if size > 1 else process.pid, signal.SIGKILL)
            ended(processes)
        assert (len(RESUMING.findall(told(part, 0))), "not used" in told(part, 0)) == (size - 1, False)
        before = checkpoints(part)
    with group(part, 1, *seeds, "checkpoint_minutes=10") as processes:
        assert ended(processes) == [0] and RESUMING.search(told(part, 0)), told(part, 0)
    assert stored(part) == stored(tmp_path / "whole")
