"""The tables of FedSA-GCL (Yuan et al., arXiv 2507.18219)."""

from __future__ import annotations

from fgl_bench.reporting.papers._sizes import SIZES
from fgl_bench.reporting.plan import Paper, Row, Table, columns

AS_PRINTED = "FedSA-GCL, LSC as printed"
TEMPERATURE = ("algorithm.lsc_temperature=20",)

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
# Eq. 7 of propagated labels as printed lets the most confident client take all the weight; FedGTA's code has a softmax at 20 before it.
FEDSA_GCL_T20 = Row("fedsa_gcl_t20", "FedSA-GCL, LSC at temperature 20", "fedsa_gcl", TEMPERATURE, published="fedsa_gcl")

ALL = (
    LOCAL, MAJORITY, FEDAVG, FEDPROX, MOON, FEDSAGE, FEDGTA, FEDTAD, FEDASYNC, TWAFL, FEDBUFF, FEDSA_GCL, FEDSA_GCL_T20,
)  # fmt: skip
TRIPS = (LOCAL, MAJORITY, FEDAVG, FEDPROX, FEDGTA, FEDBUFF, FEDSA_GCL, FEDSA_GCL_T20)
ABLATIONS = {
    "no_weights": ("without staleness-aware LSC weights", ("algorithm.weights=samples",)),
    "no_clustercast": ("without ClusterCast", ("algorithm.clustercast=false",)),
    "moments": ("FedGTA's clusters", ("algorithm.clusters=moments",)),
}
ABLATED = tuple(
    Row(f"{full.key}_{key}", f"{full.title}, {title}", full.algorithm, (*full.overrides, *changes))
    for full in (FEDSA_GCL, FEDSA_GCL_T20)
    for key, (title, changes) in ABLATIONS.items()
)

DATASETS = ("cora", "citeseer", "pubmed", "photo", "computers", "cs", "physics")
EFFICIENCY = ("cora", "pubmed", "cs", "physics")


def _table(key: str, title: str, measure: str, datasets: tuple[str, ...], rows: tuple[Row, ...]) -> Table:
    name = key if key.startswith("figure") else f"table{key}"
    return Table(key, f"fedsa_gcl/{name}", title, measure, columns(datasets), rows)


PAPER = Paper(
    name="fedsa_gcl",
    title="FedSA-GCL",
    tables=(
        _table("3", "test accuracy in %, METIS splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("2", "test accuracy in %, Louvain splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("4", "test accuracy in %, random label sparsity 0.1, METIS splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("5", "test accuracy in %, random topology sparsity 0.1, METIS splits of 20 clients", "accuracy", DATASETS, ALL),
        _table("6", "client trips to a validation accuracy, Louvain splits of 20 clients", "trips", EFFICIENCY, TRIPS),
        _table("7", "client trips to a validation accuracy, METIS splits of 20 clients", "trips", EFFICIENCY, TRIPS),
        _table("figure4", "ablation, METIS splits of 20 clients", "curves", ("cora", "pubmed"), (FEDSA_GCL, FEDSA_GCL_T20, *ABLATED)),
    ),
    first=("local", "majority", "fedavg", "fedgta", "fedasync", "fedbuff", "fedsa_gcl", "fedsa_gcl_t20"),
    dataset_overrides={name: ("dataset.largest_component=true",) for name in ("photo", "computers")},
    sizes={**SIZES, "photo": (7487, 119043), "computers": (13381, 245778)},  # their largest components
    late=("computers", "cs", "physics"),
)
