"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fgl_bench.results.trackers.base import Log, SeedRun, Tracker

FLUSH_EVERY = 1.0  # seconds; a killed run loses the default of 15


@dataclass(frozen=True)
class Wandb(Tracker):
    """Weights & Biases (the ``wandb`` extra).

    Attributes:
        folder: contains ``wandb/`` with the written files; ``wandb sync`` uploads offline runs from there.
    """

    extra: ClassVar[str] = "wandb"
    packages: ClassVar[tuple[str, ...]] = ("wandb",)

    project: str
    entity: str | None
    mode: Literal["online", "offline"]
    folder: str

    def start(self, seed: SeedRun) -> Log:
        import wandb

        folder = Path(self.folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            group=seed.group,
            id=seed.key,
            name=seed.name,
            config={**seed.config, "seed": seed.seed},
            dir=str(folder),
            reinit="create_new",  # several seeds have open runs at once
            settings=wandb.Settings(silent=True, console="off", x_transaction_log_flush_interval=FLUSH_EVERY),
        )
        run.define_metric("*", step_metric="trip")
        return WandbLog(run)


@dataclass(frozen=True)
class WandbLog(Log):
    """A wandb run."""

    run: Any

    def point(self, trip: int, values: Mapping[str, float]) -> None:
        self.run.log({"trip": trip, **values})

    def finish(self, scores: Mapping[str, float], table: Sequence[tuple[str, str, float]]) -> None:
        import wandb

        self.run.log({"scores": wandb.Table(columns=["model", "score", "value"], data=[list(line) for line in table])})
        self.run.summary.update(dict(scores))
        self.run.finish()

    def stop(self) -> None:
        self.run.finish(exit_code=1)
