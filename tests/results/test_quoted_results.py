"""The numbers that docs/reproduction.md quotes: what a block holds, and that the page is up to date."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    place = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("quote_results")


def tables(folder: Path, cells: list[tuple[str, str, str, str, str, str]]) -> Path:
    (folder / "paper").mkdir()
    with (folder / "paper" / "table1.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("dataset", "group", "num_clients", "model", "mean", "published_mean", "row", "title"))
        writer.writerows((*cell, "fedavg", "FedAvg") for cell in cells)
    return folder


TEN = [("cora", "iid", "10", "received", "0.5", "70"), ("cora", "iid", "10", "trained", "0.6249", "70")]
TWENTY = [("cora", "Dirichlet(0.5)", "20", "received", "", ""), ("cora", "Dirichlet(0.5)", "20", "trained", "", "")]


@pytest.mark.audit
@pytest.mark.parametrize(
    ("name", "blocks"), [("reproduction.md", 6), ("reproduction_readings.md", 8), ("findings.md", 1), ("notes/speed.md", 1)]
)
def test_the_page_is_up_to_date(script: ModuleType, name: str, blocks: int) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert name in script.PAGES
    assert script.page(text, ROOT / "results/tables") == text, "run: make numbers"
    assert text.count("<!-- numbers: ") == text.count("<!-- /numbers -->") >= blocks


def test_a_block_shows_both_models_and_the_printed_value(script: ModuleType, tmp_path: Path) -> None:
    folder = tables(tmp_path, TEN + TWENTY)
    text = "a\n<!-- numbers: paper/table1 columns=cora/10,cora/dir rows=fedavg -->\nold\n<!-- /numbers -->\nb\n"
    page = script.page(text, folder)
    assert "| FedAvg | 50.0/62.5 (70.0) |  |" in page and "old" not in page and page.startswith("a\n") and page.endswith("b\n")
    assert script.page(page, folder) == page


def test_a_frame_is_quoted_with_floor_and_ceiling_next_to_the_count(script: ModuleType) -> None:
    lines = script.numbers("floor", ROOT / "results/tables")
    heads = [head.strip() for head in lines[0].strip("|").split("|")]
    assert heads == ["paper", "tested", "equivalent, %", "floor", "ceiling", "different, %", "floor", "ceiling", "p"]
    assert len(lines) == 2 + len(script.TITLES)


@pytest.mark.audit
def test_the_conclusions_of_the_reproduction_hold() -> None:
    """Each sentence that is typed in docs/reproduction.md and docs/findings.md, against the stored frames."""
    frames = {name: pd.read_csv(ROOT / f"results/tables/{name}.csv") for name in ("counts", "claims", "sparsity", "verdicts", "own_best")}
    counts, scores = frames["counts"].set_index("paper"), frames["claims"][~frames["claims"]["trips"]]
    assert (scores["low"] <= 0).all() and (scores["high"] < 0).mean() > 0.5, "below zero in most tables, above in none"
    assert scores["best_ours"].sum() < 0.1 * scores["columns"].sum() < 0.1 * 1.25 * scores["best_printed"].sum(), (
        "nearly nowhere, nearly everywhere"
    )
    best = frames["own_best"]
    assert set(best[best["low"] > 0]["paper"]) == {"fedsa_gcl"}, "with one exception"
    assert (scores["tau"].abs() < 0.6).all(), "the printed order says little"
    draws = frames["verdicts"].query("dataset in ['cora', 'citeseer'] and paper in ['fedsa_gcl', 'dfed_sst', 'fedssa'] and between > 0")
    assert draws["between"].median() ** 0.5 > 0.64 == round(1.5 / (1.645 * 2**0.5), 2)
    assert (counts.loc[["fedaas", "fedgta"], "equivalent_ceiling"] > 60).all()
    assert counts.loc["fedaas", "p"] > 0.05, "for FedAAS as often"
    assert counts.loc["all", "different_ceiling"] < 2 and counts.loc["all", "different_share"] > 100 / 3
    copied = frames["sparsity"].set_index(["paper", "table"])["same_print"]
    assert copied[("dfed_sst", 3)] == 10 == copied.sum()


@pytest.mark.audit
def test_the_page_of_a_million_clients_has_the_numbers_of_stored_runs_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, page = load("quote_scale"), tmp_path / "scale.md"
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    page.write_text(text.replace("| 34.92 |", "| 35 |"), encoding="utf-8")
    monkeypatch.setattr(script, "PAGE", page)
    script.main()
    assert page.read_text(encoding="utf-8") == text, "run: make numbers"
    assert "| home | 1 | 34.92 | 79.0 | 9 |" in text
