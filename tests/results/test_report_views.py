"""The report's views besides its tables: overview, methods, comparison, search, downloads, print."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from tests.results.report_pages import tab_of


@pytest.fixture(params=["wide", "phone"])
def overview(request, browser, file):
    with tab_of(browser, file, "", request.param == "phone") as tab:
        yield tab


@pytest.fixture
def tab(browser, file):
    with tab_of(browser, file) as opened:
        yield opened


CHANGED = """() => {
    window.changed = new Promise((done) => {
        addEventListener("hashchange", () => setTimeout(done), { once: true });
        setTimeout(done, 2000);
    });
}"""


def follow(tab, act) -> None:
    """Do what changes the address inside the page, and wait until the page has followed it."""
    tab.evaluate(CHANGED)
    act()
    tab.evaluate("() => window.changed")


def go(tab, where: str) -> None:
    follow(tab, lambda: tab.evaluate("(where) => { location.hash = where; }", where))
    tab.wait_for_function("!document.getElementById('query').matches(':focus')")


def lines(tab, caption: str) -> list[list[str]]:
    """The cells of a table of the view that is shown."""
    table = tab.locator(f"#other table:has(caption:text('{caption}'))")
    table.first.wait_for()  # a click changes the view a moment later
    rows = table.locator("tr")
    return [[text.strip() for text in row.locator("th, td").all_inner_texts()] for row in rows.all()]


def test_the_overview_says_what_was_run_and_has_no_empty_panel(overview):
    main = overview.locator("#main").inner_text()
    assert "5 runs of 3 methods on 2 data sets." in main
    [_, *tables] = lines(overview, "Cells that were run")
    assert [line[0] for line in tables] == ["Paper one, table 3", "Paper one, table 7", "Paper one, figure4"]
    assert [line[2] for line in tables] == ["5 of 8", "3 of 3", "2 of 2"] and tables[0][3:] == []
    [head, line] = lines(overview, "Printed cells by verdict")
    assert dict(zip(head, line, strict=True))["under-specified"] == "1" and line[0] == "Paper one"
    assert "Not run yet: Paper two (8 cells)." in main
    assert "Leaderboard" not in main and "Your runs" not in main
    assert overview.locator("#tables").is_hidden() and not overview.get_by_role("link", name="Paper two").count()
    assert overview.evaluate("document.documentElement.scrollWidth <= innerWidth")
    follow(overview, overview.get_by_role("button", name="Show their printed numbers").click)
    assert overview.locator("#heading").inner_text() == "Paper two, table 3"
    assert overview.evaluate("document.activeElement.id") == "heading"


def test_rows_and_columns_without_a_run_are_left_out_until_they_are_asked_for(tab):
    go(tab, "#p/3")
    assert tab.locator("#counted").inner_text() == "5 cells of 8 were run. Rows and columns without a run are left out."
    assert tab.locator("#results tbody th").all_inner_texts() == ["Method A", "Method B </script>", "Method C"]
    assert tab.locator("#paper option").all_inner_texts() == ["Paper one"]
    tab.get_by_role("checkbox", name="Also what was not run").check()
    assert "Method D" in tab.locator("#results tbody").inner_text() and tab.locator("#paper option").count() == 2
    go(tab, "#p/7")
    assert tab.locator("#counted").inner_text() == "All 3 cells were run."
    assert tab.locator("#curves-part").is_visible()
    go(tab, "#q/3")
    assert tab.locator("#curves-part").is_hidden() and tab.locator("#statistics-part").is_hidden(), "no empty panels"


def test_a_method_has_a_page_with_its_cells(tab):
    go(tab, "#method/a")
    [head, *cells] = lines(tab, "Test scores of a")
    assert ["Paper one, table 3", "Method A", "cora", "81.0 ± 12.7", "71.0 ± 12.7", "80.5 ± 0.3", "open"] in cells and len(cells) == 4
    [head, *costs] = lines(tab, "How evenly")
    assert dict(zip(head, costs[0], strict=True))["worst client, received"] == "50.0" and len(costs) == 2, "each run once"
    go(tab, "#method/fedprox")
    text = tab.locator("#main").inner_text()
    assert "mu/2 ||theta - w||^2" in tab.locator("code.formula").inner_text() and "It has no run here." in text
    assert "Checked against OpenFGL (cora +0.00 ± 0.18" in text
    assert lines(tab, "Keys of fedprox")[1][:2] == ["algorithm.mu", "0.01"]
    go(tab, "#methods")
    follow(tab, tab.get_by_role("link", name="fednova", exact=True).click)
    assert tab.title() == "fednova: fgl-bench" and tab.evaluate("document.activeElement.id") == "view-heading"
    go(tab, "#method/none_such")
    assert "There is no method none_such here" in tab.locator("#main").inner_text()


def test_two_methods_are_compared_seed_by_seed(tab):
    go(tab, "#compare/Method A/Method C")
    [head, line] = lines(tab, "Test scores in %")[:2]
    assert head == ["setting", "Method A", "Method C", "difference", "seeds"]
    # differences of 10 and 6 points: 12.706 times 2.828 over the root of 2
    assert line == ["Paper one, table 3: cora", "81.0", "73.0", "+8.0 ± 25.4", "2"], "a run that two tables show counts once"
    assert "the interval of the difference excludes 0 in 0." in tab.locator(".said").first.inner_text()
    tab.get_by_role("combobox", name="against").select_option("Method B </script>")
    assert tab.evaluate("document.activeElement.id") == "second" and "compare" in tab.evaluate("location.hash")
    found = {line[0]: line[3] for line in lines(tab, "Test scores in %")[1:3]}
    assert found == {"Paper one, table 3: cora": "+20.0 ± 0.0 *", "Paper one, table 3: pubmed": "-10.0 ± 0.0 *"}
    assert "Method A minus Method B </script>" in tab.locator("#other svg").first.get_attribute("aria-label")


def test_an_axis_has_round_numbers_and_a_true_zero(tab):
    for low, high, found in ((-0.35, 0.4, [-0.2, 0, 0.2, 0.4]), (-25.4, 8, [-20, -10, 0]), (0, 0, [0]), (61.3, 61.9, [61.4, 61.6, 61.8])):
        assert tab.evaluate(f"ticks({low}, {high}, 5)") == found


def test_a_run_has_an_address_and_leads_to_its_files(tab):
    go(tab, "#run/b-cora")
    dialog = tab.get_by_role("dialog")
    assert dialog.get_by_role("heading", name="Method B </script>, cora").is_visible()
    link = dialog.get_by_role("link", name="runs/x y/b")
    assert link.get_attribute("href").endswith("runs/x%20y/b") and not link.get_attribute("href").startswith(("/", "file:"))
    tab.keyboard.press("Escape")
    go(tab, "#run/no-such-run")
    assert tab.locator("#view-heading").inner_text() == "What was run"


def downloaded(tab, button) -> tuple[str, str]:
    with tab.expect_download() as caught:
        button.click()
    return caught.value.suggested_filename, caught.value.path().read_text(encoding="utf-8")


def test_tables_and_figures_are_downloaded(tab):
    go(tab, "#p/3")
    texts = {}
    for ending in ("csv", "md", "tex"):
        name, texts[ending] = downloaded(tab, tab.get_by_role("button", name=f"Download Paper one, table 3 as {ending}"))
        assert name == f"paper-one-table-3.{ending}"
    kept = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert {line["row"] for line in kept} == {"a", "b", "c"} and len(kept) == 12, "three rows, two columns, two models"
    assert "| Method A | **81.0 ± 12.7** |" in texts["md"] and r"\toprule" in texts["tex"] and "Method D" not in texts["md"]
    name, text = downloaded(tab, tab.get_by_role("button", name=re.compile("^Download Paper one, table 3 statistics as csv")))
    assert next(csv.reader(io.StringIO(text)))[:2] == ["column", "best"]
    _, text = downloaded(tab, tab.get_by_role("button", name=re.compile("^Download Paper one, table 3 statistics as tex")))
    assert text.count(r"\\") == 3 and r"5 \%" in text
    name, text = downloaded(tab, tab.locator("#curves .save"))
    picture = ElementTree.fromstring(text)
    assert name.endswith(".svg") and picture.tag.endswith("}svg") and "var(" not in text, "colours do not depend on the page"
    go(tab, "#run/a-cora")
    with tab.expect_download() as caught:
        tab.get_by_role("dialog").get_by_role("button", name=re.compile("^Download the figure trip 40 as png")).click()
    assert caught.value.path().read_bytes().startswith(b"\x89PNG")


VIEWS = ["#methods", "#method/a", "#compare/Method A/Method B </script>", "#verdicts/p", "#search/method", "#run/a-cora"]


@pytest.mark.parametrize("where", [VIEWS[0], *(pytest.param(where, marks=pytest.mark.nightly) for where in VIEWS[1:])])
def test_every_view_fits_a_phone_and_names_its_controls(browser, file, where):
    with tab_of(browser, file, phone=True) as tab:
        go(tab, where)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        nameless = """() => [...document.querySelectorAll('button, select, input, a, svg[role=img], canvas')].filter((node) =>
            !(node.innerText || node.textContent || node.getAttribute('aria-label') || (node.labels && node.labels.length))).length"""
        assert tab.evaluate(nameless) == 0
        assert tab.locator("th:not([scope])").count() == 0 and tab.locator("table:not(:has(caption))").count() == 0
        assert tab.locator("h2:visible").count() >= 1 and tab.locator("h1").count() == 1
        parts = "document.querySelectorAll('#other table, #other ul, #other p')"
        empty = f"[...{parts}].filter((node) => !node.textContent.trim()).length"
        assert tab.evaluate(empty) == 0
