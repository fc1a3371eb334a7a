"""``fgl-bench place``: a user's method among the stored results and the printed numbers of a table."""

from __future__ import annotations

import csv
import json
import shutil
import sys

import pytest
from scipy import stats

from fgl_bench.cli.place import show
from fgl_bench.cli.report import write
from fgl_bench.config.compose import as_command
from fgl_bench.papers import placement
from fgl_bench.papers.placement import read_rows
from fgl_bench.papers.plan import Paper, Row, Table, columns, plan
from fgl_bench.papers.published import WHERE
from fgl_bench.report import html
from fgl_bench.report.shown import paper_data
from fgl_bench.results.cells import compact, read_cells, write_cells
from fgl_bench.runner.one import run_one
from tests.results.report_pages import data_of
from tests.results.test_comparison import check_latex
from tests.warm import ROOT

TINY = (
    "dataset.num_nodes=120", "dataset.num_edges=260", "dataset.num_features=24", "dataset.words_per_node=6", "num_clients=3", "trips=6",
    "seeds=[0,1,2]", "targets=[0.5]",
)  # fmt: skip
PAPER = Paper(
    "toy", "Toy",
    (Table("3", "fedsa_gcl/table3", "toy scores", "accuracy", columns(["csbm"], "", TINY), (
        Row("local", "Local", "local"), Row("fedavg", "FedAvg", "fedavg", published="fedavg"))),),
    (),
)  # fmt: skip
METHOD = """
from dataclasses import dataclass
from fgl_bench.algorithms.fedavg import FedAvg

@dataclass
class Halved(FedAvg):
    share: float

    def initialize(self, initial):
        return self.share * initial
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # where the command puts the method's folder
    monkeypatch.delitem(sys.modules, "halved_method", raising=False)
    (tmp_path / "halved_method.py").write_text(METHOD, encoding="utf-8")
    cells = []
    for planned in plan(PAPER.tables):
        line = [*planned.overrides, "progress=false", "device=cpu"]
        with as_command(line) as cfg:
            cells.append(compact(run_one(cfg).summary, planned.command, places=[(*planned.key, planned.overrides)]))
    write_cells(tmp_path / "stored/cells/toy", cells)
    (tmp_path / "stored/published").mkdir(parents=True)
    with (tmp_path / "stored/published/toy.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, (*WHERE, "mean", "spread", "spread_kind", "note"), restval="")
        writer.writeheader()
        place = {"table": "3", "dataset": "csbm", "method": "fedavg", "variant": "default"}
        writer.writerow({**place, "mean": "0.1", "spread": "0.05", "spread_kind": "std"})
    monkeypatch.setattr(placement, "load_paper", lambda name: PAPER)
    yield tmp_path
    sys.modules.pop("halved_method", None)


def test_a_method_gets_its_row_rank_and_tests(toy, capsys):
    show(["halved_method.py", "paper=toy", "algorithm.share=0.5", "results=stored", "progress=false", "device=cpu", "out=here"])
    said = capsys.readouterr().out
    assert "> Halved (yours)" in said and "0.1 ± 0.05" in said and "it would be 1 of 2 among the printed means" in said
    [own] = [run for run in (toy / "results/runs").rglob("halved/*/summary.json")]
    summary = json.loads(own.read_text(encoding="utf-8"))
    cells = {cell["algorithm"]: cell for cell in read_cells(toy / "stored/cells/toy")}
    assert summary["partition_hash"] == cells["fedavg"]["partition_hash"] and summary["seeds"] == cells["fedavg"]["seeds"]
    placed = placement.placement("toy", "3", [], "Halved (yours)", toy / "stored")
    placed.add(placed.table.columns[0], summary, "fgl-bench")
    for model in ("received", "trained"):
        lines = {line[1].removeprefix("> "): line for line in placement.leaderboard(placed, placed.table.columns[0], model)}
        mine = summary["test"][model]["per_seed"]
        ps = [stats.ttest_rel(mine, cells[name]["test"][model]["per_seed"]).pvalue for name in ("local", "fedavg")]
        holm = [min(1.0, 2 * p) if p == min(ps) else max(p, min(1.0, 2 * min(ps))) for p in ps]
        assert [float(lines[name][5].rstrip("*")) for name in ("Local", "FedAvg")] == pytest.approx(holm, abs=6e-4)
        means = {"Halved (yours)": mine, **{title: cells[title.lower()]["test"][model]["per_seed"] for title in ("Local", "FedAvg")}}
        assert list(lines) == sorted(means, key=lambda title: -sum(means[title])) or len({sum(each) for each in means.values()}) < 3
    [row] = read_rows(toy / "here")
    assert (row.paper, row.table, row.title) == ("toy", "3", "Halved (yours)") and row.changed == []
    assert row.cells["csbm"]["test"]["received"]["per_seed"] == summary["test"]["received"]["per_seed"] and row.cells["csbm"]["curve"]
    text = (toy / "here/table.md").read_text(encoding="utf-8")
    assert "| Halved (yours) |" in text and "Made by: fgl-bench experiment=fedsa_gcl/table3" in text
    check_latex((toy / "here/table.tex").read_text(encoding="utf-8"))
    assert {path.suffix for path in (toy / "here").glob("ranks_trained.*")} == {".pdf", ".svg", ".png"}


def test_the_report_has_the_row_and_takes_the_paper_s_runs_where_their_cells_are_absent(toy, monkeypatch):
    show(["halved_method.py", "paper=toy", "algorithm.share=0.5", "results=stored", "progress=false", "device=cpu", "out=placed/mine"])
    monkeypatch.setattr(html, "load_paper", lambda name: PAPER)
    monkeypatch.setattr(html, "papers", lambda: ["toy"])
    shutil.copytree(toy / "results/runs", toy / "stored/runs")
    kept = [cell for cell in read_cells(toy / "stored/cells/toy") if cell["algorithm"] != "fedavg"]
    write_cells(toy / "stored/cells/toy", kept)
    [source] = html.sources("stored", placed=toy / "placed")  # all three runs belong to the table: none is listed again
    [table] = paper_data(source)["tables"]
    assert [row["title"] for row in table["rows"]] == ["Halved (yours)", "Local", "FedAvg"]
    assert all("run" in cell and cell["received"]["text"] for cell in table["cells"].values())
    assert (table["made"], table["planned"]) == (2, 2)
    assert {path.name for path in source.files.values()} == {cell["run"] for cell in table["cells"].values()}, "their folders"
    assert table["cells"]["fedavg|csbm"]["published"] == "0.1 ± 0.05"
    write(["stored"])  # the command, in the folder where placed/ stands
    [paper] = data_of((toy / "stored/report.html").read_text(encoding="utf-8"))["papers"]
    assert paper["tables"][0]["rows"] == table["rows"]


def test_the_package_knows_its_stored_results():
    from fgl_bench.cli.place import stored_results

    assert stored_results("fedsa_gcl") == ROOT / "results"
