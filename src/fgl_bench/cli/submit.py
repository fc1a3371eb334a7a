"""``fgl-bench submit --check FOLDER``: whether a method's cells follow the leaderboard's protocol and can be repeated."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.cli.check.subject import load
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import Making
from fgl_bench.leaderboard.check import check, folder_of
from fgl_bench.leaderboard.protocol import read_protocol
from fgl_bench.leaderboard.record import read_records
from fgl_bench.leaderboard.submission import read_submission
from fgl_bench.results.question import short
from fgl_bench.results.store import PRESENTATION
from fgl_bench.scenarios.hooks import supported

USAGE = "fgl-bench submit --check FOLDER [tolerance=0.01]"
TOLERANCE = "0.01"


def run(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """The command; exit status 1 where something is wrong or differs.

    Raises:
        UserError: an argument or the folder is wrong.
    """
    words = [text for text in arguments if "=" not in text and text != "--check"]
    given = dict(text.split("=", 1) for text in arguments if "=" in text)
    wrong = next((key for key in given if key not in ("tolerance", "protocol", *PRESENTATION)), None)
    if "--check" not in arguments or len(words) != 1 or wrong is not None:
        raise UserError(f"{short(wrong or ' '.join(arguments))}: {USAGE}; a checked folder is sent as docs/leaderboard.md says")
    try:
        tolerance = float(given.pop("tolerance", TOLERANCE))
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance <= 1:
        raise UserError("tolerance=: must be a number from 0 to 1, a difference between two scores")
    path = given.pop("protocol", "")
    protocol = read_protocol(*([Path(os.path.expanduser(path))] if path else []))
    folder = folder_of(Path(os.path.expanduser(words[0])))
    submission = read_submission(folder)
    entry = submission.entry(protocol)
    method = load(f"{submission.file}:{submission.content['class']}")
    if not issubclass(method, Algorithm) or submission.content["scenario"] not in supported(method):
        raise UserError(f"{submission.file}: {method.__name__} is no method for scenario={submission.content['scenario']}")
    records = read_records(folder)
    where = [f"{key}={value}" for key, value in given.items()]
    making = Making(protocol, entry, records[0].column if records else protocol.columns[0], folder, where, folders=folders)
    if not check(making, records, tolerance, lambda line: print(line, flush=True)):
        sys.exit(1)
    print(f"{len(records)} cell(s) of {entry.name} follow the protocol; what was repeated agrees within {100 * tolerance:g} points")
