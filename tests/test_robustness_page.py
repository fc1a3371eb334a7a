"""Every number of docs/robustness.md, from the stored scores by code that shares nothing with scripts/robustness.py."""

from __future__ import annotations

import csv
import itertools
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fgl_bench.engine.attacks import largest_z

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts"))

import robustness  # noqa: E402

PAGE = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
SPANS = {"hardships": "clean", "attacks": "no attack", "defenses": "no attack"}
SCORES: dict[tuple[str, str, str, str], dict[int, float]] = defaultdict(dict)
VALIDATION: dict[tuple[str, str, str], float] = {}
for row in csv.DictReader((ROOT / "results" / "robustness" / "scores.csv").read_text(encoding="utf-8").splitlines()):
    SCORES[row["graph"], row["condition"], row["method"], row["model"]][int(row["seed"])] = float(row["score"])
    if row["condition"] == "clean":
        VALIDATION[row["graph"], row["method"], row["model"]] = float(row["validation"])


def block(name: str) -> tuple[list[str], list[str], list[list[str]]]:
    """The complete graphs, the heading and the rows of a block; columns are where the line of dashes has them."""
    first, _, *lines = PAGE.split(f"<!-- robustness: {name} -->\n```text\n")[1].split("\n```")[0].splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("--"))
    starts = [match.start() for match in re.finditer("-+", lines[rule])]
    cells = [[line[a:b].strip() for a, b in itertools.pairwise([*starts, None])] for line in lines]
    heading = [" ".join(parts).strip() for parts in zip(*cells[:rule], strict=True)]  # over one or two lines
    return first.removeprefix("complete graphs: ").split(", "), heading, cells[rule + 1 :]


def scores(graph: str, condition: str, method: str) -> np.ndarray:
    model = max(("received", "trained"), key=lambda model: VALIDATION[graph, method, model])
    by_seed = SCORES[graph, condition, method, model]
    return 100 * np.array([by_seed[seed] for seed in sorted(by_seed)])


def shown(values: np.ndarray) -> str:
    return f"{values.mean():.1f} ± {stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size):.1f}"


def test_accuracies_without_hardship():
    _, heads, rows = block("clean")
    cells = [(graph, row[0], cell) for row in rows for graph, cell in zip(heads[1:], row[1:], strict=True) if cell]
    assert len(cells) >= 10 and all(shown(scores(graph, "clean", method)) == cell for graph, method, cell in cells)


@pytest.mark.parametrize("name", SPANS)
def test_points_lost(name):
    graphs, heads, rows = block(name)
    assert len(rows) >= 5
    for row in rows:
        for head, cell in zip(heads[1:], row[1:], strict=True):
            method, condition = ("fedavg", row[0] if head == "mean" else f"{row[0]}, {head}") if name == "defenses" else (row[0], head)
            lost = [scores(graph, SPANS[name], method) - scores(graph, condition, method) for graph in graphs]
            assert shown(np.mean(lost, axis=0)) == cell, (row[0], head)


def test_gcfl_plus_repeats_fedavg_where_it_splits_no_cluster():
    _, _, rows = block("hardships")
    named = {row[0]: row[1:] for row in rows}
    assert named["gcfl_plus"] == named["fedavg"]


def test_only_runs_without_a_score_are_made(tmp_path, monkeypatch):
    """Of the stored scores, one method's under one condition are taken away."""
    commands = []
    rows = robustness.stored()
    gone = (rows["graph"] == "photo") & (rows["condition"] == "edge noise") & (rows["method"] == "moon")
    rows[~gone].to_csv(tmp_path / "scores.csv", index=False)
    monkeypatch.setattr(robustness, "SCORES", tmp_path / "scores.csv")
    monkeypatch.setattr(robustness.subprocess, "run", lambda command, check: commands.append(command))
    robustness.run(tmp_path, ("cora", "citeseer"))
    assert not commands
    robustness.run(tmp_path, robustness.GRAPHS)
    [made] = commands
    assert {"dataset=photo", "algorithm=moon", "scenario/noise=edge"} <= set(made)
    assert robustness.collected(tmp_path).reset_index(drop=True).equals(rows[~gone].reset_index(drop=True)), (
        "without a new run the stored scores stay as they are"
    )


# ---- the conclusions, on all graphs of the tables, each a difference paired by seed and averaged over the graphs

METHODS = [row[0] for row in block("clean")[2]]
ATTACKED = [method for method in METHODS if method != "local"]
NOISE, SPARSITY = ("label noise", "feature noise", "edge noise"), ("feature sparsity", "label sparsity", "edge sparsity")


def lost(method: str, condition: str, reference: str = "clean", graphs: list[str] | None = None) -> np.ndarray:
    """Points by seed."""
    return np.mean([scores(g, reference, method) - scores(g, condition, method) for g in graphs or block("attacks")[0]], axis=0)


def lowest(values: np.ndarray) -> float:
    """The lower end of the 95 % interval of the mean."""
    return values.mean() - stats.t.ppf(0.975, values.size - 1) * stats.sem(values)


def test_the_dearest_hardship_depends_on_the_graph():
    expected = {"cora": "feature noise", "citeseer": "feature noise", "pubmed": "feature noise", "photo": "participation"}
    for graph, dearest in expected.items():
        mean = {name: np.mean([lost(method, name, graphs=[graph]).mean() for method in METHODS]) for name in block("hardships")[1][1:]}
        assert max(mean, key=mean.__getitem__) == dearest and mean[dearest] > 13


def test_each_noise_costs_more_than_each_sparsity():
    mean = {name: np.mean([lost(method, name).mean() for method in METHODS]) for name in (*NOISE, *SPARSITY)}
    assert min(mean[name] for name in NOISE) > max(mean[name] for name in SPARSITY)


def test_local_training_loses_most_to_wrong_labels():
    assert all(lowest(lost("local", "label noise") - lost(method, "label noise")) > 0 for method in ATTACKED)


def test_flipped_labels_cost_every_method_and_flipped_signs_every_method_but_scaffold():
    unharmed = [name for name in ("label_flip", "sign_flip") for method in ATTACKED if lowest(lost(method, name, "no attack")) <= 0]
    assert unharmed == ["sign_flip"] and lowest(lost("scaffold", "sign_flip", "no attack")) <= 0


def test_aggregators_regain_about_a_point_at_most_and_krum_loses_ten_without_an_attack():
    assert block("defenses")[1][2:] == ["median", "trimmed_mean", "krum", "geometric_median"]
    for attack in ("label_flip", "sign_flip", "gaussian", "alie"):
        for name in ("median", "trimmed_mean", "krum", "geometric_median"):
            assert (lost("fedavg", attack, "no attack") - lost("fedavg", f"{attack}, {name}", "no attack")).mean() < 1.1
    krum = lost("fedavg", "no attack, krum", "no attack")
    assert krum.mean() > 10 and lowest(krum) > 5


def test_two_alie_attackers_of_ten_upload_the_honest_mean():
    assert largest_z(10, 0.2) == 0 and abs(lost("fedavg", "alie", "no attack").mean()) < 0.1
