"""Made-up cells of the leaderboard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.protocol import Protocol, read_protocol
from fgl_bench.leaderboard.record import Record, Scored, Trial

PROTOCOL = read_protocol()
COLUMNS = {column.key: column for column in PROTOCOL.columns}
ENTRIES = {entry.name: entry for entry in PROTOCOL.entries}
FAIRNESS = {"worst": 0.4, "tenth": 0.5, "median": 0.6, "best": 0.8, "std": 0.1}


def scored(scores: Sequence[float | None], trial: int = 1, time: float = 100.0, megabytes: float = 1.0) -> Scored:
    sent = {"upload": int(5e5 * megabytes), "download": int(5e5 * megabytes)}
    curve = {"trips": [0.0, 1000.0], "time": [0.0, time], "megabytes": [0.0, megabytes], "val": [0.1, 0.6], "test": [0.1, 0.6]}
    each = {"received": list(scores), "trained": [None if score is None else score - 0.01 for score in scores]}
    costs = {"bytes": sent, "trips": 1000, "time": time, "local_epochs": 3, "seconds": 20.0, "curve": curve}
    return Scored(
        trial, "received", each, FAIRNESS, **costs, config_hash="0" * 12, command="fgl-bench", finished="2026-11-29T00:00:00+00:00"
    )


def cell(
    entry: str,
    column: str,
    scores: Sequence[float | None] | float,
    *,
    default: float = 0.4,
    validation: Sequence[float] = (0.5, 0.6),
    time: float = 100.0,
    megabytes: float = 1.0,
    protocol: Protocol = PROTOCOL,
) -> Record:
    """A complete cell with these primary test scores; a number stands for ten scores around it."""
    if isinstance(scores, float):
        scores = (scores + 0.01 * np.linspace(-1, 1, 10)).tolist()
    entries, columns = ({getattr(each, key): each for each in of} for key, of in (("name", protocol.entries), ("key", protocol.columns)))
    record = Record.new(protocol, entries[entry], columns[column])
    record.planned = len(validation)
    rates = (0.01, 0.003, 0.03)
    record.trials = [
        Trial(number, {"optimizer": "adam", "lr": rates[number % 3]}, {"received": [each] * 5, "trained": [each - 0.1] * 5}, 1.0)
        for number, each in enumerate(validation)
    ]
    record.tuned = scored(scores, int(np.argmax(validation)), time, megabytes)
    record.default = scored([default] * 10, 0, time, megabytes)
    record.facts = {"metric": "accuracy"}
    return record


def board(*records: Record) -> Board:
    return Board(PROTOCOL, records)
