"""Hours made and to make, on two papers of a few runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fgl_bench.papers.plan import Paper, Row, Table, columns
from fgl_bench.papers.published import Printed
from fgl_bench.papers.work import Work, outlook

ROWS = (Row("fedavg", "FedAvg", "fedavg"), Row("fediih", "FedIIH", "fediih"))


def work(title: str, made: dict[tuple[str, str], float], costs: dict[tuple[str, str], float]) -> Work:
    """A paper of two tables with the same runs; hours made and to make by row and data set."""
    table = Table("1", "p/table1", "accuracy in %", "accuracy", columns(("cora", "reddit")), ROWS)
    found = Work(Paper(title, title, (table, replace(table, key="2")), ()), [table, replace(table, key="2")], Printed(()), Path())
    found.stored = {
        (key, *place): {"config_hash": str(place), "seconds": {"total": 3600 * hours}} for place, hours in made.items() for key in "12"
    }
    found.cost = lambda cell: 3600 * costs.get((cell.row.key, cell.dataset), 0.0)  # type: ignore[method-assign]
    found.alternatives = lambda: {cell.overrides for cell in found.cells if cell.row.key == "fedavg"}  # type: ignore[method-assign]
    return found


def test_hours_are_added_by_paper_and_by_row_and_absent_data_are_left_out() -> None:
    one = work("A", {("fedavg", "cora"): 1.5}, {("fediih", "cora"): 10.0, ("fediih", "reddit"): 1e9})
    two = work("B", {}, {("fedavg", "cora"): 1.0})
    lines = outlook([one, two], {"reddit"})
    assert lines[2:5] == ["| A | 1 | 1.5 | 1 | 10.0 | 0.0 |", "| B | 0 | 0.0 | 2 | 1.0 | 1.0 |", "| all | 1 | 1.5 | 3 | 11.0 | 1.0 |"]
    assert lines[-3:] == ["| A | FedIIH | 1 | 10.0 |", "| B | FedAvg | 1 | 1.0 |", "| B | FedIIH | 1 | 0.0 |"]
