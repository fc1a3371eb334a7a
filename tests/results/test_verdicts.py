"""Verdicts on printed cells, their floor and ceiling, and claims, by hand and against scipy's tests."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fgl_bench.papers import verdicts as module
from fgl_bench.papers.claims import claims, mean_tau, pairs, sparsity
from fgl_bench.papers.plan import columns, load_paper, look_up, papers
from fgl_bench.papers.published import Printed, read_published
from fgl_bench.papers.verdicts import (
    TESTED,
    ceiling,
    cells_of,
    drawn_runs,
    floor,
    intervals,
    labels,
    nearest,
    printed_variance,
    read_contradictions,
    read_registered,
    registered_cells,
    shares,
    verdicts,
    with_draws,
)
from tests.results.test_analysis import TABLE, cell, printed

ROOT = Path(__file__).resolve().parents[2]
SETTLEMENTS = ROOT / "results" / "settlements"
NO_DRAWS = drawn_runs("p", (), {}, {})


def cells(ours: dict[tuple[str, str], list[float]], theirs: dict[tuple[str, str], float], **more) -> pd.DataFrame:
    """Cells by (method, column) of table 2; scores by seed, printed means of five runs of standard deviation 0.1."""
    rows = [
        {
            **{
                "paper": "p",
                "table": "2",
                "method": method,
                "where": "",
                "column": column,
                "dataset": column,
                "row": method,
                "title": method,
            },
            **{"model": "trained", "open": "", "contradictory": False, "trips": False, "printed": mean, "printed_text": str(mean)},
            **{"printed_variance": 0.01, "printed_runs": 5, "missed": False, "sides": 0, "test_nodes": 1000.0},
            **{"ours": float(np.mean(s)), "variance": float(np.var(s, ddof=1)), "runs": len(s), "seeds": len(s), "scores": tuple(s)},
        }
        | more
        for (method, column), mean in theirs.items()
        for s in [ours[method, column]]
    ]
    return pd.DataFrame(rows)


# ---- the registered rule


def test_the_registered_files_are_the_hashed_ones():
    for line in (SETTLEMENTS / "registered.sha256").read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        assert hashlib.sha256((SETTLEMENTS / name).read_bytes()).hexdigest() == digest, f"{name} was changed after it was registered"


@pytest.mark.parametrize("name", papers())
def test_each_printed_row_has_one_row_and_model_of_ours(name: str):
    paper, published, registered = load_paper(name), read_published(ROOT / f"results/published/{name}.csv"), read_registered(SETTLEMENTS)
    tables = {table.key: table for table in paper.tables if table.measure not in ("seconds", "costs", "curves")}
    printed = {
        (str(their.where), table.key)
        for table in tables.values()
        for row in table.rows
        for column in table.columns
        if (their := look_up(published, table, row, column)) is not None
    }
    named = []
    for (table, row, column), entry in registered_cells(name, paper.tables, registered).items():
        places = {each.key: each for each in tables[table].columns}
        (own,) = [each for each in tables[table].rows if each.key == row]
        their = look_up(published, tables[table], own, places[column])
        if their is not None:
            assert entry["method"] == their.where["method"] and entry["model"] in ("received", "trained")
            named.append(str(their.where))
    assert len(named) == len(set(named)), "a printed cell is compared once"
    assert set(named) == {place for place, _ in printed}, "and every printed cell that a row of ours stands for is"


def test_every_contradictory_cell_is_a_registered_one():
    registered = read_registered(SETTLEMENTS)
    for paper, table, method, where, column in read_contradictions(SETTLEMENTS):
        found = registered_cells(paper, load_paper(paper).tables, registered)
        assert [key for key, each in found.items() if (key[0], each["method"], each["where"], key[2]) == (table, method, where, column)]


# ---- one verdict


def test_printed_spreads_become_the_variance_of_a_run():
    assert printed_variance(1.0, "ci95", 5) == pytest.approx(5 / 2.776445**2, rel=1e-6)
    assert printed_variance(0.5, "var", 5) == 0.5 and printed_variance(0.5, "std", 10) == printed_variance(0.5, "unstated", 10) == 0.25


def test_the_interval_is_that_of_two_one_sided_t_tests():
    ours, theirs = np.array([80.0, 81.0, 80.4, 79.8, 80.6]), np.array([81.0, 81.2, 80.1, 80.7])
    variances = np.array([[ours.var(ddof=1) / 5, theirs.var(ddof=1) / 4]])
    low, high = intervals(np.array([ours.mean() - theirs.mean()]), variances, np.array([[4.0, 3.0]]))
    for margin in (0.9, 1.0, 1.1, 1.5):
        below = stats.ttest_ind(ours - margin, theirs, equal_var=False, alternative="less").pvalue
        above = stats.ttest_ind(ours + margin, theirs, equal_var=False, alternative="greater").pvalue
        (found,) = labels(low, high, np.array([margin]))
        assert (found == "equivalent") == (max(below, above) < 0.05)


def test_a_draw_variance_widens_the_interval_by_hand():
    low, high = intervals(np.array([0.0]), np.array([[0.0, 0.0, 2 * 1.44]]), np.array([[4.0, 4.0, 9.0]]))
    assert (low[0], high[0]) == pytest.approx((-1.833113 * math.sqrt(2.88), 1.833113 * math.sqrt(2.88)))
    assert labels(low, high, np.array([1.5])) == "inconclusive", "no number shows two draws of this spread equivalent"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"printed": 80.5}, "equivalent"),
        ({"printed": 82.0}, "different"),
        ({"printed": 82.0, "open": "its step"}, "under-specified"),
        ({"printed": 80.5, "open": "its step"}, "equivalent"),
        ({"printed": 82.0, "contradictory": True}, "contradictory"),
        ({"printed": 81.6}, "inconclusive"),
        ({"seeds": 0, "runs": 0, "ours": math.nan}, "not run"),
        ({"runs": 4, "variance": math.nan}, "inconclusive"),  # a seed without a score
        ({"trips": True, "missed": True, "ours": math.nan, "runs": 0}, "different"),
        ({"trips": True, "missed": True, "ours": math.nan, "runs": 0, "printed_runs": 1}, "inconclusive"),
    ],
)
def test_verdicts_by_hand(change, verdict):
    one = cells({("a", "cora"): [80.0, 80.1, 79.9, 80.0, 80.0]}, {("a", "cora"): 80.5}).assign(**change)
    assert verdicts(with_draws(one, NO_DRAWS))["verdict"].item() == verdict


def test_trips_have_a_margin_of_a_fifth_of_the_print():
    one = cells({("a", "cora"): [440.0, 460.0, 450.0]}, {("a", "cora"): 500.0}, trips=True)
    assert verdicts(with_draws(one, NO_DRAWS))["verdict"].item() == "equivalent"
    assert verdicts(with_draws(one.assign(printed=300.0), NO_DRAWS))["verdict"].item() == "different"


# ---- draws


def drawn(**more) -> dict:
    return {"graph": {"nodes": 2500}, "config": {"split": {"ratios": [0.2, 0.4, 0.4], "per_seed": ["masks"]}}} | more


def test_the_variance_between_draws_is_that_over_draws_less_that_over_seeds():
    key = ("3", "a", "cora")
    draws, stored = {key: {**cell("a", "cora", [0.6, 0.7, 0.8]), **drawn()}}, {key: cell("a", "cora", [0.69, 0.71])}
    found = drawn_runs("p", (TABLE,), draws, stored).set_index("model")
    assert found.loc["received", "between"] == pytest.approx(100 - 2) and found.loc["received", "test_nodes"] == 1000
    stored = {key: cell("a", "cora", [0.5, 0.9])}
    assert drawn_runs("p", (TABLE,), draws, stored)["between"].tolist() == [0.0, 0.0]


def test_the_nearest_measured_runs_give_the_draw_variance():
    heads = {"paper": "p", "table": "2", "row": "a", "column": "cora", "model": "trained", "draws": 10, "values": (1.0, 2.0), "within": 0.0}
    runs = [("p", "a", "cora", 1.0), ("p", "b", "cora", 3.0), ("p", "c", "cora", 5.0), ("q", "a", "photo", 7.0)]
    measured = pd.DataFrame(
        [{**heads, "paper": p, "row": r, "column": d, "dataset": d, "between": b, "test_nodes": 1000.0} for p, r, d, b in runs]
    )
    place = {"paper": "p", "table": "2", "column": "cora", "dataset": "cora", "model": "trained", "test_nodes": 4000.0}
    assert nearest(measured, {**place, "row": "b"}, module.LEVELS)[0] == 3.0, "its own"
    assert nearest(measured, {**place, "row": "z"}, module.LEVELS)[0] == 3.0, "the median of the paper and the data set"
    assert nearest(measured, {**place, "row": "z", "dataset": "photo"}, module.LEVELS)[0] == 7.0, "the data set's in another paper"
    assert nearest(measured, {**place, "row": "z", "dataset": "cs"}, module.LEVELS)[0] == pytest.approx(4.0 * 1000 / 4000), "by test nodes"
    assert math.isnan(nearest(measured, {**place, "row": "z", "model": "received"}, module.LEVELS)[0])


@pytest.mark.parametrize(
    ("paper", "dataset", "per_seed", "sides"),
    [("fedsa_gcl", "cora", [], 2), ("fedsa_gcl", "cora", ["masks"], 1), ("fedaas", "cs", ["masks"], 0), ("fedaas", "cs", [], 1),
     ("fedgta", "cora", [], 0), ("fedgta", "photo", [], 2)],
)  # fmt: skip
def test_the_sides_with_fixed_masks_count(paper: str, dataset: str, per_seed: list[str], sides: int):
    stored = {**cell("a", dataset, [0.7, 0.8]), **drawn(config={"split": {"ratios": [0.2, 0.4, 0.4], "per_seed": per_seed}})}
    entry = {"paper": paper, "table": "3", "method": "a", "where": "", "datasets": "", "row": "a", "model": "received", "open": ""}
    table = replace(TABLE, columns=columns((dataset,)))
    published = Printed([printed("3", dataset, "a", "75.0", "1.0", "std")])
    found = cells_of(paper, (table,), {("3", "a", dataset): stored}, published, pd.DataFrame([entry]))
    assert found["sides"].item() == sides and found["variance"].item() == pytest.approx(50)


def test_a_draw_counts_once_for_each_side_with_fixed_masks():
    one = cells({("a", "cora"): [80.0, 80.1, 79.9]}, {("a", "cora"): 80.0}).assign(between=4.0, draw_freedom=9, drawn_by=None)
    width = [verdicts(one.assign(sides=sides))["high"].item() for sides in (0, 1, 2)]
    assert width[0] < 0.2 < width[1] < width[2] and width[2] == pytest.approx(1.833113 * math.sqrt(8), rel=0.02)


# ---- floor and ceiling


def many(names: str, apart: float) -> pd.DataFrame:
    generator, columns = np.random.default_rng(3), ("cora", "pubmed", "photo", "cs")
    level = {(name, column): 50 + apart * i for i, name in enumerate(names) for column in columns}
    return with_draws(cells({key: list(value + 0.1 * generator.normal(size=5)) for key, value in level.items()}, level), NO_DRAWS)


def test_permuted_methods_agree_by_chance_only():
    far = many("abcdefgh", 5.0)
    assert shares(floor(far), "equivalent") == pytest.approx([100 / 8, 0, 100 * 3 / 8], abs=5), "a fixed point in eight"
    assert (verdicts(far)["verdict"] == "equivalent").all()
    alike = many("abcdefgh", 0.0)
    assert shares(floor(alike), "equivalent") == pytest.approx([100] * 3), "methods that do not differ agree in any order"


def test_the_ceiling_is_low_where_draws_differ_and_whole_where_they_do_not():
    one = many("abc", 5.0)
    assert shares(ceiling(one, NO_DRAWS), "equivalent") == pytest.approx([100] * 3)
    values = tuple(np.random.default_rng(0).normal(0, 1.3, 10))
    place = {"paper": "p", "table": "2", "row": "a", "column": "cora", "dataset": "cora", "model": "trained", "test_nodes": 1000.0}
    measured = pd.DataFrame([{**place, "between": float(np.var(values, ddof=1)), "within": 0.0, "draws": 10, "values": values}])
    found = ceiling(with_draws(one.assign(sides=2), measured), measured)
    assert shares(found, "equivalent")[0] == 0 and shares(found, "different")[0] < 5
    assert (found[list(TESTED)].sum(axis=1) == len(one)).all()


# ---- claims


def test_claims_by_hand():
    ours = {("p", "cora"): 80.0, ("a", "cora"): 81.0, ("b", "cora"): 79.0, ("p", "cs"): 90.0, ("a", "cs"): 88.0, ("b", "cs"): 89.0}
    printed = {("p", "cora"): 82.0, ("a", "cora"): 81.0, ("b", "cora"): 80.0, ("p", "cs"): 91.0, ("a", "cs"): 88.0, ("b", "cs"): 90.5}
    both = cells({key: [value - 0.1, value, value + 0.1] for key, value in ours.items()}, printed)
    (found,) = claims(with_draws(both, NO_DRAWS).assign(between=0.0), NO_DRAWS).to_dict("records")
    assert (found["columns"], found["methods"], found["best_printed"], found["best_ours"]) == (2, 3, 2, 1)
    assert (found["printed_margin"], found["margin"]) == pytest.approx((0.75, 0.0))
    assert found["tau"] == pytest.approx((1 / 3 + 1) / 2)


def test_the_interval_of_a_margin_has_the_seeds_and_the_draws_of_the_difference():
    columns = ("cora",)
    level = {(name, column): value for column in columns for name, value in {"p": 80.0, "a": 81.0, "b": 79.0}.items()}
    both = with_draws(cells({key: [value - 1, value, value + 1] for key, value in level.items()}, level), NO_DRAWS)
    place = {"paper": "p", "table": "2", "column": "cora", "dataset": "cora", "model": "trained", "test_nodes": 1000.0, "within": 0.0}
    measured = pd.DataFrame(
        [{**place, "row": r, "between": 1.0, "draws": 3, "values": v} for r, v in {"p": (1, 2, 3), "a": (1, 4, 1)}.items()]
    )
    assert pairs(measured)["between"].tolist() == pytest.approx([np.var([0, -2, 2], ddof=1)])
    (found,) = claims(both, measured).to_dict("records")
    half = 1.96 * math.sqrt(1 / 3 + 1 / 3 + 4)
    assert (found["margin"], found["low"], found["high"]) == pytest.approx((-1.0, -1 - half, -1 + half))
    assert (found["beaten"], found["winner"]) == (0, "a")
    near = measured.assign(values=[(1, 2, 3), (1, 2, 3)])
    (found,) = claims(both.assign(variance=0.3), near).to_dict("records")
    assert (found["beaten"], found["high"] < 0) == (1, True), "-1 + 1.96 sqrt(0.1 + 0.1) = -0.12"


def test_a_mean_tau_has_an_interval_over_columns():
    assert mean_tau(np.array([0.5, 0.5, 0.5]))[1:] == (0.5, 0.5) and math.isnan(mean_tau(np.array([0.5, 1.0]))[1])
    mean, low, high = mean_tau(np.array([-1.0, 0.0, 1.0, 1.0]))
    assert low < mean == 0.25 < high


def test_sparsity_compares_the_same_cells():
    level = {("a", "cora"): 80.0, ("a", "cs"): 90.0}
    clean = cells({key: [value] * 2 for key, value in level.items()}, level).assign(paper="fedsa_gcl", table="3")
    hidden = clean.assign(table="4", printed=[80.0, 90.5], ours=[79.0, 89.0], printed_text=["80.0", "90.5"])
    found = sparsity(pd.concat([clean, hidden])).set_index(["paper", "table"]).loc[("fedsa_gcl", "4")]
    assert (found["cells"], found["printed_change"], found["change"], found["same_print"], found["printed_raised"]) == (2, 0.25, -1.0, 1, 1)
