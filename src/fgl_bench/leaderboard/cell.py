"""Making one cell of the leaderboard: its trials on validation, then each winner once on test."""

from __future__ import annotations

import shlex
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
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol
from fgl_bench.leaderboard.record import Record, Trial, Winner, path_of, read_record, write_record
from fgl_bench.results.render import percent
from fgl_bench.results.statistics import fairness
from fgl_bench.runner.one import run_one, take_owners
from fgl_bench.utils.scratch import scratch

RUNS = ".runs-"  # prefix of a folder for a run under way


@dataclass(frozen=True)
class BoardCell:
    """An entry in a column, to be made.

    Attributes:
        folder: of the leaderboard's cells.
        where: keys of every run that change no number, such as ``threads=1``.
        until: start no run that would end later, by ``time.time``; None for no limit.
        folders: of ``--config-dir``.
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
        """Make what the cell lacks; it is written after every run, so that an end without warning costs the run under way.

        Raises:
            UserError: the default configuration cannot be run.
        """
        record = self.stored()
        self.tune(record)
        self.score(record)
        return record

    def stored(self) -> Record:
        """The stored cell; a new one if there is none, or it was made under another protocol."""
        path, new = path_of(self.folder, self.entry.name, self.column), Record.new(self.protocol, self.entry, self.column)
        if not path.is_file():
            return new
        try:
            record = read_record(path)
            if record.protocol != new.protocol:
                raise ValueError(f"it is of protocol {record.protocol}, this is {new.protocol}")
        except (OSError, ValueError) as error:
            self.say(f"{path}: made anew: {error}")
            return new
        return record

    def tune(self, record: Record) -> None:
        """Make the trials that are missing."""
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
        """Score the best trial of each kind of model, once all trials are made: one run, or one for both where they share their best."""
        if len(record.trials) < record.planned:
            return
        pace = len(self.protocol.test_seeds) / len(self.protocol.tuning_seeds)
        made: dict[int, dict[str, Any]] = {}
        for model in MODELS:
            trial = record.best(model)
            if trial is None or model in record.winners:
                continue
            if trial.number not in made:
                if self.late(pace * trial.seconds):
                    return
                made[trial.number] = self.run(trial.values, self.protocol.test_seeds)
            line = self.protocol.overrides(self.entry, self.column, trial.values, self.protocol.test_seeds)
            record.winners[model] = winner(trial.number, made[trial.number], model, shlex.join(["fgl-bench", *line]))
            record.facts = facts(made[trial.number])
            write_record(self.folder, record)
            self.say(f"{self.name}: {model} winner is trial {trial.number + 1}")

    def late(self, seconds: float) -> bool:
        """Return True if a run of this length would end too late."""
        return self.until is not None and time.time() + seconds > self.until

    def run(self, values: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """Make a run, whose folder is removed; returns its summary."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with scratch(RUNS, self.folder) as runs, self.composed(values, seeds, f"results_dir={shown(str(runs))}") as cfg:
            return run_one(cfg).summary

    def measured(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Properties of the federations of the tuning seeds, on which ``values`` have no influence."""
        from fgl_bench.runner.run import federations_of

        with self.composed(values, self.protocol.tuning_seeds) as cfg:
            expand_paths(cfg)
            take_owners(cfg)
            return {name: round(value, 6) for name, value in properties(federations_of(cfg)).items()}

    def composed(self, values: Mapping[str, Any], seeds: Sequence[int], *more: str) -> AbstractContextManager[DictConfig]:
        line = self.protocol.overrides(self.entry, self.column, values, seeds)
        return as_command([*line, *more, "progress=false", *self.where], self.folders)


def validation_scores(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Validation scores by kind of model at the selected points, means over the seeds; None if a seed diverged before it had one."""
    test = summary["test"]
    return {model: None if None in test[model]["selected_trips"] else test[model]["val"]["mean"] for model in MODELS}


def winner(trial: int, summary: Mapping[str, Any], model: str, command: str) -> Winner:
    """The test scores of one kind of model, and what the run has cost."""
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
    found = {name: summary[name] for name in ("metric", "scenario", "num_clients", "versions", "device")}
    return found | ({"commit": summary["code"]["commit"]} if summary.get("code") else {})
