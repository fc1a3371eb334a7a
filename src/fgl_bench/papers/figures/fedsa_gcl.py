"""The figures of FedSA-GCL: 3, 4 and 5, and the curves behind tables 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.papers.figures import figures
from fgl_bench.papers.figures.base import Sources, lines
from fgl_bench.papers.plans.fedsa_gcl import FEDGTA, FEDSA_GCL, FEDSA_GCL_FEDGTA, ONE_EPOCH, PAPER

HEATMAP_TRIPS = (100, 300, 500, 1900)
PICTURED = ("cora", "pubmed")


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in PAPER.tables}
    kept, similar = sources.curves("2", "3", "figure4"), sources.matrices("similarity", "3")

    counts: dict[str, dict] = {}
    for split, table in (("louvain", "table2"), ("metis", "table3")):
        for dataset, federation in sources.federations(f"fedsa_gcl/{table}", sources.datasets):
            counts.setdefault(dataset, {})[split] = figures.label_counts(federation)
    if counts:
        yield "figure3_labels", figures.label_distributions(counts, "Labels of every client")

    for full, suffix, what in ((FEDSA_GCL, "", "LSC as printed"), (FEDSA_GCL_FEDGTA, "_fedgta_lsc", "LSC of FedGTA")):
        name, rows = f"figure4_ablation{suffix}", [row for row in tables["figure4"].rows if row.title.startswith(f"{full.title}, ")]
        parts = {"full": full, **{row.title.removeprefix(f"{full.title}, "): row for row in rows}}
        panels = {dataset: lines(name, {part: ("figure4", row.key, dataset) for part, row in parts.items()}, kept) for dataset in PICTURED}
        if any(panels.values()):
            yield name, figures.curves(panels, f"FedSA-GCL without one of its parts ({what})")

    for dataset in PICTURED:
        name, methods = f"figure5_similarity_{dataset}", {"SFM (FedSA-GCL)": FEDSA_GCL, "moments (FedGTA)": FEDGTA}
        matrices = lines(name, {what: ("3", row.key, dataset) for what, row in methods.items()}, similar, 1)
        if matrices:
            yield name, figures.heatmaps(matrices, HEATMAP_TRIPS, f"Similarity of clients, {dataset}, METIS")

    for key, split in (("2", "louvain"), ("3", "metis")):
        for dataset in sources.datasets:
            name = f"convergence_{dataset}_{split}"
            found = lines(name, {row.title: (key, row.key, dataset) for row in ONE_EPOCH}, kept)
            if found:
                yield name, figures.curves({dataset: found}, f"{dataset}, {split}, 20 clients")
