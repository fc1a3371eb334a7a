"""Checks submitted cells: they follow the protocol, and a sample of their runs can be repeated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.cell import BoardCell, percent, validation_scores
from fgl_bench.leaderboard.protocol import Entry, Protocol
from fgl_bench.leaderboard.record import Record
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
