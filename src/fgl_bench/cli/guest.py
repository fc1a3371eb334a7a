"""``fgl-bench place FILE.py leaderboard``: a user's own method under the leaderboard's protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.cli.check.subject import load
from fgl_bench.cli.leaderboard import stored
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import Making
from fgl_bench.leaderboard.guest import placed
from fgl_bench.leaderboard.protocol import Protocol, read_protocol
from fgl_bench.leaderboard.submission import Submission, whole_board, with_guests
from fgl_bench.leaderboard.views import MODELS, text
from fgl_bench.results.console import line_width
from fgl_bench.results.question import short
from fgl_bench.results.store import PRESENTATION
from fgl_bench.scenarios.hooks import check_hooks, supported
from fgl_bench.utils.files import home

USAGE = "fgl-bench place my_method.py leaderboard [datasets=webkb] [space=my_space.yaml] [model=gcn] [algorithm.KEY=VALUE]"
OWN = ("datasets", "space", "model", "out", "results", "protocol")


def show(name: str, arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the method cannot be run.
    """
    given = [text.partition("=")[::2] for text in arguments]
    asked = {key: value for key, value in given if key in OWN}
    keys = {key.lstrip("+"): value for key, value in given if key.lstrip("+").startswith("algorithm.")}
    where = [f"{key}={value}" for key, value in given if key in PRESENTATION]
    wrong = next((key for key, _ in given if key not in (*asked, *PRESENTATION) and key.lstrip("+") not in keys), None)
    if wrong is not None:
        raise UserError(f"{short(wrong)}: the protocol is the same for all; {USAGE}")
    if len(given) > len(dict(given)):
        raise UserError(f"{next(key for key, _ in given if [k for k, _ in given].count(key) > 1)}= is given twice")
    protocol = read_protocol(*([home("protocol", asked["protocol"])] if asked.get("protocol") else []))
    submission = begun(name, asked, keys, protocol)
    entry = submission.entry(protocol)
    datasets = [each.strip() for each in asked.get("datasets", "").split(",") if each.strip()]
    columns, _ = protocol.narrowed(datasets, [])
    results = home("results", asked["results"]) if asked.get("results") else stored()
    for number, column in enumerate(columns, 1):
        print(f"cell {number} of {len(columns)}: {entry.name} in {column.key}", file=sys.stderr, flush=True)
        Making(protocol, entry, column, submission.folder, where, folders=folders, say=tell).make()
    board = with_guests(whole_board(results, protocol), [submission.folder])
    parts = placed(board, entry.name, MODELS)
    sys.stdout.write(text(parts, f"{entry.name} among the entries of the leaderboard. {board.said()}", line_width()))
    print("\ndiff.: yours minus it, in points; p: paired t-test over the seeds, Holm-corrected in a column, * below 5 %")
    print(f"written: {submission.folder}; check it with fgl-bench submit --check {submission.folder}")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def begun(name: str, asked: dict[str, str], keys: dict[str, str], protocol: Protocol) -> Submission:
    """The folder of the method, with its file as it is now."""
    method = load(name)
    if not issubclass(method, Algorithm):
        raise UserError(f"{name}: {method.__name__} is no method; it must derive from a base such as fgl_bench.ServerRounds")
    check_hooks(method)
    file = Path(os.path.expanduser(name.partition(":")[0]))
    model = asked.get("model", "gcn")
    out = home("out", asked["out"]) if asked.get("out") else Path("placed", f"leaderboard-{method.__name__.lower()}-{model}")
    try:
        space = yaml.safe_load(home("space", asked["space"]).read_text(encoding="utf-8")) if asked.get("space") else {}
        values = {key: yaml.safe_load(value) for key, value in keys.items()}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"space={short(asked.get('space', ''))}: cannot be read ({' '.join(str(error).split())[:100]})") from error
    what = {"method": file.name, "class": method.__name__, "scenario": supported(method)[0], "model": model}
    found = Submission(out, {**what, "keys": values, "space": space})
    try:
        found.write(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"out={short(str(out))}: cannot be written ({error.strerror})") from error
    return found
