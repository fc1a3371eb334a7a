"""What figures are made of: bands, similarity matrices, label counts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fgl_bench.papers.figures import figures
from fgl_bench.results.plots.ranks import ranks_figure
from fgl_bench.results.statistics import Ranks

CURVE = {"trips": [0, 20], "received": [0.5, 0.55], "received_half": [0.1, 0.0], "trained": [0.6, 0.8]}


def test_label_counts_are_nodes_by_class_and_client() -> None:
    clients = [SimpleNamespace(labels=np.array([0, 0, 2])), SimpleNamespace(labels=np.array([1]))]
    assert figures.label_counts(SimpleNamespace(clients=clients, num_classes=4)).tolist() == [[2, 0], [0, 1], [1, 0], [0, 0]]


def test_a_line_is_in_the_units_that_are_asked_for() -> None:
    x, mean, half = figures.line(CURVE, "trips", "received", (0.5, 100))
    assert x.tolist() == [0, 10] and mean == pytest.approx([50, 55]) and half.tolist() == [10, 0]
    assert figures.line(CURVE, "trips", "trained")[2].tolist() == [0, 0], "one seed has no interval"
    assert figures.line(CURVE, "trips", "received_loss") is None and figures.line(CURVE, "bytes", "received") is None


def test_lines_show_means_in_percent_and_panels_without_lines_are_left_out(tmp_path: Path) -> None:
    figure = figures.curves({"cora": {"A": CURVE}, "pubmed": {}}, "title")
    received, trained = figure.axes
    assert received.get_lines()[0].get_ydata() == pytest.approx([50.0, 55.0])
    assert trained.get_lines()[0].get_ydata() == pytest.approx([60.0, 80.0])
    png, svg, pdf = figures.save(figure, tmp_path / "out" / "curves")
    assert png.read_bytes()[:4] == b"\x89PNG" and svg.read_text(encoding="utf-8").startswith("<?xml") and pdf.read_bytes()[:5] == b"%PDF-"
    assert sorted(path.name for path in png.parent.iterdir()) == ["curves.pdf", "curves.png", "curves.svg"]


def test_heatmaps_leave_gaps_grey(tmp_path: Path) -> None:
    matrix = np.array([[1.0, np.nan], [np.nan, np.nan]])
    figure = figures.heatmaps({"SFM": {100: matrix}}, (100, 300), "title")
    [picture] = [image for axis in figure.axes[:2] for image in axis.get_images()]
    assert np.ma.getmaskarray(np.ma.masked_invalid(picture.get_array())).tolist() == [[False, True], [True, True]]
    assert figures.save(figure, tmp_path / "maps")[0].is_file()


def test_the_same_curves_give_the_same_files(tmp_path: Path) -> None:
    first, second = (figures.save(figures.curves({"cora": {"A": CURVE}}, "t"), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_bars_show_both_models_in_percent() -> None:
    test = {"received": {"mean": 0.5, "ci95": 0.01}, "trained": {"mean": 0.75, "ci95": None}}
    figure = figures.bars({"cora": {"full": test}, "pubmed": {}}, "title")
    [axis] = figure.axes
    assert sorted(bar.get_width() for bar in axis.patches) == [50.0, 75.0]


def test_simple_bars_leave_a_gap_where_a_line_has_no_number() -> None:
    first, second = figures.simple_bars({"cora": {"a": 1.0, "b": 2.0}, "pubmed": {"b": 3.0}}, "seconds", "title").axes
    assert [bar.get_width() for bar in first.patches] == [1.0, 2.0] and [bar.get_width() for bar in second.patches] == [0.0, 3.0]


@pytest.mark.parametrize("methods", [2, 9, 24, 60])
def test_the_numbers_of_a_line_of_ranks_do_not_overlap(methods):
    ranks = Ranks({f"Method {i}, three local epochs": float(i) for i in range(1, methods + 1)}, 2, 0.5, 3.0, ())
    figure = ranks_figure([(ranks, "ranks")], 6.0)
    figure.canvas.draw()
    [axis] = figure.axes
    numbers = sorted(text.get_window_extent().extents.tolist() for text in axis.texts if text.get_text().isdigit())
    assert len(numbers) >= 2
    assert all(one[2] < other[0] for one, other in pairwise(numbers))
