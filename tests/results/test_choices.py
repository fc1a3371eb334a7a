"""Rows and models chosen for printed rows, from runs and numbers made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fgl_bench.papers.matched_rows import Candidate, candidates, choose, chosen_on, common_columns, read_choices, table_of
from fgl_bench.papers.plan import Basis
from fgl_bench.papers.published import Printed
from tests.results.test_analysis import cell, printed
from tests.results.test_settlements import TABLE

BASIS = Basis(("3",))


def made(means: dict[str, tuple[float, float]], print_of: dict[str, str], basis: Basis = BASIS, seeds: int = 3) -> list[Candidate]:
    """Candidates of both rows; ``means`` has their received scores by column, trained ones are ten points below (``cell``)."""
    stored = {}
    for dataset, both in means.items():
        for row, mean in zip(TABLE.rows, both, strict=True):
            stored["3", row.key, dataset] = cell(row.algorithm, dataset, [mean] * seeds)
    return candidates(basis, [TABLE], stored, Printed(printed("3", name, "a", mean, "") for name, mean in print_of.items()))


def chosen(found: list[Candidate]) -> tuple[str, str, float]:
    (best,) = (each for each in choose(found) if each.chosen)
    return best.candidate.row, best.candidate.model, best.gap


def test_the_least_mean_gap_over_the_columns_is_chosen_for_row_and_model_at_once():
    means = {"cora": (0.80, 0.70), "pubmed": (0.80, 0.75)}
    assert chosen(made(means, {"cora": "70.0", "pubmed": "74.0"})) == ("a_e3", "received", 0.5)
    assert chosen(made(means, {"cora": "70.0", "pubmed": "70.0"})) == ("a", "trained", 0.0)
    assert chosen(made(means, {"cora": "60.0", "pubmed": "65.0"})) == ("a_e3", "trained", 0.0)


def test_other_columns_and_later_seeds_have_no_say():
    """Photo would choose the other row; the fourth seed would, too."""
    found = made({"cora": (0.80, 0.70), "photo": (0.70, 0.95)}, {"cora": "80.0", "photo": "95.0"})
    assert chosen(found) == ("a", "received", 0.0) and {column for each in found for column in each.gaps} == {"3, cora"}
    published = Printed([printed("3", "cora", "a", "80.0", "")])
    scores = {"a": [0.8, 0.8, 0.8, 0.2, 0.2], "a_e3": [0.75] * 5}
    early = {("3", row.key, "cora"): cell(row.algorithm, "cora", scores[row.key]) for row in TABLE.rows}
    assert chosen(candidates(BASIS, [TABLE], early, published)) == ("a", "received", 0.0)


def test_a_run_without_the_first_three_seeds_is_no_candidate():
    assert made({"cora": (0.8, 0.7)}, {"cora": "80.0"}, seeds=2) == []


def test_what_lacks_most_columns_is_left_out_and_the_others_are_compared_on_those_they_share():
    gaps = {name: 1.0 for name in "abcd"}
    ran = {"x": "abcd", "y": "ab", "z": "a"}
    whole, most, few = (Candidate("m", "", name, "received", {k: gaps[k] for k in keys}) for name, keys in ran.items())
    assert common_columns([whole, most, few]) == ("a", "b")
    assert {each.candidate.row for each in choose([whole, most, few])} == {"x", "y"}
    assert common_columns([whole, replace(few, gaps={"e": 0.0})]) == ("a", "b", "c", "d")


@pytest.mark.parametrize(("other", "value"), [(0.5, 3), (9.0, 1)])
def test_what_is_shared_is_chosen_once_for_all_printed_rows(other: float, value: int):
    """Method m is one point nearer with three local epochs; method n decides for both where it is much nearer with one."""
    found = [Candidate(name, "", f"{name}{epochs}", "received", {"3, cora": gap}, epochs) for name, epochs, gap in (
        ("m", 1, 2.0), ("m", 3, 1.0), ("n", 1, 0.0), ("n", 3, other))]  # fmt: skip
    assert [each.candidate.row for each in choose(found) if each.chosen] == [f"m{value}", f"n{value}"]


def test_one_row_far_off_outweighs_two_that_are_a_little_nearer():
    gaps = {("m", 1): 0.0, ("m", 3): 1.0, ("n", 1): 0.0, ("n", 3): 1.0, ("o", 1): 9.0, ("o", 3): 0.0}
    found = [Candidate(name, "", f"{name}{epochs}", "received", {"3, cora": gap}, epochs) for (name, epochs), gap in gaps.items()]
    assert [each.candidate.row for each in choose(found) if each.chosen] == ["m3", "n3", "o3"]


def test_choices_are_read_as_written(tmp_path):
    choices = choose(made({"cora": (0.80, 0.70), "pubmed": (0.80, 0.70)}, {"cora": "80.0", "pubmed": "80.0"}))
    path = tmp_path / "choices.csv"
    path.write_text(table_of({"p": choices}), encoding="utf-8")
    read = read_choices(path)
    assert [(each["row"], each["model"], each["gap"], each["chosen"]) for each in read][0] == ("a", "received", "0.00", "1")
    assert sum(each["chosen"] == "1" for each in read) == 1 and len(read) == 4
    assert chosen_on(read, "p") == {"3, cora", "3, pubmed"} and chosen_on(read, "q") == frozenset()
    assert read_choices(tmp_path / "none.csv") == []
