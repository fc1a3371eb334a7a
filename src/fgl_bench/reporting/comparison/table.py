"""A user's own table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fgl_bench.errors import UserError
from fgl_bench.reporting.comparison import formats, latex
from fgl_bench.reporting.comparison.compared import Compared
from fgl_bench.reporting.comparison.question import BOTH, Words, question
from fgl_bench.reporting.comparison.runs import choose, read_runs

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
    rows: Words = "algorithm",
    cols: Words = "dataset,split",
    where: Words | Mapping[str, object] = (),
    model_of: str = BOTH,
    metric: str | None = None,
    digits: int = 1,
    width: int = 80,
) -> ResultTable:
    """The runs of a folder as a table.

    Args:
        rows, cols: keys whose values make rows and columns, as a list or joined by commas: ``algorithm``, ``dataset``, ``split``,
            ``num_clients``, ``model``, ``scenario``, ``sparsity``, or a key of the configuration such as ``lr`` or ``algorithm.mu``.
        where: the values that runs may have, such as ``{"num_clients": 10, "dataset": ["cora", "citeseer"]}``; ``"*"`` allows any.
        model_of: ``received``, ``trained`` or ``both``.
        metric: see :func:`fgl_bench.reporting.comparison.scores.score`; None is each run's own.
        digits: after the decimal point.
        width: characters in a line of ``str()``.

    Raises:
        UserError: there are no such runs, or they cannot be compared.
    """
    asked = question(rows, cols, where, model_of, metric)
    if isinstance(digits, bool) or digits not in range(7):
        raise UserError(f"digits={digits}: must be an integer from 0 to 6")
    return ResultTable(Path(results), choose(read_runs(results), asked), digits, width)
