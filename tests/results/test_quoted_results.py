"""The numbers that docs/reproduction.md quotes: what a block holds, and that the page is up to date."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

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
@pytest.mark.parametrize(("name", "blocks"), [("reproduction.md", 6), ("notes/speed.md", 1)])
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


def test_verdicts_of_a_papers_tables_are_added_up(script: ModuleType) -> None:
    text = "| paper | table | cells run | received | tau | trained | tau |\n|---|---|---|---|---|---|---|\n"
    text += "| A | 1 | 3 of 4 | 1 / 2 / 0 | 0.5 | 0 / 0 / 3 |  |\n| A | 2 | 1 of 9 | 1 / 0 / 0 |  | 1 / 0 / 0 |  |\n"
    assert script.agreement(text)[2:] == ["| A | 4 of 13 | 2/2/0 | 1/0/3 |"]


@pytest.mark.audit
def test_the_page_of_a_million_clients_has_the_numbers_of_stored_runs_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, page = load("quote_scale"), tmp_path / "scale.md"
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    page.write_text(text.replace("| 34.92 |", "| 35 |"), encoding="utf-8")
    monkeypatch.setattr(script, "PAGE", page)
    script.main()
    assert page.read_text(encoding="utf-8") == text, "run: make numbers"
    assert "| home | 1 | 34.92 | 79.0 | 9 |" in text
