"""The tables' text, from a store made by hand."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fgl_bench.evaluation.summary import spread
from fgl_bench.papers.plan import Paper, Row, Stored, Table, columns
from fgl_bench.papers.published import Printed, Published, read_published
from fgl_bench.papers.tables import texts
from fgl_bench.results.render import escape
from fgl_bench.results.store import SCHEMA_VERSION
from fgl_bench.utils.files import write_whole

CONFIG = {"model": {"_target_": "fgl_bench.models.gcn.GCN"}, "seeds": [0, 1, 2, 3, 4], "num_clients": 20, "trips": 2000, "rounds": 100}
ROWS = (Row("a", "Method A", "a", published="a"), Row("b", "Method B_2", "b"), Row("c", "Method C", "c", published="c"))
ACCURACY = Table("3", "p/table3", "accuracy in %", "accuracy", columns(("cora", "pubmed")), ROWS)
TRIPS = Table("7", "p/table7", "trips", "trips", columns(("cora",)), ROWS)
PAPER = Paper("p", "Paper", (ACCURACY, TRIPS), first=())


def printed(table: str, dataset: str, method: str, *numbers, **where: str) -> Published:
    place = {"table": table, "dataset": dataset, "method": method, "variant": "default", "num_clients": "20", **where}
    return Published(*numbers, where=place)


PUBLISHED = Printed(
    (
        printed("3", "cora", "a", "81.7", "0.3"),
        printed("3", "cora", "a", "99.9", "0.1", variant="other"),
        printed("3", "pubmed", "a", "83.6", "0.3"),
        printed("3", "cora", "c", "63.0", "2.7"),
        printed("7", "cora", "a", "1920.0", "508.2", 0.56, 2),
    )
)


def stored(table: Table, cells: dict) -> Stored:
    """Cells in their places; they are named by row and column, such as ``a-cora``."""
    return {(table.key, *name.split("-", 1)): cell for name, cell in cells.items()}


def counts(per_seed: list[int | None]) -> dict:
    reached = [count for count in per_seed if count is not None]
    censored = sum(2000 if count is None else count for count in per_seed) / len(per_seed)
    return {**spread(reached), "reached": len(reached), "censored_mean": censored, "per_seed": per_seed}


def result(row: str, dataset: str, received: list[float], trained: list[float], trips: list[int | None] | None = None) -> dict:
    """A summary as ``run.py`` writes it."""
    by_model = {name: counts(trips or [20] * len(received)) for name in ("received", "trained")}
    test = {name: {**spread(v), "per_seed": v, "per_client": [[0.5]]} for name, v in (("received", received), ("trained", trained))}
    return {
        "schema_version": SCHEMA_VERSION,
        "algorithm": row,
        "dataset": dataset,
        "split": "metis",
        "sparsity": "none",
        "seeds": list(range(len(received))),
        "test": test,
        "num_clients": 20,
        "client_trips": {"total": 2000, "to_target": {"0.56": by_model}},
        "bytes": {"upload": 10, "download": 20},
        "virtual_time": 3.0,
        "seconds": {"total": 60.0},
        "device": "CPU x",
        "versions": {"torch": "2.0"},
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "finished": "2026-01-02T03:04:05+00:00",
        "config_hash": f"{row}-{dataset}",
    }


STORED = {
    cell["config_hash"]: cell
    for cell in (
        result("a", "cora", [0.80, 0.82], [0.70, 0.72]),
        result("b", "cora", [0.60, 0.62], [0.78, 0.80]),
        result("b", "pubmed", [0.50, 0.52], [0.60, 0.60]),
    )
}


def written(table: Table, cells: dict, **options) -> dict[str, str]:
    return texts(PAPER, table, stored(table, cells), PUBLISHED, **options)


def test_markdown_of_accuracies() -> None:
    lines = written(ACCURACY, STORED)["md"].splitlines()
    # two values 0.02 apart: s = sqrt(2), half-width 12.706 * s / sqrt(2) = 12.7
    assert lines[:7] == [
        "# Paper, table 3: accuracy in %",
        "",
        "| method | cora received | cora trained | cora published | pubmed received | pubmed trained | pubmed published "
        "| mean received | mean trained | mean published |",
        "|---|---|---|---|---|---|---|---|---|---|",
        "| Method A | **81.0 ± 12.7** | 71.0 ± 12.7 | 81.7 ± 0.3 |  |  | 83.6 ± 0.3 |  |  | 82.7 |",
        "| Method B_2 | 61.0 ± 12.7 | **79.0 ± 12.7** |  | **51.0 ± 12.7** | **60.0 ± 0.0** |  | **56.0** | **69.5** |  |",
        "| Method C |  |  | 63.0 ± 2.7 |  |  |  |  |  |  |",
    ]
    text = "\n".join(lines)
    for said in ("best validation", "Seeds [0, 1]", "CPU x", "2026-01-02", "torch 2.0", "0123456789", "TABLE=3"):
        assert said in text
    assert lines[-2:] == ["- Method A: pubmed", "- Method C: cora; pubmed"]


def test_equal_as_shown_is_equally_best() -> None:
    cells = {**STORED, "c-cora": result("c", "cora", [0.8001, 0.8201], [0.1, 0.1])}
    assert written(ACCURACY, cells)["md"].count("**81.0 ± 12.7**") == 2


def test_one_seed_has_no_interval_and_changed_keys_are_said() -> None:
    text = written(ACCURACY, {"a-cora": result("a", "cora", [0.8], [0.7])}, changed=["trips=40"])["md"]
    assert "| Method A | **80.0** | **70.0** | 81.7 ± 0.3 |" in text
    assert "Not the paper's setting: trips=40." in text


def test_trips_show_reach_and_censored_mean_and_failing_does_not_win() -> None:
    cells = {
        "a-cora": result("a", "cora", [0.8] * 5, [0.7] * 5, [100, None, None, None, None]),
        "b-cora": result("b", "cora", [0.8] * 5, [0.7] * 5, [400, 400, 400, 400, 400]),
        "c-cora": result("c", "cora", [0.8] * 5, [0.7] * 5, [None] * 5),
    }
    text = written(TRIPS, cells)["md"]
    assert "| Method A | 100 (1/5; 1620) | 100 (1/5; 1620) | 1920.0 ± 508.2 (2/5) |" in text
    assert "| Method B_2 | **400 ± 0 (5/5; 400)** | **400 ± 0 (5/5; 400)** |  |" in text
    assert "| Method C | never (0/5; 2000) | never (0/5; 2000) |  |" in text
    assert "cora 0.56" in text and "Not run" not in text


def test_the_csv_is_tidy_and_unrounded() -> None:
    rows = list(csv.DictReader(io.StringIO(written(ACCURACY, STORED)["csv"])))
    assert [(r["row"], r["dataset"], r["model"]) for r in rows[:3]] == [
        ("a", "cora", "received"),
        ("a", "cora", "trained"),
        ("a", "pubmed", "received"),
    ]
    assert len(rows) == 3 * 2 * 2
    assert float(rows[0]["mean"]) == pytest.approx(0.81) and float(rows[0]["std"]) == pytest.approx(0.02**0.5 / 10)
    assert rows[0]["published_mean"] == "81.7" and rows[2]["mean"] == "" and rows[2]["published_mean"] == "83.6"


def test_the_csv_of_another_metric_holds_that_metric() -> None:
    table, models = replace(ACCURACY, measure="macro_f1"), {"received": [0.4, 0.6], "trained": [0.3, 0.3]}
    f1 = {name: {**spread(values), "per_seed": values} for name, values in models.items()}
    cells = {"a-cora": {**STORED["a-cora"], "metrics": {"macro_f1": f1}}, "b-cora": STORED["b-cora"]}
    files = written(table, cells)
    assert "50.0 ± " in files["md"] and "81.0" not in files["md"]
    means = {(r["row"], r["dataset"], r["model"]): r["mean"] for r in csv.DictReader(io.StringIO(files["csv"]))}
    assert float(means["a", "cora", "received"]) == pytest.approx(0.5) and float(means["a", "cora", "trained"]) == pytest.approx(0.3)
    assert means["b", "cora", "received"] == "", "it did not report this metric"


def test_latex_marks_the_best_and_escapes() -> None:
    lines = written(ACCURACY, STORED)["tex"].splitlines()
    assert r"Method B\_2 & 61.0 $\pm$ 12.7 & \textbf{79.0 $\pm$ 12.7} &  & \textbf{51.0 $\pm$ 12.7}" in "\n".join(lines)
    assert {line.count("&") for line in lines if line.endswith(r"\\") and "multicolumn" not in line} == {9}
    assert escape("50 % of {a_b}") == r"50 \% of \{a\_b\}"


def test_tables_without_any_run_hold_the_published_values() -> None:
    text = written(ACCURACY, {})["md"]
    assert "| Method A |  |  | 81.7 ± 0.3 |" in text
    assert "Nothing has been run yet." in text and "- Method A: cora; pubmed" in text


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "table.md"
    write_whole(target, "old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_whole(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"] and target.read_text(encoding="utf-8") == "old"


def test_the_papers_csv_is_read_as_printed() -> None:
    cells = read_published(Path(__file__).parents[2] / "results/published/fedsa_gcl.csv")
    assert len(cells.cells) == 4 * 70 + 2 * 20
    assert cells.find({"table": "3", "dataset": "cora", "method": "fedsa_gcl"}).text == "81.7 ± 0.3"
    found = cells.find({"table": "7", "dataset": "cora", "method": "fedprox"})
    assert (found.mean, found.spread, found.target, found.reached) == ("1920.0", "508.2", 0.56, 2)
    assert cells.targets("6") == {"cora": 0.64, "pubmed": 0.77, "cs": 0.77, "physics": 0.88} and cells.targets("2") == {}
    assert cells.find({"table": "3", "dataset": "cora", "method": "nobody"}) is None
    with pytest.raises(ValueError, match="10 times"):
        cells.find({"table": "3", "dataset": "cora"})


def grouped() -> Table:
    tens = columns(("cora", "pubmed"), "10 clients", ("num_clients=10",), num_clients="10")
    twenties = columns(("cora",), "20 clients", num_clients="20")
    return Table("3", "p/table3", "accuracy in %", "accuracy", (*tens, *twenties), ROWS, with_bytes=True)


def test_every_group_of_columns_is_a_part_of_its_own() -> None:
    cells = {
        "a-cora, 10 clients": result("a", "cora", [0.8, 0.8], [0.7, 0.7]),
        "a-cora, 20 clients": result("a", "cora", [0.6, 0.6], [0.5, 0.5]),
        "b-cora, 20 clients": result("b", "cora", [0.5, 0.5], [0.6, 0.6]),
    }
    text = written(grouped(), cells)
    lines = text["md"].splitlines()
    first, second = lines.index("## 10 clients"), lines.index("## 20 clients")
    assert "cora trained | cora published | cora MB | pubmed received" in lines[first + 2] and "mean published |" in lines[first + 2]
    assert lines[first + 4] == "| Method A | **80.0 ± 0.0** | **70.0 ± 0.0** |  | 5e-09 |  |  |  |  |  |  |  |"
    # the printed number belongs to 20 clients; 10 bytes in 2,000 trips
    assert lines[second + 4] == "| Method A | **60.0 ± 0.0** | 50.0 ± 0.0 | 81.7 ± 0.3 | 5e-09 |"
    assert lines[second + 5] == "| Method B_2 | 50.0 ± 0.0 | **60.0 ± 0.0** |  | 5e-09 |"
    assert "- Method B_2: cora, 10 clients; pubmed, 10 clients" in lines
    rows = list(csv.DictReader(io.StringIO(text["csv"])))
    assert {(r["dataset"], r["group"]) for r in rows} == {("cora", "10 clients"), ("pubmed", "10 clients"), ("cora", "20 clients")}
    assert text["tex"].count(r"\begin{table") == 2 and r"\label{tab:p-3-2}" in text["tex"]


def test_seconds_a_round_have_one_column_and_the_least_is_best() -> None:
    table = Table("9", "p/table9", "seconds per round", "seconds", columns(("cora",)), ROWS)
    cells = {}
    for row, total in (("a", 100.0), ("b", 60.0)):
        cell = result(row, "cora", [0.8, 0.8], [0.7, 0.7])
        cells[f"{row}-cora"] = {**cell, "seconds": {"train": total, "total": total + 1}, "config": CONFIG}
    files = written(table, cells)
    lines = files["md"].splitlines()
    # 100 rounds of two seeds
    rows = list(csv.DictReader(io.StringIO(files["csv"])))
    assert [(r["row"], r["model"], r["mean"]) for r in rows[:2]] == [("a", "ours", "0.5"), ("b", "ours", "0.3")]
    assert lines[2:6:1] == [
        "| method | cora ours | cora published |",
        "|---|---|---|",
        "| Method A | 0.5 |  |",
        "| Method B_2 | **0.3** |  |",
    ]
    cells["b-cora"]["device"] = "NVIDIA H100"
    lines = written(table, cells)["md"].splitlines()
    assert lines[4:6] == ["| Method A | **0.5** |  |", "| Method B_2 | 0.3 (GPU) |  |"]
