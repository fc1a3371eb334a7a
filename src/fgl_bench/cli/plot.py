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

USAGE = "fgl-bench plot curves|bars|lines|ranks|pareto|clients [RESULTS] rows=algorithm cols=dataset,split x=KEY"
CONFUSION = "fgl-bench plot confusion RUN [model_of=received|trained] [out=FILE]"
KINDS = ("curves", "bars", "lines", "ranks", "pareto", "clients", "confusion")


def draw(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the runs cannot be compared.
    """
    if not arguments or "=" in arguments[0]:
        raise UserError(f"plot what? {USAGE}")
    kind = "lines" if arguments[0] == "line" else arguments[0]
    if kind == "confusion":
        confusion(arguments[1:])
        return
    if kind not in KINDS:
        raise UserError(f"{short(kind)}: no kind of figure{suggest(kind, KINDS)}")
    words, rest = read_words(arguments[1:], (*KEYS, "sweep", *OPTIONS), USAGE)
    given: dict[str, Any] = {key: values if key == "where" else values[0] for key, values in words.items()}
    if kind == "lines" and "x" in given:
        if "cols" in given:
            raise UserError("plot lines: x= is the key of the horizontal axis, as cols= would be; give one of them")
        given["cols"] = given.pop("x")
    asked = {key: given.pop(key) for key in (*KEYS, "sweep") if key in given}
    for path in plot(kind, table(only_folder(rest, USAGE), **asked), given.pop("out", Path("figures", kind)), **given):
        print(f"written: {path}")


def confusion(arguments: Sequence[str]) -> None:
    """Draw the confusion matrix of one run with saved models.

    Raises:
        UserError: an argument is wrong, or the run has no saved models.
    """
    from fgl_bench.results.frame import only_run

    words, rest = read_words(arguments, ("model_of", "out", "format", "style"), CONFUSION)
    if len(rest) != 1:
        raise UserError(f"plot confusion of which run? {CONFUSION}")
    from fgl_bench.results.plots.draw import save
    from fgl_bench.results.plots.figures import confusion_figure
    from fgl_bench.runner.predictions import confusion_matrix

    given = {key: values[0] for key, values in words.items()}
    model = given.pop("model_of", "trained")
    counts = confusion_matrix(only_run(rest[0]), model)
    for path in save(lambda: confusion_figure(counts, model), given.pop("out", Path("figures", "confusion")), **given):
        print(f"written: {path}")
