"""Figures find the runs that they are drawn from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from fgl_bench.papers.figures.base import Sources, is_curve, lines
from fgl_bench.papers.plan import columns
from fgl_bench.papers.plans.dfed_sst import PAPER
from fgl_bench.results.cells import write_cell
from fgl_bench.results.pictures import packed
from fgl_bench.results.store import config_hash
from fgl_bench.runner.run import federations_of
from tests.results.summaries import summary


def test_a_run_is_found_by_its_hash_and_by_a_configuration_that_lacks_newer_keys(tmp_path: Path) -> None:
    table = dataclasses.replace(PAPER.tables[0], columns=columns(("cora",)), rows=PAPER.tables[0].rows[:1])
    sources = Sources(dataclasses.replace(PAPER, tables=(table,)), ("cora",), tmp_path, None, federations_of)
    [cell] = sources.planned([table.key])
    place = (table.key, table.rows[0].key, "cora")
    assert sources.runs(table.key) == {}
    for config, counts in (
        ({**cell.config, "lr": 0.5}, False),
        ({key: value for key, value in cell.config.items() if key != "batch_nodes"}, True),
        (dict(cell.config), True),
    ):
        folder = (tmp_path / "runs" / cell.folder).with_name(config_hash(config))
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(summary(config)), encoding="utf-8")
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")
        (folder / "history.csv").write_text("seed,trip\n0,0\n", encoding="utf-8")
        assert sources.runs(table.key) == ({place: folder} if counts else {})


KEPT = {"trips": [0, 5], "received": [0.1, 0.25], "trained": [0.3, 0.5]}


def test_what_the_cells_kept_is_found_and_the_run_comes_first(tmp_path: Path) -> None:
    table = dataclasses.replace(PAPER.tables[0], columns=columns(("cora",)), rows=PAPER.tables[0].rows[:2])
    sources = Sources(dataclasses.replace(PAPER, tables=(table,)), ("cora",), tmp_path, None, federations_of)
    first, second = sources.planned([table.key])
    matrices = {"mixing": {"40": packed(np.array([[0.0, 1.0], [0.5, np.nan]]))}}
    for cell, kept in ((first, {"curve": KEPT, "matrices": matrices}), (second, {"curve": {"trips": [0]}, "matrices": 3})):
        names = {"dataset": "cora", "split": "metis", "sparsity": "none", "algorithm": cell.row.algorithm}
        found = {**summary(cell.config), **names, **kept}
        write_cell(tmp_path / "cells" / PAPER.name, found)
    here, there = ((table.key, row.key, "cora") for row in table.rows)
    assert sources.curves(table.key) == {here: KEPT, there: {}}, "the second's is damaged"
    [found, nothing] = sources.matrices("mixing", table.key).values()
    np.testing.assert_array_equal(found[40], [[0.0, 1.0], [0.5, np.nan]])
    assert nothing == {} == sources.matrices("similarity", table.key)[here]

    folder = tmp_path / "runs" / first.folder
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary(first.config)), encoding="utf-8")
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(first.config), encoding="utf-8")
    (folder / "history.csv").write_text("seed,trip,test_received,test_trained\n0,0,0.5,0.5\n", encoding="utf-8")
    assert sources.curves(table.key)[here] == {"trips": [0], "received": [0.5], "trained": [0.5]}
    assert sources.matrices("mixing", table.key)[here] == {}


def test_a_figure_that_would_lack_a_stored_method_is_left_out_and_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    places = {"A": ("1", "a", "cora"), "B": ("1", "b", "cora"), "C": ("1", "c", "cora")}
    assert lines("figure1", places, {places["A"]: KEPT, places["B"]: KEPT}) == {"A": KEPT, "B": KEPT}, "C was not run"
    assert not capsys.readouterr().err
    assert lines("figure1", places, {places["A"]: KEPT, places["B"]: {}}) == {}
    assert capsys.readouterr().err == "left out: figure1: nothing of it is stored with B; reproduce_tables.py --again repeats runs\n"


def test_only_a_curve_is_one() -> None:
    assert is_curve(KEPT)
    for damaged in (None, [], {}, {**KEPT, "trips": [0]}, {**KEPT, "received": "ab"}, {**KEPT, "trained": [0.1, None]}, {"trips": [0, 1]}):
        assert not is_curve(damaged)
    assert not is_curve(dict.fromkeys(KEPT, []))
