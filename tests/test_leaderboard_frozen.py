"""The leaderboards' protocols are those that were frozen before the first run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fgl_bench.config.compose import as_command
from fgl_bench.leaderboard.protocol import FILES, Protocol, asked_protocol, names
from fgl_bench.runner.validation import validate

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=FILES)
def protocol(request) -> Protocol:
    return asked_protocol({"task": request.param})


def test_a_protocol_has_the_frozen_hash(protocol):
    frozen = (ROOT / "results" / "leaderboard" / protocol.folder / "protocol.sha256").read_text(encoding="utf-8").split()[0]
    assert hashlib.sha256(FILES[protocol.task].read_bytes()).hexdigest() == frozen, "a changed protocol is another version"


def test_all_entries_of_a_column_have_the_same_shared_draws(protocol):
    for column in protocol.columns:
        draws = {}
        for entry in protocol.entries:
            if not entry.shared:
                continue
            common = [part for key, choices in protocol.shared.items() if isinstance(choices, list) for part in names(key)]
            trials = protocol.trials_of(entry, column)
            assert len(trials) == column.trials, entry.name
            draws[entry.name] = [tuple(trial[key] for key in common) for trial in trials]
            for key, choices in protocol.models[entry.model].items():
                values = [[trial[part] for part in names(key)] if "," in key else trial[key] for trial in trials]
                draws[entry.name].append([choices.index(value) for value in values])
        assert len({str(draw) for draw in draws.values()}) == 1, column.key


@pytest.mark.parametrize("task", sorted({*FILES} - {"node"}))
def test_the_runs_of_a_protocol_are_of_its_task_and_test_no_example_that_ever_validates(task):
    """The first and the last configuration of every entry, in all columns in turn."""
    protocol = asked_protocol({"task": task})
    for number, entry in enumerate(protocol.entries):
        column = protocol.columns[number % len(protocol.columns)]
        for values in protocol.trials_of(entry, column)[:: max(column.trials - 1, 1)]:
            with as_command(protocol.overrides(entry, column, values, protocol.test_seeds)) as cfg:
                spec = validate(cfg)
            assert (spec.task.name, spec.split.reserve) == (task, 0.4)


def test_every_value_of_a_key_is_tried_about_as_often(protocol):
    entry = next(entry for entry in protocol.entries if entry.name == "fedprox")
    for column in protocol.columns:
        rates = [(trial["optimizer"], trial["lr"]) for trial in protocol.trials_of(entry, column)[1:]]
        counts = [rates.count(tuple(pair)) for pair in protocol.shared["optimizer,lr"]]
        assert np.ptp(counts) <= 1
