"""The table that a sweep ends with, and the command that makes it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fgl_bench.reporting.comparison.question import Question, canonical, said
from fgl_bench.reporting.comparison.runs import SOURCES, choose, value
from fgl_bench.reporting.comparison.table import ResultTable
from fgl_bench.reporting.results import OF_RUN, Result
from fgl_bench.reporting.unlike import leaves


def of_sweep(runs: Sequence[Result], swept: Sequence[str], width: int) -> str:
    """The runs of a sweep as a table over the swept keys, and how to make it again.

    Raises:
        UserError: they cannot be compared.
    """
    keys = [canonical(key) for key in swept]
    rows = "algorithm" if "algorithm" in keys else keys[0]
    question = Question((rows,), tuple(key for key in keys if key != rows))
    root = runs[0].results_dir
    made = ResultTable(root, choose(runs, question), width=width)
    again = Question(question.rows, question.cols, distinguishing(runs, others(root, runs), question))
    line = shlex.join(["fgl-bench", "table", str(root), *again.arguments])
    return f"\n{made}\n\nthis table again, or as md, csv or LaTeX with out=FILE:\n  {line}"


def others(root: Path, runs: Sequence[Result]) -> list[Result]:
    """The other runs below a folder, but for earlier versions of these ones; read without checks, which would take long."""
    known = {versionless(run) for run in runs}
    found = []
    for path in root.glob("*/*/*/*/*/summary.json"):
        try:
            run = Result(path.parent, json.loads(path.read_text(encoding="utf-8")))
            if versionless(run) not in known and all(key in run.summary for key in OF_RUN):
                found.append(run)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no run
            continue
    return found


def versionless(run: Result) -> str:
    """The configuration without the source of a user's own classes and the content of files."""
    return json.dumps({key: inner for key, inner in run.summary["config"].items() if key not in SOURCES}, sort_keys=True)


def distinguishing(runs: Sequence[Result], rest: Sequence[Result], question: Question) -> dict[str, tuple[str, ...]]:
    """Conditions that these runs meet and the rest does not: time and again the key that tells most of the rest apart."""
    keys = list(dict.fromkeys((*question.rows, *question.cols, *OF_RUN, *(key for run in (*runs, *rest) for key in flat(run)))))
    allowed = {key: tuple(dict.fromkeys(said(value(run, key)) for run in runs)) for key in keys}
    found: dict[str, tuple[str, ...]] = {}
    left = list(rest)
    while left:
        apart = {key: [run for run in left if said(value(run, key)) not in allowed[key]] for key in keys}
        best = max(keys, key=lambda key: len(apart[key]))
        if not apart[best]:
            break
        found[best] = allowed[best]
        left = [run for run in left if run not in apart[best]]
    return found


def flat(run: Result) -> Mapping[str, Any]:
    return {key: inner for key, inner in leaves(run.summary["config"]) if key.partition(".")[0] not in SOURCES}
