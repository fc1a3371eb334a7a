"""A user's own table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fgl_bench.errors import UserError
from fgl_bench.results import formats, latex
from fgl_bench.results.compared import Compared
from fgl_bench.results.question import BOTH, Question, Words, question
from fgl_bench.results.recorded import choose_in
from fgl_bench.results.runs import folder_of, read_runs

if TYPE_CHECKING:
    from pandas import DataFrame


class ResultTable(Compared):
    """Runs as a table; ``str()`` is for a terminal."""

    def __str__(self) -> str:
        return formats.text(self, self.width)

    def markdown(self) -> str:
        """Markdown: the best in bold, what does not differ significantly from it underlined."""
        return formats.markdown(self)

    def latex(self) -> str:
        """LaTeX with booktabs' rules; needs ``\\usepackage{booktabs,graphicx}``."""
        return latex.latex(self)

    def frame(self) -> DataFrame:
        """A row for every cell and kind of model, unrounded."""
        return formats.frame(self)


def table(
    results: str | Path = "results/runs",
    rows: Words | None = None,
    cols: Words | None = None,
    where: Words | Mapping[str, object] = (),
    model_of: str = BOTH,
    metric: str | None = None,
    digits: int = 1,
    width: int = 80,
    sweep: str | int | None = None,
) -> ResultTable:
    """The runs of a folder as a table: those of its newest sweep, if it has sweeps, and runs made since that can be compared with them.

    Args:
        rows, cols: keys whose values make rows and columns, as a list or joined by commas: ``algorithm``, ``dataset``, ``split``,
            ``num_clients``, ``model``, ``scenario``, ``sparsity``, or a key of the configuration such as ``lr`` or ``algorithm.mu``.
            By default those of the sweep's own table, else ``algorithm`` and ``dataset,split``.
        where: the values that runs may have, such as ``{"num_clients": 10, "dataset": ["cora", "citeseer"]}``; ``"*"`` allows any.
        model_of: ``received``, ``trained`` or ``both``.
        metric: see :func:`fgl_bench.results.scores.score`; None is each run's own.
        digits: after the decimal point.
        width: characters in a line of ``str()``.
        sweep: ``"all"`` for all runs of the folder, or the number of a sweep.

    Raises:
        UserError: there are no such runs, or they cannot be compared.
    """
    default = Question()
    asked = question(default.rows if rows is None else rows, default.cols if cols is None else cols, where, model_of, metric)
    if isinstance(digits, bool) or digits not in range(7):
        raise UserError(f"digits={digits}: must be an integer from 0 to 6")
    chosen = choose_in(folder_of(results), read_runs(results), asked, sweep, own_keys=rows is None and cols is None)
    return ResultTable(Path(results), chosen, digits, width)
