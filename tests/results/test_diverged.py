"""Results that have diverged are marked wherever they are shown, and take no prize."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from fgl_bench.papers.analysis import analyze, markdown
from fgl_bench.papers.tables import accuracy, entry_of
from fgl_bench.report.shown import statistics_data
from fgl_bench.results.console import show, table
from fgl_bench.results.thinned import curve, records
from tests.results.summaries import summary
from tests.results.test_tables import ACCURACY, PAPER, PUBLISHED, TRIPS, result, stored, written

LOST = {"clients": 3, "round": 12, "trip": 240}
BOTH = {"received": {"0": LOST}, "trained": {"0": {**LOST, "round": 11}}}


def diverged(row: str, dataset: str, received: list[float | None], trained: list[float | None]) -> dict:
    return {**result(row, dataset, received, trained), "diverged": BOTH}


STORED = {
    cell["config_hash"]: cell
    for cell in (
        result("a", "cora", [0.60, 0.62], [0.70, 0.72]),
        diverged("b", "cora", [0.90, None], [0.80, 0.82]),  # the best mean, of one seed
        result("a", "pubmed", [0.50, 0.50], [0.50, 0.50]),
        diverged("b", "pubmed", [None, None], [0.60, 0.60]),
    )
}


def test_the_console_marks_the_table_and_warns_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = summary({"lr": 0.5}, [0.4, None, 0.6], diverged={"received": {"1": LOST, "2": {**LOST, "clients": 1}}})
    made["num_clients"] = 20
    show(made, tmp_path, again=False)
    said = capsys.readouterr()
    assert said.err == (
        "warning: 3 of 20 clients of seed 1 and clients of 1 other seed(s) diverged (first in round 12): where a model is not finite its "
        "scores are undefined; try a lower lr (now 0.5) or fewer local_epochs\n"
    )
    received, trained = (next(line for line in said.out.splitlines() if line.startswith(name)) for name in ("received", "trained"))
    assert "50.00 ± 127.06 (2/3)" in received and "2 of 3 seeds" in received and "0 of 3 seeds" in trained
    assert "diverged: 2 of 3 seeds (seed 1: 3 of 20 clients, first in round 12; seed 2: 1 of 20 clients, first in round 12)" in said.out
    assert "diverged" not in table({**made, "diverged": None})
    show({**made, "diverged": None}, tmp_path, again=False)
    assert capsys.readouterr().err == ""


def test_a_mean_of_fewer_seeds_says_so_and_does_not_compete() -> None:
    assert accuracy({"mean": 0.9, "ci95": None, "per_seed": [0.9, None]}).text == "90.0 (1/2)"
    assert accuracy({"mean": 0.9, "ci95": None, "per_seed": [0.9, None]}).rank is None
    nothing = accuracy({"mean": None, "ci95": None, "per_seed": [None, None]})
    assert nothing.text == "no score" and nothing.rank is None
    cell = diverged("b", "cora", [0.9, 0.9], [0.8, 0.8])
    assert entry_of(ACCURACY, cell, "received", None).text == "90.0 ± 0.0 †", "marked, though every seed has a score"
    assert entry_of(ACCURACY, cell, "received", None).rank == 90.0
    assert entry_of(TRIPS, cell, "received", 0.56).text.endswith(" †")


def test_tables_mark_what_has_diverged_and_say_which() -> None:
    texts = written(ACCURACY, STORED)
    lines = texts["md"].splitlines()
    assert "| Method A | **61.0 ± 12.7** | 71.0 ± 12.7 | 81.7 ± 0.3 | **50.0 ± 0.0** |" in lines[4]
    [second] = [line for line in lines if line.startswith("| Method B_2")]
    assert "| 90.0 (1/2) † | **81.0 ± 12.7 †** |  | no score † | **60.0 ± 0.0 †** |" in second
    assert second.endswith("|  | **70.5 †** |  |"), "no mean with a hole, a marked one without"
    [note] = [line for line in lines if line.startswith("† diverged")]
    assert "Method B_2 on cora (1 of 2 seeds), Method B_2 on pubmed (1 of 2 seeds)" in note and "Method A" not in note
    assert r"90.0 (1/2) $\dagger$" in texts["tex"] and r"no score $\dagger$" in texts["tex"]
    rows = {(row["dataset"], row["row"], row["model"]): row for row in csv.DictReader(io.StringIO(texts["csv"]))}
    assert rows["pubmed", "b", "received"]["mean"] == "" and rows["pubmed", "b", "received"]["diverged"] == "1"
    assert rows["cora", "a", "received"]["diverged"] == "", "a result of before does not know"
    assert "†" not in "".join(written(ACCURACY, {k: v for k, v in STORED.items() if k.startswith("a")}).values())


def test_statistics_leave_out_what_lacks_a_seed_and_name_it() -> None:
    cells = stored(ACCURACY, STORED)
    received, trained = (analyze(ACCURACY, cells, PUBLISHED, model) for model in ("received", "trained"))
    assert received.unscored == ("Method B_2 on cora", "Method B_2 on pubmed") and received.columns == {}
    assert trained.unscored == () and trained.columns["cora"].best == "Method B_2"
    text = markdown(PAPER, ACCURACY, [received, trained])
    assert text.count("have no score: Method B_2 on cora, Method B_2 on pubmed.") == 1
    json.dumps([statistics_data(received), statistics_data(trained)], allow_nan=False)


def test_curves_and_records_pass_over_undefined_points(tmp_path: Path) -> None:
    head = "seed,trip,round,val_received,test_received,test_trained,upload_bytes,download_bytes,embedding_upload,embedding_download"
    lines = [f"{head},communication_seconds", "0,0,0,0.5,0.4,0.4,0,0,0,0,0", "0,5,1,,,,1,1,1,1,1", "0,9,2,0.6,0.5,0.5,2,2,2,2,2"]
    path = tmp_path / "history.csv"
    path.write_text("\n".join([*lines, "0,12,3,0.9,,0.5,3,3,3,3,3"]), encoding="utf-8")
    assert curve(path)["trips"] == [0, 9]
    [seed] = records(path)
    assert seed["val"] == [0.5, 0.6] and seed["test"] == [0.4, 0.5] and seed["round"] == [0, 2]
    path.write_text(f"{head}\n0,0,0,,,,0,0,0,0\n", encoding="utf-8")
    assert curve(path) == {}
