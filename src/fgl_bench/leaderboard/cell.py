"""Computes one cell of the leaderboard: trials scored on validation, then each winner once on test.

``python -m fgl_bench.leaderboard.cell PROTOCOL ENTRY DATASET SPLIT FOLDER UNTIL [KEY=VALUE...]`` computes one in a separate process.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fgl_bench.config.compose import as_command
from fgl_bench.config.settings import expand_paths
from fgl_bench.config.values import shown
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.properties import properties
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol, read_protocol
from fgl_bench.leaderboard.record import Record, Trial, Winner, path_of, read_record, write_record
from fgl_bench.results.render import percent
from fgl_bench.results.statistics import fairness
from fgl_bench.runner.one import run_one, take_owners
from fgl_bench.utils.files import scratch
from fgl_bench.utils.processes import Stopped, stoppable

RUNS = ".runs-"  # prefix of the temporary folder of a run


@dataclass(frozen=True)
class BoardCell:
    """An entry in a column, to compute.

    Attributes:
        folder: folder of the leaderboard's cells.
        where: keys of every run that do not affect results, such as ``threads=1``.
        until: no run starts that would end later (``time.time``); None for no limit.
        folders: folders of ``--config-dir``.
        say: prints a line of progress.
    """

    protocol: Protocol
    entry: Entry
    column: BoardColumn
    folder: Path
    where: Sequence[str] = ()
    until: float | None = None
    folders: Sequence[Path] = ()
    say: Callable[[str], None] = partial(print, flush=True)

    @property
    def name(self) -> str:
        return f"{self.entry.name} in {self.column.key}"

    def make(self) -> Record:
        """Run the missing parts of the cell. It is written after every run, so that a crash loses only the current run.

        Raises:
            UserError: the default configuration cannot be run.
        """
        record = self.stored()
        self.tune(record)
        self.score(record)
        return record

    def stored(self) -> Record:
        """Return the stored cell, or a new one if it is missing or of another protocol."""
        path, new = path_of(self.folder, self.entry.name, self.column), Record.new(self.protocol, self.entry, self.column)
        if not path.is_file():
            return new
        try:
            record = read_record(path)
            if record.protocol != new.protocol:
                raise ValueError(f"it is of protocol {record.protocol}, this is {new.protocol}")
        except (OSError, ValueError) as error:
            self.say(f"{path}: recomputed: {error}")
            return new
        return record

    def tune(self, record: Record) -> None:
        """Run the missing trials."""
        for number, values in enumerate(self.protocol.trials_of(self.entry, self.column)):
            if number < len(record.trials):
                continue
            if self.late(record.trials[-1].seconds if record.trials else 0):
                return
            begin, problem = time.monotonic(), ""
            try:
                validation = validation_scores(self.run(values, self.protocol.tuning_seeds))
            except UserError as error:
                if number == 0:
                    raise
                validation, problem = dict.fromkeys(MODELS), str(error)
            record.trials.append(Trial(number, values, validation, round(time.monotonic() - begin, 3), problem))
            if not record.properties:
                record.properties = self.measured(values)
            write_record(self.folder, record)
            scores = ", ".join(f"{model} {percent(score, 2)}" for model, score in validation.items())
            self.say(f"{self.name}: trial {number + 1} of {record.planned}: validation {scores}")

    def score(self, record: Record) -> None:
        """Score the best trial of each kind of model after all trials; one run serves both if they share the best trial."""
        if len(record.trials) < record.planned:
            return
        pace = len(self.protocol.test_seeds) / len(self.protocol.tuning_seeds)
        summaries: dict[int, dict[str, Any]] = {}
        for model in MODELS:
            trial = record.best(model)
            if trial is None or model in record.winners:
                continue
            if trial.number not in summaries:
                if self.late(pace * trial.seconds):
                    return
                summaries[trial.number] = self.run(trial.values, self.protocol.test_seeds)
            line = self.protocol.overrides(self.entry, self.column, trial.values, self.protocol.test_seeds)
            record.winners[model] = winner(trial.number, summaries[trial.number], model, shlex.join(["fgl-bench", *line]))
            record.facts = facts(summaries[trial.number])
            write_record(self.folder, record)
            self.say(f"{self.name}: {model} winner is trial {trial.number + 1}")

    def late(self, seconds: float) -> bool:
        """Return True if a run of this length would end too late."""
        return self.until is not None and time.time() + seconds > self.until

    def run(self, values: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """Execute a run in a temporary folder and return its summary."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with scratch(RUNS, self.folder) as runs, self.composed(values, seeds, f"results_dir={shown(str(runs))}") as cfg:
            return run_one(cfg).summary

    def measured(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Return properties of the federations of the tuning seeds; they do not depend on ``values``."""
        from fgl_bench.runner.run import federations_of

        with self.composed(values, self.protocol.tuning_seeds) as cfg:
            expand_paths(cfg)
            take_owners(cfg)
            return {name: round(value, 6) for name, value in properties(federations_of(cfg)).items()}

    def composed(self, values: Mapping[str, Any], seeds: Sequence[int], *more: str) -> AbstractContextManager[DictConfig]:
        line = self.protocol.overrides(self.entry, self.column, values, seeds)
        return as_command([*line, *more, "progress=false", *self.where], self.folders)


def validation_scores(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return mean validation scores over the seeds at the selected points, by kind of model; None if a seed has no score."""
    test = summary["test"]
    return {model: None if None in test[model]["selected_trips"] else test[model]["val"]["mean"] for model in MODELS}


def winner(trial: int, summary: Mapping[str, Any], model: str, command: str) -> Winner:
    """Return the test scores of one kind of model, and the costs of the run."""
    scored = summary["test"][model]
    return Winner(
        trial=trial,
        scores=scored["per_seed"],
        fairness=fairness(scored["per_client"]),
        trips=summary["client_trips"]["total"],
        seconds=summary["seconds"]["total"],
        command=command,
        **{name: summary[name] for name in ("bytes", "config_hash", "finished")},
    )


def facts(summary: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: summary[name] for name in ("metric", "scenario", "num_clients", "versions", "device")}
    return facts | ({"commit": summary["code"]["commit"]} if summary.get("code") else {})


if __name__ == "__main__":
    path, name, dataset, split, folder, until, *where = sys.argv[1:]
    try:
        protocol = read_protocol(Path(path))
        entry = next(entry for entry in protocol.entries if entry.name == name)
        with stoppable():
            BoardCell(protocol, entry, BoardColumn(dataset, split), Path(folder), where, float(until)).make()
    except Stopped as stopped:
        sys.exit(stopped.status)
    except UserError as error:
        sys.exit(f"{name} in {dataset}-{split}: {error}")
