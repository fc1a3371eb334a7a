"""The plan of a paper's runs: each once, the same runs as the command line makes, in a telling order, with sensible guesses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fgl_bench.config.compose import Composer
from fgl_bench.errors import UserError
from fgl_bench.papers import plan as planning
from fgl_bench.papers.plan import Cell, Column, Paper, Row, Table, columns, in_order, load_paper, papers, plan
from fgl_bench.papers.plans.fedsa_gcl import PAPER
from fgl_bench.papers.published import read_published
from fgl_bench.results.cells import find
from fgl_bench.results.estimates import Costs, Kind, duration, kind_of, read_rates, write_rates
from tests.results.located import located

ROOT = Path(__file__).parents[2]
TABLES = {table.key: table for table in PAPER.tables}
NARROW = {"local", "fedavg", "fedsa_gcl", "fedsa_gcl_fedgta_lsc"}


def narrow(key: str, datasets: tuple[str, ...] = ("cora", "photo")) -> Table:
    table = TABLES[key]
    return dataclasses.replace(table, rows=tuple(row for row in table.rows if row.key in NARROW), columns=columns(datasets))


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return plan(PAPER, [narrow(key) for key in ("2", "3", "4", "6", "7", "figure4")])


def by(cells: list[Cell], table: str, row: str, dataset: str) -> Cell:
    [cell] = [cell for cell in cells if (cell.table, cell.row.key, cell.dataset) == (table, row, dataset)]
    return cell


def test_a_cells_command_composes_to_its_hash(cells: list[Cell]) -> None:
    some = [by(cells, *which) for which in (("2", "local", "photo"), ("4", "fedsa_gcl_fedgta_lsc", "cora"), ("7", "fedavg", "cora"))]
    with Composer() as composed:
        assert [located(composed(cell.overrides)) for cell in some] == [(cell.digest, cell.folder, cell.config) for cell in some]


def test_runs_are_shared_where_the_setting_is_the_same_and_only_there(cells: list[Cell]) -> None:
    assert by(cells, "7", "fedavg", "cora").digest == by(cells, "3", "fedavg", "cora").digest
    assert by(cells, "6", "fedavg", "cora").digest == by(cells, "2", "fedavg", "cora").digest
    assert by(cells, "figure4", "fedsa_gcl", "cora").digest == by(cells, "3", "fedsa_gcl", "cora").digest
    fedsa = {by(cells, key, row, "cora").digest for key in ("2", "3", "4", "6", "7") for row in ("fedsa_gcl", "fedsa_gcl_fedgta_lsc")}
    assert len(fedsa) == 10


def test_presets_are_the_papers_setting(cells: list[Cell]) -> None:
    with Composer() as composed:
        for table, split, every in (("2", "Louvain", None), ("3", "Metis", None), ("7", "Metis", 5)):
            cfg = composed(by(cells, table, "fedsa_gcl", "cora").overrides)
            assert cfg.split._target_.endswith(split) and list(cfg.split.per_seed) == []
            assert (cfg.trips, cfg.num_clients, cfg.local_epochs, cfg.eval_every) == (2000, 20, 1, every)
            assert cfg.scenario.slow_fraction == 0.3 and list(cfg.scenario.lag) == [2, 5] and not cfg.dataset.largest_component
        assert composed(by(cells, "3", "fedavg", "photo").overrides).dataset.largest_component
        assert composed(by(cells, "3", "fedavg", "cora").overrides).scenario.slow_fraction == 0.3
        for key, kind in (("4", "LabelSparsity"), ("5", "TopologySparsity")):
            sparsity = composed([f"experiment=fedsa_gcl/table{key}", "dataset=cora", "algorithm=fedgta"]).scenario.sparsity
            assert sparsity._target_.endswith(kind) and sparsity.rate == 0.1 and sparsity.evaluation == "clean"


@pytest.mark.parametrize("table", ["6", "7"])
def test_every_target_that_is_printed_is_measured(table: str) -> None:
    printed = read_published(ROOT / "results/published/fedsa_gcl.csv").targets(table)
    assert set(printed) == set(TABLES[table].datasets)
    with Composer() as composed:
        cfg = composed([f"experiment=fedsa_gcl/table{table}"])
    assert set(printed.values()) <= set(cfg.targets)


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


def test_every_printed_cell_of_fedsa_gcl_has_a_place() -> None:
    printed = read_published(ROOT / "results/published/fedsa_gcl.csv")
    places = [t.place(row, column) for t in PAPER.tables if t.measure != "curves" for row in t.rows for column in t.columns]
    assert {id(printed.find(place)) for place in places if place} - {id(None)} == {id(cell) for cell in printed.cells}


def test_columns_of_other_settings_compose_as_the_command_does() -> None:
    paper = load_paper("dfed_sst")
    [table] = [table for table in paper.tables if table.key == "2"]
    wanted = [column for column in table.columns if column.dataset == "cora"]
    assert [column.key for column in wanted] == ["cora, 10 clients", "cora, 20 clients"]
    other = Column("cora", "dirichlet", ("split=dirichlet", "split.alpha=0.3", "num_clients=7"))
    narrowed = dataclasses.replace(table, columns=(*wanted, other), rows=table.rows[:1])
    cells = plan(paper, [narrowed])
    with Composer() as composed:
        assert [located(composed(cell.overrides)) for cell in cells] == [(cell.digest, cell.folder, cell.config) for cell in cells]
    assert [cell.config["num_clients"] for cell in cells] == [10, 20, 7] and cells[2].config["split"]["alpha"] == 0.3
    printed = read_published(ROOT / "results/published/dfed_sst.csv")
    [gossip] = [row for row in table.rows if row.key == "gossip"]
    assert [printed.find(table.place(gossip, column)).mean for column in wanted] == ["79.97", "74.94"]


def test_each_run_is_made_once_telling_methods_and_small_datasets_first() -> None:
    rows = [Row(name, name, name) for name in ("slow", "telling")]
    tables = tuple(Table(key, "", "", "accuracy", columns(("large", "small")), tuple(rows)) for key in ("1", "2"))
    paper = Paper("p", "P", tables, first=("telling",), late=("large",))
    runs = [
        Cell(table.key, row, Column(dataset), (), f"{'shared' if dataset == 'small' else table.key}-{row.key}-{dataset}", Path())
        for table in tables
        for row in table.rows
        for dataset in table.datasets
    ]
    absent = Cell("1", Row("new", "new", "new"), Column("small"), (), "", Path())
    assert [(c.table, c.row.key, c.dataset) for c in in_order(paper, [absent, *runs])] == [
        ("1", "telling", "small"),
        ("1", "slow", "small"),
        ("1", "telling", "large"),
        ("2", "telling", "large"),
        ("1", "slow", "large"),
        ("2", "slow", "large"),
    ]


def test_a_method_without_a_yaml_is_planned_as_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "available", lambda name: name != "fedavg")
    cells = plan(PAPER, [narrow("3", ("cora",))])
    assert {cell.row.key for cell in cells if not cell.digest} == {"fedavg"}
    assert len(cells) == len(NARROW)


def known(algorithm: str, dataset: str, seconds: float, seeds: int = 5, clients: int = 20) -> dict:
    """A run of a hundred rounds."""
    trips, counts = {"total": 100 * clients}, {"num_clients": clients, "seeds": list(range(seeds))}
    return {"algorithm": algorithm, "dataset": dataset, "seconds": {"total": seconds}, "client_trips": trips, **counts}


def seconds(costs: Costs, algorithm: str, dataset: str, seeds: int = 5, rounds: float = 100, settings: str = "") -> float | None:
    return costs.seconds(Kind(algorithm, "gcn", dataset, settings), seeds, rounds)


def test_costs_are_scaled_by_seeds_rounds_method_and_dataset() -> None:
    paper = dataclasses.replace(PAPER, sizes={"a": (10, 10), "b": (20, 40), "c": (30, 50)})
    costs = Costs(paper, [known("x", "a", 100), known("x", "b", 400), known("y", "a", 10)])
    assert seconds(costs, "x", "a") == pytest.approx(100)
    assert seconds(costs, "x", "a", 1, 50) == pytest.approx(10)
    assert seconds(costs, "y", "b") == pytest.approx(40)  # as x: four times a
    assert seconds(costs, "y", "c") == pytest.approx(40)  # by size: four times a
    assert 10 < seconds(costs, "z", "a") < 100  # never run: an average method
    assert seconds(Costs(paper, []), "x", "a") is None
    one, many = (seconds(Costs(paper, [known("x", "a", 100, clients=clients)]), "x", "a") for clients in (1, 50))
    assert one == many == pytest.approx(100)  # the graph is the same
    three = {**known("x", "a", 300), "config": {"local_epochs": 3}}
    assert seconds(Costs(paper, [three]), "x", "a") == pytest.approx(180)  # one epoch and two of scores, of three and two


def test_a_cost_is_that_of_runs_with_the_same_settings_where_there_are_some() -> None:
    paper = dataclasses.replace(PAPER, sizes={"a": (10, 10), "b": (20, 20)})
    rates = {Kind("x", "gcn", "a", "shallow"): 1.0, Kind("x", "gcn", "a", "deep"): 4.0, Kind("x", "gcn", "b", "deep"): 20.0}
    costs = Costs(paper, (), rates)
    assert seconds(costs, "x", "a", 1, 1, "deep") == 4
    assert seconds(costs, "x", "a", 1, 1, "wide") == pytest.approx(2)  # of both
    assert seconds(costs, "x", "b", 1, 1, "shallow") == pytest.approx(20)  # the same data counts more than the same settings


def test_costs_are_those_of_runs_on_cpus_where_there_are_some() -> None:
    paper = dataclasses.replace(PAPER, sizes={"a": (10, 10)})
    on_gpu, on_cpu = {**known("x", "a", 5), "device": "NVIDIA H100"}, {**known("y", "a", 100), "device": "CPU x86_64, 1 thread(s)"}
    assert seconds(Costs(paper, [on_gpu]), "x", "a") == pytest.approx(5)
    assert seconds(Costs(paper, [on_gpu, on_cpu]), "x", "a") == pytest.approx(100)  # as y


def test_settings_are_what_makes_a_round_dear() -> None:
    cell = next(cell for cell in plan(PAPER, [narrow("3", ("cora",))]) if cell.row.key == "fedavg")

    def changed(group: str = "", **keys: object) -> str:
        config = {**cell.config, group: {**cell.config[group], **keys}} if group else {**cell.config, **keys}
        return kind_of(dataclasses.replace(cell, config=config)).settings

    same = changed()
    assert same == changed("model", dropout=0.25) == changed(lr=0.5) == changed(num_clients=3)
    others = changed("model", dropout=0.0), changed("model", hidden=7), changed(batch_nodes=10), changed(num_clients=1)
    assert len({same, *others}) == 5


def test_rates_outlive_their_cells(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    assert read_rates(path) == {}
    write_rates(path, [known("x", "a", 100), known("x", "a", 300), known("y", "a", 10)])
    write_rates(path, [known("y", "a", 20)])
    rates = read_rates(path)
    assert rates == {Kind("x", "gcn", "a"): pytest.approx(0.4), Kind("y", "gcn", "a"): pytest.approx(0.04)}
    paper = dataclasses.replace(PAPER, sizes={"a": (10, 10)})
    assert seconds(Costs(paper, [], rates), "x", "a") == pytest.approx(200)
    assert seconds(Costs(paper, [known("x", "a", 50)], rates), "x", "a") == pytest.approx(50)  # a stored cell knows better


def test_rates_measured_on_an_idle_machine_come_first() -> None:
    paper, kind = dataclasses.replace(PAPER, sizes={"a": (10, 10), "b": (10, 10)}), Kind("x", "gcn", "a")
    stored = [known("x", "a", 300), known("x", "b", 600)]
    costs = Costs(paper, stored, {kind: 2.0}, {kind: 0.1})
    assert seconds(costs, "x", "a") == pytest.approx(50)
    assert seconds(costs, "x", "b") == pytest.approx(600)  # of what was not measured, the stored runs are all there is


@pytest.mark.parametrize(("seconds", "text"), [(None, "cost unknown"), (0.2, "about 1 s"), (200, "about 3 min"), (9000, "about 2.5 h")])
def test_durations_are_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_an_unknown_paper_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="nope.*fedsa_gcl"):
        load_paper("nope")


def test_a_result_outlives_keys_that_are_added_later_and_nothing_else():
    stored = {"trips": 40, "algorithm": {"mu": 0.1}, "split": {"per_seed": []}}
    cells = {"old": {"config_hash": "old", "config": stored}}
    grown = {**stored, "algorithm": {"mu": 0.1, "new": None}, "newer": 1}
    assert find(cells, "other", grown) is cells["old"]
    assert find(cells, "old", {}) is cells["old"]
    for changed in ({**grown, "trips": 41}, {**grown, "algorithm": {"new": None}}, {**grown, "split": {"per_seed": ["masks"]}}):
        assert find(cells, "other", changed) is None
    assert find({"bare": {"config_hash": "bare"}}, "other", grown) is None, "without a configuration nothing can be said"
