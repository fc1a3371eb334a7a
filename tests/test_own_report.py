"""``fgl-bench report`` of a user's own runs, from a sweep to the page."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas
import pytest

from fgl_bench import load_results, table
from fgl_bench.errors import UserError
from fgl_bench.papers.placement import FILE, read_rows
from fgl_bench.papers.plan import load_paper
from fgl_bench.report.html import page, sources, with_rows
from fgl_bench.report.own_runs import sections
from fgl_bench.report.shown import paper_data
from fgl_bench.results.cells import compact, write_cells
from fgl_bench.results.frame import complete_runs
from fgl_bench.results.store import read_summary
from fgl_bench.results.sweeps import question_of, record
from tests.results.report_pages import data_of, source
from tests.results.stored_runs import store
from tests.results.test_comparison import check_latex
from tests.test_own_tables import TINY, said
from tests.warm import command


def page_of(folder: Path, *arguments: str) -> dict:
    """The data of the page that the command writes."""
    written = said(command(folder, "report", *arguments))
    return data_of((folder / written.removeprefix("written: ").strip()).read_text(encoding="utf-8"))


def cells_of(table: dict) -> dict[str, str]:
    """What is shown of the received models, by row and column."""
    return {place: cell["received"]["text"] for place, cell in table["cells"].items() if "run" in cell}


# ---- runs as tables


def shapes(folder: Path) -> list[tuple[int, int, int]]:
    """Rows, columns and runs of every table."""
    return [(len(each.rows), len(each.columns), len(each.runs)) for each in sections(complete_runs(folder))]


def test_runs_that_fill_a_table_stay_in_one(tmp_path):
    for method in ("fedavg", "fedgta", "fedsa_gcl"):
        for dataset in ("cora", "pubmed"):
            store(tmp_path, method, dataset)
    assert shapes(tmp_path) == [(3, 2, 6)]


def test_runs_with_little_in_common_get_tables_of_their_own(tmp_path):
    for dataset, rate in (("cora", 0.1), ("pubmed", 0.2), ("photo", 0.3)):
        for method in (f"{dataset}_one", f"{dataset}_two"):
            store(tmp_path, method, dataset, config={"lr": rate})
    assert shapes(tmp_path) == [(2, 1, 2)] * 3


def test_a_method_s_own_keys_make_rows_and_other_keys_columns(tmp_path):
    for mu in (0.1, 0.2):
        for rate in (0.01, 0.02):
            store(tmp_path, "fedprox", config={"algorithm": {"mu": mu}, "lr": rate})
    [found] = sections(complete_runs(tmp_path))
    assert found.question.rows == ("algorithm", "algorithm.mu") and found.question.cols == ("dataset", "split", "lr")
    assert len(found.runs) == 4


def test_what_follows_from_another_key_is_not_a_second_one(tmp_path):
    for rounds in (10, 20):
        store(tmp_path, "fedavg", config={"rounds": rounds, "trips": 2 * rounds})
    [found] = sections(complete_runs(tmp_path))
    assert found.question.cols == ("dataset", "split", "rounds")


def test_classes_of_one_name_in_two_files_are_two_rows(tmp_path):
    targets = ("fgl_bench.algorithms.fedavg.FedAvg", "a.FedAvg", "lab.b.FedAvg")
    for number, target in enumerate(targets):
        store(tmp_path, "fedavg", config={"algorithm": {"_target_": target}}, per_seed=(0.1 * number, 0.5))
    rows = dict(zip(("fedavg", "a.py:fedavg", "lab/b.py:fedavg"), targets, strict=True))
    found = {run.summary["algorithm"]: run for run in complete_runs(tmp_path)}
    assert {name: run.summary["config"]["algorithm"]["_target_"] for name, run in found.items()} == rows
    assert {run.results_dir for run in found.values()} == {tmp_path}
    assert all(text.count(name) >= 2 for text in [str(table(tmp_path))] for name in rows) and shapes(tmp_path) == [(3, 1, 3)]
    assert "lab/b.py:fedavg" in str(table(tmp_path, where={"algorithm": ["lab/b.py:fedavg"]}))


# ---- the command


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    said(command(folder, "-m", "algorithm=fedavg,fedsa_gcl", "num_clients=3", "lr=0.02", *TINY))
    said(command(folder, "algorithm=fedavg", "num_clients=4", "lr=0.02", *TINY))
    return folder


def test_a_folder_of_runs_makes_a_full_report(swept):
    data = page_of(swept, "results/runs")
    [paper] = data["papers"]
    [table] = paper["tables"]
    assert paper["own"] and (table["made"], len(table["rows"]), len(table["columns"])) == (3, 2, 2)
    runs = {run.summary["config_hash"]: run for run in complete_runs(swept / "results/runs")}
    for cell in (cell for cell in table["cells"].values() if "run" in cell):
        run = runs[cell["run"]]
        mean = 100 * run.summary["test"]["received"]["mean"]
        assert cell["received"]["text"].startswith(f"{mean:.1f}")
        link = swept / "results/runs" / data["runs"][cell["run"]]["file"]  # relative to the page
        assert link.resolve() == run.folder.resolve()
        assert data["runs"][cell["run"]]["curve"]["trips"]
    assert {method["name"] for method in data["methods"]} == {"fedavg", "fedsa_gcl"}
    assert "fedsa_gcl" in table["downloads"]["md"] and "config_hash" in table["downloads"]["csv"]
    check_latex(table["downloads"]["tex"])


def test_the_page_has_the_newest_sweep_and_what_was_made_since(tmp_path, capsys):
    store(tmp_path, "local", finished="2026-11-20T00:00:00+00:00")
    record(tmp_path, [store(tmp_path, name) for name in ("fedavg", "fedgta")], "fgl-bench -m ...", question_of(["algorithm"]))
    store(tmp_path, "fedprox", config={"lr": 9.0}, finished="2999-01-01T00:00:00+00:00")
    methods = {each: {cell["algorithm"] for cell in sources(tmp_path, sweep=each)[0].stored.values()} for each in (None, "all", 1)}
    assert methods == {None: {"fedavg", "fedgta", "fedprox"}, "all": {"local", "fedavg", "fedgta", "fedprox"}, 1: {"fedavg", "fedgta"}}
    assert capsys.readouterr().err.count("note: 3 of 4 runs") == 1


def test_a_report_takes_the_runs_that_are_asked_for(tmp_path):
    for lr in (0.1, 0.2):
        store(tmp_path / "runs", "fedavg", config={"lr": lr})
    [own] = sources(tmp_path / "runs", where="lr=0.2")
    assert len(own.stored) == 1 and next(iter(own.stored.values()))["config"]["lr"] == 0.2
    with pytest.raises(UserError, match="where=lr=0.3: no run has it"):
        sources(tmp_path / "runs", where={"lr": 0.3})


def test_its_commands_make_the_same_runs_and_those_that_are_missing(swept):
    [table] = page_of(swept, "out=again.html")["papers"][0]["tables"]
    before = len(complete_runs(swept / "results/runs"))
    [made] = [cell["command"] for place, cell in table["cells"].items() if place.startswith("fedsa_gcl|") and "run" in cell]
    said(command(swept, *shlex.split(made)[1:]))
    assert len(complete_runs(swept / "results/runs")) == before, "it was complete"
    [missing] = [cell["command"] for cell in table["cells"].values() if "run" not in cell]
    said(command(swept, *shlex.split(missing)[1:]))
    [whole] = page_of(swept, "results", "out=again.html")["papers"][0]["tables"]
    assert whole["made"] == whole["planned"] == 4


# ---- the row of fgl-bench place


def row(tmp_path: Path, **changes) -> Path:
    summary = read_summary(store(tmp_path / "runs", "mine", per_seed=(0.7, 0.9)))
    assert summary is not None
    cell = compact(summary, "fgl-bench algorithm=fedavg algorithm._target_=mine.Mine")
    made = {"paper": "p", "table": "3", "title": "Mine (yours)", "changed": ["lr=0.5"], "cells": {"cora": cell}, **changes}
    path = tmp_path / "placed/p-table3-mine" / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def test_a_placed_row_stands_on_top_of_its_table_and_is_none_of_the_paper_s_cells(tmp_path):
    row(tmp_path)
    before, after = (paper_data(each)["tables"] for each in (source(), with_rows(source(), read_rows(tmp_path / "placed"))))
    assert [each["title"] for each in after[0]["rows"]] == ["Mine (yours), lr=0.5", *(each["title"] for each in before[0]["rows"])]
    assert cells_of(after[0]) == {**cells_of(before[0]), "yours1|cora": cells_of(after[0])["yours1|cora"]}
    assert after[0]["cells"]["yours1|cora"]["received"]["text"].startswith("80.0")
    assert (after[0]["made"], after[0]["planned"]) == (before[0]["made"], before[0]["planned"])
    assert after[1] == before[1], "another table"


def test_a_row_placed_in_one_table_of_a_real_paper_goes_into_a_report_of_own_runs(tmp_path):
    path = row(tmp_path, paper="fedsa_gcl")
    [cell] = json.loads(path.read_text())["cells"].values()
    [column, *_] = next(each for each in load_paper("fedsa_gcl").tables if each.key == "3").columns
    row(tmp_path, paper="fedsa_gcl", cells={column.key: cell})
    store(tmp_path / "runs", "fedavg", config={"lr": 0.3})
    own, paper = sources(tmp_path / "runs", placed=tmp_path / "placed")
    assert own.own and [each.key for each in paper.paper.tables] == ["3"]
    assert [each.title for each in paper.paper.tables[0].rows][0] == "Mine (yours), lr=0.5"
    assert page([own, paper], tmp_path / "report.html").startswith("<!doctype html>"), "of the stored cells only those of this table"


def test_stored_cells_are_loaded_as_runs_are(tmp_path):
    folders = [store(tmp_path / "runs", method) for method in ("fedavg", "local")]
    summaries = [(folder, summary) for folder in folders if (summary := read_summary(folder)) is not None]
    write_cells(tmp_path / "cells/p", [compact(summary, "fgl-bench", folder) for folder, summary in summaries])
    runs, cells = (load_results(tmp_path / name, keys=["lr"]) for name in ("runs", "cells"))
    assert len(cells) == 8
    compared = [name for name in runs.columns if name != "folder"]
    pandas.testing.assert_frame_equal(*(each[compared].sort_values(compared[:10]).reset_index(drop=True) for each in (runs, cells)))
