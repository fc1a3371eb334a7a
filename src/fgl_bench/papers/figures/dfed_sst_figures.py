"""The figures of DFed-SST: 2 (heterogeneity of clients), 4 (curves), 5 (ablation), 6 (communication graphs), 7 (seconds)."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.figures import pictures
from fgl_bench.papers.figures.inputs import Sources, both, compared, convergence, lines, seconds
from fgl_bench.papers.plan import load_paper
from fgl_bench.results.plots import figures
from fgl_bench.results.provenance import marked

TEN = "10 clients"
STUDIED = "cora"
# Figure 6 shows Photo and Cora; the round is the trip count over the number of clients.
GRAPHS = ("photo", "cora")
LEFT_OUT = ("majority", "d_psgd_dynamic")


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in load_paper("dfed_sst").tables}
    curves, mixing, cells = sources.curves("2"), sources.matrices("mixing", "2"), sources.cells("2", "figure5")
    rows = [row for row in tables["2"].rows if row.key not in LEFT_OUT]

    for dataset, federation in sources.federations("dfed_sst/table2", (STUDIED,), "num_clients=10"):
        yield f"figure2_heterogeneity_{dataset}", pictures.heterogeneity(federation, f"What differs between clients, {dataset}")
    for dataset in dict.fromkeys((STUDIED, *sources.datasets)):
        name = f"figure{'2d' if dataset == STUDIED else '4'}_convergence_{dataset}"
        shown_lines = lines(name, {row.title: ("2", row.key, f"{dataset}, {TEN}") for row in rows}, curves)
        if shown_lines:
            yield name, figures.lines(convergence({dataset: shown_lines}), f"{dataset}, METIS, {TEN}", 2)

    ablation = {}
    for column in tables["figure5"].columns:
        tests = {row.title: cells.get(("figure5", row.key, column.key)) for row in tables["figure5"].rows}
        ablation[column.dataset] = {title: cell["test"] for title, cell in tests.items() if cell}
    if panels := compared("figure5_ablation", ablation):
        shown = {dataset: both(tests) for dataset, tests in panels.items()}
        yield "figure5_ablation", figures.bars(shown, MODELS, "test accuracy in %", "DFed-SST without one of its parts")

    titles = {row.key: row.title for row in rows}
    for dataset in GRAPHS:
        for key, suffix in (("dfed_sst", ""), ("dfed_sst_self", "_self")):
            matrices = mixing.get(("2", key, f"{dataset}, {TEN}"))
            if matrices:
                graphs = {f"round {trips // 10}": matrix for trips, matrix in sorted(matrices.items())}
                yield f"figure6_topology_{dataset}{suffix}", pictures.graphs(graphs, f"Who hears whom: {titles[key]}, {dataset}, {TEN}")

    for group in dict.fromkeys(column.group for column in tables["2"].columns):
        spent: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for column in tables["2"].columns:
            for row in rows:
                cell = cells.get(("2", row.key, column.key))
                if cell and column.group == group:
                    spent.setdefault(column.dataset, {})[marked(row.title, cell)] = seconds(cell)
        name = f"figure7_seconds_{group.split()[0]}"
        if timed := compared(name, spent):
            yield name, figures.bars(timed, [""], "seconds per round and seed", f"Time of a round, {group}")
