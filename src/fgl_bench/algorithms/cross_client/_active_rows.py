"""Adam over the active rows of the input weight, those that have had a gradient, and over all other parameters.

With sparse input features, a mini-batch has gradients only for the rows of features that its nodes have. Until a row has its first
gradient, its moments are zero and Adam (without weight decay) does not change it, so the step skips it. On a CPU, where memory
traffic dominates a step, this saves most of the step for clients with few nodes and many features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.cross_client._features import Rows
from fgl_bench.algorithms.cross_client._halo import Halo
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.sparse import Bags, SparseRows

NEVER = np.uint16(65535)
PIECE = 512  # rows of a step; a few hundred kilobytes each of rows, moments and gradient


@dataclass(frozen=True)
class ActiveRowFeatures:
    """Input features as entries over the rows that a :class:`ActiveRowsAdam` holds.

    Attributes:
        sparse: all rows of all replicas in one block.
        shape: (k, c).
        sizes: for every group, its number of rows per replica.
    """

    sparse: SparseRows
    shape: tuple[int, int]
    sizes: list[int]

    @classmethod
    def of(cls, rows: Rows, adam: ActiveRowsAdam, theta: Tensor) -> ActiveRowFeatures:
        """Convert ``rows`` to entries over the rows of ``adam``, which takes new ones from ``theta [k, P]``."""
        (k, c, _), (starts, column, value) = rows.shape, rows.sparse
        slot = adam.take(theta, rows.replica, column)
        return cls(SparseRows(starts, slot, value, (1, k * c, adam.active), rows.dtype, rows.device), (k, c), rows.sizes)

    @property
    def last(self) -> int:
        """One more than the largest index of a row with an entry."""
        return int(self.sparse._entries[1].max(initial=-1)) + 1

    def multiply(self, rows: Tensor) -> Tensor:
        """Return the products ``[k, c, h]`` of all groups with the rows ``[n, h]``, outside autograd."""
        return self.sparse.multiply(rows[None]).view(*self.shape, -1)

    def gradient(self, products: Tensor, span: slice) -> Tensor:
        """Return the gradient of the rows in ``span``, given the gradient ``[k * c, h]`` of the products."""
        bags, offsets = self._by_row
        first, last = int(bags.starts[span.start]), int(bags.starts[span.stop])
        if first == last:
            return products.new_zeros(span.stop - span.start, products.shape[1])
        starts = offsets[span.start : span.stop + 1] - first
        # F.embedding_bag has checks that take as long as the sum.
        return torch.embedding_bag(products, bags.columns[first:last], starts, False, 0, False, bags.values[first:last], True)[0]

    @cached_property
    def _by_row(self) -> tuple[Bags, Tensor]:
        bags = self.sparse.transposed
        return bags, torch.from_numpy(bags.starts).to(bags.columns.dtype)


@dataclass(frozen=True)
class Products:
    """Precomputed products of input features, ``[k, c, h]``, in the form that the first convolution asks for."""

    all: Tensor
    sizes: list[int]

    def products(self, weight: Tensor) -> Sequence[Tensor]:
        return self.all.split(self.sizes, 1)


class ActiveRowsAdam:
    """``StackedAdam`` for ``count`` replicas that step at the same time, restart in every trip and have no weight decay.

    Active rows are stored contiguously in the order of their first use, so that a step is one pass over only their memory;
    :meth:`settle` writes them back.

    Args:
        layout: with one input weight ``[F, parts * h]``. Its ``parts`` matrices ``[F, h]`` lie side by side; each has rows of its own.
        capacity: most active rows, over all replicas.

    Attributes:
        order: ``[count * F * parts]`` uint16, the sort key by which all rows except those of :data:`NEVER` are stored at the first use.
            A step ends after the last row that has had a gradient, so rows whose first gradient comes late should sort last.
            None: rows are stored in the order of their first use.
    """

    def __init__(
        self, count: int, layout: ParameterLayout, lr: float, capacity: int, dtype: torch.dtype, device: torch.device, parts: int = 1
    ):
        (self.name,) = layout.inputs
        (width, h), self.layout, self.lr = layout.shapes[self.name], layout, lr
        self.width, h = width * parts, h // parts
        # Rows and their moments; memory pages are allocated when rows become active.
        self._rows = [torch.empty(capacity, h, dtype=dtype, device=device) for _ in range(3)]
        shapes = {name: shape for name, shape in layout.shapes.items() if name != self.name}
        self._rest = [{name: torch.zeros(count, *shape, dtype=dtype, device=device) for name, shape in shapes.items()} for _ in range(3)]
        self._steps = torch.zeros((), dtype=torch.float32, device=device)
        self._slot = np.full(count * self.width, -1, dtype=np.int32)
        self._stride = layout.size // h
        self._where = torch.empty(capacity, dtype=torch.int64, device=device)
        self._started, self.active, self._stepped = False, 0, 0
        self.order: np.ndarray | None = None

    def reset(self, rows: object = None) -> None:
        """Reset all moments; changes that :meth:`settle` has not written back are lost."""
        self._slot.fill(-1)
        for state in (*self._rest[1].values(), *self._rest[2].values(), self._steps):
            state.zero_()
        self._started, self.active, self._stepped = False, 0, 0

    def take(self, theta: Tensor, replica: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Return the slots of the weight's rows ``column [E]`` of ``replica [E]``; rows without a slot are copied from ``theta [k, P]``.

        Rows of all parts are numbered as they lie in memory: feature * parts + part.
        """
        key = replica * np.int32(self.width) + column
        slot = np.take(self._slot, key)
        if self._started and (not slot.size or slot.min() >= 0):
            return slot
        wanted = np.zeros(self._slot.size, dtype=bool)
        wanted[key] = True
        new = np.flatnonzero(wanted & (self._slot < 0))
        if self.order is not None:
            if not self._started:  # all that the steps to come will need
                new = np.flatnonzero(wanted | (self.order < NEVER))
            new = new[np.argsort(self.order[new], kind="stable")]
        first, self.active = self.active, self.active + new.size
        self._slot[new] = np.arange(first, self.active)
        span = slice(first, self.active)
        self._where[span] = torch.from_numpy(new // self.width * self._stride + new % self.width)
        torch.index_select(self._lines(theta), 0, self._where[span], out=self._rows[0][span])
        if not self._started:
            for name, held in self._rest[0].items():
                held.copy_(self.layout.view(theta, name))
            self._started = True
        return np.take(self._slot, key)

    def views(self) -> dict[str, Tensor]:
        """The parameters: active rows ``[n, h]`` of the input weight, all others ``[k, *shape]``."""
        return {self.name: self._rows[0][: self.active], **self._rest[0]}

    def step(self, gradients: Mapping[str, Tensor], features: ActiveRowFeatures, products: Tensor) -> None:
        """One step in slot, from the gradients of :meth:`views` and, for active rows, of the products ``[k, c, h]`` with ``features``.

        Rows are stepped a piece at a time: their gradient is used while it is in the cache, and is never held whole. The moments of new
        rows are set to zero there, too.
        """
        self._steps += 1
        self._adam([list(state.values()) for state in self._rest], [gradients[name].contiguous() for name in self._rest[0]])
        products = products.reshape(-1, products.shape[2])
        # No later row has had a gradient.
        last = max(self._stepped, features.last)
        for start in range(0, last, PIECE):
            end = min(start + PIECE, last)
            if end > self._stepped:
                for moment in self._rows[1:]:
                    moment[max(start, self._stepped) : end].zero_()
            self._adam([[state[start:end]] for state in self._rows], [features.gradient(products, slice(start, end))])
        self._stepped = last

    def _adam(self, states: Sequence[list[Tensor]], gradients: list[Tensor]) -> None:
        theta, first, second = states
        # torch.optim.adam.adam dispatches to this function, but its dispatch takes as long as a piece.
        torch._fused_adam_(
            theta, gradients, first, second, [], [self._steps] * len(theta),
            lr=self.lr, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    def settle(self, theta: Tensor) -> None:
        """Write the current parameters into ``theta [k, P]``."""
        if self._started:
            self._lines(theta).index_copy_(0, self._where[: self.active], self._rows[0][: self.active])
            for name, held in self._rest[0].items():
                self.layout.view(theta, name).copy_(held)

    def _lines(self, theta: Tensor) -> Tensor:
        """``theta [k, P]`` as rows of the input weight's width."""
        return theta.view(-1, self._rows[0].shape[1])


class FirstUse:
    """The first mini-batch that may have a gradient for each row of the input weight, from the mini-batches of the nodes.

    A node's features have one in its own mini-batch and in those of the nodes that it is within ``depth`` hops of inside its client.
    """

    def __init__(self, halo: Halo, depth: int):
        self.halo, self.depth = halo, depth

    @cached_property
    def _inner(self) -> tuple[np.ndarray, np.ndarray]:
        inner = self.halo.kind == 1
        return self.halo.source[inner], self.halo.target[inner]

    @cached_property
    def _nodes(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For every part of the weight, its rows (replica * F + feature) in order; where the slots that have each begin; these slots."""
        halo = self.halo
        parts = [halo.slots if part == halo.part else np.flatnonzero(halo.joined) for part in range(halo.parts)]
        return [halo.features.by_feature(slots) for slots in parts]

    def __call__(self, number: np.ndarray) -> np.ndarray:
        """``[k * F * parts]`` uint16 by replica, feature and part; :data:`NEVER` where there is none.

        Args:
            number: mini-batch of each of ``halo.slots``, -1 for none.
        """
        halo = self.halo
        node = np.full(halo.size * halo.nodes, NEVER)
        node[halo.slots] = np.where(number < 0, NEVER, np.minimum(number, NEVER - 1))
        source, target = self._inner
        for _ in range(self.depth):
            near = node[target]
            np.minimum.at(node, source, near)
        first = np.full((halo.size * halo.features.width, halo.parts), NEVER)
        for part, (rows, starts, slots) in enumerate(self._nodes):
            if rows.size:
                first[rows, part] = np.minimum.reduceat(node[slots], starts)
        return first.ravel()
