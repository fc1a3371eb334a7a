"""The figures of FedSA-GCL: 3, 4 and 5, and the curves behind tables 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.papers.figures import pictures
from fgl_bench.papers.figures.inputs import Sources, convergence, lines
from fgl_bench.papers.plan import load_paper
from fgl_bench.results.plots import figures

HEATMAP_TRIPS = (100, 300, 500, 1900)
PICTURED = ("cora", "pubmed")
SIMILAR = {"SFM (FedSA-GCL)": "fedsa_gcl", "moments (FedGTA)": "fedgta"}


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in load_paper("fedsa_gcl").tables}
    curves, similar = sources.curves("2", "3", "figure4"), sources.matrices("similarity", "3")

    counts: dict[str, dict] = {}
    for split, table in (("louvain", "table2"), ("metis", "table3")):
        for dataset, federation in sources.federations(f"fedsa_gcl/{table}", sources.datasets):
            counts.setdefault(dataset, {})[split] = pictures.label_counts(federation)
    if counts:
        yield "figure3_labels", pictures.label_distributions(counts, "Labels of every client")

    rows = {row.key: row.title for row in tables["figure4"].rows}
    for full, suffix, what in (("fedsa_gcl", "", "LSC as printed"), ("fedsa_gcl_fedgta_lsc", "_fedgta_lsc", "LSC of FedGTA")):
        name = f"figure4_ablation{suffix}"
        parts = {title.removeprefix(f"{rows[full]}, "): key for key, title in rows.items() if title.startswith(f"{rows[full]}, ")}
        places = {dataset: {part: ("figure4", key, dataset) for part, key in {"full": full, **parts}.items()} for dataset in PICTURED}
        panels = {dataset: shown_lines for dataset in PICTURED if (shown_lines := lines(name, places[dataset], curves))}
        if panels:
            yield name, figures.lines(convergence(panels), f"FedSA-GCL without one of its parts ({what})", 2)

    for dataset in PICTURED:
        name = f"figure5_similarity_{dataset}"
        matrices = lines(name, {what: ("3", key, dataset) for what, key in SIMILAR.items()}, similar, 1)
        if matrices:
            yield name, pictures.heatmaps(matrices, HEATMAP_TRIPS, f"Similarity of clients, {dataset}, METIS")

    for key, split in (("2", "louvain"), ("3", "metis")):
        one_epoch = [row for row in tables[key].rows if not row.key.endswith("_e3")]
        for dataset in sources.datasets:
            name = f"convergence_{dataset}_{split}"
            shown_lines = lines(name, {row.title: (key, row.key, dataset) for row in one_epoch}, curves)
            if shown_lines:
                yield name, figures.lines(convergence({dataset: shown_lines}), f"{dataset}, {split}, 20 clients", 2)
