"""What the leaderboard shows of its cells, of few and of none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fgl_bench.cli.leaderboard import show
from fgl_bench.leaderboard import statistics
from fgl_bench.leaderboard.board import KINDS
from fgl_bench.leaderboard.record import write_record
from fgl_bench.leaderboard.views import VIEWS, as_csv, board_data, markdown, text
from tests.results.boards import PROTOCOL, board, cell

SOME = board(
    cell("local", "cora", 0.70), cell("fedavg", "cora", 0.80), cell("fedgta", "cora", 0.82, time=50.0), cell("scaffold", "cora", 0.81),
    cell("local", "pubmed", 0.80), cell("fedavg", "pubmed", 0.75), cell("fedgta", "pubmed", 0.85), cell("scaffold", "pubmed", 0.80),
    cell("fedavg", "cora_few_labels", 0.60), cell("fedgta", "cora_few_labels", 0.50), cell("scaffold", "cora_few_labels", 0.55),
    cell("fedavg", "webkb", 0.6), cell("local-mlp", "webkb", 0.7), cell("fedavg-mlp", "webkb", 0.65),
)  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("cells", [board(), board(cell("fedavg", "cora", 0.8)), board(*SOME.records[:2]), SOME])
def test_every_view_works_with_few_cells_and_none_and_says_how_many(name, cells):
    for kind in KINDS:
        parts = VIEWS[name](cells, kind)
        said = text(parts, cells.status(), 80)
        assert said.startswith(f"{len(cells.records)} of {len(PROTOCOL.entries) * len(PROTOCOL.columns)} cells are complete")
        assert (
            max(map(len, said.splitlines())) <= 120 and "nan" not in said and not any(line != line.rstrip() for line in said.splitlines())
        )
        assert "nan" not in markdown(parts, cells.status()) and "nan" not in as_csv(parts)


def test_references_stand_below_a_line_without_rank_or_star():
    above, below = text(VIEWS["scores"](SOME, "primary"), "", 200).split("-- references --")
    assert "82.0*" in above and "local-mlp" in below and "*" not in below.split("\n* best")[0]
    [part] = VIEWS["overview"](SOME, "primary")
    place = [row[0] for row in part.rows].index("-- references --")
    assert all(row[2] == "" for row in part.rows[place:]) and {row[0] for row in part.rows[place + 1 :]} == {"local", "local-mlp"}


def test_ranks_wins_and_points_weigh_graphs_alike():
    ranks, columns = statistics.ranking(SOME, draws=50)
    assert [column.key for column in columns] == ["cora", "cora_few_labels", "pubmed"] and set(ranks.index) == {
        "fedavg",
        "fedgta",
        "scaffold",
    }
    means = {"fedavg": (0.80, 0.60, 0.75), "fedgta": (0.82, 0.50, 0.85), "scaffold": (0.81, 0.55, 0.80)}
    weight = np.array([0.25, 0.25, 0.5])  # two columns of Cora, one of PubMed
    for name, own in means.items():
        others = [other for each, other in means.items() if each != name]
        rank = [1 + sum(other[k] > own[k] for other in others) for k in range(3)]
        assert ranks.loc[name, "rank"] == pytest.approx(weight @ rank)
        assert ranks.loc[name, "wins"] == pytest.approx(weight @ [(3 - each) / 2 for each in rank])
        best = [100 * (max(other[k] for other in means.values()) - own[k]) for k in range(3)]
        assert ranks.loc[name, "points"] == pytest.approx(weight @ best)
        assert (ranks["rank_low"] <= ranks["rank"]).all() and (ranks["rank"] <= ranks["rank_high"]).all()


def test_tests_are_paired_and_corrected_and_on_the_entry_s_own_backbone():
    draw = np.random.default_rng(0)
    local, one, two = (0.7 + 0.02 * draw.random(10) for _ in range(3))
    found = statistics.difference(one, local, 2.0)
    assert found.plain == pytest.approx(stats.ttest_rel(one, local).pvalue)
    gaps = one - local
    t = gaps.mean() / np.sqrt(gaps.var(ddof=1) * (1 / 10 + 2))  # Nadeau and Bengio, 0.4 test for 0.2 train
    assert found.corrected == pytest.approx(2 * stats.t.sf(abs(t), 9)) and found.corrected > found.plain
    upper = stats.ttest_1samp(gaps, 0.01, alternative="less").pvalue
    lower = stats.ttest_1samp(gaps, -0.01, alternative="greater").pvalue
    assert found.equivalence == pytest.approx(max(upper, lower))
    same = statistics.difference(one, one, 2.0)
    assert (same.mean, same.plain, same.equivalence) == (0, 1, 0)
    cells = board(cell("local", "cora", local.tolist()), cell("fedavg", "cora", one.tolist()), cell("moon", "cora", two.tolist()))
    raw = [stats.ttest_rel(local, each).pvalue for each in (one, two)]
    tests = statistics.against(cells, "local").set_index("entry")["plain"]
    assert sorted(tests) == pytest.approx([min(1, 2 * min(raw)), min(1, max(2 * min(raw), max(raw)))])
    bases = statistics.against(SOME, "local")
    assert dict(zip(bases["entry"], bases["base"], strict=True))["fedavg-mlp"] == "local-mlp"
    assert "local" not in set(statistics.against(SOME, "fedavg")["entry"]) - {"local", "local-mlp", "fedgta", "scaffold"}
    assert statistics.tally(statistics.against(SOME, "local"), "plain")["fedavg"] == (1, 1, 2)


def test_equivalence_needs_a_small_difference_and_little_noise():
    near = (0.8 + 0.001 * np.linspace(-1, 1, 10)).tolist()
    cells = board(cell("fedavg", "cora", 0.805), cell("moon", "cora", near), cell("scaffold", "cora", 0.7))
    assert {name: near for name, near, _ in statistics.equivalent(cells)} == {"fedavg": 1, "moon": 1, "scaffold": 0}


def test_a_diverged_seed_counts_nowhere():
    cells = board(cell("local", "cora", 0.7), cell("fedavg", "cora", [0.8] * 9 + [None]))
    assert cells.scores("cora").keys() == {"local"} and statistics.against(cells, "local").empty


def test_expected_performance_of_some_trials_is_the_mean_over_all_subsets():
    bounds = [0.3, 0.9, 0.5, 0.6, 0.4]
    for trials in range(1, 6):
        subsets = [max(each) for each in itertools.combinations(bounds, trials)]
        assert statistics.expected_best(bounds, trials) == pytest.approx(np.mean(subsets))


def test_tuning_gains_and_edges():
    record = cell("fedavg", "cora", 0.8, default=0.7, validation=(0.5, 0.6, 0.4))
    assert statistics.edges(record) == ["lr"]
    middle = cell("fedavg", "pubmed", 0.8, default=0.6, validation=(0.6, 0.5, 0.4))
    assert statistics.edges(middle) == []
    table = statistics.tuning(board(record, middle))
    assert table.loc["fedavg", "gain"] == pytest.approx(15) and table.loc["fedavg", "edge"] == 0.5
    assert table.loc["fedavg", "half"] == pytest.approx(stats.t.ppf(0.975, 1) * np.std([10, 20], ddof=1) / np.sqrt(2))


def test_costs_at_equal_trips_and_at_equal_time():
    table, columns = statistics.costs(SOME)
    assert len(columns) == 3 and [*table.index] == ["scaffold", "fedgta", "fedavg"] or table["score"].is_monotonic_decreasing
    assert table.loc["fedavg", "steps"] == 3000 and table.loc["fedavg", "megabytes"] == pytest.approx(1)
    assert table.loc["fedgta", "time"] == pytest.approx(0.25 * 50 + 0.75 * 100)
    # Cora: FedGTA has made its trips at 50, when the others are halfway from 10 to 60 %.
    assert table.loc["fedavg", "equal_time"] == pytest.approx(0.25 * 35 + 0.75 * 60)
    assert table.loc["fedgta", "equal_time"] == pytest.approx(60) and bool(table.loc["fedgta", "front"])


def test_the_command_reads_cells_and_leaves_those_of_another_protocol_out(tmp_path, capsys):
    for record in SOME.records:
        write_record(tmp_path, record)
    stale = cell("moon", "cora", 0.99)
    stale.protocol = "0" * 12
    write_record(tmp_path, stale)
    show([str(tmp_path), "show=scores", "score=trained"])
    said = capsys.readouterr().out
    assert said.startswith(f"14 of {len(PROTOCOL.entries) * len(PROTOCOL.columns)} cells are complete")
    assert "1 of another protocol are left out" in said and "moon" not in said and "81.0*" in said
    show([str(tmp_path), f"out={tmp_path / 'board.csv'}"])
    assert (tmp_path / "board.csv").read_text().splitlines()[0].startswith("table,entry,cells,rank")
    show([str(tmp_path), "show=against", "format=md"])
    assert "| fedgta |  | +12.0** | +5.0** |" in capsys.readouterr().out


def test_the_report_gets_entries_by_rank_with_intervals_and_references_last():
    data = board_data(SOME)
    assert [entry["name"] for entry in data["entries"] if entry["reference"]] == ["local", "local-mlp"]
    assert [entry["name"] for entry in data["entries"]][-2:] == ["local", "local-mlp"]
    entries = {entry["name"]: entry for entry in data["entries"]}
    ranks = [entry["cells"][data["head"].index("rank")] for entry in data["entries"]]
    assert ranks[0].startswith("1.") and ranks[-1] == ""
    half = stats.t.ppf(0.975, 9) * np.std(np.linspace(-1, 1, 10), ddof=1) / np.sqrt(10)
    assert entries["fedgta"]["scores"]["cora"] == f"82.0 ± {half:.1f}" and set(entries["local"]["scores"]) == {"cora", "pubmed"}
    assert entries["fedavg-mlp"]["algorithm"] == "fedavg" and board_data(board()) == {}
