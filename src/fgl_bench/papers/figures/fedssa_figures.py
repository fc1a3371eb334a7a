"""The figures of FedSSA: 3 (ablation), 4, 8, 9 (curves), 5, 10, 11 (sensitivity), 6, 12, 13 (class embeddings, filters)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.figures import pictures
from fgl_bench.papers.figures.inputs import Curve, Sources, both, compared, convergence, lines, swept
from fgl_bench.papers.plan import Key, Row, load_paper
from fgl_bench.results.plots import figures
from fgl_bench.results.plots.figures import Panel

TEN, THIRTY = "10 clients", "30 clients"
BY_AUC = ("minesweeper", "tolokers", "questions")
# Default hyper-parameters of FedSSA in figure 5; other values have separate rows.
CHOSEN = {"node_clusters": "3", "structural_clusters": "3", "l1": "0.001", "l2": "0.001"}


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    cells, runs, curve_data = sources.cells("8", "figure5"), sources.runs("8"), sources.curves("1", "2", "6", "7")
    rows = {table.key: {row.key: row for row in table.rows} for table in load_paper("fedssa").tables}
    for dataset in sources.datasets:
        yield from ablation(cells, rows["8"], dataset)
        yield from curves(curve_data, rows["figure4"], dataset)
        yield from sensitivity(cells, rows["figure5"], dataset)
        yield from case_study(runs, dataset)


def scored_by(dataset: str) -> str:
    return "test AUC" if dataset in BY_AUC else "test accuracy"


def ablation(cells: Mapping[Key, Any], rows: Mapping[str, Row], dataset: str) -> Iterator[tuple[str, Figure]]:
    for name, full in (("ablation", "fedssa"), ("ablation_light", "fedssa_light")):
        keys = [*(key for key in rows if key.startswith(f"{full}_without_")), full]
        tests_by = {rows[key].title: cells.get(("8", key, f"{dataset}, {TEN}")) for key in keys}
        tests = {title: cell["test"] for title, cell in tests_by.items() if cell}
        if compared(f"figure3_{name}_{dataset}", {dataset: tests}):
            title = f"FedSSA without one of its parts, METIS, {TEN}"
            yield f"figure3_{name}_{dataset}", figures.bars({dataset: both(tests)}, MODELS, f"{scored_by(dataset)} in %", title)


def curves(stored: Mapping[Key, Curve], rows: Mapping[str, Row], dataset: str) -> Iterator[tuple[str, Figure]]:
    """Figures 4 and 8 show METIS splits, figure 9 overlapping clients."""
    for figure, keys, group, setting in (
        ("figure4", ("1", "2"), TEN, f"METIS, {TEN}"),
        ("figure9", ("6", "7"), THIRTY, "30 overlapping clients"),
    ):
        name, shown = f"{figure}_convergence_{dataset}", [row for row in rows.values() if row.key != "majority"]
        places = {row.title: place for row in shown for key in keys if (place := (key, row.key, f"{dataset}, {group}")) in stored}
        shown_lines = lines(name, places, stored)
        if shown_lines:
            yield name, figures.lines(convergence({dataset: shown_lines}, scored_by(dataset)), f"{dataset}, {setting}", 2)


def sensitivity(cells: Mapping[Key, Any], rows: Mapping[str, Row], dataset: str) -> Iterator[tuple[str, Figure]]:
    """Draw a panel per hyper-parameter with at least two scored values; a star marks FedSSA's default."""
    panels = []
    for name, own in CHOSEN.items():
        keys = {key.removeprefix(f"fedssa_{name}_"): key for key in rows if key.startswith(f"fedssa_{name}_")} | {own: "fedssa"}
        found = {value: cells.get(("figure5", keys[value], f"{dataset}, {TEN}")) for value in sorted(keys, key=float)}
        tests = {value: cell["test"] for value, cell in found.items() if cell}
        if len(tests) > 1:
            drawn = {model: swept([(position, test[model]) for position, test in enumerate(tests.values())]) for model in MODELS}
            ticks = [value + "*" * (value == own) for value in tests]
            panels.append(Panel("", name, f"{scored_by(dataset)} in %", drawn, ticks))
    if panels:
        yield f"figure5_sensitivity_{dataset}", figures.lines(panels, f"Sensitivity of FedSSA, {dataset}, METIS, {TEN}", 4)


def case_study(runs: Mapping[Key, Path], dataset: str) -> Iterator[tuple[str, Figure]]:
    """Draw the panels of a component: without it, and with both."""
    for part, drawn, shown, needed in (
        ("semantic", pictures.embeddings, "classes", "class_means"),
        ("structural", pictures.filters, "filters", "coefficients"),
    ):
        panels = {}
        for name, key in ((f"without {part} alignment", f"fedssa_without_{part}"), ("both alignments", "fedssa")):
            run = runs.get(("8", key, f"{dataset}, {TEN}"))
            state = pictures.read_final_state(run) if run else {}
            if needed in state:
                panels[name] = state
        if len(panels) == 2:
            yield f"figure6_{shown}_{dataset}", drawn(panels, f"{shown.capitalize()} of every client, {dataset}, METIS, {TEN}")
