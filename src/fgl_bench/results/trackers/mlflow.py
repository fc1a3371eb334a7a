"""MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fgl_bench.results.choose import leaves
from fgl_bench.results.trackers.base import Log, SeedRun, Tracker

FILE = "sqlite:///"
MOST_PARAMETERS = 100  # per request


@dataclass(frozen=True)
class MLflow(Tracker):
    """MLflow (the ``mlflow`` extra): a server, or a database file that ``mlflow ui --backend-store-uri`` reads."""

    extra: ClassVar[str] = "mlflow"

    uri: str
    experiment: str

    @property
    def packages(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the address
        return ("mlflow", "sqlalchemy", "alembic") if self.uri.startswith(FILE) else ("mlflow",)

    def start(self, seed: SeedRun) -> Log:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a missing server would block the run for minutes
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        path = Path(self.uri.removeprefix(FILE)).expanduser()
        if self.uri.startswith(FILE):
            from mlflow.store.db import utils

            path.absolute().parent.mkdir(parents=True, exist_ok=True)
            utils.MAX_RETRY_COUNT = 3  # the default of ten, doubling each time, would block the run for 100 s
        client = MlflowClient(tracking_uri=f"{FILE}{path}" if self.uri.startswith(FILE) else self.uri)
        experiment = client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else client.create_experiment(self.experiment)
        for killed in client.search_runs([number], f"tags.key = '{seed.key}' and attributes.status = 'RUNNING'"):
            client.set_terminated(killed.info.run_id, "KILLED")
        tags = {"mlflow.runName": seed.name, "group": seed.group, "seed": str(seed.seed), "key": seed.key}
        run = client.create_run(number, tags=tags).info.run_id
        parameters = [Param(key, str(value)[:500]) for key, value in leaves({**seed.config, "seed": seed.seed})]
        for start in range(0, len(parameters), MOST_PARAMETERS):
            client.log_batch(run, params=parameters[start : start + MOST_PARAMETERS])
        return MLflowLog(client, run)


@dataclass(frozen=True)
class MLflowLog(Log):
    """An MLflow run; MLflow sends points in its own thread."""

    client: Any
    run: str
    sent: list[Any] = field(default_factory=list)

    def point(self, trip: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, trip) for name, value in values.items()]
        self.sent.append(self.client.log_batch(self.run, metrics=metrics, synchronous=False))

    def finish(self, scores: Mapping[str, float], table: Sequence[tuple[str, str, float]]) -> None:
        self.point(0, scores)
        self._wait()
        self.client.set_terminated(self.run)

    def stop(self) -> None:
        self._wait()
        self.client.set_terminated(self.run, "FAILED")

    def _wait(self) -> None:
        """Wait for pending requests; raises their errors."""
        for operation in self.sent:
            operation.wait()
