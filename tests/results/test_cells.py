"""Compact results: what is kept of a run, and what is not believed."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.errors import UserError
from fgl_bench.results.cells import compact, read_cells, write_cells
from fgl_bench.results.scored import scored_models
from fgl_bench.results.store import Untrusted, checked
from fgl_bench.results.thinned import MOST_POINTS, band, curve, label_counts, matrices, thinned, unpacked
from tests.results.summaries import scores, summary

WHAT = {"lr": 0.01}
CELL = summary(WHAT)
for model, clients in (("received", [0.25, None, 0.75]), ("trained", [0.5, 0.5, 0.5])):
    CELL["test"][model]["per_client"] = [clients]


@given(st.integers(1, 5000))
def test_thinning_keeps_both_ends_and_few_points(points):
    kept = thinned(points)
    assert kept[0] == 0 and kept[-1] == points - 1 and len(kept) <= MOST_POINTS and (np.diff(kept) > 0).all()
    assert len(kept) == min(points, MOST_POINTS) or points > MOST_POINTS


def test_a_band_is_the_t_interval_over_seeds():
    mean, half = band(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2.0, 5.0]
    assert half == pytest.approx([12.7062, 0.0], abs=1e-3)  # s = sqrt(2), t(0.975, 1) = 12.7062
    assert band(np.array([[1.0, 2.0]]))[1].tolist() == [0.0, 0.0]


def test_a_curve_is_mean_and_half_width_over_the_seeds(tmp_path):
    lines = ["seed,trip,test_received,test_trained"]
    lines += [f"{seed},{trip},{0.5 + seed / 10},{0.6}" for seed in (0, 2) for trip in (0, 20)]
    (tmp_path / "history.csv").write_text("\n".join(lines))
    found = curve(tmp_path / "history.csv")
    assert found["trips"] == [0, 20] and found["received"] == [0.6, 0.6] and found["trained_half"] == [0, 0]
    assert found["received_half"] == pytest.approx([12.7062 * 0.1] * 2, abs=1e-4)  # std 0.1 sqrt 2 over sqrt 2, one degree of freedom


def test_a_curve_has_what_was_spent_and_no_column_with_gaps(tmp_path):
    lines = ["seed,trip,round,test_received,test_trained,test_received_macro_f1,test_received_loss,upload_bytes,download_bytes"]
    lines += ["0,0,0,0.1,0.1,0.2,,0,0", "0,5,1,,0.4,0.2,1.5,8,2", "0,9,2,0.3,0.5,0.4,1.25,16,4"]
    (tmp_path / "history.csv").write_text("\n".join(lines))
    assert curve(tmp_path / "history.csv") == {
        "trips": [0, 9], "received": [0.1, 0.3], "trained": [0.1, 0.5], "received_macro_f1": [0.2, 0.4], "round": [0, 2], "bytes": [0, 20],
    }  # fmt: skip


def test_matrices_come_back_to_within_half_a_step(tmp_path):
    rows = np.random.default_rng(0).random((3, 5, 5))
    rows[0, 1, 2] = np.nan
    np.savez(tmp_path / "mixing.npz", trips_20=rows / 5, similarity_100=rows, similarity_40=rows, other=rows)
    kept = matrices(tmp_path / "mixing.npz")
    assert {kind: list(found) for kind, found in kept.items()} == {"similarity": ["40", "100"], "mixing": ["20"]}
    np.testing.assert_allclose(unpacked(kept["similarity"]["40"]), rows[0], atol=0.5 / 250 + 1e-6)
    np.testing.assert_allclose(unpacked(kept["mixing"]["20"]), rows[0] / 5, atol=0.1 / 250 + 1e-6)
    json.dumps(kept)


def test_labels_are_counted_by_client():
    assert label_counts([np.array([0, 2, 2]), np.array([1])], 3) == [[1, 0, 2], [0, 1, 0]]
    assert label_counts([np.array([0, -1, 2]), np.array([-1])], 3) == [[1, 0, 1], [0, 0, 0]], "-1 is a node without a label"
    assert label_counts([np.zeros((2, 3))], 3) is None


def test_a_cell_keeps_fairness_and_not_the_clients():
    found = compact(CELL, "fgl-bench")
    assert found["test"]["received"]["fairness"]["worst"] == 0.25 and found["test"]["trained"]["fairness"]["std"] == 0
    assert "per_client" not in found["test"]["received"] and found["command"] == "fgl-bench"
    assert "curve" not in found and "matrices" not in found


def test_pictures_that_cannot_be_read_cost_a_warning(tmp_path, capsys):
    (tmp_path / "history.csv").write_text("seed,trip\n0,0\n")
    (tmp_path / "mixing.npz").write_bytes(b"no archive")
    assert compact(CELL, "fgl-bench", tmp_path)["test"] == compact(CELL, "fgl-bench")["test"]
    said = capsys.readouterr().err
    assert "history.csv is not used" in said and "mixing.npz is not used" in said


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@settings(max_examples=20)
@given(
    st.lists(st.dictionaries(st.sampled_from(["lr", "name", "note"]), st.recursive(VALUES, st.lists, max_leaves=8)), min_size=1, max_size=4)
)
def test_cells_read_as_they_were_written(configs):
    cells = [
        {**CELL, "places": [("2", "a", "cora, 5", ("x=1", "y=[a,b]"))], "config_hash": f"{n}e5", "config": c} for n, c in enumerate(configs)
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_cells(Path(folder), cells)
        found = read_cells(Path(folder))
    assert [(cell["config"], cell["places"]) for cell in found] == [(config or {}, cells[0]["places"]) for config in configs]
    assert [cell["config_hash"] for cell in found] == [cell["config_hash"] for cell in cells], "a hash is no number"


def test_pictures_stand_beside_and_come_back(tmp_path):
    cell = {**compact(CELL, "fgl-bench"), "label_counts": [[1, 2]], "curve": {"trips": [0]}}
    write_cells(tmp_path, [cell])
    assert "label_counts" not in (tmp_path / "cells.csv").read_text(encoding="utf-8")
    assert read_cells(tmp_path) == [cell] and read_cells(tmp_path / "nowhere") == []
    write_cells(tmp_path, [{**cell, "config_hash": "b" * 12}, cell])
    first = (tmp_path / "cells.csv").read_bytes(), (tmp_path / "curves.json.gz").read_bytes()
    write_cells(tmp_path, [cell, {**cell, "config_hash": "b" * 12}])
    assert first == ((tmp_path / "cells.csv").read_bytes(), (tmp_path / "curves.json.gz").read_bytes()), "whatever their order was"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cells.csv", b"\xff\xfe"),
        ("cells.csv", b"a,b\n1\n"),
        ("curves.json.gz", b"no gzip"),
        ("curves.json.gz", gzip.compress(b"{", mtime=0)),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(name, content, tmp_path):
    write_cells(tmp_path, [compact(CELL, "fgl-bench")])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"^[^\n]*cells\.csv: cannot be read as stored cells[^\n]*$"):
        read_cells(tmp_path)


def test_scores_of_one_client_s_trained_model_are_not_taken_for_all_clients():
    config = {"split": {"test": "server"}}
    kept = {**summary(config), "test": {"received": scores([0.5]), "trained": scores([None])}}
    assert checked(json.dumps(kept))["test"] == kept["test"]
    with pytest.raises(Untrusted, match=r"one client only.*split\.score_trained"):
        checked(json.dumps(summary(config)))
    for sound in ({"split": {"test": "clients"}}, {"split": {"test": "server", "score_trained": "final"}}):
        assert checked(json.dumps(summary(sound)))


def test_a_table_has_no_column_for_models_that_were_never_scored():
    never, final = summary({"split": {"test": "server"}}), summary({"split": {"test": "server", "score_trained": "final"}})
    assert scored_models(("received", "trained"), [never, never]) == ("received",)
    assert scored_models(("received", "trained"), [never, final]) == scored_models(("received", "trained"), []) == ("received", "trained")
