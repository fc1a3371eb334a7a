"""Count nodes, edges, features and classes of every dataset whose files are present, for the datasets' pages: results/datasets.csv.

    FGL_BENCH_DATA=data python scripts/measure_datasets.py

A dataset that is absent keeps its stored line. Edge homophily is the share of edges between nodes of one class, among edges whose two nodes
have a label; with several labels per node it is not defined. Generated graphs are measured as their default draws them.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from fgl_bench.config.choices import choices, path_of
from fgl_bench.config.groups import build
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import data_root
from fgl_bench.errors import UserError

FILE = Path(__file__).resolve().parents[1] / "results" / "datasets.csv"
COLUMNS = ("dataset", "graphs", "nodes", "edges", "features", "classes", "unlabeled", "edge_homophily", "isolated")
LARGE = 10**6  # nodes: such graphs are generated in minutes


def measured(name: str) -> dict[str, object] | None:
    """Return the counts of a dataset, or None if it is absent or too large to draw."""
    config = OmegaConf.load(path_of("dataset", name, ()))
    if "???" in str(config) or int(config.get("num_nodes", 0)) > LARGE or int(config.get("num_edges", 0)) > LARGE:
        return None
    dataset = build(config)
    if dataset.absent(data_root(None)):
        return None
    graph = dataset.load(None)
    nodes_have_labels = len(graph.labels) == graph.num_nodes
    return {
        "dataset": name,
        "graphs": 1 if nodes_have_labels else graph.num_examples,
        "nodes": graph.num_nodes,
        "edges": graph.edges.shape[1] // 2,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "unlabeled": int((graph.labels < 0).sum()) if graph.labels.ndim == 1 else int((~graph.labels.any(axis=1)).sum()),
        "edge_homophily": f"{homophily(graph):.3f}" if nodes_have_labels and graph.labels.ndim == 1 else "",
        "isolated": int((np.bincount(graph.edges[0], minlength=graph.num_nodes) == 0).sum()),
    }


def homophily(graph: Graph) -> float:
    """Return the share of edges between equal labels, where both nodes have one."""
    first, second = graph.labels[graph.edges]
    known = (first >= 0) & (second >= 0)
    return float((first == second)[known].mean())


def main() -> None:
    lines: dict[str, dict[str, object]] = {}
    if FILE.is_file():
        with FILE.open(encoding="utf-8", newline="") as file:
            lines = {line["dataset"]: dict(line) for line in csv.DictReader(file)}
    for name in choices("dataset"):
        try:
            found = measured(name)
        except UserError as error:
            print(f"{name}: {error}")
            continue
        print(f"{name}: {'absent' if found is None else found}", flush=True)
        lines |= {name: found} if found else {}
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines[name] for name in sorted(lines))


if __name__ == "__main__":
    main()
