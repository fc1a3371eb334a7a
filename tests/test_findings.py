"""Every number of docs/findings.md and of the leaderboard's page, from the stored files, by code that shares nothing with them."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.audit

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
BOARD = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
STORED = ROOT / "results" / "leaderboard"
THIRTEEN = "fedavg fedprox scaffold moon fedper fedgta fed_pub gcfl_plus fedasync fedbuff fedsa_gcl d_psgd dfed_sst".split()


def rows(text: str, start: str) -> list[list[str]]:
    """The cells of the first table behind ``start``, without its heading; columns are where the line of dashes has them."""
    lines = text.split(start, 1)[1].split("```text\n", 1)[1].split("```", 1)[0].splitlines()
    [rule] = [line for line in lines if re.fullmatch(r"[- ]+", line) and "--" in line][:1]
    spans = [match.span() for match in re.finditer("-+", rule)]
    ends = [*(start for start, _ in spans[1:]), None]
    below = itertools.takewhile(str.strip, lines[lines.index(rule) + 1 :])
    return [[line[a:b].strip() for (a, _), b in zip(spans, ends, strict=True)] for line in below]


def version(name: str) -> dict[tuple[str, str], dict]:
    return {(path.parent.name, path.stem): json.loads(path.read_text()) for path in STORED.glob(f"{name}/[!.]*/*.json")}


V1, V2 = version("v1"), version("v2")
COLUMNS = sorted({column for column, entry in V1 if entry == "fedavg"})


def validation(kind: str, best: bool) -> np.ndarray:
    """Version 1's validation scores ``[columns, methods]`` in points: of the defaults, or of the best trials."""
    table = []
    for column in COLUMNS:
        trials = [V1[column, entry]["trials"] for entry in THIRTEEN]
        scores = [[100 * trial["validation"][kind] for trial in each if trial["validation"].get(kind) is not None] for each in trials]
        table.append([max(each) if best else each[0] for each in scores])
    return np.array(table)


def test_tuning_removes_most_differences():
    for kind, *shown in rows(PAGE, "<!-- finding: tuning -->"):
        default, tuned = validation(kind, False), validation(kind, True)
        assert default.shape == (14, 13)
        assert [f"{np.ptp(table, axis=1).mean():.1f}" for table in (default, tuned)] == shown[:2]
        assert f"{np.mean([stats.kendalltau(a, b).statistic for a, b in zip(default, tuned, strict=True)]):.2f}" == shown[2]
        assert np.ptp(tuned, axis=1).mean() < 0.65 * np.ptp(default, axis=1).mean()


def test_the_gap_of_the_two_models_is_mostly_an_untuned_step():
    for (name, mean, most), best in zip(rows(PAGE, "<!-- finding: gap -->"), (False, True), strict=True):
        apart = np.abs(validation("received", best) - validation("trained", best))
        assert (name, mean, most) == (("default", "tuned")[best], f"{apart.mean():.1f}", f"{apart.max():.1f}")


def test_averages_are_within_a_point_of_the_best_other_method():
    others = "fedper fedgta fed_pub gcfl_plus fedsa_gcl d_psgd dis_pfl dfed_sst".split()
    shown = rows(PAGE, "<!-- finding: equivalence -->")
    assert len(shown) == 8
    for column, kind, best, *bounds in shown:
        scores = {
            entry: np.array(cell["winners"][kind]["scores"]) for (key, entry), cell in V1.items() if key == column and cell["winners"]
        }
        assert best == max((name for name in others if name in scores), key=lambda name: scores[name].mean())
        for name, bound in zip(("fedavg", "fedprox", "scaffold"), bounds, strict=True):
            interval = stats.ttest_rel(scores[best], scores[name]).confidence_interval(0.90)  # its upper end is one-sided 95 %
            assert bound == f"{100 * interval.high:+.1f}" and 100 * interval.high < 1


def test_scaffold_is_first_without_tuning():
    shown = rows(PAGE, "<!-- finding: untuned -->")
    assert shown[0][0] == "scaffold"
    ranks = [stats.rankdata(-validation(kind, False), axis=1).mean(0) for kind in ("received", "trained")]
    for name, *printed in shown:
        assert printed == [f"{each[THIRTEEN.index(name)]:.1f}" for each in ranks]


def primary(cell: dict, which: str = "tuned") -> np.ndarray:
    return 100 * np.array(cell[which]["scores"][cell[which]["model"]])


def test_a_local_mlp_beats_every_federated_gcn_on_webkb():
    shown = rows(PAGE, "<!-- finding: backbone -->")
    mlp = primary(V2["webkb", "local-mlp"])
    for name, score, *ahead in shown:
        cell = V2["webkb", name]
        assert score == f"{primary(cell).mean():.1f}"
        if name != "local-mlp":
            test = stats.ttest_rel(mlp, primary(cell))
            low, high = test.confidence_interval(0.95)
            assert ahead == [f"{(mlp - primary(cell)).mean():+.1f} ± {(high - low) / 2:.1f}"]
            assert low > 0, name
            assert cell["model"] != "gcn" or low > 15, name
    assert dict((name, float(score)) for name, score, *_ in shown)["global"] < 76.3 - 20


def test_on_actor_fedavg_on_an_mlp_is_ahead():
    shown, best = rows(PAGE, "<!-- finding: actor -->"), primary(V2["actor", "fedavg-mlp"])
    assert {"local-mlp", "fedgta-gamlp", "fedavg-gamlp"} <= {name for name, *_ in shown}
    for name, score, *ahead in shown:
        own = primary(V2["actor", name])
        assert score == f"{own.mean():.1f}"
        if name != "fedavg-mlp":
            low, high = stats.ttest_rel(best, own).confidence_interval(0.95)
            assert ahead == [f"{(best - own).mean():+.1f} ± {(high - low) / 2:.1f}"] and low > 0


def boards(view: str) -> list[list[list[str]]]:
    """The headings and the entries' rows of every table of a view on the leaderboard's page."""
    block = BOARD.split(f"<!-- output: fgl-bench leaderboard{view} format=md -->", 1)[1].split("<!-- /output -->", 1)[0]
    tables = [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in each[0].splitlines()]
        for each in re.finditer(r"(?:^\|.*\n)+", block, re.M)
    ]
    names = {entry for _, entry in V2}
    return [[head, *(row for row in rows if row[0] in names)] for head, _, *rows in tables]


GRAPH = {column: re.sub("_(few_labels|overlap)$", "", column) for column, _ in V2}
OVERVIEW = boards("")[0][1:]
RANKED = [row[0] for row in OVERVIEW if "[" in row[2]]
REFERENCES = ("majority", "label_propagation", "local", "global", "global_disjoint")
WHOLE = sorted(column for column in GRAPH if all(V2.get((column, name), {}).get("tuned") for name in RANKED))
WEIGHT = np.array([1 / sum(GRAPH[other] == GRAPH[column] for other in WHOLE) for column in WHOLE])
WEIGHT /= WEIGHT.sum()


def base(cell: dict, method: str) -> str:
    return method if cell["model"] == "gcn" else f"{method}-{cell['model']}"


def corrected(gaps: np.ndarray) -> float:
    """Nadeau and Bengio's p-value, twice as many test nodes as training nodes; 1 for a method that equals the other in every seed."""
    if not gaps.any():
        return 1.0
    return 2 * stats.t.sf(abs(gaps.mean()) / np.sqrt(gaps.var(ddof=1) * (1 / gaps.size + 2)), gaps.size - 1)


def compared(column: str, method: str) -> dict[str, tuple[float, float, float]]:
    """By entry: points above ``method`` on its own backbone, and both p-values with Holm's correction."""
    cells = {name: cell for (key, name), cell in V2.items() if key == column and cell["tuned"]}
    gaps = {
        name: primary(cell) - primary(cells[base(cell, method)])
        for name, cell in cells.items()
        if cell["algorithm"] != method and base(cell, method) in cells
    }
    sides = [[stats.ttest_1samp(each, 0).pvalue for each in gaps.values()], [corrected(each) for each in gaps.values()]]
    holm = [np.empty(len(gaps)), np.empty(len(gaps))]
    for adjusted, p in zip(holm, sides, strict=True):
        order = np.argsort(p)
        adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)).clip(max=1)
    return {name: (float(each.mean()), *p) for (name, each), *p in zip(gaps.items(), *holm, strict=True)}


def test_scores_on_the_leaderboard_s_page():
    [[head, *rows]] = boards(" show=scores")
    shown = {(column, row[0]): text for row in rows for column, text in zip(head[1:], row[1:], strict=True) if text}
    assert {key: text.rstrip("*~") for key, text in shown.items()} == {
        key: f"{primary(cell).mean():.1f}" for key, cell in V2.items() if cell["tuned"]
    }


@pytest.fixture(scope="module")
def means() -> np.ndarray:
    """``[entries, columns, seeds]``"""
    if len(RANKED) < 2:
        pytest.skip("no ranks yet")
    return np.array([[primary(V2[column, name]) for column in WHOLE] for name in RANKED])


def measures(means: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Rank, share of wins in %, and points below the best, ``[3, entries]``."""
    ranks = stats.rankdata(-means, axis=0)
    wins = [[np.mean(np.delete(mine > of, i) + np.delete(mine == of, i) / 2) for of, mine in zip(means.T, row, strict=True)]
            for i, row in enumerate(means)]  # fmt: skip
    return np.array([ranks @ weight, 100 * np.array(wins) @ weight, (means.max(0) - means) @ weight])


def test_ranks_on_the_leaderboard_s_page(means):
    """Ranks over the columns that the page's ranked entries share; graphs weigh alike. Another bootstrap gives about the same intervals."""
    rng, graphs, drawn = np.random.default_rng(1), sorted({GRAPH[column] for column in WHOLE}), []
    for _ in range(1500):
        picked = rng.choice(graphs, len(graphs))
        seeds = rng.integers(means.shape[2], size=(len(WHOLE), means.shape[2]))
        again = np.stack([means[:, i, each].mean(1) for i, each in enumerate(seeds)], 1)
        weight = WEIGHT * [np.sum(picked == GRAPH[column]) for column in WHOLE]
        drawn.append(measures(again, weight / weight.sum()))
    bounds = np.percentile(drawn, [2.5, 97.5], axis=0)
    rows = {row[0]: row for row in OVERVIEW}
    for i, (name, point) in enumerate(zip(RANKED, measures(means.mean(2), WEIGHT).T, strict=True)):
        _, cells, rank, wins, below, *_ = rows[name]
        assert int(cells) == sum(entry == name and cell["tuned"] is not None for (_, entry), cell in V2.items())
        assert wins == f"{point[1]:.0f}"
        for text, place, spread in ((rank, 0, 0.5), (below, 2, 0.6)):
            value, *interval = map(float, re.findall(r"-?[\d.]+", text))
            assert f"{value:.1f}" == f"{point[place]:.1f}", name
            assert interval == pytest.approx(bounds[:, place, i], abs=spread), name


def test_comparisons_on_the_leaderboard_s_page():
    columns = sorted(GRAPH)
    for place, method in enumerate(("local", "fedavg")):
        tests = {column: compared(column, method) for column in columns}
        counts = {row[0]: row[6 + place] for row in OVERVIEW}
        points = {row[0]: sorted(filter(None, row[1:])) for row in boards(" show=against")[place][1:]}
        for name in {name for each in tests.values() for name in each}:
            mine = [each[name] for each in tests.values() if name in each]
            tally = ["/".join(str(sum(sign * gap > 0 and p[i] < 0.05 for gap, *p in mine)) for sign in (1, -1)) for i in (0, 1)]
            assert counts[name] == f"{tally[0]} ({tally[1]})", name
            stars = ["*" * sum(each < 0.05 for each in p) for _, *p in mine]
            assert points[name] == sorted(f"{gap:+.1f}{star}" for (gap, *_), star in zip(mine, stars, strict=True)), name


def test_entries_as_good_as_the_best_on_the_leaderboard_s_page():
    close: dict[str, list[bool]] = {}
    for column in GRAPH:
        scores = {
            name: primary(cell)
            for (key, name), cell in V2.items()
            if key == column and cell["tuned"] and cell["algorithm"] not in REFERENCES
        }
        best = max(scores, key=lambda name: scores[name].mean(), default=None)
        for name, each in scores.items():
            high = 0.0 if name == best else stats.ttest_rel(scores[best], each).confidence_interval(0.90).high
            close.setdefault(name, []).append(high < 1)
    shown = {row[0]: row[5] for row in OVERVIEW if row[5]}
    assert shown == {name: f"{sum(each)} of {len(each)}" for name, each in close.items()}


def test_tuning_on_the_leaderboard_s_page():
    for name, columns, gain, *best, edge in boards(" show=tuning")[0][1:]:
        cells = [cell for (_, entry), cell in V2.items() if entry == name and cell["tuned"] and cell["default"]]
        gains = [primary(cell).mean() - primary(cell, "default").mean() for cell in cells]
        half = stats.t.ppf(0.975, len(gains) - 1) * stats.sem(gains) if len(gains) > 1 else None
        assert (int(columns), gain) == (len(cells), f"{np.mean(gains):+.1f}" + (f" ± {half:.1f}" if half is not None else ""))
        assert 0 <= int(edge) <= 100
        for size, text in zip((2, 3, 6), best, strict=True):
            means = []
            for cell in cells:
                bounds = [lower(trial) for trial in cell["trials"][: cell["planned"]] if trial["validation"]]
                means.append(np.mean([max(each) for each in itertools.combinations(bounds, size)]) - np.mean(bounds))
            assert text == f"{np.mean(means):+.1f}", (name, size)


def lower(trial: dict) -> float:
    scores = [100 * np.array(each) for each in trial["validation"].values() if None not in each]
    return max(each.mean() - stats.sem(each) for each in scores)


def test_costs_on_the_leaderboard_s_page(means):
    rows = boards(" show=costs")[0][1:]
    times = {column: min(V2[column, name]["tuned"]["time"] for name in RANKED) for column in WHOLE}
    for name, *shown, front in rows:
        runs = [V2[column, name]["tuned"] for column in WHOLE]
        equal = [np.interp(times[column], run["curve"]["time"], run["curve"]["test"]) for column, run in zip(WHOLE, runs, strict=True)]
        found = [
            [primary(V2[column, name]).mean() for column in WHOLE], np.multiply(equal, 100), [run["time"] for run in runs],
            [(run["bytes"]["upload"] + run["bytes"]["download"]) / 1e6 for run in runs],
            [run["trips"] * run["local_epochs"] for run in runs],
            [run["seconds"] / 10 for run in runs],
        ]  # fmt: skip
        assert shown == [f"{np.dot(each, WEIGHT):.{digits}f}" for each, digits in zip(found, (1, 1, 0, 1, 0, 1), strict=True)], name
        beaten = [other for other in rows if float(other[1]) > float(shown[0]) and float(other[3]) <= float(shown[2])]
        assert (front == "*") <= (not beaten)
    assert [row[0] for row in rows] == [RANKED[i] for i in np.argsort(-(means.mean(2) @ WEIGHT), kind="stable")]


def test_fairness_on_the_leaderboard_s_page():
    for name, *shown in boards(" show=fairness")[0][1:]:
        found = [V2[column, name]["tuned"]["fairness"] for column in WHOLE]
        assert shown == [f"{100 * np.mean([each[key] for each in found]):.1f}" for key in ("worst", "tenth", "median", "best", "std")], name
