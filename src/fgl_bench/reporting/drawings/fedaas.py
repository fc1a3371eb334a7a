"""The figures of FedAAS: 1, 3 (curves), 4 (scores by cost), 5 (total costs), 7 (ablation), 6, 8, 9, 10 (a setting's values).

All show the server's (received) model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from fgl_bench.reporting.courses import Line, Panel, line, lines, stacked, swept
from fgl_bench.reporting.drawings.base import Sources
from fgl_bench.reporting.papers.fedaas import (
    ABLATED,
    DENSE,
    FEDAAS,
    FEDLOCAL,
    FEDPNS,
    GLOBAL,
    MANY,
    METHODS,
    SPLITS,
    STUDIED,
    SWEPT,
)  # fmt: skip
from fgl_bench.reporting.plan import Row

Place = tuple[str, str, str]  # table, row, column
Runs, Cells = dict[Place, Path], dict[Place, dict]
# Columns of history.csv, what they are called, and what makes percent or GB of them.
ACCURACY, F1 = ("test_received", "test accuracy in %", 100), ("test_received_macro_f1", "test macro F1 in %", 100)
LOSS = ("test_received_loss", "test loss", 1)
ROUND, BYTES, EMBEDDINGS = (
    ("round", "round", 1),
    ("bytes", "GB moved, models and embeddings", 1e-9),
    ("embeddings", "GB of embeddings", 1e-9),
)
SECONDS = ("communication_seconds", "seconds on the wire", 1)
PARTS = {"GB a seed": ("models", "embeddings"), "seconds a seed": ("on the wire", "computing (all clients, measured)")}
TITLES = {key: title for key, (title, _) in SPLITS.items()}


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    runs, cells = sources.runs("2", "figure7", "figure8"), sources.cells("2", "figure7", *SWEPT)
    yield from pictured(runs, "figure1_motivation", STUDIED, "iid", (FEDLOCAL, FEDPNS, FEDAAS), [(ROUND, ACCURACY), (ROUND, F1)])
    for dataset in sources.datasets:
        for split in SPLITS:
            yield from pictured(runs, "figure3_convergence", dataset, split, METHODS, [(ROUND, F1), (ROUND, LOSS)])
            both = [(x, y) for y in (ACCURACY, F1) for x in (BYTES, EMBEDDINGS, SECONDS)]
            yield from pictured(runs, "figure4_by_cost", dataset, split, METHODS, both)
    for split, title in TITLES.items():
        groups = {dataset: totals(cells, "2", METHODS, f"{dataset}, {title}") for dataset in sources.datasets}
        yield from costs(f"figure5_costs_{split}", groups, f"Costs of 50 rounds, {title}, 50 clients")
    yield from ablation(runs, cells)
    for number, dataset, name, what, shown in (
        ("figure6", DENSE, "concentration of the labels", "test accuracy in %", ("0.1", "1.0")),
        ("figure8", MANY, "clients", "test accuracy in %", ()),
        ("figure9", DENSE, "sampled neighbours", "test macro F1 in %", ()),
        ("figure10", STUDIED, "share of dropped edges", "test macro F1 in %", ("0.5", "0.7")),
    ):
        yield from sensitivity(cells, number, dataset, name, what, shown)
    found = {row.title: runs.get(("figure8", row.key, SWEPT["figure8"][-1].key)) for row in METHODS}
    panels = drawn(found, [(BYTES, ACCURACY), (EMBEDDINGS, ACCURACY)])
    if panels:
        yield "figure8b_by_cost", lines(panels, f"{MANY}, iid, 1,000 clients, the server's model")


def drawn(found: Mapping[str, Path | None], pairs: Iterable[tuple[tuple, tuple]], levels: tuple[str, ...] = ()) -> list[Panel]:
    """A panel for each pair of columns, those that some run has; of the lines in ``levels`` only their end."""
    panels = []
    for (x, across, small), (y, up, percent) in pairs:
        made: dict[str, Line | None] = {name: line(run, x, y, (small, percent)) for name, run in found.items() if run}
        here = {name: points for name, points in made.items() if points is not None}
        ends = {name: float(here.pop(name)[1][-1]) for name in levels if name in here}
        if here:
            panels.append(Panel("", across, up, here, levels=ends))
    return panels


def pictured(runs: Runs, figure: str, dataset: str, split: str, rows: Iterable[Row], pairs: list) -> Iterator[tuple[str, Figure]]:
    found = {row.title: runs.get(("2", row.key, f"{dataset}, {TITLES[split]}")) for row in rows}
    panels = drawn(found, pairs)
    if panels:
        title = f"{dataset}, {TITLES[split]}, 50 clients, the server's model"
        yield f"{figure}_{dataset}_{split}", lines(panels, title, len(pairs) if len(pairs) < 3 else 3)


def totals(cells: Cells, table: str, rows: Iterable[Row], column: str) -> dict[str, dict[str, tuple[float, float]]]:
    """By title, a seed's GB (models, embeddings) and seconds (on the wire, computing)."""
    found = {}
    for row in rows:
        cell = cells.get((table, row.key, column))
        if cell and "costs" in cell:
            spent = {name: each["mean"] for name, each in cell["costs"].items()}
            rows_ = spent["embedding_upload"] + spent["embedding_download"]
            whole = cell["bytes"]["upload"] + cell["bytes"]["download"]
            seconds = spent["communication_seconds"], spent["computation_seconds"]
            found[row.title] = {"GB a seed": ((whole - rows_) / 1e9, rows_ / 1e9), "seconds a seed": seconds}
    return found


def costs(name: str, groups: Mapping[str, Mapping[str, Mapping]], title: str) -> Iterator[tuple[str, Figure]]:
    """A figure of bytes and one of seconds, a panel for each group with numbers."""
    for (what, parts), kind in zip(PARTS.items(), ("bytes", "seconds"), strict=True):
        panels = {group: {row: each[what] for row, each in found.items()} for group, found in groups.items() if found}
        if panels:
            yield f"{name}_{kind}", stacked(panels, parts, what, title)


def ablation(runs: Runs, cells: Cells) -> Iterator[tuple[str, Figure]]:
    column = f"{STUDIED}, {TITLES['iid']}"
    found = {row.title: runs.get(("figure7", row.key, column)) for row in ABLATED}
    panels = drawn(found, [(BYTES, ACCURACY), (EMBEDDINGS, ACCURACY)], (GLOBAL.title,))
    if panels:
        yield "figure7a_ablation", lines(panels, f"Ablation of FedAAS, {STUDIED}, iid, 50 clients, the server's model")
    # One learner sends nothing to anybody.
    groups = {STUDIED: totals(cells, "figure7", [row for row in ABLATED if row is not GLOBAL], column)}
    yield from costs("figure7b_costs", groups, f"Ablation of FedAAS, {STUDIED}, iid")


def sensitivity(cells: Cells, figure: str, dataset: str, name: str, what: str, shown: tuple[str, ...]) -> Iterator[tuple[str, Figure]]:
    """Scores by the values of a setting, and the costs at those in ``shown`` (none: all)."""
    values = {column.group.split()[-1]: column.key for column in SWEPT[figure]}
    made: dict[str, list] = {}
    for place, key in enumerate(values.values()):
        for row in METHODS:
            cell = cells.get((figure, row.key, key))
            score = cell and (cell.get("metrics", {}).get("macro_f1") if "F1" in what else cell["test"])
            if score:
                made.setdefault(row.title, []).append((place, score["received"]))
    if not made:
        return
    panel = Panel("", name, what, {title: swept(points) for title, points in made.items()}, tuple(values))
    yield f"{figure}_{dataset}", lines([panel], f"FedAAS, {dataset}, the server's model")
    groups = {f"{name} {value}": totals(cells, figure, METHODS, values[value]) for value in shown or values if value in values}
    yield from costs(f"{figure}_costs_{dataset}", groups, f"Costs by {name}, {dataset}")
