"""Cells of the leaderboard: trials scored on validation, then the default and the winner once on test.

``python -m fgl_bench.leaderboard.cell PROTOCOL ENTRY COLUMN FOLDER UNTIL [KEY=VALUE...]`` computes one in a separate process.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fgl_bench.config.compose import as_command
from fgl_bench.config.values import shown
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.predictions import write_predictions
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol, read_protocol
from fgl_bench.leaderboard.record import Choice, Record, Scored, Trial, choose, path_of, read_record, write_record
from fgl_bench.results.render import percent
from fgl_bench.results.statistics import fairness
from fgl_bench.runner.one import run_one
from fgl_bench.utils.files import scratch
from fgl_bench.utils.processes import Stopped, stoppable

if TYPE_CHECKING:
    import pandas as pd
    from omegaconf import DictConfig

RUNS = ".runs-"  # prefix of the temporary folder of a run
POINTS = 12  # of a curve
FACTS = ("metric", "scenario", "num_clients", "versions", "device")


class Run(NamedTuple):
    """A finished run, in its temporary folder."""

    cfg: DictConfig
    folder: Path
    summary: dict[str, Any]

    def history(self) -> pd.DataFrame:
        """Return the evaluation points, a row per seed and point."""
        import pandas as pd

        return pd.read_csv(self.folder / "history.csv")


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
        path, new = path_of(self.folder, self.entry.name, self.column.key), Record.new(self.protocol, self.entry, self.column)
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
        while (values := record.next_values(self.protocol, self.entry, self.column)) is not None:
            if self.late(record.trials[-1].seconds if record.trials else 0):
                return
            begin, problem, number = time.monotonic(), "", len(record.trials)
            try:
                with self.run(values, self.protocol.tuning_seeds) as run:
                    validation = validation_scores(run)
            except UserError as error:
                if number == 0:
                    raise
                validation, problem = {model: [None] * len(self.protocol.tuning_seeds) for model in MODELS}, str(error)
            trial = Trial(number, values, validation, round(time.monotonic() - begin, 3), problem)
            record.trials.append(trial)
            write_record(self.folder, record)
            scores = ", ".join(f"{model} {percent(trial.lower(model), 2)}" for model in MODELS)
            self.say(f"{self.name}: trial {number + 1} of {record.planned}: validation less its standard error: {scores}")

    def score(self, record: Record) -> None:
        """Score the default and the winner, after all trials."""
        if len(record.trials) < record.planned or record.next_values(self.protocol, self.entry, self.column) is not None:
            return
        for which, choice in (("default", choose(record.trials[:1])), ("tuned", record.best())):
            if choice is None or getattr(record, which) is not None:
                continue
            if which == "tuned" and record.default is not None and record.default.trial == choice.trial.number:
                record.tuned = record.default
            else:
                if self.late(choice.trial.seconds * len(self.protocol.test_seeds) / len(self.protocol.tuning_seeds)):
                    return
                with self.run(choice.trial.values, self.protocol.test_seeds, "keep_models=best") as run:
                    setattr(record, which, self.scored(choice, run))
                    record.facts = {name: run.summary[name] for name in FACTS} | {"commit": (run.summary.get("code") or {}).get("commit")}
                    scored = run.summary["test"][choice.model]["per_seed"]
                    path = path_of(self.folder, self.entry.name, self.column.key).with_suffix(".npz")
                    write_predictions(run.cfg, run.folder, choice.model, scored, path, partial(self.say_of, which))
            write_record(self.folder, record)
            self.say(f"{self.name}: {which} is trial {choice.trial.number + 1}, {choice.model} model")

    def say_of(self, which: str, line: str) -> None:
        self.say(f"{self.name}: {which}: {line}")

    def scored(self, choice: Choice, run: Run) -> Scored:
        """Return the test scores and costs of a run."""
        test, line = run.summary["test"], self.protocol.overrides(self.entry, self.column, choice.trial.values, self.protocol.test_seeds)
        return Scored(
            trial=choice.trial.number,
            model=choice.model,
            scores={model: [rounded(score) for score in test[model]["per_seed"]] for model in MODELS},
            fairness={name: rounded(value) for name, value in fairness(test[choice.model]["per_client"]).items()},
            trips=run.summary["client_trips"]["total"],
            time=round(run.summary["virtual_time"], 6),
            local_epochs=int(run.cfg.local_epochs),
            seconds=round(run.summary["seconds"]["total"], 3),
            curve=curve(run.history(), choice.model),
            command=shlex.join(["fgl-bench", *line]),
            **{name: run.summary[name] for name in ("bytes", "config_hash", "finished")},
        )

    def late(self, seconds: float) -> bool:
        """Return True if a run of this length would end too late."""
        return self.until is not None and time.time() + seconds > self.until

    @contextmanager
    def run(self, values: Mapping[str, Any], seeds: Sequence[int], *more: str) -> Iterator[Run]:
        """Execute a run in a temporary folder, which goes afterwards."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = [*self.protocol.overrides(self.entry, self.column, values, seeds), *more]
        with scratch(RUNS, self.folder) as runs:
            line += [f"results_dir={shown(str(runs))}", "progress=false", "checkpoint_minutes=null", *self.where]
            with as_command(line, self.folders) as cfg:
                made = run_one(cfg)
                yield Run(cfg, made.folder, made.summary)


def rounded(score: float | None) -> float | None:
    """Return a score with six digits, as in a run's history."""
    return None if score is None else round(score, 6)


def validation_scores(run: Run) -> dict[str, list[float | None]]:
    """Return the validation scores of the seeds at the selected points, by kind of model; None if a seed has no score."""
    best, test = run.history().groupby("seed").max(), run.summary["test"]
    return {
        model: [
            None if trips is None else float(score)
            for trips, score in zip(test[model]["selected_trips"], best[f"val_{model}"], strict=True)
        ]
        for model in MODELS
    }


def curve(history: pd.DataFrame, model: str) -> dict[str, list[float]]:
    """Return some evaluation points, means over the seeds: trips, virtual time, megabytes, and scores of the best point so far."""
    seeds = [rows.reset_index(drop=True) for _, rows in history.groupby("seed")]
    count = min(len(rows) for rows in seeds)
    means: dict[str, np.ndarray] = {}
    for rows in seeds:
        val, test = rows[f"val_{model}"].fillna(-1).to_numpy()[:count], rows[f"test_{model}"].to_numpy()[:count]
        best = np.maximum.accumulate(np.where(val > np.maximum.accumulate(np.r_[-2, val[:-1]]), np.arange(count), 0))
        megabytes = (rows["upload_bytes"] + rows["download_bytes"]).to_numpy()[:count] / 1e6
        each = {"trips": rows["trip"][:count], "time": rows["time"][:count], "megabytes": megabytes, "val": val[best], "test": test[best]}
        means = {name: means.get(name, 0) + np.asarray(values, dtype=np.float64) / len(seeds) for name, values in each.items()}
    known = np.flatnonzero(np.isfinite(means["test"]) & (means["val"] >= 0))
    places = known[np.unique(np.linspace(0, len(known) - 1, POINTS).astype(int))] if len(known) else known
    return {name: [float(f"{value:.6g}") for value in values[places]] for name, values in means.items()}


if __name__ == "__main__":
    path, name, key, folder, until, *where = sys.argv[1:]
    try:
        protocol = read_protocol(Path(path))
        entry = next(entry for entry in protocol.entries if entry.name == name)
        column = next(column for column in protocol.columns if column.key == key)
        with stoppable():
            BoardCell(protocol, entry, column, Path(folder), where, float(until)).make()
    except Stopped as stopped:
        sys.exit(stopped.status)
    except UserError as error:
        sys.exit(f"{name} in {key}: {error}")
