"""The figures of FedAAS: 1, 3 (curves), 4 (scores by cost), 5 (total costs), 7 (ablation), 6, 8, 9, 10 (sensitivity to a setting).

All show the server's (received) model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fgl_bench.papers.figures import inputs
from fgl_bench.papers.figures.inputs import Curve, Sources, line, swept
from fgl_bench.papers.plan import Column, Key, Row, load_paper
from fgl_bench.results.plots import figures
from fgl_bench.results.plots.figures import Panel

Curves = Mapping[Key, Curve]
Cells = Mapping[Key, Any]
# Key of a curve, axis label, factor to percent or GB.
ACCURACY, F1 = ("received", "test accuracy in %", 100), ("received_macro_f1", "test macro F1 in %", 100)
LOSS = ("received_loss", "test loss", 1)
ROUND, BYTES, EMBEDDINGS = (
    ("round", "round", 1),
    ("bytes", "GB moved, models and embeddings", 1e-9),
    ("embedding_bytes", "GB of embeddings", 1e-9),
)
SECONDS = ("communication_seconds", "seconds on the wire", 1)
PARTS = {"GB per seed": ("models", "embeddings"), "seconds per seed": ("on the wire", "computing (all clients, measured)")}
SPLITS = {"iid": "iid", "dirichlet": "Dirichlet(0.5)"}
CENTRALIZED = "global"
STUDIED, DENSE, MANY = "cs", "computers", "pubmed"


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in load_paper("fedaas").tables}
    swept_in = ("figure6", "figure8", "figure9", "figure10")
    curves, cells = sources.curves("2", "figure7", "figure8"), sources.cells("2", "figure7", *swept_in)
    methods = tables["figure3"].rows
    yield from pictured(curves, "figure1_motivation", STUDIED, "iid", tables["figure1"].rows, [(ROUND, ACCURACY), (ROUND, F1)])
    for dataset in sources.datasets:
        for split in SPLITS:
            yield from pictured(curves, "figure3_convergence", dataset, split, methods, [(ROUND, F1), (ROUND, LOSS)])
            both = [(x, y) for y in (ACCURACY, F1) for x in (BYTES, EMBEDDINGS, SECONDS)]
            yield from pictured(curves, "figure4_by_cost", dataset, split, methods, both)
    for split, title in SPLITS.items():
        groups = {dataset: totals(cells, "2", methods, f"{dataset}, {title}") for dataset in sources.datasets}
        yield from costs(f"figure5_costs_{split}", groups, f"Costs of 50 rounds, {title}, 50 clients")
    yield from ablation(curves, cells, tables["figure7"].rows)
    for number, dataset, name, what, shown in (
        ("figure6", DENSE, "concentration of the labels", "test accuracy in %", ("0.1", "1.0")),
        ("figure8", MANY, "clients", "test accuracy in %", ()),
        ("figure9", DENSE, "sampled neighbors", "test macro F1 in %", ()),
        ("figure10", STUDIED, "share of dropped edges", "test macro F1 in %", ("0.5", "0.7")),
    ):
        yield from sensitivity(cells, methods, tables[number].columns, number, dataset, name, what, shown)
    name, places = "figure8b_by_cost", {row.title: ("figure8", row.key, tables["figure8"].columns[-1].key) for row in methods}
    panels = drawn(inputs.lines(name, places, curves), [(BYTES, ACCURACY), (EMBEDDINGS, ACCURACY)])
    if panels:
        yield name, figures.lines(panels, f"{MANY}, iid, 1,000 clients, the server's model")


def drawn(lines: Mapping[str, Curve], pairs: Iterable[tuple[tuple, tuple]], levels: tuple[str, ...] = ()) -> list[Panel]:
    """Return a panel per pair that all curves have; lines in ``levels`` only show their last value."""
    panels = []
    for (x, across, small), (y, up, percent) in pairs:
        values = {name: points for name, curve in lines.items() if (points := line(curve, x, y, (small, percent))) is not None}
        if values and len(values) == len(lines):
            ends = {name: float(values.pop(name)[1][-1]) for name in levels if name in values}
            panels.append(Panel("", across, up, values, levels=ends))
    return panels


def pictured(curves: Curves, figure: str, dataset: str, split: str, rows: Iterable[Row], pairs: list) -> Iterator[tuple[str, Figure]]:
    name, places = f"{figure}_{dataset}_{split}", {row.title: ("2", row.key, f"{dataset}, {SPLITS[split]}") for row in rows}
    panels = drawn(inputs.lines(name, places, curves), pairs)
    if panels:
        yield (
            name,
            figures.lines(panels, f"{dataset}, {SPLITS[split]}, 50 clients, the server's model", len(pairs) if len(pairs) < 3 else 3),
        )


def totals(cells: Cells, table: str, rows: Iterable[Row], column: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Return, by title, GB (models, embeddings) and seconds (communication, computation) per seed."""
    result = {}
    for row in rows:
        cell = cells.get((table, row.key, column))
        if cell and "costs" in cell:
            spent = {name: each["mean"] for name, each in cell["costs"].items()}
            rows_ = spent["embedding_upload"] + spent["embedding_download"]
            whole = cell["bytes"]["upload"] + cell["bytes"]["download"]
            seconds = spent["communication_seconds"], spent["computation_seconds"]
            result[row.title] = {"GB per seed": ((whole - rows_) / 1e9, rows_ / 1e9), "seconds per seed": seconds}
    return result


def costs(name: str, groups: Mapping[str, Mapping[str, Mapping]], title: str) -> Iterator[tuple[str, Figure]]:
    """Draw a figure of bytes and one of seconds, with a panel per non-empty group."""
    for (what, parts), kind in zip(PARTS.items(), ("bytes", "seconds"), strict=True):
        panels = {group: {row: each[what] for row, each in found.items()} for group, found in groups.items()}
        if panels := inputs.compared(f"{name}_{kind}", panels):
            bars = {group: {row: [(value, 0.0) for value in values] for row, values in found.items()} for group, found in panels.items()}
            yield f"{name}_{kind}", figures.bars(bars, parts, what, title, stacked=True)


def ablation(curves: Curves, cells: Cells, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    name, column = "figure7a_ablation", f"{STUDIED}, {SPLITS['iid']}"
    shown = inputs.lines(name, {row.title: ("figure7", row.key, column) for row in rows}, curves)
    panels = drawn(shown, [(BYTES, ACCURACY), (EMBEDDINGS, ACCURACY)], tuple(row.title for row in rows if row.key == CENTRALIZED))
    if panels:
        yield name, figures.lines(panels, f"Ablation of FedAAS, {STUDIED}, iid, 50 clients, the server's model")
    # A single learner sends nothing.
    groups = {STUDIED: totals(cells, "figure7", [row for row in rows if row.key != CENTRALIZED], column)}
    yield from costs("figure7b_costs", groups, f"Ablation of FedAAS, {STUDIED}, iid")


def sensitivity(
    cells: Cells, rows: Sequence[Row], columns: Sequence[Column], figure: str, dataset: str, name: str, what: str, shown: tuple[str, ...]
) -> Iterator[tuple[str, Figure]]:
    """Draw scores by the values of a setting, and the costs at the values in ``shown`` (empty: all)."""
    values = {column.group.split()[-1]: column.key for column in columns}
    costs_by: dict[str, list] = {}
    for position, key in enumerate(values.values()):
        for row in rows:
            cell = cells.get((figure, row.key, key))
            score = cell and (cell.get("metrics", {}).get("macro_f1") if "F1" in what else cell["test"])
            if score:
                costs_by.setdefault(row.title, []).append((position, score["received"]))
    tried = {position for points in costs_by.values() for position, _ in points}
    if not inputs.compared(f"{figure}_{dataset}", {"": {f"{name} {list(values)[position]}": position for position in tried}}):
        return
    panel = Panel("", name, what, {title: swept(points) for title, points in costs_by.items()}, tuple(values))
    yield f"{figure}_{dataset}", figures.lines([panel], f"FedAAS, {dataset}, the server's model")
    groups = {f"{name} {value}": totals(cells, figure, rows, values[value]) for value in shown or values if value in values}
    yield from costs(f"{figure}_costs_{dataset}", groups, f"Costs by {name}, {dataset}")
