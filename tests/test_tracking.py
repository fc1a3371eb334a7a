"""Trackers on real runs: what they keep is read back from their own files, of a run that is killed too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fgl_bench.results.trackers.base import values_of
from fgl_bench.results.trackers.mlflow import MLflow
from fgl_bench.results.trackers.none import NoTracker
from fgl_bench.results.trackers.tensorboard import TensorBoard
from fgl_bench.results.trackers.wandb import Wandb
from fgl_bench.results.tracking import publish, rows_by_seed, seed_table, tracker_of
from tests.test_sweeps import SMALL
from tests.warm import begun, command

SYSTEM = {"system/seconds", "system/memory_mb"}
LATE = ("traffic/", "cost/")  # known when the run is complete
# Two seeds side by side, until the run is killed.
UNENDING = ("algorithm=fedavg", *(text for text in SMALL if not text.startswith(("rounds=", "threads="))), "rounds=20000", "threads=2")
Curves = dict[str, dict[str, list[tuple[int, float]]]]  # by seed and name, (trip, value) in order


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that no tracker was told of."""
    folder = tmp_path_factory.mktemp("run")
    assert command(folder, "algorithm=fedavg", *SMALL).returncode == 0
    return directory(folder)


def directory(folder: Path) -> Path:
    """The only run in ``folder``."""
    [path] = folder.glob("results/runs/*/*/*/*/*/summary.json")
    return path.parent


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished, tmp_path / "run"))


def expected(run: Path) -> Curves:
    """The curves of a run, from its own file."""
    found: Curves = {}
    for seed, rows in rows_by_seed(run / "history.csv").items():
        curves = found.setdefault(f"seed{seed}", {})
        for row in rows:
            for name, value in values_of(row).items():
                curves.setdefault(name, []).append((int(row["trip"]), value))
    return found


def boards(folder: Path) -> Curves:
    """What TensorBoard shows of the event files below ``folder``."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Curves = {}
    for place in sorted(folder.glob("*/seed*")):
        events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        found[place.name] = {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}
    return found


def offline(folder: Path) -> Curves:
    """What is in wandb's files of offline runs, as ``wandb sync`` uploads it."""
    found: Curves = {}
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        curves = found.setdefault(f"seed{path.stem.rpartition('-')[2]}", {})
        for record in records(path.read_bytes()):
            if record.WhichOneof("record_type") == "history":
                row = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
                for name in row.keys() & {name for name in row if "/" in name}:
                    curves.setdefault(name, []).append((row["trip"], row[name]))
    return found


def records(data: bytes) -> Iterator[Any]:
    """The records of a ``.wandb`` file: a head of 7 bytes, blocks of 32 kB, records that may span some (the log format of LevelDB)."""
    from wandb.proto import wandb_internal_pb2

    at, parts, block = 7, b"", 2**15
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        if kind == 0 or at + 7 + length > len(data):
            return
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


READERS: dict[str, tuple[str, tuple[str, ...], Callable[[Path], Curves]]] = {
    "tensorboard": ("tensorboard", (), lambda folder: boards(folder / "results/tensorboard")),
    "wandb": ("wandb", ("tracker.mode=offline",), lambda folder: offline(folder / "results")),
}
KILLED = ["tensorboard", pytest.param("wandb", marks=pytest.mark.nightly)]


@pytest.mark.nightly
@pytest.mark.parametrize("tracker", KILLED)
def test_a_run_that_is_killed_has_its_curve_up_to_that_point(tracker: str, finished: Path, tmp_path: Path) -> None:
    package, keys, read = READERS[tracker]
    pytest.importorskip(package, reason=f"needs the {package} extra")
    with begun(tmp_path, *UNENDING, f"tracker={tracker}", *keys) as process:
        end, seen = time.monotonic() + 120, {}
        while not (len(seen) == 2 and all(len(curves.get("val/trained", ())) > 5 for curves in seen.values())):
            assert process.is_alive() and time.monotonic() < end, (tmp_path / "stderr").read_text(encoding="utf-8")
            time.sleep(0.2)
            seen = read(tmp_path)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    assert not list(tmp_path.glob("results/runs/*/*/*/*/*/summary.json"))
    left, whole = read(tmp_path), expected(finished)
    for seed, curves in left.items():
        assert curves.keys() >= {"train/loss", "diverged/trained", "test/received", *SYSTEM}
        assert all(values[: len(seen[seed][name])] == seen[seed][name] for name, values in curves.items())
        for name in ("val/received", "val/trained", "test/received", "test/trained", "train/loss"):
            count = min(len(whole[seed][name]), len(curves[name]))
            assert count > 4
            assert curves[name][:count] == [(trip, pytest.approx(value, abs=1e-6)) for trip, value in whole[seed][name][:count]]


def test_a_tracker_changes_no_number_and_is_told_all_points_while_the_run_trains(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    for algorithm, scenario in (("fedavg", "sync"), ("fedsa_gcl", "semi_async"), ("d_psgd", "decentralized")):
        folder = tmp_path / scenario
        folder.mkdir()
        done = command(folder, f"algorithm={algorithm}", *SMALL, "tracker=tensorboard", "split=metis")
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
        made = directory(folder)
        told, whole = boards(folder / "results/tensorboard"), expected(made)
        for seed, curves in whole.items():
            assert told[seed].keys() >= curves.keys() | SYSTEM
            for name, points in curves.items():
                assert told[seed][name] == [(trip, pytest.approx(value)) for trip, value in points], name
            assert told[seed]["selected/test/trained"][0][1] == pytest.approx(selected(made, seed)["trained", "test"])
        if algorithm == "fedavg":
            assert made.name == finished.name
            assert (made / "history.csv").read_bytes() == (finished / "history.csv").read_bytes()


def selected(run: Path, seed: str) -> dict[tuple[str, str], float]:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return {(model, name): value for model, name, value in seed_table(summary, int(seed.removeprefix("seed")))}


# ---- a tracker of one's own

MINE = """
from dataclasses import dataclass
import json, pathlib

class Lines:
    def __init__(self, seed, fails):
        self.seed, self.fails = seed, fails
    def write(self, what, *rest):
        with open(f"told-{self.seed}", "a") as file:
            print(json.dumps([what, *rest]), file=file)
    def point(self, trip, values):
        if self.fails and trip >= 8:
            raise ConnectionError("no\\nnetwork")
        self.write("point", trip, bool(list(pathlib.Path("results/runs").glob("*/*/*/*/*/summary.json"))), values)
    def finish(self, scores, table):
        self.write("finish", scores)
    def stop(self):
        self.write("stop")

@dataclass
class Mine:
    fails: bool
    def start(self, seed):
        assert seed.config["num_clients"] == 4 and seed.name == f"fedavg-csbm-seed{seed.seed}" and seed.group in seed.key
        return Lines(seed.seed, self.fails)
"""


def lines(path: Path) -> list[list]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_tracker_of_one_s_own_is_told_the_points_live_and_the_scores_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    mine = ("algorithm=fedavg", "lr=1e30", *SMALL, "tracker._target_=mine.Mine")
    done = command(tmp_path, *mine, "+tracker.fails=false")
    assert done.returncode == 0, done.stderr
    made = directory(tmp_path)
    curves = expected(made)
    for seed in ("0", "1"):
        told = lines(tmp_path / f"told-{seed}")
        live = [rest for what, *rest in told if what == "point" and not rest[1]]
        assert [trip for trip, _, _ in live] == [4 * number for number in range(21)], "all points before the run was complete"
        assert not any(name.startswith(LATE) for _, _, values in live for name in values)
        late = [values for what, *rest in told if what == "point" and rest[1] for values in rest[2:]]
        assert {name for values in late for name in values} == {"traffic/upload_bytes", "traffic/download_bytes"}
        assert any(values["diverged/trained"] for _, _, values in live), "a run that diverges is seen"
        assert [values["diverged/trained"] for _, _, values in live] == [value for _, value in curves[f"seed{seed}"]["diverged/trained"]]
        what, scores = told[-1]
        wanted = {f"selected/{name}/{model}": value for (model, name), value in selected(made, f"seed{seed}").items()}
        assert what == "finish" and scores == wanted
    count = len(lines(tmp_path / "told-0"))
    assert "complete already" in command(tmp_path, *mine, "+tracker.fails=false").stdout
    assert len(lines(tmp_path / "told-0")) == count, "told twice"


def test_a_tracker_that_fails_costs_a_warning_and_is_told_later(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    mine = ("algorithm=fedavg", *SMALL, "tracker._target_=mine.Mine")
    done = command(tmp_path, *mine, "+tracker.fails=true")
    assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr
    assert "the tracker failed (ConnectionError: no network); the run continues, and the same command logs it later" in done.stderr
    assert [trip for what, trip, *_ in lines(tmp_path / "told-0")] == [0, 4]
    assert not list(directory(tmp_path).glob(".tracked*"))
    assert "complete already" in command(tmp_path, *mine, "+tracker.fails=false").stdout
    assert lines(tmp_path / "told-0")[-1][0] == "finish"


@pytest.mark.nightly
def test_an_interrupted_run_is_stopped_in_the_tracker(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    with begun(tmp_path, *UNENDING, "tracker._target_=mine.Mine", "+tracker.fails=false") as process:
        end = time.monotonic() + 120
        while not (tmp_path / "told-1").exists():
            assert process.is_alive() and time.monotonic() < end
            time.sleep(0.05)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
        assert process.exitcode == 130
    assert lines(tmp_path / "told-0")[-1] == lines(tmp_path / "told-1")[-1] == ["stop"]


# ---- packages


def test_a_complete_run_is_told_to_tensorboard_from_its_files_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # the second is nothing
        publish(TensorBoard("boards"), run)
    assert capsys.readouterr().err == ""
    told, whole = boards(Path("boards")), expected(run)
    for seed in tracker_of(run, NoTracker()).seeds:
        folder = Path("boards") / f"fedavg-csbm-{seed.group}" / f"seed{seed.seed}"
        assert len(list(folder.iterdir())) == 1
        for name, points in whole[folder.name].items():
            assert told[folder.name][name] == [(trip, pytest.approx(value)) for trip, value in points]
        assert {"config/text_summary", "scores/text_summary"} <= set(EventAccumulator(str(folder)).Reload().Tags()["tensors"])


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
def test_mlflow_keeps_a_run_of_every_seed_in_a_database_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="needs the mlflow extra")
    pytest.importorskip("sqlalchemy", reason="needs the mlflow extra")
    from mlflow.tracking import MlflowClient

    uri = "sqlite:///deep/mlflow.db"
    [killed, _] = tracker_of(run, NoTracker()).seeds
    MLflow(uri, "benchmark").start(killed)
    for _ in range(2):
        publish(MLflow(uri, "benchmark"), run)
    assert "warning: the tracker failed" not in capsys.readouterr().err
    client = MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("benchmark").experiment_id])
    [left] = [each for each in runs if each.info.status == "KILLED"]
    assert left.data.tags["seed"] == "0"
    runs.remove(left)
    assert sorted(each.data.tags["seed"] for each in runs) == ["0", "1"] and len({each.data.tags["group"] for each in runs}) == 1
    whole = expected(run)
    for kept in runs:
        seed = f"seed{kept.data.tags['seed']}"
        assert kept.data.params["algorithm._target_"].endswith("FedAvg") and kept.data.params["seed"] == kept.data.tags["seed"]
        curve = [(point.step, point.value) for point in client.get_metric_history(kept.info.run_id, "val/trained")]
        assert sorted(curve) == whole[seed]["val/trained"]
        assert kept.data.metrics["selected/test/trained"] == selected(run, seed)["trained", "test"] and kept.info.status == "FINISHED"


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
def test_wandb_works_without_a_network(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb", reason="needs the wandb extra")
    tracker = Wandb("benchmark", None, "offline", "kept")
    publish(tracker, run)
    assert capfd.readouterr().err == "", "wandb's own talk"
    kept = sorted(Path("kept").glob("wandb/offline-run-*/run-*.wandb"))
    group = json.loads((run / "summary.json").read_text(encoding="utf-8"))["config_hash"]
    assert [path.stem.removeprefix("run-") for path in kept] == [f"{group}-0", f"{group}-1"]
    told, whole = offline(Path("kept")), expected(run)
    for seed, curves in whole.items():
        assert {name: told[seed][name] for name in curves} == curves
    [table] = kept[0].parent.glob("files/media/table/*.json")
    assert "trips_to" in table.read_text(encoding="utf-8")
    publish(tracker, run)
    assert sorted(Path("kept").glob("wandb/offline-run-*/run-*.wandb")) == kept, "logged twice"


@pytest.mark.parametrize(
    "failure", [ImportError("No module named 'x'"), ConnectionError("no\nnetwork"), SystemExit(3), OSError(28, "full")]
)
def test_whatever_a_tracker_does_the_run_stays(failure: BaseException, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def start(self, seed: object) -> None:
            raise failure

    publish(Broken(), run)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"the run is complete in {run}" in said
    publish(NoTracker(), run)
    assert capsys.readouterr().err == ""
