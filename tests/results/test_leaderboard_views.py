"""What the leaderboard shows of its cells, of few and of none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fgl_bench.cli.leaderboard import show
from fgl_bench.leaderboard import findings
from fgl_bench.leaderboard.board import read_board
from fgl_bench.leaderboard.cell import label_skew, of_one
from fgl_bench.leaderboard.protocol import BoardColumn
from fgl_bench.leaderboard.record import write_record
from fgl_bench.leaderboard.views import VIEWS, as_csv, board_rows, markdown, text
from fgl_bench.report.html import read_board as rows_of_page
from tests.data.graphs import configured
from tests.results.boards import PROTOCOL, board, cell

CORA, PUBMED, TWITCH = BoardColumn("cora", "louvain"), BoardColumn("pubmed", "louvain"), BoardColumn("twitch", "natural")
SOME = board(
    cell("local", CORA, 0.70), cell("fedavg", CORA, 0.80, megabytes=2), cell("fedgta", CORA, 0.82, megabytes=4),
    cell("local", PUBMED, 0.80), cell("fedavg", PUBMED, 0.75, megabytes=2), cell("fedgta", PUBMED, 0.85, megabytes=4),
    cell("fedavg", TWITCH, 0.6), cell("local", TWITCH, 0.6),
)  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("cells", [board(), board(cell("fedavg", CORA, 0.8)), board(*SOME.records[:2]), SOME])
def test_every_view_works_with_few_cells_and_none_and_says_how_many(name, cells):
    parts = VIEWS[name](cells, ("received", "trained"), None)
    said = text(parts, cells.status(), 80)
    assert said.startswith(f"{len(cells.records)} of {len(PROTOCOL.entries) * 22} cells are complete.")
    assert max(map(len, said.splitlines())) <= 120 and "nan" not in said and not any(line != line.rstrip() for line in said.splitlines())
    assert "nan" not in markdown(parts, cells.status()) and "nan" not in as_csv(parts)


def test_ranks_are_over_the_largest_part_without_a_gap():
    rows, columns = SOME.whole("received")
    assert (rows, columns) == (["local", "fedavg", "fedgta"], [CORA, PUBMED])
    found, _ = findings.ranks(SOME, "received")
    assert found.ranks == {"fedgta": 1.0, "local": 2.5, "fedavg": 2.5}
    lonely = board(*SOME.records, cell("moon", TWITCH, 0.7))
    assert lonely.whole("received")[0] == ["local", "fedavg", "fedgta"]


def test_a_diverged_seed_counts_nowhere():
    cells = board(cell("local", CORA, 0.7), cell("fedavg", CORA, [0.8] * 9 + [None]))
    assert cells.scores(CORA, "received").keys() == {"local"} and findings.against_local(cells, "received") == {}


def test_points_above_local_are_paired_and_corrected():
    found = findings.against_local(SOME, "received")
    draw = np.random.default_rng(0)
    assert found["cora-louvain"]["fedavg"].difference == pytest.approx(-0.1)
    assert {key: {name: str(tally) for name, tally in each.items()} for key, each in findings.tallies(SOME, "received").items()} == {
        "fedavg": {"louvain": "1/1/0", "natural": "0/0/1"}, "fedgta": {"louvain": "2/0/0"},
    }  # fmt: skip
    one, two, local = (0.7 + 0.02 * draw.random(10) for _ in range(3))
    cells = board(cell("local", CORA, local.tolist()), cell("fedavg", CORA, one.tolist()), cell("moon", CORA, two.tolist()))
    raw = [stats.ttest_rel(local, each).pvalue for each in (one, two)]
    smaller, larger = sorted(raw)
    expected = {raw.index(smaller): min(1, 2 * smaller), raw.index(larger): min(1, max(2 * smaller, larger))}
    tests = findings.against_local(cells, "received")["cora-louvain"]
    assert [tests["fedavg"].adjusted, tests["moon"].adjusted] == pytest.approx([expected[0], expected[1]])


def test_gains_from_tuning():
    two = cell("fedavg", CORA, 0.8, validation=(0.5, 0.6)), cell("fedavg", PUBMED, 0.8, validation=(0.7, 0.6))
    cells = board(*two, cell("majority", CORA, 0.3, validation=(0.3,)))
    assert findings.gains(cells, "trained") == {"fedavg": findings.Gain(pytest.approx(5.0), pytest.approx(10.0), 2, 1)}


def test_costs_and_the_frontier():
    found, columns = findings.costs(SOME, "received")
    assert [*found] == ["local", "fedavg", "fedgta"] and columns == [CORA, PUBMED]
    assert [cost.frontier for cost in found.values()] == [True, True, True] and found["fedavg"].megabytes == pytest.approx(2)
    assert found["fedavg"].score == pytest.approx(77.5) and found["fedavg"].seconds == pytest.approx(2)
    others = [record for record in SOME.records if record.entry != "fedavg"]
    worse = board(*others, cell("fedavg", CORA, 0.6, megabytes=2), cell("fedavg", PUBMED, 0.6, megabytes=2))
    assert not findings.costs(worse, "received")[0]["fedavg"].frontier


def test_the_regression_finds_what_was_put_in_and_says_how_well_it_predicts():
    draw = np.random.default_rng(0)
    values = draw.normal(size=(30, 4))
    names = findings.PREDICTORS
    found = findings.fit(values, 3 + 2 * values[:, 0] / values[:, 0].std(ddof=1) + 0.01 * draw.normal(size=30), names)
    assert found.effects["label_skew"].coefficient == pytest.approx(2, abs=0.02) and found.predicted > 0.99
    assert abs(found.effects["homophily"].coefficient) < 0.02
    noise = findings.fit(values, draw.normal(size=30), names)
    assert noise.predicted < noise.adjusted < noise.r2 < 0.5
    one = findings.fit(values[:, :1], noise_of := draw.normal(size=30), names[:1])
    line = stats.linregress(values[:, 0] / values[:, 0].std(ddof=1), noise_of)
    assert one.effects["label_skew"].coefficient == pytest.approx(line.slope) and one.r2 == pytest.approx(line.rvalue**2)
    assert one.effects["label_skew"].half == pytest.approx(stats.t.ppf(0.975, 28) * line.stderr)
    left_out = [np.polyval(np.polyfit(np.delete(values[:, 0], i), np.delete(noise_of, i), 1), values[i, 0]) for i in range(30)]
    means = [np.delete(noise_of, i).mean() for i in range(30)]
    assert one.predicted == pytest.approx(1 - ((noise_of - left_out) ** 2).sum() / ((noise_of - means) ** 2).sum())
    constant = np.column_stack([values[:, 0], np.ones(30)])
    assert [*findings.fit(constant, noise_of, names[:2]).effects] == ["label_skew"]


def test_the_regression_needs_enough_columns_and_takes_them_from_the_cells():
    draw = np.random.default_rng(1)
    records = []
    for number, column in enumerate(PROTOCOL.columns):
        skew = number / 22
        properties = {"label_skew": skew, "homophily": draw.random(), "edge_cut": draw.random(), "train_nodes": 10 + 90 * draw.random()}
        records += [cell("local", column, 0.5, properties=properties), cell("fedavg", column, 0.5 + 0.2 * skew, properties=properties)]
    assert findings.regression(board(*records[:10]), "trained", "fedavg") == 5
    found = findings.regression(board(*records), "trained", "fedavg")
    assert found.columns == 22 and found.r2 > 0.999 and found.effects["label_skew"].coefficient > 5
    assert findings.regression(board(*records), "trained", None) == found  # the only federated entry


def test_the_federation_is_measured():
    assert label_skew(np.array([[5, 5], [50, 50]])) == 0 and label_skew(np.array([[10, 0], [0, 10]])) == 0.5
    assert label_skew(np.array([[30, 0], [0, 10]])) == pytest.approx((30 * 0.25 + 10 * 0.75) / 40)
    from fgl_bench.data.federation import build_federations

    [one] = build_federations(
        configured("dataset", "csbm", num_nodes=300, num_edges=700), configured("split", "metis"), configured("scenario/sparsity", "none"),
        num_clients=4, seeds=[0], data_dir=None, cache_dir=None,
    )  # fmt: skip
    found = of_one(one)
    graph = configured("dataset", "csbm", num_nodes=300, num_edges=700).load(None)
    owner = np.empty(300, dtype=int)
    for number, client in enumerate(one.clients):
        owner[client.nodes] = number
    row, col = graph.edges
    inside = owner[row] == owner[col]
    assert found["edge_cut"] == pytest.approx(1 - inside.mean()) and found["clients"] == 4
    assert found["homophily"] == pytest.approx((graph.labels[row] == graph.labels[col])[inside].mean())
    assert found["train_nodes"] == np.mean([client.train.sum() for client in one.clients])


def test_marks_of_the_best_and_of_those_that_are_not_worse():
    near = (0.8 + 0.02 * np.random.default_rng(0).normal(size=10)).tolist()
    close = board(cell("local", CORA, 0.8), cell("fedavg", CORA, near), cell("moon", CORA, 0.5))
    said = text(VIEWS["scores"](close, ("received",), None), "", 80)
    assert {line.split()[1][-1] for line in said.splitlines() if line.startswith(("local", "fedavg"))} == {"*", "~"}
    assert "50.0\n" in said


def test_the_command_reads_cells_and_leaves_those_of_another_protocol_out(tmp_path, capsys):
    for record in SOME.records:
        write_record(tmp_path, record)
    stale = cell("moon", CORA, 0.99)
    stale.protocol = "0" * 12
    write_record(tmp_path, stale)
    show([str(tmp_path), "show=scores", "model_of=received"])
    said = capsys.readouterr().out
    assert said.startswith("8 of 506 cells are complete; 1 of another protocol are left out.") and "moon" not in said and "99.0" not in said
    show([str(tmp_path), f"out={tmp_path / 'board.csv'}"])
    assert (tmp_path / "board.csv").read_text().splitlines()[1].startswith("leaderboard,fedgta,2,1.00,2/0 of 2,+10.0")
    show([str(tmp_path), "show=local", "format=md"])
    assert "| fedgta | +12.0* | +5.0* | 2/0/0 |" in capsys.readouterr().out
    assert board_rows(read_board(tmp_path, PROTOCOL))[1][:3] == ["fedgta", "2", "1.00"]
    (tmp_path / "leaderboard").mkdir()
    assert rows_of_page(tmp_path / "leaderboard.csv") == []
    for record in SOME.records:
        write_record(tmp_path / "leaderboard", record)
    assert rows_of_page(tmp_path / "leaderboard.csv")[1][0] == "fedgta"
