"""Made-up cells of the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.protocol import BoardColumn, Protocol, read_protocol
from fgl_bench.leaderboard.record import Record, Trial, Winner

PROTOCOL = read_protocol()
FAIRNESS = {"worst": 0.4, "tenth": 0.5, "median": 0.6, "best": 0.8, "std": 0.1}
PROPERTIES = {"label_skew": 0.3, "homophily": 0.8, "edge_cut": 0.1, "train_nodes": 50.0, "clients": 10.0}


def cell(
    entry: str,
    column: BoardColumn,
    scores: Sequence[float | None] | float,
    *,
    validation: Sequence[float | None] = (0.5, 0.6),
    megabytes: float = 1.0,
    properties: Mapping[str, float] = PROPERTIES,
    protocol: Protocol = PROTOCOL,
) -> Record:
    """A complete cell with these test scores, of both models; a number stands for ten scores around it."""
    if isinstance(scores, float):
        scores = (scores + 0.01 * np.linspace(-1, 1, 10)).tolist()
    chosen = next((each for each in protocol.entries if each.name == entry), None)
    record = Record.new(protocol, chosen or replace(protocol.entries[0], name=entry), column)
    trials = [Trial(number, {}, {"received": each, "trained": each}, 1.0) for number, each in enumerate(validation)]
    best = max(range(len(trials)), key=lambda number: validation[number] or 0)
    sent = {"upload": int(5e5 * megabytes), "download": int(5e5 * megabytes)}
    winner = Winner(best, list(scores), FAIRNESS, sent, 1000, 20.0, "0" * 12, f"fgl-bench algorithm={entry}", "2026-11-22T00:00:00+00:00")
    record = replace(record, planned=len(trials), trials=trials, properties=dict(properties))
    return replace(record, winners={"received": winner, "trained": winner}, facts={"metric": "accuracy"})


def board(*records: Record) -> Board:
    return Board(PROTOCOL, records)
