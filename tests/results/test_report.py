"""The report page: what it holds, and what it does in a real browser opened from the file system."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fgl_bench.papers.plan import load_paper, papers
from fgl_bench.report import html, method_facts
from fgl_bench.report.html import gather
from fgl_bench.report.shown import paper_data
from tests.results.report_pages import TRIPS, data_of, source, tab_of, two_papers

UNLINKED = {"global", "label_propagation", "local", "majority", "feddual", "fedpns", "graphfed"}  # without a paper, or an open one
RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_the_page_is_self_contained_and_holds_every_number():
    html = two_papers()
    markup = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)=["']?(?!["']?(?:#|data:))""", markup) and "@import" not in markup
    assert html.count("</script>") == 2, "no data ends the script that holds it"
    data = data_of(html)
    table = data["papers"][0]["tables"][0]
    found = table["cells"]["a|cora"]
    assert found["received"] == {"text": "81.0 ± 12.7", "rank": 81.0, "verdict": "equivalent"} and found["published"] == "80.5 ± 0.3"
    assert found["command"] == "fgl-bench dataset=cora algorithm=fedavg" and data["runs"][found["run"]]["curve"]["trips"] == TRIPS
    assert table["rows"][1]["title"] == "Method B </script>"
    assert table["cells"]["a|cora"]["trained"]["verdict"] is None and table["cells"]["b|cora"]["trained"]["verdict"] == "under-specified"
    judged = data["papers"][0]["verdicts"]
    assert (judged["counts"]["equivalent"], judged["counts"]["not run"], len(judged["cells"])) == (1, 1, 2)
    assert judged["cells"][0] == ["3", "Method A", "received", "cora", "80.5 ± 0.3", "81.0", "-1.2", "1.0", "equivalent", ""]
    assert "run" not in table["cells"]["c|pubmed"]
    assert data["papers"][1]["tables"][0]["cells"]["a|cora"]["published"] == ""
    assert (table["made"], table["planned"]) == (5, 8) and data["papers"][1]["tables"][0]["made"] == 0


@pytest.mark.parametrize("name", [name if name == "fedgta" else pytest.param(name, marks=pytest.mark.audit) for name in papers()])
def test_the_page_has_the_verdicts_of_the_committed_tables(name):
    data = paper_data(gather(load_paper(name), RESULTS, RESULTS / "published"))
    with (RESULTS / "tables/counts.csv").open(encoding="utf-8", newline="") as file:
        (stored,) = [line for line in csv.DictReader(file) if line["paper"] == name]
    assert data["verdicts"]["counts"] == {key: int(stored[key]) for key in data["verdicts"]["counts"]}


def test_what_does_not_fit_is_left_out_and_said(monkeypatch):
    page = two_papers()
    whole = data_of(page)
    assert len(page) - len(html.packed(whole)) + html.MOST_BYTES < 6_000_000
    assert "less" not in whole and whole["runs"]["a-cora"]["matrices"]
    monkeypatch.setattr(html, "MOST_BYTES", len(html.packed(data_of(two_papers()))) - 1)
    assert "to keep this page small" in data_of(two_papers())["less"]
    monkeypatch.setattr(html, "MOST_BYTES", 0)
    least = data_of(two_papers())
    assert not {"matrices", "labels", "curve"} & {name for run in least["runs"].values() for name in run}
    assert least["runs"]["a-cora"]["numbers"] == whole["runs"]["a-cora"]["numbers"]


def test_links_to_runs_are_relative_to_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = data_of(two_papers(out=tmp_path / "pages/report.html"))["runs"]
    assert runs["a-cora"]["file"] == "../cells/a.json" and runs["b-cora"]["file"] == "../runs/x y/b" and "file" not in runs["c-cora"]
    assert str(tmp_path) not in json.dumps(runs)


def test_commands_can_be_pasted_into_a_shell():
    cell = replace(source().cells[0], overrides=("seeds=[0,1]", "dataset=cora"))
    assert replace(source(), cells=[cell]).commands == {cell.key: "fgl-bench 'seeds=[0,1]' dataset=cora"}


def test_every_method_says_what_it_is():
    for name, method in method_facts.all_methods().items():
        assert method["lead"] and method["target"].startswith("fgl_bench.algorithms."), name
        assert not any(part.startswith("Attributes") or "\n" in part for part in (method["lead"], *method["text"])), name
    prox = method_facts.all_methods()["fedprox"]
    assert "``mu/2 ||theta - w||^2``" in prox["lead"] and prox["keys"][0][:2] == ["mu", "0.01"] and prox["keys"][0][2]


def test_every_method_with_a_paper_links_to_it():
    methods = method_facts.all_methods()
    assert methods["fedavg"]["url"] == "https://arxiv.org/abs/1602.05629" and methods["fedavg"]["paper"] == "McMahan et al., AISTATS 2017"
    assert {name for name, method in methods.items() if not method["url"].startswith("https://")} == UNLINKED


def test_every_method_says_whether_it_was_checked_against_other_code():
    said = {name: method["checked"] for name, method in method_facts.all_methods().items()}
    assert "its authors' code (cora +0.05 ± 0.15," in said["fedgta"] and "OpenFGL (cora +0.00 ± 0.57," in said["fedgta"]
    assert "citeseer -1.65 ± 1.03*" in said["feddc"] and "excludes 0" in said["feddc"] and "excludes" not in said["fedprox"]
    assert "FED-PUB's code (cora +0.70" in said["fedavg"], "that code's FedAvg"
    assert "unifilter" not in said["local"] and said["fedssa"] == method_facts.UNCHECKED
    rows = [path.read_text(encoding="utf-8").count("\n") - 1 for path in (Path(__file__).parents[2] / "results/cross_check").glob("*.csv")]
    assert sum(text.count("±") for text in said.values()) == sum(rows) - 4, "all but the checks of a backbone"


def test_an_own_method_is_described_from_its_source_without_running_it(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text('class Mine:\n    """Mine adds ``a = b``."""\n\nraise SystemExit(3)\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = method_facts.of_run("mine", {"algorithm": {"_target_": "never_imported.Mine", "share": 0.5, "inner": {"_target_": "x.Y"}}})
    assert found["lead"] == "Mine adds ``a = b``." and found["keys"] == [["share", "0.5", ""]]
    assert method_facts.of_run("gone", {"algorithm": {"_target_": "no_such_module.Mine"}})["lead"] == ""


# ---- in a browser


CORNER = """async (node) => {
    const picture = new Image();
    picture.src = node.getAttribute("href");
    await picture.decode();
    const context = new OffscreenCanvas(2, 1).getContext("2d");
    context.drawImage(picture, 0, 0);
    return [...context.getImageData(0, 0, 2, 1).data];
}"""


@pytest.fixture(params=["wide", "phone"])
def opened(request, browser, file):
    """The first table of the first paper, on both kinds of screen."""
    with tab_of(browser, file, "#p/3", request.param == "phone") as tab:
        yield tab


def test_a_number_opens_its_run_and_the_keyboard_closes_it(opened):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    number = opened.get_by_role("button", name="Method A, cora")
    number.focus()
    opened.keyboard.press("Enter")
    dialog = opened.get_by_role("dialog")
    assert dialog.get_by_role("heading", name="Method A, cora").is_visible()
    text = dialog.inner_text()
    for said in ("fgl-bench dataset=cora algorithm=fedavg", "81.0 ± 12.7 (equivalent)", "80.5 ± 0.3", "2026-01-02", "worst 50.0"):
        assert said in text
    assert dialog.locator("figure image").count() == 2 and dialog.locator("figure.network").count() == 1
    assert dialog.locator("g.curve path").count() == 2 and dialog.locator("circle title").count() == 5
    corner = dialog.locator("figure image").first.evaluate(CORNER)
    assert corner == [253, 231, 37, 255, 68, 1, 84, 255], "similarity one and none"
    dialog.get_by_role("button", name="Copy").click()
    dialog.get_by_role("button", name="Copied").wait_for()
    opened.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert opened.evaluate("document.activeElement.innerText").startswith("81.0"), "back where it was opened"


def test_statistics_and_verdicts_are_shown(opened):
    assert opened.locator("#results .verdict.equivalent").inner_text().startswith("=")
    assert opened.locator("#results .verdict").count() == 1
    assert opened.locator("#statistics tbody tr").first.locator("th, td").all_inner_texts()[:2] == ["cora", "Method A"]
    ranks = opened.locator("#statistics svg[aria-label^='average ranks']").get_attribute("aria-label")
    assert "Method A 1.50, Method B </script> 1.50" in ranks


def test_the_keyboard_skips_to_the_content(opened):
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    outline = opened.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is seen"
