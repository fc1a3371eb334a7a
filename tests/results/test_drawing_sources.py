"""Figures find the runs that they are drawn from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from fgl_bench.papers.figures.inputs import Sources
from fgl_bench.papers.plan import columns, load_paper
from fgl_bench.results.cells import compact, write_cells
from fgl_bench.results.thinned import packed
from fgl_bench.runner.run import federations_of
from tests.results.summaries import summary, write_run_by_hand


def sources_of(rows: int, folder: Path) -> Sources:
    """One column of DFed-SST's table 2."""
    paper = load_paper("dfed_sst")
    table = dataclasses.replace(paper.tables[0], columns=columns(("cora",)), rows=paper.tables[0].rows[:rows])
    return Sources(dataclasses.replace(paper, tables=(table,)), ("cora",), folder, None, federations_of)


def test_a_run_is_found_by_the_overrides_that_made_it_and_by_its_cell(tmp_path: Path) -> None:
    [planned] = sources_of(1, tmp_path).planned
    assert sources_of(1, tmp_path).runs("2") == {}
    write_run_by_hand(tmp_path / "runs", {**summary({"lr": 0.5}), "overrides": ["dataset=cora"]})
    assert sources_of(1, tmp_path).runs("2") == {}
    place = write_run_by_hand(tmp_path / "runs", {**summary({"lr": 0.1}), "overrides": list(planned.overrides)})
    assert sources_of(1, tmp_path).runs("2") == {planned.key: place} and sources_of(1, tmp_path).runs("3") == {}
    older = write_run_by_hand(tmp_path / "runs", summary({"lr": 0.2}))
    write_cells(tmp_path / "cells/dfed_sst", [compact(summary({"lr": 0.2}), "fgl-bench", places=[(*planned.key, planned.overrides)])])
    assert sources_of(1, tmp_path).runs("2") == {planned.key: older}


KEPT = {"trips": [0, 5], "received": [0.1, 0.25], "trained": [0.3, 0.5]}


def test_what_the_cells_kept_is_found_and_the_run_comes_first(tmp_path: Path) -> None:
    first, second = sources_of(2, tmp_path).planned
    matrices = {"mixing": {"40": packed(np.array([[0.0, 1.0], [0.5, np.nan]]))}}
    pictures = ({"curve": KEPT, "matrices": matrices}, {"curve": {"trips": [0]}, "matrices": 3})
    made = [
        {**compact(summary({"lr": lr}), "fgl-bench", places=[(*cell.key, cell.overrides)]), **kept}
        for lr, cell, kept in zip((0.1, 0.2), (first, second), pictures, strict=True)
    ]
    write_cells(tmp_path / "cells/dfed_sst", made)
    sources = sources_of(2, tmp_path)
    assert sources.curves("2") == {first.key: KEPT, second.key: {}}, "the second's is damaged"
    [found, nothing] = sources.matrices("mixing", "2").values()
    np.testing.assert_array_equal(found[40], [[0.0, 1.0], [0.5, np.nan]])
    assert nothing == {} == sources.matrices("similarity", "2")[first.key]

    write_run_by_hand(tmp_path / "runs", summary({"lr": 0.1}), "seed,trip,test_received,test_trained\n0,0,0.5,0.5\n")
    sources = sources_of(2, tmp_path)
    assert sources.curves("2")[first.key] == {"trips": [0], "received": [0.5], "trained": [0.5]}
    assert sources.matrices("mixing", "2")[first.key] == {}
