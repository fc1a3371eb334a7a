"""TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fgl_bench.results.trackers.base import Log, SeedRun, Tracker


@dataclass(frozen=True)
class TensorBoard(Tracker):
    """Event files for TensorBoard (the ``tensorboard`` extra): ``<folder>/<algorithm>-<dataset>-<hash>/seed<n>``."""

    extra: ClassVar[str] = "tensorboard"
    packages: ClassVar[tuple[str, ...]] = ("tensorboard",)

    folder: str

    def start(self, seed: SeedRun) -> Log:
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(self.folder).expanduser() / f"{seed.name.rpartition('-')[0]}-{seed.group}" / f"seed{seed.seed}"
        folder.mkdir(parents=True, exist_ok=True)  # otherwise the writer fails in its own thread
        writer = SummaryWriter(str(folder), purge_step=0)  # hides the events of an interrupted run
        lines = json.dumps(seed.config, indent=2).splitlines()
        writer.add_text("config", "\n".join(f"    {line}" for line in lines))
        return TensorBoardLog(writer)


@dataclass(frozen=True)
class TensorBoardLog(Log):
    """An event file."""

    writer: Any

    def point(self, trip: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, trip)
        self.writer.flush()

    def finish(self, scores: Mapping[str, float], table: Sequence[tuple[str, str, float]]) -> None:
        for name, value in scores.items():
            self.writer.add_scalar(name, value)
        head = ["| model | score | value |", "|---|---|---|"]
        self.writer.add_text("scores", "\n".join([*head, *(f"| {model} | {name} | {value:.6g} |" for model, name, value in table)]))
        self.writer.close()

    def stop(self) -> None:
        self.writer.close()
