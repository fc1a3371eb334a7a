"""The tables and figures of FedAAS (Li et al.)."""

from __future__ import annotations

from dataclasses import replace

from fgl_bench.papers.plan import Basis, Column, Paper, Row, Table, columns

# The first convolution over all edges where the server scores a model, not over those inside clients alone.
FULL_HOP = ("algorithm.first_hop=full",)
# One learner's first convolution is trained with all edges among training nodes, and scored with all.
GLOBAL = Row("global", "Centralized", "fedlocal", ("num_clients=1", "scenario.sparsity.rate=0.0", *FULL_HOP))
FEDLOCAL = Row("fedlocal", "FedLocal", "fedlocal")
FEDCROSS = Row("fedcross", "FedCross", "fedcross", published="fedcross")
GRAPHFED = Row("graphfed", "GraphFed", "graphfed", published="graphfed")
FEDPNS = Row("fedpns", "FedPNS", "fedpns", published="fedpns")
FEDGRAPH = Row("fedgraph", "FedGraph", "fedgraph", published="fedgraph")
FEDALL = Row("fedall", "FedAll", "fedall")
FEDAAS = Row("fedaas", "FedAAS", "fedaas", published="fedaas")
# The reading of the paper in which a longer interval saves rows.
FEDAAS_BATCH = Row("fedaas_batch", "FedAAS, fetching for the batch at hand", "fedaas", ("algorithm.fetch=batch",), published="fedaas")
FEDAAS1, FEDAAS2 = Row("fedaas1", "FedAAS1 (interval 1)", "fedaas1"), Row("fedaas2", "FedAAS2 (all neighbours)", "fedaas2")

# GLOBAL is one learner with all training nodes and all edges among them.
ROWS = (GLOBAL, FEDLOCAL, FEDCROSS, GRAPHFED, FEDPNS, FEDGRAPH, FEDALL, FEDAAS, FEDAAS_BATCH)
FULLY_SCORED = tuple(
    replace(row, key=f"{row.key}_full", title=f"{row.title}, scored with all edges", overrides=(*row.overrides, *FULL_HOP))
    for row in (FEDLOCAL, FEDCROSS, GRAPHFED, FEDPNS, FEDGRAPH, FEDAAS)
)
ABLATED = (FEDLOCAL, FEDAAS1, FEDAAS2, FEDALL, FEDAAS, GLOBAL, FEDAAS_BATCH)

DATASETS = ("pubmed", "computers", "cs", "physics")
# The printed sizes are those of Planetoid's full split.
FULL = {"pubmed": ("split.ratios=[0.92392,0.02536,0.05072]",)}
# Ten mini-batches want ten training nodes.
SPLITS = {"iid": ("iid", ()), "dirichlet": ("Dirichlet(0.5)", ("split.min_nodes=10",))}
# What the figures vary: the paper's values, 50 clients, ten neighbours, 99 % and alpha 0.5 being those of table 2.
ALPHAS = ("0.05", "0.1", "0.2", "0.5", "1.0", "10.0", "100.0")
CLIENTS = ("50", "200", "500", "700", "1000")
FANOUTS = ("10", "20", "30", "50")
DROPPED = ("0.0", "0.5", "0.7", "0.9", "0.99")
# What the paper shows on Reddit is shown on Computers, as many classes and edges as a CPU trains; figure 8 has its caption's PubMed.
STUDIED, DENSE, MANY = "cs", "computers", "pubmed"


def unprinted(*rows: Row) -> tuple[Row, ...]:
    """The rows where the paper prints no numbers."""
    return tuple(replace(row, published=None) for row in rows)


METHODS = unprinted(FEDCROSS, GRAPHFED, FEDPNS, FEDGRAPH, FEDAAS, FEDAAS_BATCH)


def _columns(split: str, datasets: tuple[str, ...] = DATASETS) -> tuple[Column, ...]:
    title, more = SPLITS[split]
    made = columns(datasets, title, (f"split={split}", *more), split=split)
    return tuple(replace(column, overrides=(*column.overrides, *FULL.get(column.dataset, ()))) for column in made)


IID, BOTH = _columns("iid"), (*_columns("iid"), *_columns("dirichlet"))


def _table(key: str, title: str, measure: str, metric: str) -> Table:
    where = {"table": "2", "metric": metric}
    title = f"{title} in %, the global model on the server's test nodes, 50 clients"
    return Table(key, "fedaas/table2", title, measure, BOTH, (*ROWS, *FULLY_SCORED), where, with_bytes=measure == "accuracy")


def _curves(number: int, title: str, shown: tuple[Column, ...], rows: tuple[Row, ...]) -> Table:
    """A figure whose runs are those of table 2."""
    return Table(f"figure{number}", "fedaas/table2", title, "curves", shown, rows)


def varied(what: str, key: str, values: tuple[str, ...], dataset: str, split: str = "iid") -> tuple[Column, ...]:
    """A column for every value of a key."""
    [base] = _columns(split, (dataset,))
    return tuple(Column(dataset, f"{what} {value}", (*base.overrides, f"{key}={value}")) for value in values)


def _sweep(number: int, title: str, measure: str, shown: tuple[Column, ...], rows: tuple[Row, ...]) -> Table:
    return Table(f"figure{number}", f"fedaas/figure{number}", title, measure, shown, rows, with_bytes=True)


SWEPT = {
    "figure6": varied("alpha", "split.alpha", ALPHAS, DENSE, "dirichlet"),
    "figure8": varied("clients", "num_clients", CLIENTS, MANY),
    "figure9": varied("neighbours", "algorithm.fanout", FANOUTS, DENSE),
    "figure10": varied("drop ratio", "scenario.sparsity.rate", DROPPED, STUDIED),
}

PAPER = Paper(
    name="fedaas",
    title="FedAAS",
    tables=(
        _table("2", "test accuracy", "accuracy", "accuracy"),
        _table("2_f1", "macro F1", "macro_f1", "f1"),
        _table("2_auc", "one-vs-rest AUC", "auc_ovr", "auc"),
        Table(
            "costs",
            "fedaas/table2",
            "what an equal validation accuracy of the global model costs, 50 clients",
            "costs",
            BOTH,
            unprinted(*ROWS[1:]),
            compared=("fedcross", "fedaas", "fedaas_batch"),
        ),
        _curves(7, "ablation, iid, 50 clients", _columns("iid", (STUDIED,)), ABLATED),
        _curves(1, "without, with periodic and with adaptive exchange, iid", _columns("iid", (STUDIED,)), (FEDLOCAL, FEDPNS, FEDAAS)),
        _curves(3, "convergence, iid", _columns("iid", (STUDIED, DENSE)), METHODS),
        _curves(4, "scores by cost", (*_columns("iid", (STUDIED, DENSE)), *_columns("dirichlet", (DENSE,))), METHODS),
        _curves(5, "total costs, iid", IID, METHODS),
        _sweep(6, "test accuracy in % by non-iid degree, Dirichlet, 50 clients", "accuracy", SWEPT["figure6"], METHODS),
        _sweep(8, "test accuracy in % by number of clients, iid", "accuracy", SWEPT["figure8"], METHODS),
        _sweep(
            9,
            "macro F1 in % by sampled neighbours, iid, 50 clients",
            "macro_f1",
            SWEPT["figure9"],
            unprinted(FEDPNS, FEDAAS, FEDAAS_BATCH),
        ),
        _sweep(10, "macro F1 in % by dropped edges inside clients, iid, 50 clients", "macro_f1", SWEPT["figure10"], METHODS),
    ),
    first=("fedlocal", "fedaas", "fedcross"),
    late=("cs", "physics"),
    basis=Basis(("2",), ("pubmed", "computers")),
)
