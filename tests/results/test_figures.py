"""Figures from plain numbers: lines, bars, trade-offs, ranks, pictures of matrices and of federations."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgl_bench.data.graph import ClientGraph
from fgl_bench.papers.figures import pictures
from fgl_bench.papers.figures.inputs import both, convergence, line, swept
from fgl_bench.results.plots import figures
from fgl_bench.results.plots.style import plt, save_all, spread_out

CURVE = {"trips": [0, 20], "received": [0.5, 0.55], "received_half": [0.1, 0.0], "trained": [0.6, 0.8]}
SCORES = {"received": {"mean": 0.5, "ci95": 0.01}, "trained": {"mean": None, "ci95": None}}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


# ---- numbers from what is stored


def test_a_line_is_in_the_units_that_are_asked_for() -> None:
    x, mean, half = line(CURVE, "trips", "received", (0.5, 100))
    assert x.tolist() == [0, 10] and mean == pytest.approx([50, 55]) and half.tolist() == [10, 0]
    assert line(CURVE, "trips", "trained")[2].tolist() == [0, 0], "one seed has no interval"
    assert line(CURVE, "trips", "received_loss") is None and line(CURVE, "bytes", "received") is None


def test_convergence_has_a_panel_for_each_model_that_was_scored_along_the_run() -> None:
    first, second = convergence({"cora": {"A": CURVE}})
    assert (first.title, second.title) == ("cora, received model", "cora, trained model")
    assert first.lines["A"][1] == pytest.approx([50, 55]) and second.lines["A"][1] == pytest.approx([60, 80])
    assert len(convergence({"cora": {"A": {name: CURVE[name] for name in ("trips", "received")}}})) == 1


def test_no_score_is_not_a_score_of_0() -> None:
    assert both({"A": SCORES})["A"][0] == (50, 1) and np.isnan(both({"A": SCORES})["A"][1][0])
    places, mean, half = swept([(0, SCORES["received"]), (2, SCORES["trained"])])
    assert places.tolist() == [0, 2] and mean[0] == 50 and np.isnan(mean[1]) and half.tolist() == [1, 0]


# ---- figures


def test_the_same_figure_gives_the_same_files(tmp_path: Path) -> None:
    paths = [save_all(figures.lines(convergence({"cora": {"A": CURVE}}), "t"), tmp_path / name / "curves") for name in ("a", "b")]
    assert [path.read_bytes() for path in paths[0]] == [path.read_bytes() for path in paths[1]]
    heads = {path.suffix: path.read_bytes()[:5] for path in paths[0]}
    assert heads == {".png": b"\x89PNG\r", ".svg": b"<?xml", ".pdf": b"%PDF-"}


# ---- pictures


def test_points_are_the_classes_that_a_client_has() -> None:
    means = np.arange(12.0).reshape(1, 2, 3, 2)
    state = {"class_means": means, "class_counts": np.array([[[1, 0, 2], [0, 0, 5]]])}
    points, label, client = pictures.class_points(state)
    assert (points.tolist(), label.tolist(), client.tolist()) == ([[0, 1], [4, 5], [10, 11]], [0, 2, 2], [0, 0, 1])


def test_closeness_compares_distances_within_and_between_classes() -> None:
    points = np.array([[0.0], [1.0], [10.0]])  # within: 1; between: 10 and 9
    assert pictures.closeness(points, np.array([0, 0, 1])) == pytest.approx(1 / 9.5)
    assert np.isnan(pictures.closeness(points, np.array([0, 1, 2]))) and np.isnan(pictures.closeness(points, np.zeros(3)))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).map(sorted))
def test_names_at_the_ends_of_lines_do_not_overlap_and_stay_where_they_have_room(wanted: list[float]) -> None:
    room = 0.1
    places = spread_out(wanted, room, 0.0, 1.0)
    assert all(b - a >= room - 1e-9 for a, b in zip(places, places[1:], strict=False))
    assert -1e-9 <= places[0] and places[-1] <= 1 + 1e-9
    if all(b - a > room + 1e-9 for a, b in zip(wanted, wanted[1:], strict=False)):
        assert places == pytest.approx(wanted)


def test_only_the_first_column_of_a_row_names_the_classes() -> None:
    figure = pictures.label_distributions({"cora": {"louvain": np.eye(2), "metis": np.eye(2)}}, "labels")
    assert [(axis.get_ylabel(), axis.get_xlabel()) for axis in figure.axes] == [("class", "client"), ("", "client")]
    plt.close(figure)


def test_the_plane_keeps_far_groups_apart_and_is_the_same_every_time() -> None:
    points = np.concatenate([np.random.default_rng(0).normal(center, 0.1, (12, 5)) for center in (0, 8)])
    plane = pictures.planar(points)
    assert np.array_equal(plane, pictures.planar(points))
    assert pictures.closeness(plane, np.repeat([0, 1], 12)) < 0.5
    assert np.isfinite(pictures.planar(np.ones((5, 3)))).all()


# ---- federations


def client(edges: list[tuple[int, int]], labels: list[int]) -> ClientGraph:
    both_ways = sorted(edges + [(j, i) for i, j in edges])
    n, empty = len(labels), np.zeros(len(labels), dtype=bool)
    matrix = np.array(both_ways, dtype=np.int64).reshape(-1, 2).T
    return ClientGraph(np.arange(n), np.ones((n, 1), np.float32), matrix, np.array(labels), empty, empty, empty)


PATH = client([(0, 1), (1, 2)], [0, 0, 1, 2])  # node 3 stands alone


def test_label_counts_are_nodes_by_class_and_client() -> None:
    clients = [SimpleNamespace(labels=np.array([0, 0, 2])), SimpleNamespace(labels=np.array([1]))]
    assert pictures.label_counts(SimpleNamespace(clients=clients, num_classes=4)).tolist() == [[2, 0], [0, 1], [1, 0], [0, 0]]


def test_homophily_is_by_class_and_undefined_without_edges() -> None:
    # class 0: neighbors of 0 and 1 are 1, 0, 2: two of three alike; class 1: node 2's only neighbor is of class 0
    assert pictures.homophily(PATH, 3) == pytest.approx([2 / 3, 0.0, np.nan], nan_ok=True)
    assert pictures.homophily(client([(0, 1)], [0, -1]), 1) == pytest.approx([np.nan], nan_ok=True)


def test_paths_are_between_connected_nodes_and_the_largest_component_counts_nodes() -> None:
    # 0-1, 1-2 of length 1, 0-2 of length 2, each in both directions
    assert pictures.distances(PATH) == pytest.approx((4 / 3, 3 / 4))
    assert pictures.distances(client([], [0, 1])) == pytest.approx((np.nan, 1 / 2), nan_ok=True)
