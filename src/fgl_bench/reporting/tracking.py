"""Sends finished runs to experiment trackers. If a tracker fails, the run still succeeds, with a warning.

Trackers read the run directory, so they show the content of its files: one tracker run per seed (a mean would hide
the seeds), grouped by the hash of the configuration, with the curve, the seed's scores and the whole configuration.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from fgl_bench.utils.masking import without_secrets

MARKER = ".tracked"
EXTRAS = {"wandb": "wandb", "tensorboard": "tensorboard", "mlflow": "mlflow", "sqlalchemy": "mlflow", "alembic": "mlflow"}


@dataclass(frozen=True)
class SeedRun:
    """The data of one seed that a tracker logs.

    Attributes:
        group: the hash of the configuration.
        curve: the rows of ``history.csv``, numbers only; ``trip`` is the step.
        scores: the final ones by name.
        table: (model, name, value), the same and more for reading.
    """

    seed: int
    group: str
    name: str
    config: dict[str, Any]
    curve: list[dict[str, float]]
    scores: dict[str, float]
    table: list[tuple[str, str, float]]

    @property
    def key(self) -> str:
        return f"{self.group}-{self.seed}"


@dataclass(frozen=True)
class NoTracker:
    """Keep the results in the run directory only."""

    def log(self, run_dir: Path) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Wandb:
    """Weights & Biases (the ``wandb`` extra)."""

    project: str
    entity: str | None
    mode: Literal["online", "offline"]

    def log(self, run_dir: Path) -> None:
        """Log every seed of the finished run in ``run_dir`` as a run of its own; a run already logged is left alone.

        Raises:
            ImportError: wandb is not installed.
            Exception: whatever wandb raises.
        """
        if told(run_dir, "wandb"):
            return
        import wandb

        for seed in seed_runs(run_dir):
            run = wandb.init(
                project=self.project,
                entity=self.entity,
                mode=self.mode,
                group=seed.group,
                id=seed.key,
                name=seed.name,
                config={**seed.config, "seed": seed.seed},
                dir=str(run_dir),
                reinit="finish_previous",
            )
            run.define_metric("*", step_metric="trip")
            for row in seed.curve:
                run.log(row)
            run.log({"scores": wandb.Table(columns=["model", "score", "value"], data=[list(line) for line in seed.table])})
            run.summary.update(seed.scores)
            run.finish()
        tell(run_dir, "wandb")


@dataclass(frozen=True)
class TensorBoard:
    """Event files for TensorBoard (the ``tensorboard`` extra): ``<folder>/<algorithm>-<dataset>-<hash>/seed<n>``."""

    folder: str

    def log(self, run_dir: Path) -> None:
        """Write every seed's events; a run already logged is left alone.

        Raises:
            ImportError: tensorboard is not installed.
        """
        if told(run_dir, "tensorboard"):
            return
        from torch.utils.tensorboard import SummaryWriter

        for seed in seed_runs(run_dir):
            place = Path(self.folder).expanduser() / f"{seed.name.rpartition('-')[0]}-{seed.group}" / f"seed{seed.seed}"
            with SummaryWriter(str(place)) as writer:
                for row in seed.curve:
                    for key, value in row.items():
                        if key != "trip":
                            writer.add_scalar(key, value, int(row["trip"]))
                for key, value in seed.scores.items():
                    writer.add_scalar(key, value)
                head = ["| model | score | value |", "|---|---|---|"]
                writer.add_text("scores", "\n".join([*head, *(f"| {model} | {name} | {value:.6g} |" for model, name, value in seed.table)]))
                lines = json.dumps(seed.config, indent=2).splitlines()
                writer.add_text("config", "\n".join(f"    {line}" for line in lines))
        tell(run_dir, "tensorboard")


@dataclass(frozen=True)
class MLflow:
    """MLflow (the ``mlflow`` extra): a server, or a database file that ``mlflow ui --backend-store-uri`` reads."""

    uri: str
    experiment: str

    def log(self, run_dir: Path) -> None:
        """Log every seed of the run as a run of its own; a run already logged is left alone.

        Raises:
            ImportError: mlflow is not installed.
            Exception: whatever mlflow raises.
        """
        if told(run_dir, "mlflow"):
            return
        import time

        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        path = self.uri.removeprefix("sqlite:///")
        if path != self.uri:
            Path(path).expanduser().absolute().parent.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(tracking_uri=f"sqlite:///{Path(path).expanduser()}" if path != self.uri else self.uri)
        found = client.get_experiment_by_name(self.experiment)
        number = found.experiment_id if found else client.create_experiment(self.experiment)
        for seed in seed_runs(run_dir):
            now = int(1000 * time.time())
            tags = {"mlflow.runName": seed.name, "group": seed.group, "seed": str(seed.seed), "run_dir": str(run_dir)}
            run = client.create_run(number, tags=tags).info.run_id
            metrics = [Metric(key, value, now, int(row["trip"])) for row in seed.curve for key, value in row.items() if key != "trip"]
            metrics += [Metric(f"{model}/{name}", value, now, 0) for model, name, value in seed.table]
            parameters = [Param(key, value[:500]) for key, value in flat({**seed.config, "seed": seed.seed})]
            for start in range(0, len(metrics), 1000):
                client.log_batch(run, metrics=metrics[start : start + 1000])
            for start in range(0, len(parameters), 100):
                client.log_batch(run, params=parameters[start : start + 100])
            client.set_terminated(run)
        tell(run_dir, "mlflow")


def told(run_dir: Path, tracker: str) -> bool:
    """Whether the run was logged to the tracker before."""
    return (run_dir / f"{MARKER}_{tracker}").exists()


def tell(run_dir: Path, tracker: str) -> None:
    """Note that the run was logged."""
    (run_dir / f"{MARKER}_{tracker}").touch()


def seed_runs(run_dir: Path) -> Iterator[SeedRun]:
    """The seeds of a finished run."""
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    config: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(run_dir / "config.yaml"))  # type: ignore[assignment]
    group = str(summary["config_hash"])
    for seed, rows in sorted(rows_by_seed(run_dir / "history.csv").items()):
        name = f"{summary['algorithm']}-{summary['dataset']}-seed{seed}"
        yield SeedRun(seed, group, name, config, rows, seed_results(summary, seed), seed_table(summary, seed))


def rows_by_seed(path: Path) -> dict[int, list[dict[str, float]]]:
    """The rows of ``history.csv`` of each seed, in order, numbers only (an empty cell is left out)."""
    found: dict[int, list[dict[str, float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {key: number for key, text in row.items() if key != "seed" and (number := to_number(text)) is not None}
            found.setdefault(int(row["seed"]), []).append(numbers)
    return found


def to_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def seed_results(summary: dict[str, Any], seed: int) -> dict[str, float]:
    """The test scores of one seed, ``{"test/received": ..., "test/trained": ...}``; a seed that has diverged may have none."""
    position = summary["seeds"].index(seed)
    scores = {f"test/{model}": stats["per_seed"][position] for model, stats in summary["test"].items()}
    return {name: score for name, score in scores.items() if score is not None}


def seed_table(summary: dict[str, Any], seed: int) -> list[tuple[str, str, float]]:
    """(model, name, value) of one seed: test scores selected and last, the trip of the selection, trips to each target reached."""
    position, table = summary["seeds"].index(seed), []
    for model, stats in summary["test"].items():
        values = {"test": stats["per_seed"], "last": stats.get("last", {}).get("per_seed"), "selected_trip": stats.get("selected_trips")}
        targets = summary.get("client_trips", {}).get("to_target", {})
        values |= {f"trips_to_{target}": by_model[model]["per_seed"] for target, by_model in targets.items()}
        table += [(model, name, float(v[position])) for name, v in values.items() if v is not None and v[position] is not None]
    return table


def flat(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """``(key, value)`` of every leaf, keys joined by dots."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def publish(tracker: Any, run_dir: Path) -> None:
    """Let ``tracker`` log the finished run; on any failure warn on stderr and go on."""
    try:
        tracker.log(run_dir)
    except ImportError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0], type(tracker).__name__.lower())
        warn(f"{error}; pip install 'fgl-bench[{extra}]'", run_dir)
    except (Exception, SystemExit) as error:  # a tracker's trouble (network, quota, credentials) is not the run's
        warn(f"{type(error).__name__}: {without_secrets(str(error), tracker)}", run_dir)


def warn(problem: str, run_dir: Path) -> None:
    line = " ".join(problem.split())[:300]
    print(f"warning: the tracker failed ({line}); the run is complete in {run_dir}", file=sys.stderr)
