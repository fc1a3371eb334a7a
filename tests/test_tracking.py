"""Trackers on a real run: what they keep is read back from their own files."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from fgl_bench.reporting.tracking import MLflow, NoTracker, TensorBoard, Wandb, publish, seed_runs
from tests.test_sweeps import SMALL
from tests.warm import command


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert command(folder, "algorithm=fedavg", *SMALL).returncode == 0
    [path] = folder.glob("results/runs/*/*/*/*/*/summary.json")
    return path.parent


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_seed_is_told_with_curve_scores_and_configuration(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    first, second = seed_runs(run)
    assert (first.seed, second.seed) == (0, 1) and first.group == second.group == summary["config_hash"]
    assert first.key != second.key and first.name == "fedavg-csbm-seed0"
    assert first.config["algorithm"]["_target_"].endswith("FedAvg") and first.config["num_clients"] == 4
    with (run / "history.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == "1"]
    assert [row["test_trained"] for row in second.curve] == [float(row["test_trained"]) for row in rows]
    assert second.scores == {f"test/{model}": summary["test"][model]["per_seed"][1] for model in ("received", "trained")}
    assert ("trained", "selected_trip", float(summary["test"]["trained"]["selected_trips"][1])) in second.table


def test_tensorboard_files_hold_the_curve_of_every_seed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # the second is nothing
        publish(TensorBoard("boards"), run)
    assert capsys.readouterr().err == ""
    for seed in seed_runs(run):
        folder = Path("boards") / f"fedavg-csbm-{seed.group}" / f"seed{seed.seed}"
        assert len(list(folder.iterdir())) == 1
        events = EventAccumulator(str(folder)).Reload()
        found = [(event.step, event.value) for event in events.Scalars("test_received")]
        assert found == [(int(row["trip"]), pytest.approx(row["test_received"])) for row in seed.curve]
        assert events.Scalars("test/trained")[0].value == pytest.approx(seed.scores["test/trained"])
        assert {"config/text_summary", "scores/text_summary"} <= set(events.Tags()["tensors"])


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_mlflow_keeps_a_run_of_every_seed_in_a_database_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="needs the mlflow extra")
    pytest.importorskip("sqlalchemy", reason="needs the mlflow extra")
    from mlflow.tracking import MlflowClient

    uri = "sqlite:///deep/mlflow.db"
    for _ in range(2):
        publish(MLflow(uri, "benchmark"), run)
    assert "warning: the tracker failed" not in capsys.readouterr().err
    client = MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("benchmark").experiment_id])
    assert sorted(each.data.tags["seed"] for each in runs) == ["0", "1"] and len({each.data.tags["group"] for each in runs}) == 1
    by_seed = {int(each.data.tags["seed"]): each for each in runs}
    for seed in seed_runs(run):
        kept = by_seed[seed.seed]
        assert kept.data.params["algorithm._target_"].endswith("FedAvg") and kept.data.params["seed"] == str(seed.seed)
        curve = [(point.step, point.value) for point in client.get_metric_history(kept.info.run_id, "val_trained")]
        assert sorted(curve) == [(int(row["trip"]), row["val_trained"]) for row in seed.curve]
        assert kept.data.metrics["trained/test"] == seed.scores["test/trained"] and kept.info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_wandb_works_without_a_network(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb", reason="needs the wandb extra")
    monkeypatch.setenv("WANDB_SILENT", "true")
    publish(Wandb("benchmark", None, "offline"), run)
    assert "warning: the tracker failed" not in capsys.readouterr().err
    kept = sorted((run / "wandb").glob("offline-run-*/run-*.wandb"))
    group = json.loads((run / "summary.json").read_text(encoding="utf-8"))["config_hash"]
    assert [path.stem.removeprefix("run-") for path in kept] == [f"{group}-0", f"{group}-1"]
    text = kept[0].read_bytes()
    for said in (b"test_received", b"num_clients", group.encode(), b"benchmark"):
        assert said in text, said
    [table] = kept[0].parent.glob("files/media/table/*.json")
    assert "selected_trip" in table.read_text(encoding="utf-8")
    publish(Wandb("benchmark", None, "offline"), run)
    assert sorted((run / "wandb").glob("offline-run-*/run-*.wandb")) == kept, "logged twice"


@pytest.mark.parametrize(
    "failure", [ImportError("No module named 'x'"), ConnectionError("no\nnetwork"), SystemExit(3), OSError(28, "full")]
)
def test_whatever_a_tracker_does_the_run_stays(failure: BaseException, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def log(self, run_dir: Path) -> None:
            raise failure

    publish(Broken(), run)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"the run is complete in {run}" in said
    publish(NoTracker(), run)
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_costs_a_warning(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    (tmp_path / "file").touch()
    publish(TensorBoard("file/below"), run)
    assert "warning: the tracker failed" in capsys.readouterr().err
    assert not list(run.glob(".tracked*")), "it may be logged later"
