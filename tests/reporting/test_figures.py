"""What figures are made of: bands, similarity matrices, label counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fgl_bench.reporting import figures


def test_a_band_is_the_t_interval_over_seeds() -> None:
    mean, half = figures.band(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2.0, 5.0]
    assert half == pytest.approx([12.7062, 0.0], abs=1e-3)  # s = sqrt(2), t(0.975, 1) = 12.7062
    assert figures.band(np.array([[1.0, 2.0]]))[1].tolist() == [0.0, 0.0]


def test_label_counts_are_nodes_by_class_and_client() -> None:
    clients = [SimpleNamespace(labels=np.array([0, 0, 2])), SimpleNamespace(labels=np.array([1]))]
    assert figures.label_counts(SimpleNamespace(clients=clients, num_classes=4)).tolist() == [[2, 0], [0, 1], [1, 0], [0, 0]]


def write_run(folder: Path, seeds: int = 2) -> Path:
    lines = ["seed,trip,test_received,test_trained"]
    lines += [f"{seed},{trip},{0.5 + seed / 10},{0.6 + trip / 100}" for seed in range(seeds) for trip in (0, 20)]
    (folder / "history.csv").write_text("\n".join(lines), encoding="utf-8")
    np.savez(folder / "mixing.npz", trips_100=np.eye(2)[None], similarity_100=np.full((2, 2, 2), 0.5), similarity_20=np.eye(2)[None])
    return folder


def test_curves_and_similarities_are_read_by_trip_and_seed(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    trips, values = figures.read_curve(run, "test_received")
    assert trips.tolist() == [0, 20] and values.tolist() == [[0.5, 0.5], [0.6, 0.6]]
    kept = figures.similarities(run)
    assert set(kept) == {20, 100} and kept[100].shape == (2, 2, 2)
    assert figures.similarities(tmp_path / "nowhere") == {}


def test_lines_show_means_in_percent_and_panels_without_runs_are_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    figure = figures.curves({"cora": {"A": run}, "pubmed": {}}, "title")
    received, trained = figure.axes
    assert received.get_lines()[0].get_ydata() == pytest.approx([55.0, 55.0])
    assert trained.get_lines()[0].get_ydata() == pytest.approx([60.0, 80.0])
    png, svg = figures.save(figure, tmp_path / "out" / "curves")
    assert png.read_bytes()[:4] == b"\x89PNG" and svg.read_text(encoding="utf-8").startswith("<?xml")
    assert sorted(path.name for path in png.parent.iterdir()) == ["curves.png", "curves.svg"]


def test_heatmaps_show_the_first_seed_and_leave_gaps_grey(tmp_path: Path) -> None:
    matrix = np.stack([np.array([[1.0, np.nan], [np.nan, np.nan]]), np.ones((2, 2))])
    figure = figures.heatmaps({"SFM": {100: matrix}}, (100, 300), "title")
    [picture] = [image for axis in figure.axes[:2] for image in axis.get_images()]
    assert np.ma.getmaskarray(np.ma.masked_invalid(picture.get_array())).tolist() == [[False, True], [True, True]]
    assert figures.save(figure, tmp_path / "maps")[0].is_file()


def test_two_runs_give_the_same_files(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    first, second = (figures.save(figures.curves({"cora": {"A": run}}, "t"), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_bars_show_both_models_in_percent() -> None:
    test = {"received": {"mean": 0.5, "ci95": 0.01}, "trained": {"mean": 0.75, "ci95": None}}
    figure = figures.bars({"cora": {"full": test}, "pubmed": {}}, "title")
    [axis] = figure.axes
    assert sorted(bar.get_width() for bar in axis.patches) == [50.0, 75.0]


def test_simple_bars_leave_a_gap_where_a_line_has_no_number() -> None:
    first, second = figures.simple_bars({"cora": {"a": 1.0, "b": 2.0}, "pubmed": {"b": 3.0}}, "seconds", "title").axes
    assert [bar.get_width() for bar in first.patches] == [1.0, 2.0] and [bar.get_width() for bar in second.patches] == [0.0, 3.0]
