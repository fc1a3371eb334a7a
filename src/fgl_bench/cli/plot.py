"""``fgl-bench plot``: figures of a folder's runs, at publication size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgl_bench.cli.table import only_folder
from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.results.plots.draw import OPTIONS, plot
from fgl_bench.results.question import KEYS, read_words, short
from fgl_bench.results.result_table import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fgl_bench.results.frame import Result

USAGE = "fgl-bench plot curves|bars|lines|ranks|pareto|clients [RESULTS] rows=algorithm cols=dataset,split x=KEY"
OF_ONE_RUN = "fgl-bench plot confusion|tsne RUN [model_of=received|trained] [out=FILE]"
KINDS = ("curves", "bars", "lines", "ranks", "pareto", "clients", "confusion", "tsne")
MOST_POINTS = 3000


def draw(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the runs cannot be compared.
    """
    if not arguments or "=" in arguments[0]:
        raise UserError(f"plot what? {USAGE}")
    kind = "lines" if arguments[0] == "line" else arguments[0]
    if kind in FIGURES:
        of_one_run(kind, arguments[1:])
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


def of_one_run(kind: str, arguments: Sequence[str]) -> None:
    """Draw the confusion matrix or the embeddings of one run with saved models.

    Raises:
        UserError: an argument is wrong, or the run has no saved models.
    """
    words, rest = read_words(arguments, ("model_of", "out", "format", "style"), OF_ONE_RUN)
    if len(rest) != 1:
        raise UserError(f"plot {kind} of which run? {OF_ONE_RUN}")
    from fgl_bench.results.frame import only_run
    from fgl_bench.results.plots.draw import save

    given = {key: values[0] for key, values in words.items()}
    draw = FIGURES[kind](only_run(rest[0]), given.pop("model_of", "trained"))
    for path in save(draw, given.pop("out", Path("figures", kind)), **given):
        print(f"written: {path}")


def confusion(result: Result, model: str) -> Callable[[], Figure]:
    from fgl_bench.results.plots.figures import confusion_figure
    from fgl_bench.runner.predictions import confusion_matrix

    counts = confusion_matrix(result, model)
    return lambda: confusion_figure(counts, model)


def tsne(result: Result, model: str) -> Callable[[], Figure]:
    """Place test examples of the first seed, at most ``MOST_POINTS``, in the plane by t-SNE of their embeddings."""
    from fgl_bench.results.plots.figures import planar, tsne_figure
    from fgl_bench.runner.predictions import embeddings, predictions

    rows = predictions(result, model)
    test = rows[(rows["part"] == "test") & (rows["seed"] == rows["seed"].min())]
    shown = test.sample(min(len(test), MOST_POINTS), random_state=0)
    plane = planar(embeddings(result, model)[shown.index])
    some = f"{len(shown)} of {len(test)} test examples" if len(shown) < len(test) else "test examples"
    title = f"{model} model, {some}, seed {rows['seed'].min()}, t-SNE"
    return lambda: tsne_figure(plane, shown["label"].to_numpy(), shown["client"].to_numpy(), title)


FIGURES = {"confusion": confusion, "tsne": tsne}
"""Figures of one run."""
