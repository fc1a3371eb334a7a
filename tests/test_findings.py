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
            if cell["model"] == "gcn" and cell["algorithm"] not in ("local", "global", "majority", "label_propagation"):
                assert low > 0, name


def test_scores_on_the_leaderboard_s_page():
    block = BOARD.split("<!-- output: fgl-bench leaderboard show=scores -->", 1)[1].split("<!-- /output -->", 1)[0]
    seen = 0
    for part in re.split(r"\n(?=entry )", block)[1:]:
        head = part.splitlines()[0].split()
        for line in part.splitlines()[2:]:
            if not line.strip() or line.startswith("--"):
                continue
            name = line.split()[0]
            spans = [match.start() for match in re.finditer("-+", part.splitlines()[1])]
            texts = [line[a:b].strip() for a, b in zip(spans, [*spans[1:], None], strict=True)]
            if name not in {entry for _, entry in V2}:  # the notes
                continue
            for column, text in zip(head[1:], texts[1:], strict=True):
                if text:
                    assert text.rstrip("*~") == f"{primary(V2[column, name]).mean():.1f}", (column, name)
                    seen += 1
    assert seen == sum(cell["tuned"] is not None for cell in V2.values())


def test_ranks_on_the_leaderboard_s_page():
    """Ranks over the columns that the page's ranked entries share; graphs weigh alike."""
    shown = [row for row in rows(BOARD, "<!-- output: fgl-bench leaderboard -->") if row[0]]
    ranked = {row[0]: row[2] for row in shown if "[" in row[2]}
    if len(ranked) < 2:
        pytest.skip("no ranks yet")
    columns = [column for column in {column for column, _ in V2} if all(V2.get((column, name), {}).get("tuned") for name in ranked)]
    graph = {column: re.sub("_(few_labels|overlap)$", "", column) for column in columns}
    weights = np.array([1 / list(graph.values()).count(graph[column]) for column in columns])
    means = np.array([[primary(V2[column, name]).mean() for column in columns] for name in ranked])
    ranks = stats.rankdata(-means, axis=0) @ (weights / weights.sum())
    for (name, text), rank in zip(ranked.items(), ranks, strict=True):
        assert text.startswith(f"{rank:.1f} ["), name
