"""The report's views besides its tables: overview, methods, comparison, search, downloads, print."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from fgl_bench.papers.plan import Row, Table, columns
from fgl_bench.report.html import page, sources
from fgl_bench.report.shown import variants
from tests.results.report_pages import faults, tab_of
from tests.results.stored_runs import store


@pytest.fixture
def tab(browser, file):
    with tab_of(browser, file) as opened:
        yield opened


@pytest.fixture
def whole_tab(browser, whole):
    with tab_of(browser, whole) as opened:
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
    table = tab.locator(f"#view table:has(caption:has-text('{caption}'))")
    table.first.wait_for()  # a click changes the view a moment later
    rows = table.locator("tr")
    return [[text.strip() for text in row.locator("th, td").all_inner_texts()] for row in rows.all()]


def column(tab, heading: str, table: str = "#view table") -> list[str]:
    """The visible cells of a column."""
    heads = tab.locator(f"{table} thead tr:last-child th").all_inner_texts()
    number = next(i for i, text in enumerate(heads) if text.split("\n")[-1].strip() == heading)
    return [row.locator("th, td").nth(number).inner_text().strip() for row in tab.locator(f"{table} tbody tr").all()]


# ---- own runs


def test_the_report_opens_on_the_table_and_the_chart_of_own_runs(whole_tab):
    assert whole_tab.locator("#view-heading").inner_text().startswith("Your runs: ")
    assert column(whole_tab, "method", ".beside table")[:3] == ["ditto", "fedavg", "fedgta"]
    heads = whole_tab.locator(".beside thead th").all_inner_texts()
    assert heads == ["method", "cora, metis, 5 clients", "cora, metis, 10 clients", "pubmed, metis, 5 clients", "pubmed, metis, 10 clients"]
    assert whole_tab.locator(".beside figure").count() == 4, "a panel per column"
    bottom = whole_tab.locator(".beside figure").first.bounding_box()["y"]
    assert bottom < 900, "the chart begins on the first screen"


def test_rows_columns_metric_and_model_of_own_runs_are_chosen(whole_tab):
    trained = column(whole_tab, "cora, metis, 5 clients", ".beside table")
    whole_tab.get_by_role("radio", name="trained").check()
    halved = column(whole_tab, "cora, metis, 5 clients", ".beside table")
    assert [float(one.split(" ")[0]) for one in trained] == pytest.approx([2 * float(one.split(" ")[0]) for one in halved], abs=0.11)
    assert whole_tab.evaluate("document.activeElement.id") == "model-trained", "the control keeps the focus"
    whole_tab.locator("#choose-columns").select_option("num_clients")
    assert whole_tab.locator(".beside thead th").all_inner_texts() == ["method", "5 clients", "10 clients"]
    assert whole_tab.locator("#choose-only-dataset").locator("option").all_inner_texts() == ["cora", "pubmed"], "the key that is fixed"
    assert whole_tab.locator(".beside figure g.curve").count() == 6, "six lines over the numbers of clients"
    whole_tab.locator("#choose-rows").select_option("dataset")
    assert column(whole_tab, "dataset", ".beside table") == ["cora", "pubmed"]
    whole_tab.locator("#choose-columns").select_option("method")
    whole_tab.locator("#choose-metric").select_option("trips")
    assert set(column(whole_tab, "ditto", ".beside table")) == {"20"}
    where = whole_tab.evaluate("location.hash")
    go(whole_tab, "#methods")
    go(whole_tab, where)
    assert whole_tab.locator("#choose-metric").input_value() == "trips", "an address holds the choices"


def test_six_curves_are_on_and_the_others_one_click_away(whole_tab):
    whole_tab.locator("#choose-chart").select_option("trips")
    assert whole_tab.locator(".beside g.curve").count() == 6
    whole_tab.get_by_text("2 more").click()
    whole_tab.locator(".beside details input").first.check()
    assert whole_tab.locator(".beside g.curve").count() == 7
    whole_tab.locator("#choose-chart").select_option("bytes")
    ticks = whole_tab.locator(".beside [aria-label='x-axis tick label'] text").all_text_contents()
    assert ticks and all(tick.endswith((" MB", " kB", " GB")) for tick in ticks)


def test_amounts_have_units(tab):
    for value, text in ((0, "0 MB"), (0.25, "250 kB"), (12.5, "12.5 MB"), (1500, "1.5 GB")):
        assert tab.evaluate(f"megabytes({value})") == text


def test_axes_of_bytes_have_few_round_numbers(tab):
    axes = {(0, 14000): [0, 10, 100, 1000, 10000], (0, 14): [0, 1, 10], (3000, 13000): [5000, 10000], (0.5, 2e5): [10, 1000, 1e5]}
    for (low, high), ticks in axes.items():
        assert sorted(tab.evaluate(f"byteTicks({low}, {high})")) == ticks
    assert all(len(tab.evaluate(f"byteTicks({low}, {low * 10**span})")) in range(1, 6) for low in (0.02, 3.0) for span in range(1, 5))


def test_a_run_without_a_score_of_some_seed_is_not_the_best(browser, tmp_path):
    store(tmp_path, "fedavg", per_seed=(0.9, None))
    store(tmp_path, "fedgta", per_seed=(0.5, 0.6))
    store(tmp_path, "fedprox", per_seed=(0.4, 0.5))
    made = tmp_path / "report.html"
    made.write_text(page(sources(tmp_path)), encoding="utf-8")
    with tab_of(browser, made) as tab:
        assert column(tab, "cora, metis", ".beside table")[0] == "90.0 (1/2)"
        assert tab.locator(".beside td.best").all_inner_texts() == ["55.0 ± 63.5"]


# ---- papers


def test_papers_open_on_their_claims(tab):
    main = tab.locator("#main").inner_text()
    assert "The papers' own methods are best in 2 of 2 columns in print, and in 1 in our runs." in main
    [head, points, trips] = lines(tab, "Claims of")
    assert points == ["Paper one, table 3, gcn", "2 of 2", "1 of 2", "+1.5", "-0.8 (-1.3 to -0.3)", "1", "fedgta", "0.50 (0.10 to 0.90)"]
    assert trips[0] == "Paper one, table 7, gcn" and trips[3:5] == ["+2", "-1 (-1 to 0)"] and trips[-1] == "0.50"
    assert tab.locator("figure svg").first.get_attribute("aria-label").endswith(": Paper one, table 3, gcn -0.75"), "trips are not points"
    [head, line] = lines(tab, "Printed cells by verdict")
    assert dict(zip(head, line, strict=True))["under-specified"] == "1" and line[0] == "Paper one"
    tab.locator("summary").first.click()
    [_, *tables] = lines(tab, "Tables of Paper one")
    assert [line[0] for line in tables] == ["Paper one, table 3", "Paper one, table 7", "Paper one, figure 4"]
    assert [line[2] for line in tables] == ["5 of 8", "3 of 3", "2 of 2"] and tables[0][3:] == []
    assert "Not run yet: Paper two (8 cells)." in main
    assert tab.locator("#to-leaderboard").is_hidden() and tab.locator("#to-runs").is_hidden()
    follow(tab, tab.get_by_role("link", name="Show their printed numbers").click)
    assert tab.locator("#view-heading").inner_text() == "Paper two, table 3"
    assert tab.evaluate("document.activeElement.id") == "view-heading"


def test_rows_and_columns_without_a_run_are_left_out_until_they_are_asked_for(tab):
    go(tab, "#p/3")
    assert tab.locator("#counted").inner_text() == "5 cells of 8 were run. Rows and columns without a run are left out."
    assert tab.locator("#results tbody th").all_inner_texts() == ["Method A", "Method B </script>", "Method C"]
    assert tab.locator("#choose-paper").count() == 0, "the other paper has no run"
    tab.get_by_role("checkbox", name="Show missing cells").check()
    assert "Method D" in tab.locator("#results tbody").inner_text() and tab.locator("#choose-paper option").count() == 2
    go(tab, "#p/7")
    assert tab.locator("#counted").inner_text() == "All 3 cells were run."
    assert tab.locator("#curves").is_visible()
    go(tab, "#q/3")
    assert tab.locator("#curves").count() == 0 and tab.locator("#statistics").count() == 0, "no empty panels"


def test_a_heading_sorts_and_empty_cells_stay_last(tab):
    go(tab, "#p/3")
    heading = tab.get_by_role("button", name="pubmed received")
    for direction, expected in (("descending", ["60.0", "50.0", "not"]), ("ascending", ["50.0", "60.0", "not"])):
        heading.click()
        assert heading.locator("..").get_attribute("aria-sort") == direction
        shown = tab.locator("#results tbody tr").evaluate_all("rows => rows.map(row => row.cells[3].textContent.split(' ')[0])")
        assert shown == expected


def test_variants_of_a_row_are_folded():
    rows = (
        Row("a", "A", "fedavg", published="a"), Row("a3", "A, 3 local epochs", "fedavg", published="a"),
        Row("b", "B", "fedgta", published="b"), Row("b2", "B with sgd", "fedgta", published="b"),
        Row("l", "Local", "local"), Row("l3", "Local, 3 local epochs", "local"), Row("w", "Local wide", "local"),
    )  # fmt: skip
    table = Table("1", "p/1", "", "accuracy", columns(("cora",)), rows)
    assert variants(table, set()) == {"a3": "a", "b2": "b", "l3": "l"}
    assert variants(table, {"a3"}) == {"a": "a3", "b2": "b", "l3": "l"}, "the row with verdicts leads"
    assert variants(replace(table, measure="curves"), set()) == {}


def test_a_variant_unfolds_below_its_row(tab):
    go(tab, "#p/3")
    script = """() => {
        const rows = [{ key: "a", name: "A" }, { key: "b", name: "B" }, { key: "a2", name: "A, twice", parent: "a" }];
        const table = dataTable({ caption: "Rows", columns: [{ head: "row", cell: ({ name }) => name }], rows });
        byId("view").replaceChildren(viewHeading("Rows"), table);
    }"""
    tab.evaluate(script)
    assert tab.locator("tbody tr").count() == 2
    tab.get_by_role("button", name="1 variant of A").click()
    assert [text.split(" +")[0] for text in tab.locator("tbody th").all_inner_texts()] == ["A", "A, twice", "B"]
    tab.get_by_role("button", name="row", exact=True).click()
    assert [text.split(" +")[0] for text in tab.locator("tbody th").all_inner_texts()] == ["A", "A, twice", "B"]
    tab.get_by_role("button", name="row", exact=True).click()
    assert [text.split(" +")[0] for text in tab.locator("tbody th").all_inner_texts()] == ["B", "A", "A, twice"]


# ---- the leaderboard


def test_the_leaderboard_sorts_filters_and_has_references_below_a_line(whole_tab):
    go(whole_tab, "#leaderboard")
    names = column(whole_tab, "entry")
    assert names[:3] == ["scaffold", "fedavg", "fedgta"] and names[3:] == ["local", "global"], "by rank, then the references"
    assert column(whole_tab, "rank")[0].startswith("1.0 [1.0, 1.0]") and column(whole_tab, "rank")[3:] == ["", ""]
    assert column(whole_tab, "cora")[0] == "66.0 ± 0.5"
    whole_tab.get_by_role("button", name="scores cora").click()
    whole_tab.get_by_role("button", name="scores cora").click()
    assert [*column(whole_tab, "entry")] == ["fedavg", "fedgta", "scaffold", "local", "global"], "ascending, the references stay below"
    line = whole_tab.locator("tr.first-below td").first.evaluate("cell => getComputedStyle(cell).borderTopStyle")
    assert line == "double" and whole_tab.locator("tr.first-below th").inner_text() == "local"
    whole_tab.get_by_label("Filter leaderboard node").fill("fed")
    assert column(whole_tab, "entry") == ["fedavg", "fedgta"]
    check = whole_tab.locator("tbody tr").first.get_by_role("link", name="OpenFGL")
    assert check.get_attribute("href") == "#method/fedavg", "the cross-check"
    paper = whole_tab.locator("tbody tr").first.get_by_role("link", name="McMahan et al., AISTATS 2017")
    assert paper.get_attribute("href") == "https://arxiv.org/abs/1602.05629"


def test_columns_of_the_leaderboard_are_picked(whole_tab):
    go(whole_tab, "#leaderboard")
    assert "code" not in whole_tab.locator("#view thead").inner_text()
    whole_tab.locator("summary").first.click()
    whole_tab.get_by_role("checkbox", name="code").check()
    whole_tab.get_by_role("checkbox", name="webkb").uncheck()
    assert "fgl_bench.algorithms.fedgta.FedGTA" in column(whole_tab, "code")
    assert "webkb" not in whole_tab.locator("#view thead").inner_text()


# ---- methods and comparisons


def test_a_method_has_a_page_with_its_cells(tab):
    go(tab, "#method/a")
    [head, *cells] = lines(tab, "Test scores of a")
    assert ["Paper one, table 3", "Method A", "cora", "81.0 ± 12.7", "71.0 ± 12.7", "80.5 ± 0.3", "open"] in cells and len(cells) == 4
    tab.get_by_text("Clients and costs").click()
    [head, *costs] = lines(tab, "How evenly")
    assert dict(zip(head, costs[0], strict=True))["worst client, received"] == "50.0" and len(costs) == 2, "each run once"
    go(tab, "#method/fedprox")
    text = tab.locator("#main").inner_text()
    assert "mu/2 ||theta - w||^2" in tab.locator("code.formula").inner_text() and "It has no run here." in text
    assert "Checked against OpenFGL (cora +0.00 ± 0.18" in text
    tab.get_by_text("Keys (").click()
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
    tab.locator("#choose-second").focus()
    tab.get_by_role("combobox", name="against").select_option("Method B </script>")
    assert tab.evaluate("document.activeElement.id") == "choose-second" and "compare" in tab.evaluate("location.hash")
    found = {line[0]: line[3] for line in lines(tab, "Test scores in %")[1:3]}
    assert found == {"Paper one, table 3: cora": "+20.0 ± 0.0 *", "Paper one, table 3: pubmed": "-10.0 ± 0.0 *"}
    assert "Method A minus Method B </script>" in tab.locator("#view figure svg").first.get_attribute("aria-label")


def test_a_comparison_opens_on_a_method_and_fedavg(browser, tmp_path):
    other = ("cora", "photo", "citeseer")
    datasets = {"local": (*other, "pubmed"), "fedavg": ("cora", "pubmed"), "fedgta": other, "fedprox": other}
    for method, names in datasets.items():
        for dataset in names:
            store(tmp_path, method, dataset)
    made = tmp_path / "report.html"
    made.write_text(page(sources(tmp_path)), encoding="utf-8")
    with tab_of(browser, made, "#compare") as tab:
        assert tab.locator("#choose-first").input_value() == "fedgta", "local has more settings and a shorter name, but is a reference"
        assert tab.locator("#choose-second").input_value() == "fedavg", "local and fedprox share more settings"
        assert "of 1 setting;" in tab.locator(".said").inner_text()
        tab.locator("#choose-first").select_option("fedavg")
        assert tab.locator("#choose-second").input_value() == "fedgta", "local shares more settings"


def test_a_run_has_an_address_and_leads_to_its_files(tab):
    go(tab, "#run/b-cora")
    dialog = tab.get_by_role("dialog")
    assert dialog.get_by_role("heading", name="Method B </script>, cora").is_visible()
    link = dialog.get_by_role("link", name="runs/x y/b")
    assert link.get_attribute("href").endswith("runs/x%20y/b") and not link.get_attribute("href").startswith(("/", "file:"))
    tab.keyboard.press("Escape")
    go(tab, "#run/no-such-run")
    assert tab.locator("#view-heading").inner_text().startswith("The papers' claims")


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
    name, text = downloaded(tab, tab.get_by_role("dialog").get_by_role("button", name=re.compile("^Download the figure trip 40 as svg")))
    assert name == "trip-40.svg" and "data:image/png" in text


VIEWS = (
    "", "#runs/1?columns=num_clients", "#runs/1?chart=trips", "#papers", "#p/3", "#p/3?missing=yes", "#leaderboard", "#methods",
    "#method/a", "#method/fedgta", "#compare", "#verdicts/p", "#search/method", "#run/a-cora",
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", ["wide", "phone"])
def test_every_view_fits_the_screen_without_network_and_is_readable(browser, whole, screen, scheme):
    found = {}
    with tab_of(browser, whole, "", screen == "phone", scheme) as tab:
        for where in VIEWS:
            go(tab, where)
            tab.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            if wrong := faults(tab):
                found[where] = wrong
    assert found == {}


def test_the_checks_of_a_view_find_faults(tab):
    style = "color: rgb(120, 120, 120); background: rgb(128, 128, 128); width: 3000px"
    tab.evaluate(f"byId('view').append(element('p', {{ style: '{style}' }}, 'pale'), element('button'), element('table'))")
    assert {fault.split(":")[0].split(" ")[0] for fault in faults(tab)} >= {"wider", "contrast", "controls", "tables", "empty"}
