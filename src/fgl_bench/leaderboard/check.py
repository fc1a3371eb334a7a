"""Checking cells that somebody else has made: whether they follow the protocol, and whether some of their runs can be repeated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.cell import RUNS, Making, blinded, percent
from fgl_bench.leaderboard.protocol import Entry, Protocol
from fgl_bench.leaderboard.record import Record
from fgl_bench.utils.scratch import scratch
from fgl_bench.utils.seeding import derive_seed

SHARE = 0.05


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
    """What in the cells does not follow the protocol, a line each."""
    for record in records:
        where = f"{record.entry} in {record.column.key}"
        if record.entry != entry.name or record.protocol != protocol.digest(entry):
            yield f"{where}: made for another protocol, method file or space ({record.protocol}, not {protocol.digest(entry)})"
            continue
        if record.column not in protocol.columns:
            yield f"{where}: the protocol has no such column"
        if not record.complete:
            yield f"{where}: not complete; the command that made it goes on"
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
    """The runs to repeat: this share of the winners' seeds, at least one, and of the trials. The cells decide which, as a hash does."""
    seeds = [
        Repeat(record, winner.trial, model, seed)
        for record in records
        for model, winner in sorted(record.winners.items())
        for seed in protocol.test_seeds
    ]
    trials = [Repeat(record, trial.number) for record in records for trial in record.trials if not trial.problem]
    content = str([(record.protocol, record.column.key, record.trials, record.winners) for record in records])

    def some(repeats: Sequence[Repeat], least: int) -> list[Repeat]:
        order = sorted(repeats, key=lambda repeat: derive_seed(0, "submission", content, repeat.name))
        return order[: max(least, math.floor(share * len(repeats)))]

    return [*some(seeds, 1), *some(trials, 0)]


def differences(making: Making, repeat: Repeat) -> Iterator[tuple[str, float | None, float | None]]:
    """What the repeated run gives beside what the cell says: names, the cell's scores and the repeated ones."""
    making = replace(making, column=repeat.record.column)
    values = repeat.record.trials[repeat.trial].values
    with scratch(RUNS, making.folder) as runs:
        if repeat.seed is None:
            found = blinded(making.run(values, making.protocol.tuning_seeds, runs).summary)
            for model in MODELS:
                yield f"validation, {model}", repeat.record.trials[repeat.trial].validation[model], found.validation[model]
            return
        [score] = making.run(values, [repeat.seed], runs).summary["test"][repeat.model]["per_seed"]
        place = making.protocol.test_seeds.index(repeat.seed)
        yield f"test, {repeat.model}", repeat.record.winners[repeat.model].scores[place], score


def check(making: Making, records: Sequence[Record], tolerance: float, say: Callable[[str], None]) -> bool:
    """Whether the cells follow the protocol and what is repeated agrees; every finding is said."""
    if not records:
        raise UserError(f"{making.folder}: there is no cell in it")
    wrong = list(flaws(making.protocol, making.entry, records))
    for line in wrong:
        say(f"wrong: {line}")
    if wrong:
        return False
    agree = True
    for repeat in chosen(making.protocol, records):
        for what, told, found in differences(making, repeat):
            same = told == found or (told is not None and found is not None and abs(told - found) <= tolerance)
            agree = agree and same
            say(f"{'agrees' if same else 'DIFFERS'}: {repeat.name}: {what}: {percent(told)} in the cell, {percent(found)} repeated")
    return agree


def folder_of(path: Path) -> Path:
    """``path``; raises UserError where there is no such folder."""
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder")
    return path
