"""Making one cell of the leaderboard: its trials on validation, then each winner once on test."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgl_bench.config.compose import as_command
from fgl_bench.config.settings import expand_paths
from fgl_bench.config.values import shown
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.properties import properties
from fgl_bench.leaderboard.protocol import Column, Entry, Protocol
from fgl_bench.leaderboard.record import Record, Trial, Winner, path_of, read_record, write_record
from fgl_bench.results.statistics import fairness
from fgl_bench.runner.finished import Finished
from fgl_bench.runner.one import run_one, take_owners
from fgl_bench.utils.scratch import scratch

RUNS = ".runs-"  # folders of runs under way


@dataclass(frozen=True)
class Blind:
    """What tuning is told of a run: validation scores by kind of model and seconds, no test score."""

    validation: dict[str, float | None]
    seconds: float


@dataclass(frozen=True)
class Making:
    """A cell to make.

    Attributes:
        folder: of the leaderboard's cells.
        where: keys of every run that change no number, such as ``threads=1``.
        until: start no run that would end later, by ``time.time``; None for no limit.
        folders: of ``--config-dir``.
        say: told what has been done.
    """

    protocol: Protocol
    entry: Entry
    column: Column
    folder: Path
    where: Sequence[str] = ()
    until: float | None = None
    folders: Sequence[Path] = ()
    say: Callable[[str], None] = field(default=lambda text: print(text, flush=True))

    def make(self) -> Record:
        """Make what the cell lacks; it is written after every run, so that an end without warning costs the run under way.

        Raises:
            UserError: the default configuration cannot be run.
        """
        record = self.begun()
        if record.complete:
            return record
        self.folder.mkdir(parents=True, exist_ok=True)
        with scratch(RUNS, self.folder) as runs:
            self.tune(record, lambda values: self.blind(values, runs))
            if len(record.trials) == record.planned:
                self.score(record, lambda values: self.run(values, self.protocol.test_seeds, runs))
        return record

    def begun(self) -> Record:
        """What there is of the cell; a new one where there is nothing, or it was made under another protocol."""
        path, new = path_of(self.folder, self.entry.name, self.column), Record.new(self.protocol, self.entry, self.column)
        if not path.is_file():
            return new
        try:
            record = read_record(path)
        except (OSError, ValueError) as error:
            self.say(f"{path}: made anew: {error}")
            return new
        if record.protocol != new.protocol:
            self.say(f"{path}: made anew: it is of protocol {record.protocol}, this is {new.protocol}")
            return new
        return record

    def tune(self, record: Record, run: Callable[[Mapping[str, Any]], Blind]) -> None:
        """Make the trials that are missing. What ``run`` returns has no test score."""
        for number, values in enumerate(self.protocol.trials_of(self.entry, self.column)):
            if number < len(record.trials):
                continue
            if self.late([trial.seconds for trial in record.trials]):
                return
            begin = time.monotonic()
            try:
                found = run(values)
                trial = Trial(number, values, found.validation, round(time.monotonic() - begin, 3))
            except UserError as error:
                if number == 0:
                    raise
                trial = Trial(number, values, dict.fromkeys(MODELS), round(time.monotonic() - begin, 3), str(error))
            record.trials.append(trial)
            if not record.properties:
                record.properties = self.measured(values)
            write_record(self.folder, record)
            scores = ", ".join(f"{model} {percent(score)}" for model, score in trial.validation.items())
            self.say(f"{record.entry} in {self.column.key}: trial {number + 1} of {record.planned}: validation {scores}")

    def score(self, record: Record, run: Callable[[Mapping[str, Any]], Finished]) -> None:
        """Score the best trial of each kind of model: one run, one test score of a seed; both in one where one trial is best for both."""
        best = {model: record.best(model) for model in MODELS}
        pace = len(self.protocol.test_seeds) / len(self.protocol.tuning_seeds)
        made: dict[int, Finished] = {}
        for model, trial in best.items():
            if trial is None or model in record.winners:
                continue
            if trial.number not in made:
                if self.late([pace * trial.seconds]):
                    return
                made[trial.number] = run(trial.values)
            line = self.protocol.overrides(self.entry, self.column, trial.values, self.protocol.test_seeds)
            record.winners[model] = winner(trial.number, made[trial.number].summary, model, shlex.join(["fgl-bench", *line]))
            record.facts = facts(made[trial.number].summary)
            write_record(self.folder, record)
            self.say(f"{record.entry} in {self.column.key}: {model} winner is trial {trial.number + 1}")

    def late(self, seconds: Sequence[float]) -> bool:
        """Whether a run as long as the last one would end too late."""
        return self.until is not None and time.time() + (seconds[-1] if seconds else 0) > self.until

    def run(self, values: Mapping[str, Any], seeds: Sequence[int], runs: Path) -> Finished:
        line = self.protocol.overrides(self.entry, self.column, values, seeds)
        with as_command([*line, f"results_dir={shown(str(runs))}", "progress=false", *self.where], self.folders) as cfg:
            return run_one(cfg)

    def blind(self, values: Mapping[str, Any], runs: Path) -> Blind:
        return blinded(self.run(values, self.protocol.tuning_seeds, runs).summary)

    def measured(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Properties of the federations of the tuning seeds, on which ``values`` have no influence."""
        from fgl_bench.runner.run import federations_of

        line = self.protocol.overrides(self.entry, self.column, values, self.protocol.tuning_seeds)
        with as_command([*line, "progress=false", *self.where], self.folders) as cfg:
            expand_paths(cfg)
            take_owners(cfg)
            return {name: round(value, 6) for name, value in properties(federations_of(cfg)).items()}


def blinded(summary: Mapping[str, Any]) -> Blind:
    """A run's validation scores at the selected points, means over the seeds; None where a seed diverged before there was one."""
    found: dict[str, float | None] = {}
    for model in MODELS:
        scored = summary["test"][model]
        found[model] = None if None in scored["selected_trips"] else scored["val"]["mean"]
    return Blind(found, summary["seconds"]["total"])


def winner(trial: int, summary: Mapping[str, Any], model: str, command: str) -> Winner:
    """The test scores of one kind of model, and what the run has cost."""
    scored = summary["test"][model]
    return Winner(
        trial=trial,
        scores=scored["per_seed"],
        fairness=fairness(scored["per_client"]),
        bytes=summary["bytes"],
        trips=summary["client_trips"]["total"],
        seconds=summary["seconds"]["total"],
        config_hash=summary["config_hash"],
        command=command,
        finished=summary["finished"],
    )


def facts(summary: Mapping[str, Any]) -> dict[str, Any]:
    names = ("metric", "scenario", "num_clients", "versions", "device")
    found = {name: summary[name] for name in names}
    with suppress(KeyError, TypeError):
        found["commit"] = summary["code"]["commit"]
    return found


def percent(score: float | None) -> str:
    return "diverged" if score is None else f"{100 * score:.2f}"
