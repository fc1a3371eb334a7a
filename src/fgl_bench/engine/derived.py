"""Features that follow from a client's graph alone (propagated, spectral bases), computed once and stored dense, next to the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph, LabeledNodes
from fgl_bench.data.storage import Disk, name_of, release
from fgl_bench.engine.linear import product
from fgl_bench.engine.transfer import put


@dataclass(frozen=True)
class Derived:
    """A derivation of matrices from a client; a subclass's fields are its options. Instances with equal fields are one cache entry.

    Class attributes or properties:
        copies: L, how many matrices ``[n, F]`` it makes.
    """

    @property
    def copies(self) -> int:
        raise NotImplementedError  # abstract

    @property
    def key(self) -> str:
        """A key of this derivation, the same in every process; it is part of file names."""
        return repr(self)

    def sources(self, client: ClientGraph) -> tuple[Any, ...]:
        """The arrays (and floats) that the result depends on: clients that share them (one partition, several seeds) share the result."""
        return client.features, client.edges

    def among(self, clients: Sequence[ClientGraph], per_federation: int | None) -> Sequence[ClientGraph]:
        """The clients as passed to :meth:`sources` and :meth:`fill`, for derivations that depend on a client's whole federation.

        Args:
            per_federation: how many clients, one after the other, make up a federation; None where the batch is not of whole ones.
        """
        return clients

    def fill(self, client: ClientGraph, out: np.ndarray) -> None:
        """Write the L matrices of ``client`` to ``out [L, n, F]``, zeros of the run's type."""
        raise NotImplementedError  # abstract


def fill(build: Derived, client: ClientGraph, out: np.ndarray) -> None:
    """Run ``build.fill``; for a client on disk it runs once and the result is stored next to the client's files, one file per client.

    Of :class:`~fgl_bench.data.graph.LabeledNodes`, the rows of the whole client that are theirs.
    """
    whole, rows = (client.whole, client.rows) if isinstance(client, LabeledNodes) else (client, None)

    def make(new: np.ndarray) -> None:
        if rows is None:
            build.fill(whole, new)
        else:
            every = np.zeros((len(new), whole.num_nodes, new.shape[2]), new.dtype)
            build.fill(whole, every)
            new[:] = every[:, rows]

    if whole.folder is None or not out.size:
        make(out)
        return
    others = [source for source in (*build.sources(whole), rows) if source is not None and not isinstance(source, np.memmap)]
    held = [source if isinstance(source, float) else digest(source) for source in others]
    folder = whole.folder / f"{type(build).__name__.lower()}_{name_of(build.key, out.dtype.str, held)}"
    name = f"from_node_{whole.nodes[0]}_with_{whole.edges.shape[1]}_edges"
    stored = Disk(folder).array(name, out.shape, out.dtype, make)
    out[:] = stored
    for array in (stored, whole.features, whole.edges):
        release(array)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class DerivedBlocks:
    """The derived matrices of k replicas, of U <= k different clients.

    Attributes:
        values: ``[U, L, n, F]``, zero in padding.
        owner: host ``[k]``, which of the U clients each replica is.
        shape: (k, L, n, F).
        training_rows: kept here by ``models.unifilter``.
    """

    training_rows: tuple[Tensor, Tensor, Tensor] | None = None

    def __init__(self, values: Tensor, owner: Sequence[int] | np.ndarray):
        self.values, self.owner = values, np.asarray(owner)
        self.shape = (len(owner), *values.shape[1:])

    @classmethod
    def of(
        cls,
        build: Derived,
        clients: Sequence[ClientGraph],
        nodes: int,
        dtype: torch.dtype,
        device: torch.device,
        held: torch.dtype | None = None,
    ) -> DerivedBlocks:
        """Made on the host in ``dtype``, client by client; padded to ``nodes`` and kept in ``held`` (None: ``dtype``)."""
        numbers: dict[tuple[float, ...], int] = {}
        keys = [tuple(s if isinstance(s, float) else id(s) for s in build.sources(client)) for client in clients]
        owner = [numbers.setdefault(key, len(numbers)) for key in keys]
        width = clients[0].features.shape[1]
        values = torch.zeros(len(numbers), build.copies, nodes, width, dtype=held or dtype)
        for number in range(len(numbers)):
            client = clients[owner.index(number)]
            target = values[number, :, : client.num_nodes]
            block = target if values.dtype == dtype else torch.zeros(target.shape, dtype=dtype)  # numpy has no half of this kind
            fill(build, client, block.numpy())
            if block is not target:
                target.copy_(block)
        return cls(values.to(device), owner)

    @cached_property
    def rows(self) -> Tensor:
        """:attr:`owner` on the device."""
        return put(self.owner, self.values.device)

    @cached_property
    def times(self) -> int:
        """S where the owners are 0..U-1 in order, S times over; else 0."""
        times = len(self.owner) // len(self.values)
        return times if np.array_equal(self.owner, np.tile(np.arange(len(self.values)), times)) else 0

    def select(self, rows: Sequence[int]) -> DerivedBlocks:
        """The replicas ``rows`` (host integers): a view where their clients lie next to each other, else a copy."""
        wanted, owner = np.unique(self.owner[list(rows)], return_inverse=True)
        if wanted[-1] - wanted[0] + 1 == len(wanted):
            values = self.values[int(wanted[0]) : int(wanted[-1]) + 1]
        else:
            values = self.values[put(wanted, self.values.device)]
        blocks = DerivedBlocks(values, owner)
        return blocks if blocks.times else DerivedBlocks(blocks.stacked(), range(len(owner)))

    def stacked(self) -> Tensor:
        """``[k, L, n, F]``; a copy only where replicas share a client."""
        return self.values if self.times == 1 else self.values[self.rows]

    @cached_property
    def copied(self) -> Tensor:
        """:meth:`stacked`, made once."""
        return self.stacked()

    def take(self, index: Tensor) -> DerivedBlocks:
        """The rows ``index [k, m]`` of every replica, as blocks of m nodes."""
        k, m = index.shape
        return DerivedBlocks(self.values.transpose(1, 2)[self.rows[:, None].expand(k, m), index].transpose(1, 2), range(k))

    def __matmul__(self, weight: Tensor) -> Tensor:
        """``[k, L, F, h]`` to ``[k, L, n, h]``, each matrix with its own weight."""
        (k, copies, nodes, width), times, h = self.shape, self.times, weight.shape[3]
        if times > 1:  # replicas of one client: its matrix is read once, against all their weights
            weight = weight.unflatten(0, (times, -1)).permute(1, 2, 3, 0, 4).flatten(3)
            out = product(self.values.flatten(0, 1), weight.flatten(0, 1))
            return out.view(-1, copies, nodes, times, h).permute(3, 0, 1, 2, 4).flatten(0, 1)
        values = self.stacked()
        return product(values.reshape(k * copies, nodes, width), weight.reshape(k * copies, width, h)).view(k, copies, nodes, h)
