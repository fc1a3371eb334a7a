"""Build federations from a dataset, a split and scenarios of sparsity and noise, one per repetition; a server may hold the scored nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.checks import check_ratios
from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import ClientGraph, Federation, Graph, training_view
from fgl_bench.data.masks import given_masks, random_masks, stratified_masks
from fgl_bench.data.noise import Noise, NoNoise
from fgl_bench.data.out_of_core import induce_on_disk
from fgl_bench.data.partition_cache import assignment_digest, cached_assignment, draw_ahead
from fgl_bench.data.sparsity import NoSparsity, Sparsity
from fgl_bench.data.splits.base import Split
from fgl_bench.data.storage import Disk
from fgl_bench.errors import UserError
from fgl_bench.utils.patience import announce_if_slow, say_once
from fgl_bench.utils.seeding import generator

MORE_TRAINING_NODES = (
    "masks are drawn for each class of a client and rounded down; split.masks=global draws them over all clients, split.stratify=false "
    "over all classes of a client; or raise the first number of split.ratios, or lower num_clients"
)


def build_federations(
    dataset: Dataset,
    split: Split,
    sparsity: Sparsity,
    *,
    num_clients: int | None,
    seeds: Sequence[int],
    data_dir: str | None,
    cache_dir: str | Path | None,
    out_of_core: bool = False,
    labeling: Labeling | None = None,
    noise: Noise | None = None,
) -> list[Federation]:
    """One federation for each seed; the graph is read once.

    Args:
        dataset, split, sparsity: as instantiated from the configuration.
        num_clients: null only where the split knows it (``natural``).
        seeds: repetitions. What ``split.per_seed`` leaves out is drawn from seed 0 in all of them.
        data_dir: raw files, see :meth:`Dataset.load`.
        cache_dir: folder of partition files; None disables the cache. An unwritable folder is not an error.
        out_of_core: keep features and edges in files below ``cache_dir``, mapped into memory. Numbers do not depend on it.
        labeling: what the examples are; None means the nodes.
        noise: applied after sparsity, to what clients observe while training; None means none.

    Raises:
        UserError: raw files, ``num_clients`` or ``split.ratios`` do not fit.
    """
    labeling, noise = labeling or Labeling(), noise or NoNoise()
    ratios = check_ratios(next(ratios for ratios in (split.ratios, labeling.default_ratios(), dataset.ratios) if ratios is not None))
    if out_of_core:
        check_stored(cache_dir, sparsity, split.inductive, split.test, noise)
    with announce_if_slow(f"reading dataset={dataset.name}"):
        graph = dataset.load(data_dir, cache_dir) if out_of_core else dataset.load(data_dir)
    if graph.masks and dataset.own_masks and split.masks != "given":
        names = ", ".join(graph.masks)
        say_once(f"note: dataset={graph.name} has {names}, which split.masks={split.masks} does not take; split.masks=given does")
    units = labeling.units(graph)
    split.agreed(units, num_clients)
    if split.test == "server":
        return [build_server_federation(graph, split, sparsity, num_clients, seed, ratios, noise) for seed in seeds]
    key = "split.masks=given" if split.masks == "given" else f"split.ratios={list(ratios)}"
    drawn: dict[int, tuple[list[np.ndarray], dict[str, str], Sequence[ClientGraph], np.ndarray]] = {}
    federations = []
    draw_ahead(split, units, num_clients, seeds if "partition" in split.per_seed else [0], cache_dir)
    for seed in seeds:
        partition_seed = seed if "partition" in split.per_seed else 0
        if partition_seed not in drawn:
            nodes, versions = cached_assignment(split, units, num_clients, partition_seed, cache_dir)
            drawn[partition_seed] = (nodes, versions, *labeling.clients(graph, nodes))
        nodes, versions, bare, cross_edges = drawn[partition_seed]
        masks_seed = seed if "masks" in split.per_seed else 0
        clean = labeling.labeled(split, units, nodes, bare, ratios, (partition_seed, masks_seed), cache_dir)
        if not any(client.train.any() for client in clean):
            raise UserError(f"{key}: no client has a training node; {MORE_TRAINING_NODES}")
        if not any(client.val.any() for client in clean):
            why = "no client has a validation node, by which the reported round is chosen"
            raise UserError(f"{key}: {why}; raise the second number of split.ratios")
        if not any(client.test.any() for client in clean):
            raise UserError(f"{key}: no client has a test node; raise the third number of split.ratios")
        sparsed = sparse(clean, sparsity, seed)
        scored = sparsed if sparsity.evaluation == "observed" else clean
        observed = labeling.observed(noisy(sparsed, noise, seed, graph.num_classes))
        if split.inductive:
            observed = tuple(training_view(client, whole.train) for client, whole in zip(observed, clean, strict=True))
        federations.append(
            Federation(
                **facts(graph, seed, nodes, {"partition_versions": versions}) | labeling.facts(graph),
                personal_ends=split.personal_ends,
                clients=scored,
                observed=observed,
                cross_edges=cross_edges,
            )
        )
    return federations


def check_stored(cache_dir: object, sparsity: Sparsity, inductive: bool = False, test: str = "clients", noise: Noise | None = None) -> None:
    """Raise UserError for settings that a federation on disk does not support."""
    if cache_dir is None:
        raise UserError("out_of_core=true: cache_dir must name the folder where the graph is kept")
    if inductive:
        raise UserError("out_of_core=true: split.inductive=true makes new graphs, in memory; set out_of_core=false")
    if test == "server":
        raise UserError("out_of_core=true: split.test=server holds the whole graph in memory; set out_of_core=false")
    altering: dict[str, Sparsity | Noise] = {"Sparsity": sparsity, "Noise": noise or NoNoise()}
    for group, choice in altering.items():
        if choice.alters_graph:
            kind = type(choice).__name__.removesuffix(group).lower()
            raise UserError(f"out_of_core=true: scenario/{group.lower()}={kind} makes new graphs, in memory; set out_of_core=false")


def build_server_federation(
    graph: Graph,
    split: Split,
    sparsity: Sparsity,
    num_clients: int | None,
    seed: int,
    ratios: tuple[float, float, float],
    noise: Noise | None = None,
) -> ServerFederation:
    """The federation of one seed whose validation and test nodes a server holds (``split.test=server``)."""
    partition_seed, masks_seed = (seed if axis in split.per_seed else 0 for axis in ("partition", "masks"))
    with announce_if_slow(f"drawing the {type(split).__name__.lower()} partition of {graph.name} for seed {seed}"):
        nodes, clients, cross_edges, server = hold_out(graph, split, num_clients, partition_seed, masks_seed, ratios, induce)
    clean = tuple(clients)
    observed = noisy(sparse(clean, sparsity, seed), noise or NoNoise(), seed, graph.num_classes)
    held: dict[str, Any] = {"clients": clean, "observed": observed, "cross_edges": cross_edges, "server": server}
    return ServerFederation(**facts(graph, seed, nodes, {}), **held, score_trained=split.score_trained)


def sparse(clients: tuple[ClientGraph, ...], sparsity: Sparsity, seed: int) -> tuple[ClientGraph, ...]:
    """The clients as they observe their graphs; raises UserError where no training node is left."""
    if isinstance(sparsity, NoSparsity):
        return clients
    observed = tuple(sparsity.apply(client, generator(seed, "sparsity", i)) for i, client in enumerate(clients))
    if not any(client.train.any() for client in observed):
        raise UserError("scenario.sparsity: no client has a training node left; lower its rate")
    return observed


def noisy(clients: tuple[ClientGraph, ...], noise: Noise, seed: int, classes: int) -> tuple[ClientGraph, ...]:
    """The clients with noise in what they observe; the same tuple if nothing is corrupted."""
    observed = tuple(noise.apply(client, classes, generator(seed, "noise", i)) for i, client in enumerate(clients))
    return clients if all(one is other for one, other in zip(observed, clients, strict=True)) else observed


def facts(graph: Graph, seed: int, nodes: Sequence[np.ndarray], notes: dict[str, object]) -> dict[str, Any]:
    """The fields of every :class:`Federation` that describe the graph and the assignment of its nodes."""
    return {
        "dataset": graph.name,
        "seed": seed,
        "num_classes": graph.num_classes,
        "num_features": graph.num_features,
        "partition_hash": assignment_digest(nodes),
        "metric": graph.metric,
        "notes": {"nodes": graph.num_nodes, "edges": graph.edges.shape[1] // 2, **notes},
    }


def client_graphs(graph: Graph, nodes: Sequence[np.ndarray]) -> tuple[list[ClientGraph], np.ndarray]:
    """:func:`induce`; for a graph on disk, the result is stored in files next to the graph's."""
    if graph.folder is None:
        return induce(graph, nodes)
    return induce_on_disk(graph, nodes, Disk(graph.folder / f"clients_{assignment_digest(nodes)[:16]}"))


def induce(graph: Graph, nodes: Sequence[np.ndarray]) -> tuple[list[ClientGraph], np.ndarray]:
    """The clients' induced subgraphs (masks still empty) and the edges that no client holds.

    One pass over the neighbor lists of all (client, node) pairs, so the cost does not grow with the number of
    clients, and clients may overlap.

    Args:
        graph: the whole graph.
        nodes: ascending node ids of each client.

    Returns:
        clients, and ``[2, K]`` int64 global edges whose ends are both held, but never by the same client.
    """
    sizes = np.array([ids.size for ids in nodes])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    slot_node = np.concatenate(nodes)
    slot_client = np.repeat(np.arange(sizes.size), sizes)
    rows = adjacency(graph.edges, graph.num_nodes, np.arange(graph.edges.shape[1]))[slot_node]
    source = np.repeat(np.arange(slot_node.size), np.diff(rows.indptr))
    # Slots are sorted by (client, node), hence so are these keys: a neighbor's slot is found by bisection.
    keys = slot_client * graph.num_nodes + slot_node
    wanted = slot_client[source] * graph.num_nodes + rows.indices
    target = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    inside = keys[target] == wanted
    source, target = source[inside], target[inside]

    local = np.stack([source, target]) - starts[slot_client[source]]
    bounds = np.searchsorted(source, starts)
    features, labels = graph.features[slot_node], graph.labels[slot_node]
    clients = []
    for i, ids in enumerate(nodes):
        mine = slice(starts[i], starts[i + 1])
        edges = np.ascontiguousarray(local[:, bounds[i] : bounds[i + 1]])
        empty = np.zeros(ids.size, dtype=bool)
        clients.append(ClientGraph(ids, features[mine], edges, labels[mine], empty, empty, empty))

    held = np.zeros(graph.num_nodes, dtype=bool)
    held[slot_node] = True
    crossing = held[graph.edges].all(axis=0)
    crossing[rows.data[inside]] = False
    return clients, np.ascontiguousarray(graph.edges[:, crossing])


class Labeling:
    """The examples, which are the things that have labels: here, the nodes. A task derives from it."""

    def default_ratios(self) -> list[float] | None:
        """Return [train, val, test] without ``split.ratios``; None means the dataset's."""
        return None

    def units(self, graph: Graph) -> Graph:
        """Return the graph whose nodes the split divides among the clients."""
        return graph

    def clients(self, graph: Graph, parts: Sequence[np.ndarray]) -> tuple[Sequence[ClientGraph], np.ndarray]:
        """Return the clients (masks still empty) and the edges ``[2, K]`` between them.

        Args:
            parts: ascending ids of the units of each client.
        """
        return client_graphs(graph, parts)

    def labeled(
        self,
        split: Split,
        units: Graph,
        parts: Sequence[np.ndarray],
        clients: Sequence[ClientGraph],
        ratios: tuple[float, float, float],
        seeds: tuple[int, int],
        cache_dir: str | Path | None,
    ) -> tuple[ClientGraph, ...]:
        """Return the clients with the labels and masks of their examples; arguments are those of :meth:`Split.draw_masks`."""
        masks = split.draw_masks(units, parts, ratios, seeds, cache_dir)
        return tuple(replace(client, train=train, val=val, test=test) for client, (train, val, test) in zip(clients, masks, strict=True))

    def observed(self, clients: tuple[ClientGraph, ...]) -> tuple[ClientGraph, ...]:
        """Return the part of the clients that training needs; ``clients`` itself if that is all."""
        return clients

    def facts(self, graph: Graph) -> dict[str, Any]:
        """Return the fields of :class:`Federation` that differ from those of the graph."""
        return {}


Induce = Callable[[Graph, Sequence[np.ndarray]], tuple[list[ClientGraph], np.ndarray]]


@dataclass(frozen=True)
class ServerFederation(Federation):
    """Clients hold training nodes only.

    Attributes:
        server: the whole graph with all edges; its masks are drawn over all nodes, class by class.
        score_trained: evaluation points at which the trained models are scored: ``every``, ``final`` or ``never``.
    """

    server: ClientGraph = field(kw_only=True)
    score_trained: str = field(default="every", kw_only=True)

    @property
    def scored(self) -> tuple[ClientGraph, ...]:
        """Every honest client's model is scored on the same nodes."""
        nothing = np.zeros_like(self.server.val)
        unscored = replace(self.server, val=nothing, test=nothing)
        return tuple(unscored if i in self.malicious else self.server for i in range(self.num_clients))


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
