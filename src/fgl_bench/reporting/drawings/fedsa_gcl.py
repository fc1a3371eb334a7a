"""The figures of FedSA-GCL: 3, 4 and 5, and the curves behind tables 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.reporting import figures
from fgl_bench.reporting.drawings.base import Sources
from fgl_bench.reporting.papers.fedsa_gcl import FEDGTA, FEDSA_GCL, FEDSA_GCL_T20, PAPER

HEATMAP_TRIPS = (100, 300, 500, 1900)
PICTURED = ("cora", "pubmed")


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in PAPER.tables}
    runs = sources.runs("2", "3", "figure4")

    counts: dict[str, dict] = {}
    for split, table in (("louvain", "table2"), ("metis", "table3")):
        for dataset, federation in sources.federations(f"fedsa_gcl/{table}", sources.datasets):
            counts.setdefault(dataset, {})[split] = figures.label_counts(federation)
    if counts:
        yield "figure3_labels", figures.label_distributions(counts, "Labels of every client")

    for full, suffix, what in ((FEDSA_GCL, "", "LSC as printed"), (FEDSA_GCL_T20, "_t20", "LSC at temperature 20")):
        rows = [full, *(row for row in tables["figure4"].rows if row.title.startswith(f"{full.title}, "))]
        panels = {}
        for dataset in PICTURED:
            lines = {
                row.title.removeprefix(f"{full.title}, ") if row is not full else "full": runs.get(("figure4", row.key, dataset))
                for row in rows
            }
            panels[dataset] = {name: run for name, run in lines.items() if run}
        if any(panels.values()):
            yield f"figure4_ablation{suffix}", figures.curves(panels, f"FedSA-GCL without one of its parts ({what})")

    for dataset in PICTURED:
        kept = {"SFM (FedSA-GCL)": FEDSA_GCL, "moments (FedGTA)": FEDGTA}
        matrices = {name: figures.similarities(runs[key]) for name, row in kept.items() if (key := ("3", row.key, dataset)) in runs}
        if any(matrices.values()):
            title = f"Similarity of clients, {dataset}, METIS"
            yield f"figure5_similarity_{dataset}", figures.heatmaps(matrices, HEATMAP_TRIPS, title)

    for key, split in (("2", "louvain"), ("3", "metis")):
        for dataset in sources.datasets:
            lines = {row.title: runs[key, row.key, dataset] for row in tables[key].rows if (key, row.key, dataset) in runs}
            if lines:
                yield f"convergence_{dataset}_{split}", figures.curves({dataset: lines}, f"{dataset}, {split}, 20 clients")
