"""The plan of a paper's runs: each once, in a telling order, with sensible guesses; stored cells in their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from fgl_bench.config.compose import Composer
from fgl_bench.config.settings import resolve_budget
from fgl_bench.papers.plan import Cell, Paper, Row, Table, columns, fill, in_order, load_paper, papers, plan, stale
from fgl_bench.papers.published import read_published
from fgl_bench.papers.work import Work, given, preset
from fgl_bench.results.cells import read_cells
from fgl_bench.results.estimates import Costs, Kind, rates_of, read_rates, write_rates
from fgl_bench.results.store import identity
from tests.results.summaries import summary, write_run_by_hand

ROOT = Path(__file__).parents[2]
PAPER = load_paper("fedsa_gcl")
TABLES = {table.key: table for table in PAPER.tables}


def resolved(overrides: tuple[str, ...]) -> dict[str, Any]:
    """What a run of these overrides is identified by, without its data."""
    cfg = Composer()(overrides)
    return identity(OmegaConf.to_container(cfg, resolve=True), *resolve_budget(cfg))


@pytest.mark.parametrize("name", ["fedgta", *(pytest.param(name, marks=pytest.mark.audit) for name in papers() if name != "fedgta")])
def test_stored_cells_are_what_their_places_overrides_compose_to(name: str) -> None:
    """Of every table one cell; make audit composes all of them."""
    cells = read_cells(ROOT / "results/cells" / name)
    filled = fill(plan(load_paper(name).tables), cells)
    assert {place[:3] for cell in cells for place in cell["places"]} == set(filled), "a stored cell is planned by other overrides"
    of_table = {key[0]: key for key in sorted(filled)}
    commands = {cell.key: cell.overrides for cell in plan(load_paper(name).tables)}
    for key in of_table.values():
        assert {**filled[key]["config"], "data": None} == {**resolved(commands[key]), "data": None}, key


def test_a_cell_fills_the_places_of_its_overrides_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("1", "p/t", "", "accuracy", columns(("cora",)), (Row("a", "A", "fedavg"), Row("b", "B", "fedprox")))
    first, second = plan([table])
    cells = [{"places": [(*first.key, first.overrides)]}, {"places": [(*second.key, (*second.overrides, "lr=1"))]}]
    assert fill([first, second], cells) == {first.key: cells[0]}
    stale([first, second], cells, tmp_path)
    [line] = capsys.readouterr().err.splitlines()
    assert "1 cells" in line and "b" in line


@pytest.mark.audit
def test_presets_are_the_papers_setting() -> None:
    by = {(cell.table, cell.row.key, cell.dataset): cell.overrides for cell in plan(PAPER.tables)}
    composed = Composer()
    for table, split, every in (("2", "Louvain", None), ("3", "Metis", None), ("7", "Metis", 5)):
        cfg = composed(by[table, "fedsa_gcl", "cora"])
        assert cfg.split._target_.endswith(split) and list(cfg.split.per_seed) == []
        assert (cfg.trips, cfg.num_clients, cfg.local_epochs, cfg.eval_every) == (2000, 20, 1, every)
        assert cfg.scenario.slow_fraction == 0.3 and list(cfg.scenario.lag) == [2, 5] and not cfg.dataset.largest_component
    assert composed(by["3", "fedavg", "photo"]).dataset.largest_component
    assert composed(by["3", "fedavg", "cora"]).scenario.slow_fraction == 0.3
    for key, kind in (("4", "LabelSparsity"), ("5", "TopologySparsity")):
        sparsity = composed([f"experiment=fedsa_gcl/table{key}", "dataset=cora", "algorithm=fedgta"]).scenario.sparsity
        assert sparsity._target_.endswith(kind) and sparsity.rate == 0.1 and sparsity.evaluation == "clean"


def test_a_synchronous_run_of_a_table_of_trips_is_that_of_the_accuracy_table() -> None:
    by = {cell.key: cell.overrides for cell in plan(PAPER.tables)}
    assert by["7", "fedavg", "cora"] == by["3", "fedavg", "cora"] and by["6", "fedavg", "cora"] == by["2", "fedavg", "cora"]
    assert (
        by["7", "fedsa_gcl", "cora"] != by["3", "fedsa_gcl", "cora"] and by["figure4", "fedsa_gcl", "cora"] == by["3", "fedsa_gcl", "cora"]
    )


@pytest.mark.parametrize("name", papers())
def test_a_rows_scenario_decides_whether_its_run_is_another_tables(name: str) -> None:
    """``eval_every`` in trips is for semi-asynchronous methods; a row that is evaluated per round has the other table's preset."""
    for cell in plan(table for table in load_paper(name).tables if table.measure == "trips"):
        text = (ROOT / f"conf/algorithm/{cell.row.algorithm}.yaml").read_text(encoding="utf-8")
        assert bool(cell.row.experiment) is ("semi_async" not in text), cell.name


@pytest.mark.parametrize("table", ["6", "7"])
def test_every_target_that_is_printed_is_measured(table: str) -> None:
    printed = read_published(ROOT / "results/published/fedsa_gcl.csv").targets(table)
    assert set(printed) == set(TABLES[table].datasets)
    assert set(printed.values()) <= set(Composer()([f"experiment=fedsa_gcl/table{table}"]).targets)


@pytest.mark.audit
@pytest.mark.parametrize("name", papers())
def test_every_printed_cell_has_one_place_at_most_and_the_tables_find_what_they_name(name: str) -> None:
    """A row that names a method of the csv finds it in some column, and no place is ambiguous (``find`` raises)."""
    printed = read_published(ROOT / f"results/published/{name}.csv")
    for table in load_paper(name).tables:
        if table.measure == "curves":
            continue
        for row in table.rows:
            found = [printed.find(place) for column in table.columns if (place := table.place(row, column))]
            assert not found or any(found), f"{name}, table {table.key}, {row.key}: nothing printed at {table.place(row, table.columns[0])}"


@pytest.mark.audit
def test_every_printed_cell_of_fedsa_gcl_has_a_place() -> None:
    printed = read_published(ROOT / "results/published/fedsa_gcl.csv")
    places = [t.place(row, column) for t in PAPER.tables if t.measure != "curves" for row in t.rows for column in t.columns]
    assert {id(printed.find(place)) for place in places if place} - {id(None)} == {id(cell) for cell in printed.cells}


def test_each_run_is_made_once_telling_methods_and_small_datasets_first() -> None:
    rows = [Row(name, name, name) for name in ("slow", "telling")]
    tables = tuple(Table(key, "", "", "accuracy", columns(("large", "small")), tuple(rows)) for key in ("1", "2"))
    paper = Paper("p", "P", tables, first=("telling",), late=("large",))
    runs = [
        Cell(table.key, row, column, (f"{'shared' if column.dataset == 'small' else table.key}-{row.key}-{column.dataset}",))
        for table in tables
        for row in table.rows
        for column in table.columns
    ]
    assert [(c.table, c.row.key, c.dataset) for c in in_order(paper, runs)] == [
        ("1", "telling", "small"),
        ("1", "slow", "small"),
        ("1", "telling", "large"),
        ("2", "telling", "large"),
        ("1", "slow", "large"),
        ("2", "slow", "large"),
    ]


def test_a_kept_run_takes_the_places_of_the_same_configuration(tmp_path: Path) -> None:
    table = Table("1", "fedsa_gcl/table3", "", "accuracy", columns(("cora",)), (Row("a", "A", "fedavg"), Row("b", "B", "fedprox")))
    work = Work(Paper("p", "P", (table,), ()), [table], read_published(ROOT / "results/published/fedsa_gcl.csv"), tmp_path)
    first, second = work.cells
    runs = {}
    for name, finished in (("old", "2026-01-01"), ("new", "2026-02-01")):
        runs[name] = write_run_by_hand(tmp_path / name, {**summary({"lr": 0.1}), "finished": finished})
    assert not work.add(tmp_path / "nothing", first.overrides)
    assert work.add(runs["old"], first.overrides) and work.missing() == [second]
    assert work.add(runs["new"], second.overrides) and not work.missing()
    [cell] = read_cells(work.store)
    assert cell["finished"] == "2026-02-01" and {place[1] for place in cell["places"]} == {"a", "b"}


def known(algorithm: str, dataset: str, seconds: float, seeds: int = 5, clients: int = 20) -> dict:
    """A run of a hundred rounds."""
    trips, counts = {"total": 100 * clients}, {"num_clients": clients, "seeds": list(range(seeds))}
    return {"algorithm": algorithm, "dataset": dataset, "seconds": {"total": seconds}, "client_trips": trips, **counts}


def seconds(costs: Costs, algorithm: str, dataset: str, seeds: int = 5, rounds: float = 100) -> float | None:
    return costs.seconds(Kind(algorithm, "gcn", dataset), seeds, rounds)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgl_bench.results.estimates.SIZES", {"a": (10, 10), "b": (20, 40), "c": (30, 50)})


def test_costs_are_scaled_by_seeds_rounds_method_and_dataset(sizes: None) -> None:
    costs = Costs([known("x", "a", 100), known("x", "b", 400), known("y", "a", 10)])
    assert seconds(costs, "x", "a") == pytest.approx(100)
    assert seconds(costs, "x", "a", 1, 50) == pytest.approx(10)
    assert seconds(costs, "y", "b") == pytest.approx(40)  # as x: four times a
    assert seconds(costs, "y", "c") == pytest.approx(40)  # by size: four times a
    assert 10 < seconds(costs, "z", "a") < 100  # never run: an average method
    assert seconds(Costs([]), "x", "a") is None
    one, many = (seconds(Costs([known("x", "a", 100, clients=clients)]), "x", "a") for clients in (1, 50))
    assert one == many == pytest.approx(100)  # the graph is the same
    three = {**known("x", "a", 300), "config": {"local_epochs": 3}}
    assert seconds(Costs([three]), "x", "a") == pytest.approx(180)  # one epoch and two of scores, of three and two


def test_costs_are_those_of_runs_on_cpus_where_there_are_some() -> None:
    on_gpu, on_cpu = {**known("x", "a", 5), "device": "NVIDIA H100"}, {**known("y", "a", 100), "device": "CPU x86_64, 1 thread(s)"}
    assert seconds(Costs([on_gpu]), "x", "a") == pytest.approx(5)
    assert seconds(Costs([on_gpu, on_cpu]), "x", "a") == pytest.approx(100)  # as y


def test_rates_outlive_their_cells_and_measured_ones_come_first(tmp_path: Path, sizes: None) -> None:
    path, kind = tmp_path / "rates.csv", Kind("x", "gcn", "a")
    assert read_rates(path) == {}
    write_rates(path, rates_of([known("x", "a", 100), known("x", "a", 300), known("y", "a", 20)]))
    rates = read_rates(path)
    assert rates == {kind: pytest.approx(0.4), Kind("y", "gcn", "a"): pytest.approx(0.04)}
    assert seconds(Costs([], rates), "x", "a") == pytest.approx(200)
    assert seconds(Costs([known("x", "a", 50)], rates), "x", "a") == pytest.approx(50)  # a stored cell knows better
    costs = Costs([known("x", "a", 300), known("x", "b", 600)], {kind: 2.0}, {kind: 0.1})
    assert seconds(costs, "x", "a") == pytest.approx(50)
    assert seconds(costs, "x", "b") == pytest.approx(600)  # of what was not measured, the stored runs are all there is


@pytest.mark.audit
@pytest.mark.parametrize("name", papers())
def test_the_work_of_a_planned_run_is_read_from_its_preset(name: str) -> None:
    tables = {table.experiment: table for table in load_paper(name).tables}.values()
    for cell in (plan([table])[-1] for table in tables):
        setting, whole = {**preset(cell.overrides[0].partition("=")[2], cell.dataset), **given(cell)}, resolved(cell.overrides)
        rounds = setting["rounds"] or setting["trips"] / setting["num_clients"]
        participation = setting["participation"]
        assert (list(setting["seeds"]), setting["local_epochs"]) == (whole["seeds"], whole["local_epochs"])
        assert rounds == pytest.approx(whole["trips"] / whole["num_clients"] / participation), cell.command
