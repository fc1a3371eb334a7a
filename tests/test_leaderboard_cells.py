"""The committed cells of the leaderboard: everybody had the same trials, and the winners are the best of them on validation."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.protocol import read_protocol
from fgl_bench.leaderboard.record import path_of, read_records

pytestmark = pytest.mark.audit

FOLDER = Path(__file__).resolve().parents[1] / "results" / "leaderboard"
PROTOCOL = read_protocol()
ENTRIES = {entry.name: entry for entry in PROTOCOL.entries}
RECORDS = read_records(FOLDER)


def test_every_file_is_a_cell_of_the_protocol():
    assert {path_of(FOLDER, record.entry, record.column) for record in RECORDS} == set(FOLDER.glob("*/*.json"))
    assert not [record for record in RECORDS if record.protocol != PROTOCOL.digest(ENTRIES[record.entry])]
    assert {record.column for record in RECORDS} <= set(PROTOCOL.columns)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.column.key}/{record.entry}")
def test_trials_are_those_that_the_protocol_draws_and_the_best_on_validation_won(record):
    wanted = PROTOCOL.trials_of(ENTRIES[record.entry], record.column)
    assert [dict(trial.values) for trial in record.trials] == wanted[: len(record.trials)]
    assert [trial.number for trial in record.trials] == list(range(len(record.trials)))
    assert record.planned == len(wanted) == (1 if record.entry == "majority" else PROTOCOL.trials)
    for trial in record.trials:
        assert set(trial.validation) == (set() if trial.problem else set(MODELS))
    if record.complete:
        for model in MODELS:
            assert record.winners[model].trial == record.best(model).number
            assert len(record.winners[model].scores) == len(PROTOCOL.test_seeds) == 10


def test_sixteen_methods_are_complete_on_eight_datasets_with_all_of_their_splits():
    complete = defaultdict(set)
    for record in RECORDS:
        if record.complete and record.model == "gcn":
            complete[record.column].add(record.algorithm)
    splits = defaultdict(list)
    for column in PROTOCOL.columns:
        splits[column.dataset].append(complete[column])
    whole = [set.intersection(*found) for found in splits.values() if all(found)]
    whole = [methods for methods in whole if len(methods) >= 16]
    assert len(whole) >= 8 and len(set.intersection(*whole)) >= 16
