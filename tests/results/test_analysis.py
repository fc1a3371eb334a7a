"""Statistics of a table from cells made by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fgl_bench.papers.analysis import analyze, markdown, overview_line, write_statistics
from fgl_bench.papers.plan import Paper, Row, Table, columns
from fgl_bench.papers.published import Printed, Published
from fgl_bench.report.shown import statistics_data
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
    return analyze(PAPER, table, stored(table, cells), PUBLISHED, model)


def test_verdicts_compare_intervals_with_the_printed_ones():
    found = of(TABLE)
    # two seeds 0.02 apart: half-width 12.7 points; without spread the printed interval decides: std 0.1 of 5 runs is 0.12
    assert found.verdicts == {("a", "cora"): "within", ("b", "cora"): "within", ("c", "cora"): "within", ("b", "pubmed"): "lower"}
    assert found.counts == {"within": 3, "higher": 0, "lower": 1}


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
    # a: 1920 +- 508.2 in both; b: one seed of ours reached it, at 20
    assert found.verdicts == {("a", "cora"): "within", ("b", "cora"): "lower"}
    assert found.columns["cora"].best == "Method b"  # -(20 + 2000) / 2 against -1920
    assert found.columns["cora"].others[0].difference == pytest.approx(910)


def test_fewer_trips_are_better_in_the_order_that_is_printed_too():
    late = Printed([*PUBLISHED.cells, printed("7", "cora", "c", "3000.0", "0.0", target=0.56, reached=5)])
    cells = {**STORED, "c-cora": cell("c", "cora", [0.70, 0.72], [1990, None])}
    found = analyze(PAPER, TRIPS, stored(TRIPS, cells), late, "received")
    assert found.columns["cora"].agreement.tau == 1  # b, a, c in both


def test_a_second_metric_has_statistics_of_its_own():
    scores = {"f1": {"received": {"mean": 0.3, "ci95": 0.1, "per_seed": [0.2, 0.4]}}}
    table = Table("3", "p/table3", "macro F1", "f1", TABLE.columns, ROWS)
    found = of(table, cells={"a-cora": {**STORED["a-cora"], "metrics": scores}, "b-cora": STORED["b-cora"]})
    assert found.verdicts == {("a", "cora"): "lower"} and found.points["cora"] == {"Method a": (200, pytest.approx(30))}


def test_cells_of_other_seeds_are_not_paired():
    other = {**STORED, "b-cora": {**STORED["b-cora"], "seeds": [5, 6]}}
    assert [each.name for each in of(TABLE, cells=other).columns["cora"].others] == ["Method c"]


def test_nothing_run_says_so(tmp_path):
    path = write_statistics(tmp_path, PAPER, TABLE, {}, PUBLISHED)
    assert path.name == "table3_statistics.md" and path.read_text().count("Too few runs yet.") == 2
    assert write_statistics(tmp_path, PAPER, Table("8", "p", "s", "seconds", (), ()), {}, PUBLISHED) is None


def test_the_page_says_it_in_words():
    found = [of(TABLE, model) for model in ("received", "trained")]
    text = markdown(PAPER, TABLE, found)
    assert "Against the printed cells: 3 within, 0 higher, 1 lower." in text
    assert "| cora | Method a |  | Method b (0), Method c (0) | 0.33 of 3 | Method b, Method a |" in text
    assert "| Method a | 1.50 |" in text and "| Method a | 50.0 | 50.0 | 50.0 | 50.0 | 0.0 |" in text
    assert overview_line("Paper", "3", "7 of 12", found) == "| Paper | 3 | 7 of 12 | 3 / 0 / 1 | 0.33 | 2 / 0 / 2 | 0.33 |"
    assert json.loads(json.dumps(statistics_data(found[0])))["verdicts"]["a|cora"] == "within"


def test_figures_are_drawn():
    from fgl_bench.results.plots.figures import critical_difference, tradeoffs

    found = of(TABLE)
    figure = critical_difference(found.ranks, "Paper, table 3")
    said = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(f"Method {name}" in said for name in "abc") and "critical difference" in said
    figure = tradeoffs(found.points, "Paper, table 3", "accuracy in %")
    assert [axis.get_title() for axis in figure.axes if axis.get_visible()] == ["cora", "pubmed"], "photo has one method"
    [front] = figure.axes[0].get_lines()
    assert front.get_xydata().tolist() == [[1e-7, pytest.approx(61)], [2e-7, pytest.approx(81)]]


@pytest.mark.parametrize("moved", [(7e9, 9e9, 8e9), (0.0, 3.2e6), (0.0, 1e3, 1e9, 1e12), (0.0, 0.0), (2e9, 2e9)])
def test_no_marker_is_cut_and_none_squeezed(moved):
    from fgl_bench.results.plots.figures import tradeoffs

    points = {f"Method {i}": (each, 50.0 + i) for i, each in enumerate(moved)}
    [axis] = tradeoffs({"cora": points, "pubmed": {"Method 0": (1e9, 50.0)}}, "title", "score in %").axes
    drawn = np.array([each.get_offsets()[0] for each in axis.collections])
    places = axis.transAxes.inverted().transform(axis.transData.transform(drawn))[:, 0]
    assert ((0.03 < places) & (places < 0.97)).all(), "with room for the marker"
    assert len(set(moved)) == 1 or np.ptp(places) > 0.15
    assert 1 <= sum(axis.get_xlim()[0] <= tick <= axis.get_xlim()[1] for tick in axis.get_xticks()) <= 5


def test_trips_are_drawn_as_they_are():
    from fgl_bench.results.plots.figures import tradeoffs

    points = {"A": (1e9, -40.0), "B": (2e9, -20.0)}
    [axis] = tradeoffs({"cora": points}, "title", "client trips to the target", lower=True).axes
    assert [each.get_offsets()[0][1] for each in axis.collections] == [40, 20] and list(axis.get_lines()[0].get_ydata()) == [40, 20]


def test_color_and_marker_name_one_method():
    from fgl_bench.results.plots.style import COLORS, MARKS

    assert len({(COLORS[i % len(COLORS)], MARKS[i % len(MARKS)]) for i in range(88)}) == 88


@pytest.mark.parametrize("width", [3.35, 7.0])
def test_the_critical_difference_s_name_is_inside_the_figure(width):
    from fgl_bench.results.plots.ranks import ranks_figure
    from fgl_bench.results.statistics import average_ranks

    for names in (("a", "b"), ("FedSA-GCL, LSC of FedGTA, 3 local epochs", "local", "fedavg", "fedgta")):
        ranks = average_ranks({name: [float(i), i + 1.0, i + 2.0] for i, name in enumerate(names)})
        figure = ranks_figure([(ranks, "title")], width)
        renderer = figure.canvas.get_renderer()
        for text in figure.axes[0].texts:
            box = text.get_window_extent(renderer)
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1, text.get_text()
