"""Checks of submitted cells: whether they follow the protocol, and whether some of their runs can be repeated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.cell import BoardCell, validation_scores
from fgl_bench.leaderboard.protocol import BoardColumn, Entry, Protocol
from fgl_bench.leaderboard.record import Record, choose
from fgl_bench.results.render import percent
from fgl_bench.utils.seeding import derive_seed

SHARE = 0.05  # of the runs of submitted cells, which a check repeats


@dataclass(frozen=True)
class Repeat:
    """A run of a cell to repeat: a trial with all tuning seeds, or one test seed of the default or the winner."""

    record: Record
    trial: int
    which: str = ""
    seed: int | None = None

    @property
    def name(self) -> str:
        what = f"trial {self.trial + 1}" if self.seed is None else f"{self.which}, seed {self.seed}"
        return f"{self.record.entry} in {self.record.column}: {what}"


def flaws(protocol: Protocol, entry: Entry, records: Sequence[Record]) -> Iterator[str]:
    """Yield a line for every violation of the protocol."""
    columns = {column.key: column for column in protocol.columns}
    for record in records:
        where, column = f"{record.entry} in {record.column}", columns.get(record.column)
        if column is None:
            yield f"{where}: the protocol has no such column"
        elif record.entry != entry.name or record.protocol != protocol.digest(entry, column):
            yield f"{where}: made for another protocol, method file or space ({record.protocol}, not {protocol.digest(entry, column)})"
        else:
            yield from (f"{where}: {flaw}" for flaw in flaws_of(protocol, entry, column, record))


def flaws_of(protocol: Protocol, entry: Entry, column: BoardColumn, record: Record) -> Iterator[str]:
    """Yield the violations of one cell."""
    again = replace(record, trials=[])
    for trial in record.trials:
        if again.next_values(protocol, entry, column) != dict(trial.values):
            yield f"trial {trial.number + 1} is not the one that the protocol draws"
            return
        again.trials.append(trial)
    if not record.complete or record.next_values(protocol, entry, column) is not None:
        yield "not complete; repeat the command that made it to resume"
    for which, scored, choice in (("default", record.default, choose(record.trials[:1])), ("winner", record.tuned, record.best())):
        if scored is None:
            continue
        if choice is None or (scored.trial, scored.model) != (choice.trial.number, choice.model):
            yield f"the {which} is trial {scored.trial + 1}, {scored.model} model, which is not the best on validation"
        for model in MODELS:
            if len(scored.scores[model]) != len(protocol.test_seeds):
                yield f"{len(scored.scores[model])} {model} scores of the {which}, not {len(protocol.test_seeds)}"


def chosen(protocol: Protocol, records: Sequence[Record], draw: str, share: float = SHARE) -> list[Repeat]:
    """Return the runs to repeat: a share of the test seeds, at least one, and of the trials.

    Args:
        draw: what is drawn depends on it and on the cells. The person who checks chooses it after the submission.
    """
    both = [(record, which, scored) for record in records for which in ("default", "tuned") if (scored := getattr(record, which))]
    seeds = [Repeat(record, scored.trial, which, seed) for record, which, scored in both for seed in protocol.test_seeds]
    trials = [Repeat(record, trial.number) for record in records for trial in record.trials if not trial.problem]
    content = str([(record.protocol, record.column, record.trials, record.default, record.tuned) for record in records])

    def sample(repeats: Sequence[Repeat], least: int) -> list[Repeat]:
        order = sorted(repeats, key=lambda repeat: derive_seed(0, "submission", content, draw, repeat.name))
        return order[: max(least, math.floor(share * len(repeats)))]

    return [*sample(seeds, 1), *sample(trials, 0)]


def differences(cell: BoardCell, repeat: Repeat) -> Iterator[tuple[str, float | None, float | None]]:
    """Repeat a run; yields names, the scores in the cell and the repeated scores."""
    cell = replace(cell, column=next(column for column in cell.protocol.columns if column.key == repeat.record.column))
    trial = repeat.record.trials[repeat.trial]
    with cell.run(trial.values, cell.protocol.tuning_seeds if repeat.seed is None else [repeat.seed]) as run:
        if repeat.seed is None:
            for model, repeated in validation_scores(run).items():
                for seed, *pair in zip(cell.protocol.tuning_seeds, trial.validation[model], repeated, strict=True):
                    yield f"validation, {model}, seed {seed}", pair[0], pair[1]
            return
        index = cell.protocol.test_seeds.index(repeat.seed)
        for model in MODELS:
            [score] = run.summary["test"][model]["per_seed"]
            yield f"test, {model}", getattr(repeat.record, repeat.which).scores[model][index], score


def check(cell: BoardCell, records: Sequence[Record], tolerance: float, draw: str) -> bool:
    """Return True if the records follow the protocol and repeated scores agree; prints every finding.

    Args:
        cell: any cell of the entry, with the settings for all of them.
        draw: see :func:`chosen`.
    """
    wrong = list(flaws(cell.protocol, cell.entry, records))
    for line in wrong:
        cell.say(f"wrong: {line}")
    if wrong:
        return False
    agree = True
    for repeat in chosen(cell.protocol, records, draw):
        for what, stored, repeated in differences(cell, repeat):
            same = stored == repeated or (stored is not None and repeated is not None and abs(stored - repeated) <= tolerance)
            agree = agree and same
            verdict = "agrees" if same else "DIFFERS"
            cell.say(f"{verdict}: {repeat.name}: {what}: {percent(stored)} in the cell, {percent(repeated)} repeated")
    return agree
