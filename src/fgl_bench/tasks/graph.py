"""Classification of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph, Graph
from fgl_bench.data.graph_set import ClientOfGraphs, GraphSet
from fgl_bench.data.sparsity import Sparsity
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.linear import affine
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.errors import Range, at_least
from fgl_bench.models.base import Backbone
from fgl_bench.tasks.base import Head, Task, check_whole_clients


@dataclass
class GraphClassification(Task):
    """Every graph has a class. A client's graphs are one block-diagonal graph; a readout gives a graph's embedding from those of its nodes.

    The network is the backbone's convolutions, the readout, and a linear layer, or two with ReLU and dropout between them. Splits divide
    graphs, and masks are drawn of a client's graphs. No message passes between graphs, so that training computes training graphs only,
    and evaluation computes the others; batch normalization takes mean and variance over the nodes of training graphs in evaluation too
    (in a mini-batch, over those of its graphs).

    Attributes:
        readout: ``sum``, ``mean`` or ``max`` over the nodes of a graph.
        hidden: width of the embeddings.
        head: ``mlp``: two linear layers; or one, ``linear``.
    """

    name: ClassVar[str] = "graph"
    ranges: ClassVar[dict[str, Range]] = {"hidden": at_least(1)}

    readout: Literal["sum", "mean", "max"]
    hidden: int
    head: Literal["mlp", "linear"]

    def network(self, model: Backbone) -> Backbone:
        return GraphHead(model, self)

    def check(self, split: Split, sparsity: Sparsity, out_of_core: object) -> None:
        check_whole_clients(self, split, sparsity, out_of_core)

    def units(self, graph: Graph) -> Graph:
        return cast(GraphSet, graph).units

    def observed(self, clients: tuple[ClientGraph, ...]) -> tuple[ClientGraph, ...]:
        return tuple(cast(ClientOfGraphs, client).training_part for client in clients)

    def clients(self, graph: Graph, parts: Sequence[np.ndarray]) -> tuple[Sequence[ClientGraph], np.ndarray]:
        return cast(GraphSet, graph).clients(parts), np.empty((2, 0), dtype=np.int64)


class GraphHead(Head):
    """A readout and linear layers after a backbone."""

    def __init__(self, inner: Backbone, task: GraphClassification):
        super().__init__(inner, task.hidden)
        self.task = task

    def shapes(self, num_classes: int) -> Mapping[str, tuple[int, ...]]:
        wide = self.width
        middle = {"pooled.weight": (wide, wide), "pooled.bias": (wide,)} if self.task.head == "mlp" else {}
        return {**middle, "classifier.weight": (wide, num_classes), "classifier.bias": (num_classes,)}

    def scope(self, batch: Batch) -> Batch:
        return cast(Part, batch).subgraphs

    def predict(self, parameters: Parameters, batch: Batch, scope: Batch, embeddings: Tensor, dropout: DropoutFunction) -> Output:
        hidden = READOUTS[self.task.readout](scope, embeddings)
        if self.task.head == "mlp":
            hidden = torch.relu(affine(hidden, parameters, "pooled"))
        hidden = dropout(hidden)
        return Output(hidden, affine(hidden, parameters, "classifier"))


def membership(client: ClientGraph) -> sp.csr_matrix:
    """``[m, n]``: 1 where a node belongs to a graph."""
    graph = cast(ClientOfGraphs, client).graph
    return sp.csr_matrix((np.ones(graph.size), (graph, np.arange(graph.size))), shape=(client.labels.size, graph.size))


def mean_membership(client: ClientGraph) -> sp.csr_matrix:
    """:func:`membership` with rows that sum to one."""
    matrix = membership(client)
    return sp.csr_matrix(sp.diags(1 / np.maximum(np.asarray(matrix.sum(1)).ravel(), 1)) @ matrix)


def _largest(batch: Batch, x: Tensor) -> Tensor:
    where = batch.operator(membership, batch.examples).edges
    rows = x.flatten(0, 1).index_select(0, where.source)
    index = where.target[:, None].expand_as(rows)
    out = x.new_zeros(batch.size * batch.examples, x.shape[2])
    return out.scatter_reduce(0, index, rows, "amax", include_self=False).view(batch.size, batch.examples, -1)


READOUTS = {
    "sum": lambda batch, x: batch.operator(membership, batch.examples) @ x,
    "mean": lambda batch, x: batch.operator(mean_membership, batch.examples) @ x,
    "max": _largest,
}
"""``[k, n, h]`` to ``[k, m, h]``."""
