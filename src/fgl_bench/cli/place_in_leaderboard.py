"""``fgl-bench place FILE.py leaderboard``: a user's method under the leaderboard's protocol."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from fgl_bench.cli.check.subject import load_method
from fgl_bench.cli.leaderboard import stored
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import BoardCell
from fgl_bench.leaderboard.protocol import Protocol, asked_protocol
from fgl_bench.leaderboard.submission import Submission, whole_board, with_guests
from fgl_bench.leaderboard.views import placement_views, text
from fgl_bench.results.console import line_width
from fgl_bench.results.question import parts, short
from fgl_bench.results.store import PRESENTATION
from fgl_bench.scenarios.hooks import supported
from fgl_bench.utils.files import home

USAGE = "fgl-bench place my_method.py leaderboard [task=graph] [columns=webkb] [space=my_space.yaml] [model=gcn] [algorithm.KEY=VALUE]"
OWN = ("task", "columns", "space", "model", "out", "results", "protocol")


def show(name: str, arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Compute the cells of a method and print it among the entries of the leaderboard.

    Raises:
        UserError: an argument is wrong, or the method cannot be run.
    """
    pairs = [text.partition("=")[::2] for text in arguments]
    keys = {key.lstrip("+"): value for key, value in pairs if key.lstrip("+").startswith("algorithm.")}
    where = [f"{key}={value}" for key, value in pairs if key in PRESENTATION]
    for key, count in Counter(key for key, _ in pairs).items():
        if key not in (*OWN, *PRESENTATION) and key.lstrip("+") not in keys:
            raise UserError(f"{short(key)}: the protocol is the same for all; {USAGE}")
        if count > 1:
            raise UserError(f"{key}= is given twice")
    asked = {key: value for key, value in pairs if key in OWN and value}
    protocol = asked_protocol(asked)
    submission = begun(name, asked, keys, protocol)
    entry = submission.entry(protocol)
    columns, _ = protocol.narrowed(parts(asked.get("columns", "")), [])
    results = home("results", asked.get("results", stored(protocol)))
    say = partial(print, file=sys.stderr, flush=True)
    for number, column in enumerate(columns, 1):
        say(f"cell {number} of {len(columns)}: {entry.name} in {column.key}")
        BoardCell(protocol, entry, column, submission.folder, where, folders=folders, say=say).make()
    board = with_guests(whole_board(results, protocol), [submission.folder])
    tables = placement_views(board, entry.name)
    sys.stdout.write(text(tables, f"{entry.name} among the entries of the leaderboard. {board.status()}", line_width()))
    print("\ndiff.: yours minus it, in points; p: Holm-corrected in a column")
    task = f" task={protocol.task}" * bool(protocol.caption)
    print(f"written: {submission.folder}; check it with fgl-bench submit --check {submission.folder}{task}")


def begun(name: str, asked: Mapping[str, str], keys: Mapping[str, str], protocol: Protocol) -> Submission:
    """Write the folder of the method, with its current file."""
    method = load_method(name)
    file = Path(os.path.expanduser(name.partition(":")[0]))
    model = asked.get("model", protocol.backbone)
    if not model.isidentifier():
        raise UserError(f"model={short(model)}: the leaderboard's methods have one backbone for all clients; name one, such as model=gcn")
    usual = "-".join(["leaderboard", *[protocol.task] * bool(protocol.caption), method.__name__.lower(), model])
    out = home("out", asked.get("out", Path("placed", usual)))
    try:
        space = yaml.safe_load(home("space", asked["space"]).read_text(encoding="utf-8")) if "space" in asked else {}
        values = {key: yaml.safe_load(value) for key, value in keys.items()}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"space={short(asked.get('space', ''))}: cannot be read ({' '.join(str(error).split())[:100]})") from error
    names = {"method": file.name, "class": method.__name__, "scenario": supported(method)[0], "model": model}
    submission = Submission(out, {**names, "keys": values, "space": space})
    try:
        submission.write(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"out={short(str(out))}: cannot be written ({error.strerror})") from error
    return submission
