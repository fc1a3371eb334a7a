"""Mini-batches over nodes: every client visits its training nodes in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, DenseBlocks, InputFeatures, Operator, TrainingNodes
from fgl_bench.engine.derived import Derived, DerivedBlocks
from fgl_bench.engine.random_numbers import draws64, mix
from fgl_bench.engine.sparse import BlockSparse


class Epochs:
    """The schedule of mini-batches of ``most`` training nodes for the clients of ``batch``; a client's last one may be smaller.

    Attributes:
        steps: mini-batches of the client with the most; others skip the last ones.
        sizes: host ``[steps, k]``, training nodes of every replica's mini-batches.
        taken: ``[k, 1]`` mini-batches that each replica has, one at least.
        counts: ``sizes`` on the device.
    """

    def __init__(self, batch: Batch, most: int):
        self.most = most
        taken = -(-batch.num_train // most)
        self.steps = int(taken.max())
        self.taken = torch.from_numpy(np.maximum(taken, 1)).to(batch.device, batch.dtype)[:, None]
        self.sizes = np.clip(batch.num_train - most * np.arange(self.steps)[:, None], 0, most)
        self.counts = torch.from_numpy(self.sizes).to(batch.device)
        self.longest = int(batch.num_train.max())
        self._where = [self._slots(sizes, batch) for sizes in self.sizes]

    def _slots(self, sizes: np.ndarray, batch: Batch) -> tuple[Tensor, Tensor]:
        """The positions of the nodes of one step among its ``[k * m]`` slots, and their weights."""
        there = np.arange(sizes.max()) < sizes[:, None]
        weights = np.repeat(1 / np.maximum(sizes, 1), sizes)
        return torch.from_numpy(np.flatnonzero(there)).to(batch.device), torch.from_numpy(weights).to(batch.device, batch.dtype)

    def order(self, batch: Batch, key: Tensor) -> Tensor:
        """Every replica's training nodes ``[k, T]`` in a random order, drawn from its ``key [k]``; other nodes after them."""
        draws = draws64(key, batch.examples).masked_fill(~batch.train, torch.iinfo(torch.int64).max)
        return draws.argsort(dim=1, stable=True)[:, : self.longest]

    def part(self, batch: Batch, order: Tensor, step: int) -> Part:
        """The mini-batch number ``step`` of all replicas."""
        nodes = order[:, step * self.most : step * self.most + int(self.sizes[step].max())]
        return Part(batch, nodes, self.sizes[step], *self._where[step])


class Part(Batch):
    """Some training nodes of every replica, in place of a :class:`Batch` for backbones that treat nodes one by one.

    Attributes:
        whole: the batch to which they belong.
        index: ``[k, m]`` their positions in it; slots from ``num_train`` on are filled with nodes that do not count.
    """

    def __init__(self, whole: Batch, index: Tensor, sizes: np.ndarray, slots: Tensor, weights: Tensor):
        self.whole, self.index = whole, index
        self.clients, self.dtype, self.device, self.on_disk = whole.clients, whole.dtype, whole.device, whole.on_disk
        self.size, self.feature_dtype = whole.size, whole.feature_dtype
        self.nodes = self.examples = index.shape[1]
        several = whole.labels.ndim > 2
        self.labels = self.take(whole.labels) if several else whole.labels.gather(1, index)
        self.valid = torch.zeros(index.shape, dtype=torch.bool, device=index.device)
        self.valid.view(-1).index_fill_(0, slots, True)
        self.train, self.val, self.test = self.valid, torch.zeros_like(self.valid), torch.zeros_like(self.valid)
        self.labeled = self.reference = self.valid
        self.num_nodes = self.num_train = sizes
        self.replicas = whole.replicas
        self.training_nodes = TrainingNodes(slots, self.labels.flatten(0, 1)[slots], weights)

    def take(self, x: Tensor) -> Tensor:
        """The rows of these nodes, ``[k, n, h]`` to ``[k, m, h]``."""
        return x.gather(1, self.index[..., None].expand(-1, -1, x.shape[2]))

    @cached_property
    def degree(self) -> Tensor:  # type: ignore[override]  # of these nodes
        return self.whole.degree.gather(1, self.index)

    @cached_property
    def subgraphs(self) -> Subgraphs:
        """The nodes of the examples, where examples are graphs."""
        return Subgraphs(self)

    @cached_property
    def features(self) -> DenseBlocks | _Rows:  # type: ignore[override]  # rows of the batch's, multiplied alike
        whole = self.whole.features
        return DenseBlocks(self.take(whole.values)) if isinstance(whole, DenseBlocks) else _Rows(whole, self)

    @property
    def pristine(self) -> bool:
        return self.whole.pristine

    def derived(self, build: Derived) -> DerivedBlocks:
        return self.whole.derived(build).take(self.index)

    def operator(self, build: Operator, rows: int | None = None) -> BlockSparse:
        raise RuntimeError("a mini-batch of nodes has no edges; multiply with the whole batch's operator and take rows")

    def select(self, rows: Sequence[int]) -> NoReturn:
        raise RuntimeError("a mini-batch is not divided")


class Subgraphs(Part):
    """The nodes of a mini-batch of graphs, in place of a :class:`Batch` for backbones; the host selects rows of the whole operators.

    Attributes:
        index: ``[k, n]`` positions of the nodes in the whole batch.
    """

    def __init__(self, part: Part):
        whole = self.whole = part.whole
        self.clients, self.dtype, self.device, self.on_disk = whole.clients, whole.dtype, whole.device, whole.on_disk
        self.size, self.examples, self.feature_dtype = part.size, part.examples, whole.feature_dtype
        self.labels, self.train, self.val, self.test = part.labels, part.train, part.val, part.test
        self.num_nodes, self.num_train, self.replicas, self.training_nodes = (
            part.num_nodes, part.num_train, part.replicas, part.training_nodes
        )  # fmt: skip
        graphs, every, taken = part.index.cpu().numpy(), whole.graph_sizes, part.valid.cpu().numpy()
        sizes = np.where(taken, np.take_along_axis(every, graphs, 1), 0)
        end = sizes.cumsum(1)
        shift = end - sizes - np.take_along_axis(every.cumsum(1) - every, graphs, 1)  # of the positions of a graph's nodes
        self.nodes, of_nodes = int(end[:, -1].max()), np.repeat(shift, sizes.ravel())
        valid = np.arange(self.nodes) < end[:, -1:]
        index = np.zeros(valid.shape, dtype=np.int64)
        index[valid] = np.nonzero(valid)[1] - of_nodes
        self._of_nodes = np.nonzero(valid)[0], index[valid], of_nodes, valid
        self._of_graphs = np.nonzero(taken)[0], graphs[taken], shift[taken], taken
        self.index, self.valid = (torch.from_numpy(array).to(self.device) for array in (index, valid))
        self.labeled, self.reference, self._operators = part.valid, self.valid, {}

    def operator(self, build: Operator, rows: int | None = None) -> BlockSparse:
        if build not in self._operators:
            whole = self.whole.operator(build, None if rows is None else self.whole.examples)
            replica, row, shift, slots = self._of_nodes if rows is None else self._of_graphs
            self._operators[build] = whole.rows(replica, row, shift, slots, self.nodes)
        return self._operators[build]


class _Rows:
    """Some rows of sparse features: multiplied whole, which costs no more than finding them."""

    def __init__(self, features: InputFeatures, part: Part):
        self.features, self.part = features, part

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.part.take(self.features @ weight)


def order_key(key: Tensor) -> Tensor:
    """Keys ``[k]`` of an epoch's order, from its :func:`~fgl_bench.engine.random_numbers.step_key`."""
    return mix(~key)


def part_key(key: Tensor, step: int) -> Tensor:
    """Keys ``[k]`` of one mini-batch's dropout, likewise."""
    return mix(key + (step + 1))
