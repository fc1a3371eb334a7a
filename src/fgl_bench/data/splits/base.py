"""The base of all splits: ratios, variation between repetitions, and the repair of empty parts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fgl_bench.data.checks import check_num_clients, check_ratios
from fgl_bench.data.graph import Graph
from fgl_bench.data.masks import Masks, first_of_class, given_masks, held_out_masks, random_masks, stratified_masks
from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import generator

AXES = ("partition", "masks")
SCORE_TRAINED = ("every", "final", "never")


@dataclass
class Split:
    """Base of all splits; a new one implements :meth:`parts` (or :meth:`assign`, where clients overlap).

    Attributes:
        ratios: [train, val, test]; null means the dataset's.
        per_seed: what varies between repetitions, of ``partition`` and ``masks``; the other is drawn from seed 0.
        test: who holds validation and test nodes: the ``clients``, or a ``server`` with the whole graph, the clients dividing the
            training nodes (masks are drawn over all nodes).
        inductive: clients train on their training nodes and the edges among them alone, and are scored on all that they hold.
        masks: drawn inside every ``client``, or once over the whole graph (``global``: some clients then get more or fewer training
            nodes than others, or none), or not drawn but ``given`` by the data (:func:`fgl_bench.data.masks.given_masks`): the same in
            every repetition, unless they have several columns.
        stratify: masks are drawn class by class; otherwise regardless of classes.
        score_trained: evaluation points at which the trained models are scored with ``test=server``: ``every``, ``final`` or ``never``.
            All C of them are scored on the whole graph, so that each of these points costs C passes over it.
        reserve: share of every class, drawn once from seed 0 for all repetitions, that validates and is never tested
            (:func:`fgl_bench.data.masks.held_out_masks`); null draws all three masks in every repetition.
        train_per_class: with ``reserve``, training nodes of every class wherever masks are drawn; null takes the first ratio.
        overlaps: whether a node may have several clients.
        personal_ends: whether each client has its own input and output layers.
        reads_features: whether clients depend on the features.
        ways_of_masks: values of ``masks``; a split with more of them overrides :meth:`draw_masks`.
    """

    overlaps: ClassVar[bool] = False
    reads_features: ClassVar[bool] = False
    personal_ends: ClassVar[bool] = False
    ways_of_masks: ClassVar[tuple[str, ...]] = ("client", "global", "given")

    ratios: list[float] | None
    per_seed: list[str]
    test: str
    inductive: bool
    masks: str = field(default="client", kw_only=True)
    stratify: bool = field(default=True, kw_only=True)
    score_trained: str = field(default="final", kw_only=True)
    reserve: float | None = field(default=None, kw_only=True)
    train_per_class: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.ratios is not None:
            check_ratios(self.ratios)
        if self.test not in ("clients", "server"):
            raise UserError(f"split.test={self.test}: must be one of clients, server")
        if self.score_trained not in SCORE_TRAINED:
            raise UserError(f"split.score_trained={self.score_trained}: must be one of {', '.join(SCORE_TRAINED)}")
        if self.score_trained != "final" and self.test == "clients":
            raise UserError(f"split.score_trained={self.score_trained}: needs split.test=server; clients score at every evaluation point")
        ways = [way for way in self.ways_of_masks if way != "client" or not self.overlaps]
        if self.masks not in ways:
            why = ", for clients share nodes" if self.overlaps else ""
            raise UserError(f"split.masks={self.masks}: must be {'one of ' * (len(ways) > 1)}{', '.join(ways)}{why}")
        if self.masks == "given" and self.ratios is not None:
            raise UserError(f"split.ratios={list(self.ratios)}: split.masks=given takes the masks of the data; set split.ratios=null")
        if self.masks == "given" and not self.stratify:
            raise UserError("split.stratify=false: split.masks=given takes the masks of the data; set it to true")
        if self.inductive and self.test == "server":
            raise UserError("split.inductive=true: with split.test=server clients hold training nodes only anyway; set it to false")
        if self.reserve is not None and (self.test == "server" or self.masks not in ("client", "global") or not self.stratify):
            raise UserError(f"split.reserve={self.reserve}: needs split.test=clients, split.stratify=true, split.masks=client or global")
        if self.reserve is not None and not 0 < self.reserve < 1:
            raise UserError(f"split.reserve={self.reserve}: must be a share between 0 and 1, or null")
        if self.train_per_class is not None and (self.reserve is None or self.train_per_class < 1):
            raise UserError(f"split.train_per_class={self.train_per_class}: must be at least 1, and needs split.reserve")
        if not set(self.per_seed) <= set(AXES):
            raise UserError(f"split.per_seed={list(self.per_seed)}: may hold {' and '.join(AXES)} only")

    def clients(self, graph: Graph) -> int | None:
        """The number of clients that the split gives on this graph; None if it gives any number. ``num_clients`` must agree."""
        return None

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        """Ascending node ids of each client, ``num_clients`` non-empty arrays.

        Args:
            graph: canonical, so that the same seed always gives the same clients.
            num_clients: between 1 and the number of nodes; None only if :meth:`clients` states the number.
            seed: of the repetition (or 0 where the partition does not vary).

        Raises:
            UserError: ``num_clients`` does not fit the graph or is not what :meth:`clients` states, or :meth:`parts` has not returned a
                client for every node.
        """
        num_clients = check_num_clients(self.agreed(graph, num_clients), graph.num_nodes)
        parts = checked(f"{type(self).__name__}.parts()", self.parts(graph, num_clients, seed), graph.num_nodes, num_clients)
        return members(fill_empty(parts, num_clients), num_clients)

    def stated(self, graph: Graph) -> int | None:
        """:meth:`clients` as an int; raises UserError for what is neither a whole number nor None."""
        number = self.clients(graph)
        try:
            return None if number is None else operator.index(number)
        except TypeError:
            name = f"{type(self).__name__}.clients()"
            raise UserError(f"{name} returned a {type(number).__name__}; expected the number of clients, or None") from None

    def agreed(self, graph: Graph, num_clients: int | None) -> int | None:
        """``num_clients``, or what :meth:`clients` states; raises UserError if they differ."""
        stated = self.stated(graph)
        if None not in (stated, num_clients) and stated != num_clients:
            name = type(self).__name__.lower()
            raise UserError(f"num_clients={num_clients}: split={name} on dataset={graph.name} needs num_clients={stated}")
        return num_clients if stated is None else stated

    def draw_masks(
        self,
        graph: Graph,
        nodes: Sequence[np.ndarray],
        ratios: tuple[float, float, float],
        seeds: tuple[int, int],
        cache_dir: str | Path | None,
    ) -> list[Masks]:
        """Train, val and test masks of every client.

        Client i draws its own from the stream ``masks/i``. With ``masks=global`` they are drawn once over all nodes that anybody
        holds, from the stream ``masks/shared``: where clients share nodes, none trains on what another one is tested on. A client may
        then have a little more or less of a class than its share, or no training node. With ``masks=given`` nothing is drawn.

        Args:
            nodes: what :meth:`assign` has given.
            seeds: of the partition and of the masks.
            cache_dir: where partitions are kept, None for none; for splits whose masks follow from how nodes were dealt.
        """
        draw, strata, seed = stratified_masks if self.stratify else random_masks, graph.strata, seeds[1]
        if self.reserve is not None:
            return self._held_out_masks(graph, nodes, ratios, seed)
        if self.masks == "client":
            return [draw(strata[ids], ratios, generator(seed, "masks", i)) for i, ids in enumerate(nodes)]
        if self.masks == "given":
            train, val, test = given_masks(graph, seed)
            return [(train[ids], val[ids], test[ids]) for ids in nodes]
        held = np.zeros(graph.num_nodes, dtype=bool)
        for ids in nodes:
            held[ids] = True
        shared = np.zeros((3, graph.num_nodes), dtype=bool)
        shared[:, held] = draw(strata[held], ratios, generator(seed, "masks", "shared"))
        return [tuple(shared[:, ids]) for ids in nodes]

    def _held_out_masks(self, graph: Graph, nodes: Sequence[np.ndarray], ratios: tuple[float, float, float], seed: int) -> list[Masks]:
        """:meth:`draw_masks` with a reserve, drawn class by class over the whole graph."""
        strata, share = graph.strata, float(self.reserve or 0)
        sizes = np.bincount(strata[strata >= 0])
        reserve = first_of_class(strata, np.floor(share * sizes), generator(0, "masks", "reserve"))
        if self.masks == "client":
            streams = [generator(seed, "masks", i) for i in range(len(nodes))]
            return [
                held_out_masks(strata[ids], ratios, stream, reserve[ids], self.train_per_class)
                for ids, stream in zip(nodes, streams, strict=True)
            ]
        held = np.zeros(graph.num_nodes, dtype=bool)
        held[np.concatenate(nodes)] = True
        drawn = held_out_masks(np.where(held, strata, -1), ratios, generator(seed, "masks", "shared"), reserve, self.train_per_class)
        return [(drawn[0][ids], drawn[1][ids], drawn[2][ids]) for ids in nodes]

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        """``[N]`` int64: the client of every node. Empty clients are repaired by the caller."""
        raise NotImplementedError  # abstract


def checked(hook: str, part: Any, num_nodes: int, num_clients: int) -> np.ndarray:
    """``part`` if it is ``[N]`` integers from 0 to ``num_clients - 1``; else UserError."""
    expected = f"expected an array of {num_nodes} integers from 0 to {num_clients - 1}, the client of every node"
    if not isinstance(part, np.ndarray):
        raise UserError(f"{hook} returned {'None' if part is None else f'a {type(part).__name__}'}; {expected}")
    if part.shape != (num_nodes,) or not np.issubdtype(part.dtype, np.integer):
        raise UserError(f"{hook} returned {part.dtype} of the shape {list(part.shape)}; {expected}")
    if part.min() < 0 or part.max() >= num_clients:
        raise UserError(f"{hook} returned clients from {part.min()} to {part.max()}; {expected}")
    return part


def members(part: np.ndarray, num_parts: int) -> list[np.ndarray]:
    """Ascending ids of each part, in one sort."""
    order = np.argsort(part, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(part, minlength=num_parts))[:-1])


def fill_empty(part: np.ndarray, num_parts: int) -> np.ndarray:
    """Gives every empty part the upper half (by node id) of the part that is largest at that moment."""
    part, sizes = part.copy(), np.bincount(part, minlength=num_parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        nodes = np.flatnonzero(part == largest)
        moved = nodes[(nodes.size + 1) // 2 :]
        part[moved] = empty
        sizes[largest], sizes[empty] = nodes.size - moved.size, moved.size
    return part


def as_parts(pieces: Sequence[np.ndarray], num_nodes: int) -> np.ndarray:
    """``[N]`` piece of every node, from disjoint pieces that cover all nodes."""
    part = np.empty(num_nodes, dtype=np.int64)
    part[np.concatenate(pieces)] = np.repeat(np.arange(len(pieces)), [piece.size for piece in pieces])
    return part
