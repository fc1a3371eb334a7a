"""Draw a paper's figures from the run directories that reproduce_tables.py left.

    python scripts/make_figures.py --paper fedsa_gcl

Lines and heatmaps whose runs are not there are left out, and a figure without any is not drawn; label distributions need nothing
but the data sets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from fgl_bench.errors import UserError
from fgl_bench.reporting import figures
from fgl_bench.reporting.papers.fedsa_gcl import DATASETS, FEDGTA, FEDSA_GCL, FEDSA_GCL_T20, PAPER
from fgl_bench.reporting.plan import Cell, Composer, load_paper, papers, plan
from fgl_bench.reporting.store import is_complete
from fgl_bench.run import prepare

HEATMAP_TRIPS = (100, 300, 500, 1900)
PICTURED = ("cora", "pubmed")


def main() -> None:
    options = parser().parse_args()
    try:
        load_paper(options.paper)
        for name, figure in DRAWINGS[options.paper](options):
            paths = figures.save(figure, options.results / "figures" / options.paper / name)
            print("written:", ", ".join(str(path) for path in paths), flush=True)
    except UserError as error:
        sys.exit(f"make_figures: {error}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--paper", default="fedsa_gcl", choices=papers())
    result.add_argument("--datasets", nargs="+", default=list(DATASETS), help="of the convergence figures and the label distributions")
    result.add_argument("--results", type=Path, default=Path("results"), help="holds runs/; figures/ is written")
    result.add_argument("--data-dir", help="default: $FGL_BENCH_DATA, or data")
    result.add_argument("--set", dest="extra", nargs="+", default=[], metavar="KEY=VALUE", help="as given to reproduce_tables.py")
    return result


def fedsa_gcl(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Figures 3, 4 and 5, and the curves behind tables 2 and 3."""
    tables = {table.key: table for table in PAPER.tables}
    cells = plan(PAPER, [tables[key] for key in ("2", "3", "figure4")], options.extra)
    runs = {key: folder for key, folder in located(cells, options.results / "runs")}

    distributions = label_counts(options)
    if distributions:
        yield "figure3_labels", figures.label_distributions(distributions, "Labels of every client")

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
        for dataset in options.datasets:
            lines = {row.title: runs[key, row.key, dataset] for row in tables[key].rows if (key, row.key, dataset) in runs}
            if lines:
                yield f"convergence_{dataset}_{split}", figures.curves({dataset: lines}, f"{dataset}, {split}, 20 clients")


def located(cells: list[Cell], runs: Path) -> Iterator[tuple[tuple[str, str, str], Path]]:
    """The complete run directories by (table, row, dataset)."""
    for cell in cells:
        if cell.digest and is_complete(runs / cell.folder):
            yield (cell.table, cell.row.key, cell.dataset), runs / cell.folder


def label_counts(options: argparse.Namespace) -> dict:
    """``[Y, C]`` by split and dataset, of the datasets that are at hand."""
    counts: dict[str, dict] = {}
    with Composer() as composed:
        for dataset in options.datasets:
            for split, table in (("louvain", "table2"), ("metis", "table3")):
                overrides = [f"experiment=fedsa_gcl/{table}", f"dataset={dataset}", *PAPER.dataset_overrides.get(dataset, ())]
                cfg = composed([*overrides, *options.extra, "seeds=[0]"])
                if options.data_dir:
                    cfg.data_dir = options.data_dir
                cfg.cache_dir = str(Path(cfg.cache_dir).expanduser())
                try:
                    [federation] = prepare(cfg)
                except UserError as error:
                    print(f"left out: {dataset}: {error}", file=sys.stderr)
                    break
                counts.setdefault(dataset, {})[split] = figures.label_counts(federation)
    return counts


DRAWINGS = {"fedsa_gcl": fedsa_gcl}

if __name__ == "__main__":
    main()
