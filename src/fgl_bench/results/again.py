"""The table that a sweep ends with, and the command that makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fgl_bench.results.frame import Result
from fgl_bench.results.question import Question, canonical
from fgl_bench.results.runs import choose
from fgl_bench.results.table import ResultTable


def of_sweep(runs: Sequence[Result], question: Question, folder: Path, number: int, width: int) -> str:
    """The runs of a sweep as a table, and how to make it again.

    Args:
        folder: the ``results_dir``, which knows the sweep by its ``number``.

    Raises:
        UserError: they cannot be compared.
    """
    made = ResultTable(folder, choose(runs, question), width=width)
    line = shlex.join(["fgl-bench", "table", str(folder), f"sweep={number}"])
    return f"\n{made}\n\nthis table again, or as md, csv or LaTeX with out=FILE:\n  {line}"


def question_of(swept: Sequence[str]) -> Question:
    """The question of a sweep's table: the method, else the first swept key, in the rows, the others in the columns."""
    keys = [canonical(key) for key in swept]
    rows = "algorithm" if "algorithm" in keys else keys[0]
    return Question((rows,), tuple(key for key in keys if key != rows))
