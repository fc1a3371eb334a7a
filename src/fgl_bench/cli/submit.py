"""``fgl-bench submit --check FOLDER``: check that a method's cells follow the leaderboard's protocol and can be repeated."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.cli.check.subject import load
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import BoardCell
from fgl_bench.leaderboard.checks import check
from fgl_bench.leaderboard.protocol import asked_protocol
from fgl_bench.leaderboard.record import read_records
from fgl_bench.leaderboard.submission import read_submission
from fgl_bench.results.question import short
from fgl_bench.results.store import PRESENTATION
from fgl_bench.scenarios.hooks import supported
from fgl_bench.utils.files import home

USAGE = "fgl-bench submit --check FOLDER [task=graph] [draw=TEXT] [tolerance=0.01]"


def run(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Check a folder; exit status 1 if something is wrong or differs.

    Raises:
        UserError: an argument or the folder is wrong.
    """
    words = [text for text in arguments if "=" not in text and text != "--check"]
    given = dict(text.split("=", 1) for text in arguments if "=" in text)
    wrong = next((key for key in given if key not in ("task", "tolerance", "draw", "protocol", *PRESENTATION)), None)
    if "--check" not in arguments or len(words) != 1 or wrong is not None:
        raise UserError(f"{short(wrong or ' '.join(arguments))}: {USAGE}; a checked folder is sent as docs/guides/leaderboard_entry.md says")
    try:
        tolerance = float(given.pop("tolerance", "0.01"))
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance <= 1:
        raise UserError("tolerance=: must be a number from 0 to 1, a difference between two scores")
    draw = given.pop("draw", "")
    protocol = asked_protocol({key: given.pop(key) for key in ("task", "protocol") if key in given})
    folder = home("FOLDER", words[0])
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    submission = read_submission(folder)
    entry = submission.entry(protocol)
    method = load(f"{submission.file}:{submission.content['class']}")
    if not issubclass(method, Algorithm) or submission.content["scenario"] not in supported(method):
        raise UserError(f"{submission.file}: {method.__name__} is no method for scenario={submission.content['scenario']}")
    records = read_records(folder)
    if not records:
        raise UserError(f"{folder}: there is no cell in it")
    where = [f"{key}={value}" for key, value in given.items()]
    cell = BoardCell(protocol, entry, protocol.columns[0], folder, where, folders=folders)
    if not check(cell, records, tolerance, draw):
        sys.exit(1)
    print(f"{len(records)} cell(s) of {entry.name} follow the protocol; what was repeated agrees within {100 * tolerance:g} points")
