"""The committed cells of the leaderboard: everybody had the same trials, and the winners are the best of them on validation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fgl_bench.leaderboard.checks import flaws_of
from fgl_bench.leaderboard.predictions import TOLERANCE
from fgl_bench.leaderboard.protocol import read_protocol
from fgl_bench.leaderboard.record import path_of, read_records

pytestmark = pytest.mark.audit

FOLDER = Path(__file__).resolve().parents[1] / "results" / "leaderboard" / "v2"
PROTOCOL = read_protocol()
ENTRIES = {entry.name: entry for entry in PROTOCOL.entries}
COLUMNS = {column.key: column for column in PROTOCOL.columns}
RECORDS = read_records(FOLDER)
DONE = [record for record in RECORDS if record.complete]


def test_every_file_is_a_cell_of_the_protocol():
    assert {path_of(FOLDER, record.entry, record.column) for record in RECORDS} == set(FOLDER.glob("[!.]*/*.json"))
    assert not [record for record in RECORDS if record.protocol != PROTOCOL.digest(ENTRIES[record.entry], COLUMNS[record.column])]


@pytest.mark.parametrize("record", DONE, ids=lambda record: f"{record.column}/{record.entry}")
def test_trials_are_those_that_the_protocol_draws_and_the_best_on_validation_won(record):
    entry, column = ENTRIES[record.entry], COLUMNS[record.column]
    assert not list(flaws_of(PROTOCOL, entry, column, record))
    bounds = {}  # by code that shares nothing with the record's
    for trial in record.trials:
        for model, scores in trial.validation.items():
            if None not in scores:
                bounds[trial.number, model] = np.mean(scores) - np.std(scores, ddof=1) / np.sqrt(len(scores))
    if record.tuned is not None:
        assert bounds[record.tuned.trial, record.tuned.model] == pytest.approx(max(bounds.values()), abs=1e-12)


@pytest.mark.parametrize("record", DONE, ids=lambda record: f"{record.column}/{record.entry}")
def test_stored_predictions_give_the_winner_s_scores(record):
    path = path_of(FOLDER, record.entry, record.column).with_suffix(".npz")
    if not path.is_file():
        pytest.skip("no predictions: a centralized reference, or models that do not predict by themselves")
    with np.load(path) as stored:
        sizes, nodes = stored["sizes"], stored["nodes"]
        labels = stored["labels"] if "labels" in stored else None
    ends, scores = np.cumsum(sizes.ravel()).reshape(sizes.shape), []
    for of_seed, sizes_of_seed in zip(ends, sizes, strict=True):
        parts = [slice(end - size, end) for end, size in zip(of_seed, sizes_of_seed, strict=True)]
        if labels is None:
            scores.append(np.mean(nodes[parts[0].start : parts[-1].stop] == 0))
        else:
            pairs = [(nodes[part], labels[part] == 1) for part in parts if 0 < (labels[part] == 1).sum() < part.stop - part.start]
            areas = [stats.mannwhitneyu(x[y].astype(float), x[~y].astype(float)).statistic / (y.sum() * (~y).sum()) for x, y in pairs]
            scores.append(np.average(areas, weights=[len(y) for _, y in pairs]))
    assert scores == pytest.approx(record.tuned.scores[record.tuned.model], abs=TOLERANCE[record.facts["metric"]])
    assert path.stat().st_size < 100_000
