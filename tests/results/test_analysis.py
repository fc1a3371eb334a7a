"""Statistics of a table from cells made by hand."""

from __future__ import annotations

import pytest

from fgl_bench.papers.analysis import analyze
from fgl_bench.papers.plan import Paper, Row, Table, columns
from fgl_bench.papers.published import Printed, Published
from fgl_bench.results.cells import compact
from tests.results.test_tables import CONFIG, result, stored

ROWS = tuple(Row(name, f"Method {name}", name, published=name if name != "d" else None) for name in "abcd")
TABLE = Table("3", "p/table3", "accuracy in %", "accuracy", columns(("cora", "pubmed", "photo")), ROWS)
TRIPS = Table("7", "p/table7", "trips", "trips", columns(("cora",)), ROWS[:3])
PAPER = Paper("p", "Paper", (TABLE, TRIPS), first=())


def printed(table: str, dataset: str, method: str, mean: str, spread: str, kind: str = "ci95", **more) -> Published:
    place = {"table": table, "dataset": dataset, "method": method, "variant": "default"}
    return Published(mean, spread, where=place, kind=kind, **more)


PUBLISHED = Printed(
    [
        printed("3", "cora", "a", "80.5", "0.3"),  # ours 81.0 +- 12.7 for received models
        printed("3", "cora", "b", "70.0", "1.0"),
        printed("3", "cora", "c", "60.0", "1.0"),
        printed("3", "pubmed", "b", "99.0", "0.1", "std"),
        printed("7", "cora", "a", "1920.0", "508.2", target=0.56, reached=2),
        printed("7", "cora", "b", "40.0", "0.0", target=0.56, reached=5),
    ]
)


def cell(row: str, dataset: str, received: list[float], trips: list | None = None, **more) -> dict:
    made = compact(result(row, dataset, received, [v - 0.1 for v in received], trips), "fgl-bench")
    return {**made, "config": CONFIG, **more}


CELLS = [
    cell("a", "cora", [0.80, 0.82], [1880, 1960], bytes={"upload": 100, "download": 100}),
    cell("b", "cora", [0.60, 0.62], [20, None], bytes={"upload": 50, "download": 50}),
    cell("c", "cora", [0.70, 0.72], [None, None], bytes={"upload": 100, "download": 101}),
    cell("a", "pubmed", [0.50, 0.50]),
    cell("b", "pubmed", [0.60, 0.60]),
    cell("c", "pubmed", [0.40, 0.40]),
    cell("d", "photo", [0.9, 0.9]),
]
STORED = {each["config_hash"]: each for each in CELLS}


def of(table: Table, model: str = "received", cells: dict = STORED):
    return analyze(table, stored(table, cells), PUBLISHED, model)


def test_a_column_names_the_best_the_printed_order_and_the_front():
    found = of(TABLE).columns
    assert set(found) == {"cora", "pubmed"}
    assert found["cora"].best == "Method a" and [other.name for other in found["cora"].others] == ["Method b", "Method c"]
    assert all(other.p == 0 for other in found["cora"].others), "both seeds differ by the same"
    assert found["cora"].agreement.tau == pytest.approx(1 / 3) and found["pubmed"].agreement is None
    assert found["cora"].front == ("Method b", "Method a")


def test_ranks_and_fairness_are_over_the_largest_block_without_holes():
    found = of(TABLE)
    assert found.ranks.ranks == {"Method a": 1.5, "Method b": 2.0, "Method c": 2.5} and found.ranks.columns == 2
    assert set(found.fairness) == {"Method a", "Method b", "Method c"}
    assert found.fairness["Method a"]["worst"] == 0.5 and found.fairness["Method a"]["std"] == 0


def test_trips_are_compared_as_printed_and_ranked_with_failures_at_the_budget():
    found = of(TRIPS)
    assert found.columns["cora"].best == "Method b"  # -(20 + 2000) / 2 against -1920
    assert found.columns["cora"].others[0].difference == pytest.approx(910)


def test_fewer_trips_are_better_in_the_order_that_is_printed_too():
    late = Printed([*PUBLISHED.cells, printed("7", "cora", "c", "3000.0", "0.0", target=0.56, reached=5)])
    cells = {**STORED, "c-cora": cell("c", "cora", [0.70, 0.72], [1990, None])}
    found = analyze(TRIPS, stored(TRIPS, cells), late, "received")
    assert found.columns["cora"].agreement.tau == 1  # b, a, c in both


def test_a_second_metric_has_statistics_of_its_own():
    scores = {"f1": {"received": {"mean": 0.3, "ci95": 0.1, "per_seed": [0.2, 0.4]}}}
    table = Table("3", "p/table3", "macro F1", "f1", TABLE.columns, ROWS)
    found = of(table, cells={"a-cora": {**STORED["a-cora"], "metrics": scores}, "b-cora": STORED["b-cora"]})
    assert found.points["cora"] == {"Method a": (200, pytest.approx(30))}


def test_cells_of_other_seeds_are_not_paired():
    other = {**STORED, "b-cora": {**STORED["b-cora"], "seeds": [5, 6]}}
    assert [each.name for each in of(TABLE, cells=other).columns["cora"].others] == ["Method c"]


def test_color_and_marker_name_one_method():
    from fgl_bench.results.plots.style import COLORS, MARKS

    assert len({(COLORS[i % len(COLORS)], MARKS[i % len(MARKS)]) for i in range(88)}) == 88
