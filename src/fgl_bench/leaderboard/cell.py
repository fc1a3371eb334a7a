"""Cells of the leaderboard: trials scored on validation, then each winner once on test; and checks of submitted cells.

``python -m fgl_bench.leaderboard.cell PROTOCOL ENTRY DATASET SPLIT FOLDER UNTIL [KEY=VALUE...]`` computes one in a separate process.
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from fgl_bench.config.compose import as_command
from fgl_bench.config.settings import expand_paths
from fgl_bench.config.values import shown
from fgl_bench.data.graph import ClientGraph, Federation, strata
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol, read_protocol
from fgl_bench.leaderboard.record import Record, Trial, Winner, path_of, read_record, write_record
from fgl_bench.results.render import percent
from fgl_bench.results.statistics import fairness
from fgl_bench.runner.one import run_one, take_owners
from fgl_bench.utils.files import scratch
from fgl_bench.utils.processes import Stopped, stoppable
from fgl_bench.utils.seeding import derive_seed

RUNS = ".runs-"  # prefix of the temporary folder of a run
SHARE = 0.05  # of the runs of submitted cells, which a check repeats


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


def properties(federations: Sequence[Federation]) -> dict[str, float]:
    """Return means over the repetitions.

    * ``label_skew``: total variation distance between the class shares of a client and of all clients, weighted by
      labeled nodes; 0 if all clients have the same shares.
    * ``homophily``: share of edges between labeled nodes of a client that join nodes of one class.
    * ``edge_cut``: share of edges between nodes of different clients, which are not used in training.
    * ``train_nodes``: training nodes per client.
    """
    each = [of_one(federation) for federation in federations]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def of_one(federation: Federation) -> dict[str, float]:
    clients = federation.clients
    inside = sum(client.edges.shape[1] for client in clients)
    cut = federation.cross_edges.shape[1]
    alike = [same_class(client) for client in clients]
    joined = sum(count for _, count in alike)
    return {
        "label_skew": label_skew(np.stack([class_counts(client, federation.num_classes) for client in clients])),
        "homophily": sum(same for same, _ in alike) / joined if joined else 0.0,
        "edge_cut": cut / (inside + cut) if inside + cut else 0.0,
        "train_nodes": float(np.mean([client.train.sum() for client in clients])),
        "clients": float(len(clients)),
    }


def class_counts(client: ClientGraph, classes: int) -> np.ndarray:
    labels = strata(client.labels)
    return np.bincount(labels[labels >= 0], minlength=classes)


def label_skew(counts: np.ndarray) -> float:
    """Return the label skew of counts ``[C, Y]``."""
    sizes = counts.sum(1)
    if not sizes.sum():
        return 0.0
    shares = counts / np.maximum(sizes, 1)[:, None]
    distance = np.abs(shares - counts.sum(0) / sizes.sum()).sum(1) / 2
    return float((distance * sizes).sum() / sizes.sum())


def same_class(client: ClientGraph) -> tuple[int, int]:
    """Count edges that join nodes of one class, and edges between labeled nodes."""
    ends = strata(client.labels)[client.edges]
    known = (ends >= 0).all(0)
    return int((known & (ends[0] == ends[1])).sum()), int(known.sum())


@dataclass(frozen=True)
class Repeat:
    """A run to repeat: a trial, or a seed of the winner of one kind of model."""

    record: Record
    trial: int
    model: str = ""
    seed: int | None = None

    @property
    def name(self) -> str:
        what = f"trial {self.trial + 1}" if self.seed is None else f"{self.model} winner, seed {self.seed}"
        return f"{self.record.entry} in {self.record.column.key}: {what}"


def flaws(protocol: Protocol, entry: Entry, records: Sequence[Record]) -> Iterator[str]:
    """Yield a line for every violation of the protocol."""
    for record in records:
        where = f"{record.entry} in {record.column.key}"
        if record.entry != entry.name or record.protocol != protocol.digest(entry):
            yield f"{where}: made for another protocol, method file or space ({record.protocol}, not {protocol.digest(entry)})"
            continue
        if record.column not in protocol.columns:
            yield f"{where}: the protocol has no such column"
        if not record.complete:
            yield f"{where}: not complete; repeat the command that made it to resume"
        planned = protocol.trials_of(entry, record.column)
        if [dict(trial.values) for trial in record.trials] != planned[: len(record.trials)]:
            yield f"{where}: its trials are not those that the protocol draws"
        for model, winner in record.winners.items():
            best = record.best(model)
            if best is None or winner.trial != best.number:
                yield f"{where}: the {model} winner is trial {winner.trial + 1}, which is not the best on validation"
            if len(winner.scores) != len(protocol.test_seeds):
                yield f"{where}: {len(winner.scores)} scores of the {model} winner, not {len(protocol.test_seeds)}"


def chosen(protocol: Protocol, records: Sequence[Record], share: float = SHARE) -> list[Repeat]:
    """Return the runs to repeat: a share of the winners' seeds, at least one, and of the trials. A hash of the cells selects them."""
    seeds = [
        Repeat(record, winner.trial, model, seed)
        for record in records
        for model, winner in sorted(record.winners.items())
        for seed in protocol.test_seeds
    ]
    trials = [Repeat(record, trial.number) for record in records for trial in record.trials if not trial.problem]
    content = str([(record.protocol, record.column.key, record.trials, record.winners) for record in records])

    def sample(repeats: Sequence[Repeat], least: int) -> list[Repeat]:
        order = sorted(repeats, key=lambda repeat: derive_seed(0, "submission", content, repeat.name))
        return order[: max(least, math.floor(share * len(repeats)))]

    return [*sample(seeds, 1), *sample(trials, 0)]


def differences(cell: BoardCell, repeat: Repeat) -> Iterator[tuple[str, float | None, float | None]]:
    """Repeat a run; yields names, the scores in the cell and the repeated scores."""
    cell = replace(cell, column=repeat.record.column)
    trial = repeat.record.trials[repeat.trial]
    if repeat.seed is None:
        repeated = validation_scores(cell.run(trial.values, cell.protocol.tuning_seeds))
        for model in MODELS:
            yield f"validation, {model}", trial.validation[model], repeated[model]
    else:
        [score] = cell.run(trial.values, [repeat.seed])["test"][repeat.model]["per_seed"]
        index = cell.protocol.test_seeds.index(repeat.seed)
        yield f"test, {repeat.model}", repeat.record.winners[repeat.model].scores[index], score


def check(cell: BoardCell, records: Sequence[Record], tolerance: float) -> bool:
    """Return True if the records follow the protocol and repeated scores agree; prints every finding.

    Args:
        cell: any cell of the entry, with the settings for all of them.
    """
    wrong = list(flaws(cell.protocol, cell.entry, records))
    for line in wrong:
        cell.say(f"wrong: {line}")
    if wrong:
        return False
    agree = True
    for repeat in chosen(cell.protocol, records):
        for what, stored, repeated in differences(cell, repeat):
            same = stored == repeated or (stored is not None and repeated is not None and abs(stored - repeated) <= tolerance)
            agree = agree and same
            cell.say(
                f"{'agrees' if same else 'DIFFERS'}: {repeat.name}: {what}: {percent(stored)} in the cell, {percent(repeated)} repeated"
            )
    return agree


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
