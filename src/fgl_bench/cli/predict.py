"""``fgl-bench predict``: a csv file of the predictions of a run's saved models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgl_bench.cli.table import write as write_file
from fgl_bench.errors import UserError
from fgl_bench.results.question import read_words, short
from fgl_bench.utils.files import home

USAGE = "fgl-bench predict RUN [GRAPH] [model_of=received] [seed=0] [client=0] [out=predictions.csv]"


def write(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the run cannot predict.
    """
    words, rest = read_words(arguments, ("model_of", "seed", "client", "out"), USAGE)
    if not 1 <= len(rest) <= 2:
        raise UserError(f"{short(' '.join(rest)) or 'predict what'}: give a run and a graph, {USAGE}")
    given: dict[str, Any] = {key: values[0] for key, values in words.items()}
    out = home("out", given.pop("out", "predictions.csv"))
    for key in ("seed", "client"):
        if key in given and (len(rest) == 1 or not given[key].isdecimal()):
            raise UserError(f"{key}={short(given[key])}: must be an integer of at least 0, and needs a GRAPH; {USAGE}")
        given |= {key: int(given[key])} if key in given else {}
    given |= {"model": given.pop("model_of")} if "model_of" in given else {}
    from fgl_bench.results.frame import only_run
    from fgl_bench.runner.predictions import predictions, predictions_for

    result = only_run(rest[0])
    rows = predictions(result, **given) if len(rest) == 1 else predictions_for(result, home("GRAPH", rest[1]), **given)
    write_file(out, rows.to_csv(index=False, lineterminator="\n"))
