"""The figures of FedSSA: 3 (ablation), 4, 8, 9 (curves), 5, 10, 11 (sensitivity), 6, 12, 13 (class embeddings, filters)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from fgl_bench.papers.figures import alignment, figures
from fgl_bench.papers.figures.base import Place, Sources, compared, lines
from fgl_bench.papers.figures.figures import Curve
from fgl_bench.papers.plans.fedssa import ABLATED, ABLATED_LIGHT, ALL, CHOSEN, FEDSSA, FEDSSA_LIGHT, SWEPT, swept

TEN, THIRTY = "10 clients", "30 clients"
LEFT_OUT = ("majority",)
BY_AUC = ("minesweeper", "tolokers", "questions")
Cells = dict[Place, dict]
Runs = dict[Place, Path]
WITHOUT = {row.key.removeprefix("fedssa_without_"): row for row in ABLATED}


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    cells, runs, kept = sources.cells("8", "figure5"), sources.runs("8"), sources.curves("1", "2", "6", "7")
    for dataset in sources.datasets:
        yield from ablation(cells, dataset)
        yield from convergence(kept, dataset)
        yield from sensitivity(cells, dataset)
        yield from case_study(runs, dataset)


def scored_by(dataset: str) -> str:
    return "test AUC" if dataset in BY_AUC else "test accuracy"


def ablation(cells: Cells, dataset: str) -> Iterator[tuple[str, Figure]]:
    for name, rows in (("ablation", (*ABLATED, FEDSSA)), ("ablation_light", (*ABLATED_LIGHT, FEDSSA_LIGHT))):
        found = {row.title: cells.get(("8", row.key, f"{dataset}, {TEN}")) for row in rows}
        tests = {title: cell["test"] for title, cell in found.items() if cell}
        if compared(f"figure3_{name}_{dataset}", {dataset: tests}):
            title = f"FedSSA without one of its parts, METIS, {TEN}"
            yield f"figure3_{name}_{dataset}", figures.bars({dataset: tests}, title, scored_by(dataset))


def convergence(kept: Mapping[Place, Curve], dataset: str) -> Iterator[tuple[str, Figure]]:
    """Figures 4 and 8 show METIS splits, figure 9 overlapping clients."""
    for figure, keys, group, setting in (
        ("figure4", ("1", "2"), TEN, f"METIS, {TEN}"),
        ("figure9", ("6", "7"), THIRTY, "30 overlapping clients"),
    ):
        name, shown = f"{figure}_convergence_{dataset}", [row for row in ALL if row.key not in LEFT_OUT]
        places = {row.title: place for row in shown for key in keys if (place := (key, row.key, f"{dataset}, {group}")) in kept}
        found = lines(name, places, kept)
        if found:
            yield name, figures.curves({dataset: found}, f"{dataset}, {setting}", scored_by(dataset))


def sensitivity(cells: Cells, dataset: str) -> Iterator[tuple[str, Figure]]:
    panels = {}
    for key, (_, values) in SWEPT.items():
        tried = {value: cells.get(("figure5", swept(key, value).key, f"{dataset}, {TEN}")) for value in values}
        points = [(value, cell["test"]) for value, cell in tried.items() if cell]
        if len(points) > 1:
            panels[key] = points
    if panels:
        title = f"Sensitivity of FedSSA, {dataset}, METIS, {TEN}"
        yield f"figure5_sensitivity_{dataset}", alignment.sensitivity(panels, CHOSEN, scored_by(dataset), title)


def case_study(runs: Runs, dataset: str) -> Iterator[tuple[str, Figure]]:
    """A component's panels: without it, and with both."""
    for part, drawn, shown, needed in (
        ("semantic", alignment.embeddings, "classes", "class_means"),
        ("structural", alignment.filters, "filters", "coefficients"),
    ):
        panels = {}
        for name, row in ((f"without {part} alignment", WITHOUT[part]), ("both alignments", FEDSSA)):
            run = runs.get(("8", row.key, f"{dataset}, {TEN}"))
            state = alignment.read_final_state(run) if run else {}
            if needed in state:
                panels[name] = state
        if len(panels) == 2:
            yield f"figure6_{shown}_{dataset}", drawn(panels, f"{shown.capitalize()} of every client, {dataset}, METIS, {TEN}")
