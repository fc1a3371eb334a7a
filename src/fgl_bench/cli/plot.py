"""``fgl-bench plot``: figures of a folder's runs, at publication size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgl_bench.cli.table import only_folder
from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.results.plots.draw import OPTIONS, plot
from fgl_bench.results.question import KEYS, read_words, short
from fgl_bench.results.result_table import table

USAGE = "fgl-bench plot curves|bars|lines|ranks|pareto|clients [RESULTS] rows=algorithm cols=dataset,split"
KINDS = ("curves", "bars", "lines", "ranks", "pareto", "clients")


def draw(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the runs cannot be compared.
    """
    if not arguments or "=" in arguments[0]:
        raise UserError(f"plot what? {USAGE}")
    kind = arguments[0]
    if kind not in KINDS:
        raise UserError(f"{short(kind)}: no kind of figure{suggest(kind, KINDS)}")
    words, rest = read_words(arguments[1:], (*KEYS, "sweep", *OPTIONS), USAGE)
    given: dict[str, Any] = {key: values if key == "where" else values[0] for key, values in words.items()}
    asked = {key: given.pop(key) for key in (*KEYS, "sweep") if key in given}
    for path in plot(kind, table(only_folder(rest, USAGE), **asked), given.pop("out", Path("figures", kind)), **given):
        print(f"written: {path}")
