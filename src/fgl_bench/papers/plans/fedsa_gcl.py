"""The tables of FedSA-GCL (Yuan et al., arXiv 2507.18219)."""

from __future__ import annotations

from dataclasses import replace

from fgl_bench.papers.plan import Basis, Paper, Row, Table, columns

AS_PRINTED = "FedSA-GCL, LSC as printed"

LOCAL = Row("local", "Local", "local")
MAJORITY = Row("majority", "Majority class", "majority")
FEDAVG = Row("fedavg", "FedAvg", "fedavg", published="fedavg")
FEDPROX = Row("fedprox", "FedProx", "fedprox", published="fedprox")
MOON = Row("moon", "MOON", "moon", published="moon")
FEDSAGE = Row("fedsage_plus", "FedSage+, GraphSAGE", "fedsage_plus", ("model=graphsage",), "fedsage_plus")
FEDGTA = Row("fedgta", "FedGTA", "fedgta", published="fedgta")
FEDTAD = Row("fedtad", "FedTAD", "fedtad", published="fedtad")
FEDASYNC = Row("fedasync", "FedAsync", "fedasync", published="fedasync")
TWAFL = Row("twafl", "TWAFL", "twafl", published="twafl")
FEDBUFF = Row("fedbuff", "FedBuff", "fedbuff", published="fedbuff")
FEDSA_GCL = Row("fedsa_gcl", AS_PRINTED, "fedsa_gcl", published="fedsa_gcl")
# FedGTA's code, which the paper cites for its confidence, has the truth on training nodes and a softmax at 20 before eq. 7.
FEDSA_GCL_FEDGTA = Row("fedsa_gcl_fedgta_lsc", "FedSA-GCL, LSC of FedGTA", "fedsa_gcl", ("algorithm.lsc=fedgta",), published="fedsa_gcl")
# Its weights do not sum to one as printed; TWAFL scales them.
TWAFL_SUM = Row("twafl_sum", "TWAFL, weights as printed", "twafl", ("algorithm.normalise=false",), published="twafl")

ONE_EPOCH = (
    LOCAL, MAJORITY, FEDAVG, FEDPROX, MOON, FEDSAGE, FEDGTA, FEDTAD, FEDASYNC, TWAFL, TWAFL_SUM, FEDBUFF, FEDSA_GCL, FEDSA_GCL_FEDGTA,
)  # fmt: skip
TRIPS_ONE_EPOCH = (LOCAL, MAJORITY, FEDAVG, FEDPROX, FEDGTA, FEDBUFF, FEDSA_GCL, FEDSA_GCL_FEDGTA)


def _three_epochs(row: Row) -> Row:
    """The same method with three local epochs, the default of the code that the experiments descend from; the text says one."""
    return replace(row, key=f"{row.key}_e3", title=f"{row.title}, 3 local epochs", overrides=(*row.overrides, "local_epochs=3"))


def _with_three_epochs(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return *rows, *(_three_epochs(row) for row in rows if row is not MAJORITY)


ALL = _with_three_epochs(ONE_EPOCH)


def _trips(experiment: str) -> tuple[Row, ...]:
    """The rows of a table of trips; a synchronous method is evaluated once per round, so that its run is the one of ``experiment``."""
    rows = _with_three_epochs(TRIPS_ONE_EPOCH)
    return tuple(row if row.algorithm in ("fedbuff", "fedsa_gcl") else replace(row, experiment=experiment) for row in rows)


ABLATIONS = {
    "no_weights": ("without staleness-aware LSC weights", ("algorithm.weights=samples",)),
    "no_clustercast": ("without ClusterCast", ("algorithm.clustercast=false",)),
    "moments": ("FedGTA's clusters", ("algorithm.clusters=moments",)),
}
ABLATED = tuple(
    Row(f"{full.key}_{key}", f"{full.title}, {title}", full.algorithm, (*full.overrides, *changes))
    for full in (FEDSA_GCL, FEDSA_GCL_FEDGTA)
    for key, (title, changes) in ABLATIONS.items()
)

DATASETS = ("cora", "citeseer", "pubmed", "photo", "computers", "cs", "physics")
EFFICIENCY = ("cora", "pubmed", "cs", "physics")


def _table(key: str, title: str, measure: str, datasets: tuple[str, ...], rows: tuple[Row, ...]) -> Table:
    name = "table3" if key == "figure4" else f"table{key}"
    return Table(key, f"fedsa_gcl/{name}", title, measure, columns(datasets), rows)


PAPER = Paper(
    name="fedsa_gcl",
    title="FedSA-GCL",
    tables=(
        _table("3", "test accuracy in %, METIS splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("2", "test accuracy in %, Louvain splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("4", "test accuracy in %, random label sparsity 0.1, METIS splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("5", "test accuracy in %, random topology sparsity 0.1, METIS splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("6", "client trips to a validation accuracy, Louvain splits of 20 clients", "trips", EFFICIENCY, _trips("fedsa_gcl/table2")),
        _table("7", "client trips to a validation accuracy, METIS splits of 20 clients", "trips", EFFICIENCY, _trips("fedsa_gcl/table3")),
        _table("figure4", "ablation, METIS splits of 20 clients", "curves", ("cora", "pubmed"), (FEDSA_GCL, FEDSA_GCL_FEDGTA, *ABLATED)),
    ),
    first=(
        "local", "majority", "fedavg", "fedavg_e3", "fedgta", "fedgta_e3", "fedasync", "fedbuff", "fedbuff_e3", "fedsa_gcl_fedgta_lsc",
        "fedsa_gcl_fedgta_lsc_e3", "fedsa_gcl", "fedsa_gcl_e3",
    ),
    late=("computers", "cs", "physics"),
    basis=Basis(("2", "3"), shared="local_epochs"),
)  # fmt: skip
