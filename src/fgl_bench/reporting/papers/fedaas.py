"""The tables of FedAAS (Li et al.)."""

from __future__ import annotations

from dataclasses import replace

from fgl_bench.reporting.plan import Column, Paper, Row, Table, columns

ROWS = (
    # One learner with all training nodes and all edges among them.
    Row("global", "Centralized", "fedlocal", ("num_clients=1", "scenario.sparsity.rate=0.0")),
    Row("fedlocal", "FedLocal", "fedlocal"),
    Row("fedcross", "FedCross", "fedcross", published="fedcross"),
    Row("graphfed", "GraphFed", "graphfed", published="graphfed"),
    Row("fedpns", "FedPNS", "fedpns", published="fedpns"),
    Row("fedgraph", "FedGraph", "fedgraph", published="fedgraph"),
    Row("fedall", "FedAll", "fedall"),
    Row("fedaas", "FedAAS", "fedaas", published="fedaas"),
    # The reading of the paper in which a longer interval saves rows.
    Row("fedaas_batch", "FedAAS, fetching for the batch at hand", "fedaas", ("algorithm.fetch=batch",), published="fedaas"),
)
FEDAAS1, FEDAAS2 = Row("fedaas1", "FedAAS1 (interval 1)", "fedaas1"), Row("fedaas2", "FedAAS2 (all neighbours)", "fedaas2")

DATASETS = ("pubmed", "computers", "cs", "physics")
# The printed sizes are those of Planetoid's full split.
FULL = {"pubmed": ("split.ratios=[0.92392,0.02536,0.05072]",)}
# Ten mini-batches want ten training nodes.
SPLITS = {"iid": ("iid", ()), "dirichlet": ("Dirichlet(0.5)", ("split.min_nodes=10",))}


def _columns(split: str, datasets: tuple[str, ...] = DATASETS) -> tuple[Column, ...]:
    title, more = SPLITS[split]
    made = columns(datasets, title, (f"split={split}", *more), split=split)
    return tuple(replace(column, overrides=(*column.overrides, *FULL.get(column.dataset, ()))) for column in made)


BOTH = (*_columns("iid"), *_columns("dirichlet"))


def _table(key: str, title: str, measure: str, metric: str) -> Table:
    where = {"table": "2", "metric": metric}
    title = f"{title} in %, the global model on the server's test nodes, 50 clients"
    return Table(key, "fedaas/table2", title, measure, BOTH, ROWS, where, with_bytes=measure == "accuracy")


PAPER = Paper(
    name="fedaas",
    title="FedAAS",
    tables=(
        _table("2", "test accuracy", "accuracy", "accuracy"),
        _table("2_f1", "macro F1", "macro_f1", "f1"),
        _table("2_auc", "one-vs-rest AUC", "auc_ovr", "auc"),
        Table(
            "figure7",
            "fedaas/table2",
            "ablation, iid, 50 clients",
            "curves",
            _columns("iid", ("cs",)),
            (ROWS[1], FEDAAS1, FEDAAS2, *ROWS[-3:-1]),
        ),
    ),
    first=("fedlocal", "fedaas", "fedcross"),
    # Nodes and undirected edges: the cost of a data set that was never run is guessed from them.
    sizes={"pubmed": (19717, 44324), "computers": (13752, 245861), "cs": (18333, 81894), "physics": (34493, 247962)},
    late=("cs", "physics"),
)
