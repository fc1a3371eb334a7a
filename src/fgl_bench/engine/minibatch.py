"""Mini-batches over nodes: every client visits its training nodes in its own order."""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.batch import Batch, DenseBlocks, InputFeatures, Operator, TrainingNodes
from fgl_bench.engine.derived import Derived, DerivedBlocks
from fgl_bench.engine.random_numbers import draws64, mix


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
        draws = draws64(key, batch.nodes).masked_fill(~batch.train, torch.iinfo(torch.int64).max)
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
        self.size, self.nodes, self.feature_dtype = whole.size, index.shape[1], whole.feature_dtype
        several = whole.labels.ndim > 2
        self.labels = self.take(whole.labels) if several else whole.labels.gather(1, index)
        self.degree = whole.degree.gather(1, index)
        self.valid = torch.zeros(index.shape, dtype=torch.bool, device=index.device)
        self.valid.view(-1).index_fill_(0, slots, True)
        self.train, self.val, self.test = self.valid, torch.zeros_like(self.valid), torch.zeros_like(self.valid)
        self.num_nodes = self.num_train = sizes
        self.replicas = whole.replicas
        self.training_nodes = TrainingNodes(slots, self.labels.flatten(0, 1)[slots], weights)

    def take(self, x: Tensor) -> Tensor:
        """The rows of these nodes, ``[k, n, h]`` to ``[k, m, h]``."""
        return x.gather(1, self.index[..., None].expand(-1, -1, x.shape[2]))

    @cached_property
    def features(self) -> DenseBlocks | _Rows:  # type: ignore[override]  # rows of the batch's, multiplied alike
        whole = self.whole.features
        return DenseBlocks(self.take(whole.values)) if isinstance(whole, DenseBlocks) else _Rows(whole, self)

    @property
    def pristine(self) -> bool:
        return self.whole.pristine

    def derived(self, build: Derived) -> DerivedBlocks:
        return self.whole.derived(build).take(self.index)

    def operator(self, build: Operator) -> NoReturn:
        raise RuntimeError("a mini-batch of nodes has no edges; multiply with the whole batch's operator and take rows")

    select = operator  # type: ignore[assignment]  # raises for any argument


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
