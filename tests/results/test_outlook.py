"""Hours made and to make, on two papers of a few runs."""

from __future__ import annotations

from types import SimpleNamespace

from fgl_bench.papers.outlook import outlook


def cell(digest: str, dataset: str, title: str) -> SimpleNamespace:
    return SimpleNamespace(digest=digest, dataset=dataset, row=SimpleNamespace(title=title))


def work(title: str, made: dict[str, float], missing: list[tuple[SimpleNamespace, float]]) -> SimpleNamespace:
    stored = {digest: {"seconds": {"total": seconds}} for digest, seconds in made.items()}
    costs = {id(one): seconds for one, seconds in missing}
    cells = [*(cell(digest, "cora", "FedAvg") for digest in made), *(one for one, _ in missing)]
    paper, later = SimpleNamespace(title=title), {"d", "e"}
    return SimpleNamespace(paper=paper, stored=stored, cells=cells, cost=lambda one: costs[id(one)], alternatives=lambda: later)


def test_hours_are_added_by_paper_and_by_row_and_absent_data_are_left_out() -> None:
    dear, cheap, far = cell("c", "cora", "FedIIH"), cell("d", "cora", "FedAvg"), cell("e", "reddit", "FedIIH")
    one = work("A", {"a": 1800, "b": 3600}, [(dear, 36000), (far, 1e9)])
    two = work("B", {}, [(cheap, 3600)])
    two.stored["elsewhere"] = {"seconds": {"total": 1e9}}  # of a table that is not planned any more
    one.cells.append(cell("c", "cora", "FedIIH, in another table"))
    lines = outlook([one, two], {"reddit"})
    assert lines[2:5] == ["| A | 2 | 1.5 | 1 | 10.0 | 0.0 |", "| B | 0 | 0.0 | 1 | 1.0 | 1.0 |", "| all | 2 | 1.5 | 2 | 11.0 | 1.0 |"]
    assert lines[-2:] == ["| A | FedIIH | 1 | 10.0 |", "| B | FedAvg | 1 | 1.0 |"]
