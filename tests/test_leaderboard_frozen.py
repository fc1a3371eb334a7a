"""The leaderboard's protocol is the one that was frozen before the first run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from fgl_bench.leaderboard.protocol import FILE, read_protocol

ROOT = Path(__file__).parents[1]
PROTOCOL = read_protocol()


def test_the_protocol_has_the_frozen_hash():
    frozen = (ROOT / "results" / "leaderboard" / "v2" / "protocol.sha256").read_text(encoding="utf-8").split()[0]
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == frozen, "a changed protocol is another version"


def test_all_entries_of_a_column_have_the_same_shared_draws():
    for column in PROTOCOL.columns:
        draws = {}
        for entry in PROTOCOL.entries:
            if not entry.shared:
                continue
            common = [key for key in ("optimizer", "lr", "weight_decay", "local_epochs", "model.dropout")]
            trials = PROTOCOL.trials_of(entry, column)
            assert len(trials) == column.trials, entry.name
            draws[entry.name] = [tuple(trial[key] for key in common) for trial in trials]
            sizes = [list(space) for space in PROTOCOL.models[entry.model].values()]
            keys = list(PROTOCOL.models[entry.model])
            draws[entry.name] += [tuple(choices.index(trial[key]) for key, choices in zip(keys, sizes, strict=True)) for trial in trials]
        assert len({str(draw) for draw in draws.values()}) == 1, column.key


def test_every_value_of_a_key_is_tried_about_as_often():
    entry = next(entry for entry in PROTOCOL.entries if entry.name == "fedprox")
    for column in PROTOCOL.columns:
        rates = [(trial["optimizer"], trial["lr"]) for trial in PROTOCOL.trials_of(entry, column)[1:]]
        counts = [rates.count(tuple(pair)) for pair in PROTOCOL.shared["optimizer,lr"]]
        assert np.ptp(counts) <= 1
