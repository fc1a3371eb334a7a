"""Tables, figures, pages and leaderboards are of one task each, and name it."""

from __future__ import annotations

import pytest

from fgl_bench import table
from fgl_bench.cli.leaderboard import show as leaderboard
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.board import Board
from fgl_bench.leaderboard.protocol import FILES, Protocol, asked_protocol
from fgl_bench.leaderboard.record import Record, write_record
from fgl_bench.leaderboard.views import VIEWS
from fgl_bench.report.html import boards, page, sources
from fgl_bench.report.own_runs import own_runs
from fgl_bench.results import console
from fgl_bench.results.frame import complete_runs
from fgl_bench.results.plots.kinds import KINDS
from fgl_bench.results.trackers.none import NoTracker
from fgl_bench.results.tracking import TrackerCallback
from tests.results.boards import cell
from tests.results.report_pages import data_of, tab_of
from tests.results.stored_runs import store

TASKS = ("node", "graph", "link")


def cells(protocol: Protocol, entries: list[str], columns: int) -> list[Record]:
    """Complete cells of the first columns."""
    keys = [column.key for column in protocol.columns[:columns]]
    return [cell(name, key, 0.5 + 0.1 * i, protocol=protocol) for i, name in enumerate(entries) for key in keys]


@pytest.fixture
def runs(tmp_path):
    """Two methods on the same data set in every task."""
    folder = tmp_path / "runs"
    for task in TASKS:
        for method in ("fedavg", "fedgta"):
            own = {} if task == "node" else {"task": task, "config": {"task": {"_target_": f"{task}.Task"}}}
            store(folder, method, "cora", per_seed=(0.5, 0.6, 0.8), **own)
    return folder


def test_the_report_has_a_table_per_task(runs):
    own = own_runs(runs, complete_runs(runs))
    assert sorted(each.title for each in own.paper.tables) == [
        "fedavg, fedgta on cora", "fedavg, fedgta on cora, task=graph", "fedavg, fedgta on cora, task=link",
    ]  # fmt: skip
    for each in own.paper.tables:
        tasks = {own.stored[key].get("task", "node") for key in own.stored if key[0] == each.key}
        assert len(tasks) == 1 and (tasks == {"node"} or f"task={tasks.pop()}" in own.readings[each.key])


def test_a_page_names_the_task_of_a_run(runs):
    facts = [dict(run["facts"]).get("task") for run in data_of(page(sources(runs)))["runs"].values()]
    assert sorted(map(str, facts)) == ["None", "None", "graph", "graph", "link", "link"]


def test_a_page_compares_methods_and_lists_cells_task_by_task(runs, browser, tmp_path):
    made = tmp_path / "report.html"
    made.write_text(page(sources(runs), out=made), encoding="utf-8")
    with tab_of(browser, made, "#compare/fedavg/fedgta") as tab:
        for kind in ("received", "trained"):
            tab.get_by_role("radio", name=kind).check()
            heads = tab.locator("#view h3").all_inner_texts()
            assert sorted(heads) == [f"{kind.capitalize()} model{task}" for task in ("", ", task=graph", ", task=link")]
    with tab_of(browser, made, "#method/fedavg") as tab:
        assert sorted(head for head in tab.locator("#view h3").all_inner_texts() if "Its cells" in head) == [
            "Its cells", "Its cells, task=graph", "Its cells, task=link",
        ]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_a_table_and_a_figure_name_their_task_unless_it_is_the_default(runs, task):
    shown = table(runs, where={"task": task})
    named = f", task={task}" * (task != "node")
    assert shown.unit == f"test accuracy in %{named}"
    assert rf"Test accuracy in \%{named} of received models." in shown.latex()
    for kind in ("bars", "clients"):
        labels = [axis.get_xlabel().replace("\n", " ") for axis in KINDS[kind](shown, 7.0, 2).axes]
        assert any(named in label for label in labels) and not any("task" in label for label in labels if not named)


@pytest.mark.parametrize("cols", ["dataset", "dataset,task"])
def test_no_table_and_so_no_figure_joins_tasks(runs, cols):
    with pytest.raises(UserError, match="are of task=graph, link, node; a table has one task: write where=task=graph"):
        table(runs, cols=cols)


def test_a_run_prints_its_task_and_a_tracker_shows_it(runs):
    for run in complete_runs(runs):
        named = f", task={run.summary['task']}" if "task" in run.summary else ""
        assert f"on cora{named}, metis split" in console.table(run.summary)
        (seed,) = TrackerCallback(NoTracker(), "hash", run.summary, {}, [0]).seeds
        assert seed.name == "-".join([run.summary["algorithm"], "cora", *named.removeprefix(", task=").split(), "seed0"])


@pytest.mark.parametrize("task", FILES)
def test_a_leaderboard_has_the_cells_of_its_task_and_names_it(task):
    protocol = asked_protocol({"task": task})
    board = Board(protocol, cells(protocol, ["fedavg", "fedprox", "local"], 2))
    named = f", task={task}" * (task != "node")
    for view in VIEWS.values():
        for part in view(board, "primary"):
            assert (named in part.title) if named else ("task" not in part.title)
    assert board.status().startswith(named.replace(", ", "") + ": " * bool(named))


def test_the_leaderboard_of_a_task_is_asked_for_by_name(capsys):
    for task in sorted(FILES):
        leaderboard([f"task={task}", "show=scores"])
        assert capsys.readouterr().out.startswith("" if task == "node" else f"task={task}: ")
    with pytest.raises(UserError, match="task=edge: has no leaderboard.*graph, link, node"):
        leaderboard(["task=edge"])


def test_the_report_has_the_leaderboards_of_all_tasks_that_have_cells(tmp_path):
    assert boards(tmp_path / "leaderboard") == {} == boards(None)
    protocol = asked_protocol({"task": "link"})
    for record in cells(protocol, ["fedavg", "local"], 1):
        write_record(tmp_path / "leaderboard" / protocol.folder, record)
    found = boards(tmp_path / "leaderboard")
    names = {task: {each["name"]: each["reference"] for each in board["entries"]} for task, board in found.items()}
    assert names == {"link": {"fedavg": False, "local": True}}
