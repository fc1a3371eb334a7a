"""The figures of DFed-SST: 2 (what differs between clients), 4 (curves), 5 (ablation), 6 (communication graphs), 7 (seconds)."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.papers.figures import figures, topologies
from fgl_bench.papers.figures.base import Sources, compared, lines
from fgl_bench.papers.plans.dfed_sst import DFED_SST, DFED_SST_SELF, PAPER
from fgl_bench.results.hardware import marked

TEN = "10 clients"
STUDIED = "cora"
# Figure 6 shows Photo and Cora; the round is the trip count over the number of clients.
GRAPHS = ("photo", "cora")
LEFT_OUT = ("majority", "d_psgd_dynamic")


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in PAPER.tables}
    kept, mixing, cells = sources.curves("2"), sources.matrices("mixing", "2"), sources.cells("2", "figure5")
    rows = [row for row in tables["2"].rows if row.key not in LEFT_OUT]

    for dataset, federation in sources.federations("dfed_sst/table2", (STUDIED,), "num_clients=10"):
        yield f"figure2_heterogeneity_{dataset}", topologies.heterogeneity(federation, f"What differs between clients, {dataset}")
    for dataset in dict.fromkeys((STUDIED, *sources.datasets)):
        name = f"figure{'2d' if dataset == STUDIED else '4'}_convergence_{dataset}"
        found = lines(name, {row.title: ("2", row.key, f"{dataset}, {TEN}") for row in rows}, kept)
        if found:
            yield name, figures.curves({dataset: found}, f"{dataset}, METIS, {TEN}")

    ablation = {}
    for column in tables["figure5"].columns:
        tests = {row.title: cells.get(("figure5", row.key, column.key)) for row in tables["figure5"].rows}
        ablation[column.dataset] = {title: cell["test"] for title, cell in tests.items() if cell}
    if panels := compared("figure5_ablation", ablation):
        yield "figure5_ablation", figures.bars(panels, "DFed-SST without one of its parts")

    for dataset in GRAPHS:
        for row, suffix in ((DFED_SST, ""), (DFED_SST_SELF, "_self")):
            matrices = mixing.get(("2", row.key, f"{dataset}, {TEN}"))
            if matrices:
                shown = {f"round {trips // 10}": matrix for trips, matrix in sorted(matrices.items())}
                yield f"figure6_topology_{dataset}{suffix}", topologies.graphs(shown, f"Who hears whom: {row.title}, {dataset}, {TEN}")

    for group in dict.fromkeys(column.group for column in tables["2"].columns):
        seconds: dict[str, dict[str, float]] = {}
        for column in tables["2"].columns:
            for row in rows:
                cell = cells.get(("2", row.key, column.key))
                if cell and column.group == group:
                    each = cell["seconds"]["train"] / (cell["config"]["rounds"] * len(cell["seeds"]))
                    seconds.setdefault(column.dataset, {})[marked(row.title, cell)] = each
        name = f"figure7_seconds_{group.split()[0]}"
        if panels := compared(name, seconds):
            yield name, figures.simple_bars(panels, "seconds per round and seed", f"Time of a round, {group}")
