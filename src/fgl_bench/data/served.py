"""Federations with a server that holds the whole graph, including validation and test nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fgl_bench.data.graph import ClientGraph, Federation, Graph
from fgl_bench.data.masks import given_masks, random_masks, stratified_masks
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import generator

Induce = Callable[[Graph, Sequence[np.ndarray]], tuple[list[ClientGraph], np.ndarray]]


@dataclass(frozen=True)
class Served(Federation):
    """Clients hold training nodes only.

    Attributes:
        server: the whole graph with all edges; its masks are drawn over all nodes, class by class.
        score_trained: evaluation points at which the trained models are scored: ``every``, ``final`` or ``never``.
    """

    server: ClientGraph = field(kw_only=True)
    score_trained: str = field(default="every", kw_only=True)

    @property
    def scored(self) -> tuple[ClientGraph, ...]:
        """Every client's model is scored on the same nodes."""
        return (self.server,) * self.num_clients


def hold_out(
    graph: Graph,
    split: Split,
    num_clients: int | None,
    partition_seed: int,
    masks_seed: int,
    ratios: tuple[float, float, float],
    induce: Induce,
) -> tuple[list[np.ndarray], list[ClientGraph], np.ndarray, ClientGraph]:
    """The training nodes divided by ``split`` as if they were the graph, the rest left to the server.

    Returns:
        the clients' node ids, the clients, the edges between them, and what the server holds.
    """
    if split.masks == "given":
        masks = given_masks(graph, masks_seed)
    else:
        masks = (stratified_masks if split.stratify else random_masks)(graph.strata, ratios, generator(masks_seed, "masks"))
    train = np.flatnonzero(masks[0])
    if not train.size:
        raise UserError(f"split.ratios={list(ratios)}: there is no training node; raise the first number")
    if not masks[1].any():
        raise UserError(f"split.ratios={list(ratios)}: there is no validation node; raise the second number")
    if not masks[2].any():
        raise UserError(f"split.ratios={list(ratios)}: there is no test node; raise the third number")
    (only,), _ = induce(graph, [train])
    owner = None if graph.owner is None else graph.owner[train]
    known = Graph(graph.name, only.features, only.edges, only.labels, graph.num_classes, graph.metric, owner)
    nodes = [train[part] for part in split.assign(known, num_clients, partition_seed)]
    clients, cross_edges = induce(graph, nodes)
    clients = [replace(client, train=np.ones(client.num_nodes, dtype=bool)) for client in clients]
    server = ClientGraph(np.arange(graph.num_nodes), graph.features, graph.edges, graph.labels, *masks)
    return nodes, clients, cross_edges, server
