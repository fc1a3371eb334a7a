"""Findings on printed cells, from runs and numbers made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.agreement import agreeing, counts, coverage, markdown, section_of_chosen
from fgl_bench.papers.analysis import scorer
from fgl_bench.papers.matched_rows import FILE, read_choices
from fgl_bench.papers.plan import Basis, Paper, Row, Table, columns, load_paper, look_up, papers, plan
from fgl_bench.papers.published import Printed, read_published
from fgl_bench.papers.settlements import TYPED, Difference, Settlement, alternatives, read_settlements, settle
from fgl_bench.papers.work import Work
from tests.results.test_analysis import cell, printed

ONE, THREE = Row("a", "A", "a", published="a"), Row("a_e3", "A, 3 local epochs", "b", published="a")
TABLE = Table("3", "p/table3", "accuracy in %", "accuracy", columns(("cora", "pubmed", "photo", "cs")), (ONE, THREE))
PAPER = Paper("p", "Paper", (TABLE,), first=())
NAMED = Settlement("a", "received", "a_e3")


def findings(means: dict[str, tuple[float, float]], print_of: dict[str, str], settlement: Settlement = NAMED, spread: str = "") -> dict:
    """Findings by column; ``means`` has the received score of both rows, trained models are ten points below (``test_analysis.cell``)."""
    cells = [cell(name, dataset, [mean, mean]) for dataset, both in means.items() for name, mean in zip("ab", both, strict=True)]
    places = {(each["algorithm"], each["dataset"]): each for each in cells}
    stored = {("3", row.key, dataset): places[row.algorithm, dataset] for row in TABLE.rows for dataset in means}
    published = Printed(printed("3", dataset, "a", mean, spread) for dataset, mean in print_of.items())
    return {each.column: each for each in settle(PAPER, TABLE, stored, published, (settlement,))}


def test_a_cell_agrees_within_a_point_and_a_half_on_the_row_and_model_that_its_settlement_names():
    found = findings({"cora": (0.60, 0.80), "pubmed": (0.60, 0.80)}, {"cora": "81.5", "pubmed": "78.5"})
    assert {each.finding for each in found.values()} == {"agrees"}
    assert found["cora"].shown_by == "A, 3 local epochs, received: 80.0"
    found = findings({"cora": (0.60, 0.80), "pubmed": (0.60, 0.80)}, {"cora": "81.6", "pubmed": "78.4"})
    assert {each.finding for each in found.values()} == {"open"}


def test_a_cell_agrees_where_both_intervals_overlap():
    assert findings({"cora": (0.60, 0.80)}, {"cora": "83.0"}, spread="3.0")["cora"].finding == "agrees"
    assert findings({"cora": (0.60, 0.80)}, {"cora": "83.0"}, spread="2.9")["cora"].finding == "open"


def test_the_other_model_explains_before_another_setting_does():
    means = {"cora": (0.70, 0.80), "pubmed": (0.70, 0.90), "photo": (0.70, 0.90)}
    found = findings(means, {"cora": "70.0", "pubmed": "70.0", "photo": "60.0"})
    assert [found[name].finding for name in means] == ["other model", "another setting", "another setting"]
    assert [found[name].shown_by for name in means] == ["A, 3 local epochs, trained: 70.0", "A, received: 70.0", "A, trained: 60.0"]
    assert all(each.model == "received" and each.row == THREE.title for each in found.values())


def test_what_nothing_explains_has_the_typed_reason_of_its_column_or_is_open():
    differs = (Difference("contradiction", "x > y", ("cora",)), Difference("not reproducible", "no run is near"))
    means, print_of = {"cora": (0.70, 0.80), "pubmed": (0.70, 0.80)}, {"cora": "50.0", "pubmed": "50.0"}
    found = findings(means, print_of, replace(NAMED, differs=differs))
    assert [(found[name].finding, found[name].reason) for name in means] == [
        ("contradiction", "x > y"),
        ("not reproducible", "no run is near"),
    ]
    tried = ("A, 3 local epochs, received: 80.0", "A, 3 local epochs, trained: 70.0", "A, received: 70.0", "A, trained: 60.0")
    assert found["cora"].shown_by == "; ".join(tried)
    assert findings(means, print_of)["cora"].finding == "open"
    elsewhere = tuple(replace(each, tables=("4",)) for each in differs[:1])
    assert findings(means, print_of, replace(NAMED, differs=elsewhere + differs[1:]))["cora"].reason == "no run is near"
    assert findings(means, print_of, replace(NAMED, differs=(replace(differs[0], tables=("3",)),)))["cora"].reason == "x > y"
    # A reason does not hide that a run agrees.
    assert findings(means, {"cora": "80.0"}, replace(NAMED, differs=differs))["cora"].finding == "agrees"


def test_the_last_round_explains_where_the_best_one_does_not():
    def found(mean: str, last: dict[str, float]):
        rows = {"a": cell("a", "cora", [0.5, 0.5]), "a_e3": cell("b", "cora", [0.8, 0.8])}
        for key, score in last.items():
            rows[key]["test"]["received"]["last"] = {"mean": score, "ci95": 0.001, "per_seed": [score, score]}
        stored = {("3", key, "cora"): row for key, row in rows.items()}
        return settle(PAPER, TABLE, stored, Printed([printed("3", "cora", "a", mean, "")]), (NAMED,))[0]

    assert (found("76.0", {"a_e3": 0.75}).finding, found("76.0", {"a_e3": 0.75}).ours) == ("last round", "80.0")
    assert found("76.0", {"a_e3": 0.75}).shown_by == "A, 3 local epochs, received, last round: 75.0"
    assert found("76.0", {"a_e3": 0.60, "a": 0.77}).shown_by == "A, received, last round: 77.0"
    assert found("76.0", {"a_e3": 0.60}).finding == "open"
    assert found("79.0", {"a_e3": 0.79}).finding == "agrees"
    assert found("50.0", {"a_e3": 0.50}).finding == "another setting", "a run that agrees comes first"


def test_a_wide_interval_explains_only_where_nothing_is_near():
    def found(last: float) -> tuple[str, str]:
        rows = {"a": cell("a", "cora", [0.60, 0.80]), "a_e3": cell("b", "cora", [0.90, 0.90])}  # 70 with an interval of 127 points
        rows["a_e3"]["test"]["received"]["last"] = {"mean": last, "ci95": 0.9, "per_seed": [last - 0.1, last + 0.1]}
        stored = {("3", key, "cora"): row for key, row in rows.items()}
        [each] = settle(PAPER, TABLE, stored, Printed([printed("3", "cora", "a", "76.0", "")]), (NAMED,))
        return each.finding, each.shown_by

    assert found(0.75) == ("last round", "A, 3 local epochs, received, last round: 75.0")
    assert found(0.50) == ("another setting", "A, received: 70.0"), "the last round is no nearer"


def test_a_row_that_was_not_run_is_settled_by_no_other_one():
    published = Printed([printed("3", "cora", "a", "70.0", "")])
    stored = {("3", "a", "cora"): cell("a", "cora", [0.7, 0.7])}
    (found,) = settle(PAPER, TABLE, stored, published, (NAMED,))
    assert (found.finding, found.ours) == ("not run", "")


def test_a_settlement_without_a_row_takes_the_first_that_stands_for_the_cell():
    found = findings({"cora": (0.60, 0.80)}, {"cora": "60.0"}, Settlement("a", "received"))
    assert (found["cora"].row, found["cora"].ours, found["cora"].finding) == ("A", "60.0", "agrees")


def test_a_row_that_another_one_is_compared_for_is_an_alternative():
    other = Row("c", "C", "c", published="c")
    table = replace(TABLE, rows=(Row("local", "Local", "local"), ONE, THREE, other))
    assert alternatives(table, [NAMED]) == {"a"}
    assert alternatives(table, [Settlement("a", "received")]) == {"a_e3"}, "without a name it is the first"
    assert alternatives(table, [replace(NAMED, tables=("4",))]) == set(), "nothing is settled in this table"
    assert alternatives(replace(table, measure="curves"), [NAMED]) == set()
    elsewhere = Row("a_gat", "A, GAT", "a", published="a", where={"backbone": "gat"})
    assert alternatives(replace(table, rows=(ONE, THREE, elsewhere)), [NAMED]) == {"a"}, "it stands for another print"


def commands(*words: str) -> set[tuple[str, ...]]:
    """Overrides of rows of TABLE, such as ``a-cora``."""
    return {cell.overrides for cell in plan([TABLE]) if f"{cell.row.key}-{cell.column.key}" in words}


def test_runs_of_alternative_rows_alone_come_later_except_where_rows_are_chosen(tmp_path: Path):
    four = replace(TABLE, key="4", rows=(ONE,), columns=columns(("photo",)))  # one row: nothing is beside it
    paper = replace(PAPER, tables=(TABLE, four), basis=Basis(("3",), ("cora",)))
    work = Work(paper, [TABLE, four], Printed(()), tmp_path, settlements=(NAMED,))
    assert work.alternatives() == commands("a-pubmed", "a-cs"), "Cora is chosen on, Photo is another table's run"


def test_a_print_that_two_tables_show_is_settled_in_the_first_and_run_for_it_first(tmp_path: Path):
    wide = replace(TABLE, key="3_wide", experiment="p/wide", where={"table": "3"}, columns=columns(("photo", "cs")))
    published = Printed([printed("3", name, "a", "80.0", "") for name in ("cora", "cs")])
    work = Work(PAPER, [TABLE, wide], published, tmp_path, settlements=(NAMED,))
    assert {key: [each.column for each in found] for key, found in work.settled().items()} == {"3": ["cora", "cs"], "3_wide": []}
    [again] = [cell.overrides for cell in plan([wide]) if cell.key[1:] == ("a_e3", "cs")]
    assert not work.alternatives() & commands("a_e3-cs") and again in work.alternatives()


def test_a_page_counts_every_cell_once_and_shows_what_was_run():
    published = Printed([printed("3", name, "a", "80.0", "") for name in ("cora", "pubmed")])
    stored = {("3", "a_e3", "cora"): cell("b", "cora", [0.8, 0.8])}
    found = settle(PAPER, TABLE, stored, published, (NAMED,))
    assert {name: number for name, number in counts(found).items() if number} == {"agrees": 1, "not run": 1}
    lines = markdown(PAPER, {"3": found}).splitlines()
    assert "1 agrees, 1 not run." in lines
    assert [line for line in lines if "cora" in line or "pubmed" in line] == [
        "| A, 3 local epochs | received | cora | 80.0 | 80.0 | agrees | A, 3 local epochs, received: 80.0 |  |"
    ]


def test_what_was_run_is_counted_against_the_printed_cells_whose_data_set_is_here():
    published = Printed([printed("3", name, "a", "80.0", "") for name in ("cora", "pubmed", "photo", "cs")])
    stored = {("3", "a_e3", name): cell("b", name, [0.8, 0.8]) for name in ("cora", "cs")}
    found = {"Paper": {"3": settle(PAPER, TABLE, stored, published, (NAMED,))}, "Other": {}}
    # CS was run on another machine: it counts as at hand.
    *_, one, none, both = coverage(found, absent={"photo", "cs"})
    assert (one, none, both) == ("| Paper | 4 | 3 | 2 | 67 |", "| Other | 0 | 0 | 0 |  |", "| all | 4 | 3 | 2 | 67 |")


@pytest.mark.audit
@pytest.mark.parametrize("name", papers())
def test_every_printed_row_of_ours_is_settled(name: str):
    root = Path(__file__).parents[2] / "results"
    paper, published = load_paper(name), read_published(root / "published" / f"{name}.csv")
    found = read_settlements(root / "settlements" / f"{name}.yaml")
    for table in paper.tables:
        rows = [row for row in table.rows if any(look_up(published, table, row, column) for column in table.columns)]
        for method in {row.published for row in rows} if scorer(table.measure) else ():
            assert any(each.printed == method and (not each.tables or table.key in each.tables) for each in found), (table.key, method)


@pytest.mark.audit
@pytest.mark.parametrize("name", papers())
def test_settlements_name_what_there_is_and_no_row_twice(name: str):
    tables = {table.key: table for table in load_paper(name).tables if scorer(table.measure)}
    seen = set()
    for each in read_settlements(Path(__file__).parents[2] / "results/settlements" / f"{name}.yaml"):
        assert {*each.tables, *(key for different in each.differs for key in different.tables)} <= set(tables)
        assert each.model in MODELS and all(different.finding in TYPED and different.reason for different in each.differs)
        for key in each.tables or tables:
            rows = {row.key: str(row.where) for row in tables[key].rows if row.published == each.printed}
            assert not each.row or each.row in rows or not (rows or each.tables), (each.printed, key)
            for where in {rows[each.row]} if each.row in rows else set(rows.values()):
                assert (key, each.printed, where) not in seen
                seen.add((key, each.printed, where))


@pytest.mark.audit
@pytest.mark.parametrize("name", papers())
def test_what_is_named_is_what_the_rule_chose_or_says_what_else_decides(name: str):
    folder = Path(__file__).parents[2] / "results" / "settlements"
    of_paper = [each for each in read_choices(folder / FILE) if each["paper"] == name]
    chosen = {(each["printed"], each["row"], each["model"]) for each in of_paper if each["chosen"] == "1"}
    for each in read_settlements(folder / f"{name}.yaml"):
        assert each.why or (each.printed, each.row, each.model) in chosen, each


def test_agreement_is_counted_apart_on_the_columns_that_rows_were_chosen_on():
    both = (0.60, 0.80)
    found = findings({"cora": both, "pubmed": both, "photo": both}, {"cora": "80.0", "pubmed": "70.0", "photo": "80.0"})
    choices = [{"paper": "p", "columns": "3, cora; 3, pubmed"}, {"paper": "other", "columns": "3, photo"}]
    numbers = {name: agreeing(name, {"3": list(found.values())}, choices) for name in ("p", "q")}
    assert numbers == {"p": (1, 2, 1, 1), "q": (0, 0, 2, 3)}
    assert section_of_chosen(numbers)[-3:] == [
        "| p | 1 of 2 | 50 | 1 of 1 | 100 | 67 |",
        "| q | 0 of 0 |  | 2 of 3 | 67 | 67 |",
        "| all | 1 of 2 | 50 | 3 of 4 | 75 | 67 |",
    ]


def test_a_page_says_what_is_compared_and_why():
    of_a = {"paper": "p", "printed": "a", "where": "", "columns": "3, cora; 3, pubmed"}
    choices = [{**of_a, "row": "a_e3", "model": "received", "gap": "0.80"}, {**of_a, "row": "a", "model": "trained", "gap": "1.20"}]
    lines = markdown(PAPER, {}, (NAMED, Settlement("a", "received", "a", ("4",), why="its code")), choices).splitlines()
    assert "| a | all | a_e3 | received | 0.80 points from the print on 2 columns; a, trained: 1.20 |" in lines
    assert "| a | 4 | a | received | its code |" in lines
