"""fgl-bench: a benchmark suite for federated graph learning whose replicas are a tensor dimension.

Importing it is cheap: torch comes with the first name that needs it.

Examples:
    >>> import fgl_bench
    >>> result = fgl_bench.run("fedgta", "csbm", num_clients=4, rounds=2, seeds=[0])
    >>> print(result)  # doctest: +ELLIPSIS
    fedgta on csbm, metis split, 4 clients, ...
    >>> results = fgl_bench.load_results("results/runs")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fgl_bench.algorithms.base import Algorithm as Algorithm
    from fgl_bench.algorithms.base import Peers as Peers
    from fgl_bench.algorithms.base import SemiAsyncServer as SemiAsyncServer
    from fgl_bench.algorithms.base import ServerRounds as ServerRounds
    from fgl_bench.data.datasets.base import Dataset as Dataset
    from fgl_bench.data.import_graph import graph as graph
    from fgl_bench.data.splits.base import Split as Split
    from fgl_bench.errors import UserError as UserError
    from fgl_bench.models.base import Backbone as Backbone
    from fgl_bench.results.frame import Result as Result
    from fgl_bench.results.frame import load_results as load_results
    from fgl_bench.results.plots.draw import plot as plot
    from fgl_bench.results.result_table import ResultTable as ResultTable
    from fgl_bench.results.result_table import table as table
    from fgl_bench.results.saved_models import load_models as load_models
    from fgl_bench.runner.api import run as run
    from fgl_bench.runner.predictions import class_scores as class_scores
    from fgl_bench.runner.predictions import confusion_matrix as confusion_matrix
    from fgl_bench.runner.predictions import embeddings as embeddings
    from fgl_bench.runner.predictions import predict as predict
    from fgl_bench.runner.predictions import predictions as predictions

__version__ = "2.0.0"
PUBLIC = {
    "Algorithm": "algorithms.base", "Backbone": "models.base", "Dataset": "data.datasets.base", "Split": "data.splits.base",
    "Peers": "algorithms.base", "SemiAsyncServer": "algorithms.base", "ServerRounds": "algorithms.base",
    "Result": "results.frame", "UserError": "errors", "load_models": "results.saved_models", "load_results": "results.frame",
    "run": "runner.api", "graph": "data.import_graph", "class_scores": "runner.predictions", "confusion_matrix": "runner.predictions",
    "embeddings": "runner.predictions", "predict": "runner.predictions", "predictions": "runner.predictions",
    "ResultTable": "results.result_table", "table": "results.result_table", "plot": "results.plots.draw",
}  # fmt: skip
__all__ = [
    "Algorithm", "Backbone", "Dataset", "Peers", "Result", "ResultTable", "SemiAsyncServer", "ServerRounds", "Split", "UserError",
    "class_scores", "confusion_matrix", "embeddings", "graph", "load_models", "load_results", "plot", "predict", "predictions", "run",
    "table",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'fgl_bench' has no attribute {name!r}")
    return getattr(import_module(f"fgl_bench.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
