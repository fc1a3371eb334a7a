"""The graphs of many replicas as stacked tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.sparse import BlockSparse

# Above this share of non-zero entries a dense product is faster. On a CPU measured with Photo and Computers (35 % filled: the
# sparse product takes two thirds of the time); on a GPU a guess, its matrix units are that much faster than its gathers.
DENSE_ABOVE = {"cpu": 0.5, "cuda": 0.1}


class TrainingNodes(NamedTuple):
    """The T training nodes of all replicas.

    Attributes:
        index: ``[T]`` positions in the flattened ``[k * n]`` nodes.
        labels: ``[T]``.
        weights: ``[T]``, 1 / the number of training nodes of the replica.
    """

    index: Tensor
    labels: Tensor
    weights: Tensor


Operator = Callable[[ClientGraph], sp.csr_matrix]


def is_dense(blocks: Sequence[np.ndarray | sp.csr_matrix], device: torch.device) -> bool:
    """Whether these clients' input features ``[n, F]`` are multiplied as dense matrices."""
    filled = sum(block.nnz if sp.issparse(block) else np.count_nonzero(block) for block in blocks)
    return filled > DENSE_ABOVE.get(device.type, 0.5) * sum(block.shape[0] * block.shape[1] for block in blocks)


def adjacency(client: ClientGraph) -> sp.csr_matrix:
    """A: the client's symmetric 0/1 adjacency ``[n, n]`` without loops."""
    n, (row, column) = client.num_nodes, client.edges
    return sp.csr_matrix((np.ones(row.size), (row, column)), shape=(n, n))


def _symmetric(matrix: sp.csr_matrix) -> sp.csr_matrix:
    degree = np.asarray(matrix.sum(1)).ravel()
    scale = sp.diags(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return (scale @ matrix @ scale).tocsr()


def gcn_operator(client: ClientGraph) -> sp.csr_matrix:
    """(D+I)^-1/2 (A+I) (D+I)^-1/2: the symmetric normalisation with self loops (Kipf & Welling, ICLR 2017)."""
    return _symmetric((adjacency(client) + sp.eye(client.num_nodes)).tocsr())


def plain_operator(client: ClientGraph) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2, with a zero row for an isolated node."""
    return _symmetric(adjacency(client))


def mean_operator(client: ClientGraph) -> sp.csr_matrix:
    """D^-1 A: the mean over the neighbours, 0 for an isolated node."""
    matrix = adjacency(client)
    degree = np.asarray(matrix.sum(1)).ravel()
    return (sp.diags(np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)) @ matrix).tocsr()


class DenseBlocks:
    """Dense input features ``[k, n, F]`` with the interface of :class:`BlockSparse`."""

    def __init__(self, values: Tensor):
        self.values = values
        self.shape = tuple(values.shape)

    def select(self, rows: Sequence[int]) -> DenseBlocks:
        return DenseBlocks(self.values[torch.as_tensor(rows, device=self.values.device)])

    def __matmul__(self, weight: Tensor) -> Tensor:
        """``[k, F, h]`` to ``[k, n, h]``."""
        return torch.bmm(self.values, weight)


class Batch:
    """k replicas side by side: replica i holds one client graph, padded to the largest.

    Attributes:
        size, nodes: k and n, the number of replicas and of node slots.
        features: ``[k, n, F]`` input features; ``features @ weight`` is the one thing that can be done with them.
        labels: ``[k, n]`` int64, 0 in padding.
        valid, train, val, test: ``[k, n]`` bool.
        degree: ``[k, n]`` degrees without self loops.
        num_nodes, num_train: ``[k]`` host counts.
        replicas: ``[k]`` int64, which replicas of the whole run these are.
    """

    def __init__(self, clients: Sequence[ClientGraph], dtype: torch.dtype, device: torch.device | str):
        device = torch.device(device)
        self.clients, self.dtype, self.device = tuple(clients), dtype, device
        self.size, self.nodes = len(clients), max(client.num_nodes for client in clients)
        self.features = self._stack_features()
        self.labels = self._stack([np.maximum(client.labels, 0) for client in clients], torch.int64)
        self.valid = self._stack([np.ones(client.num_nodes, bool) for client in clients], torch.bool)
        self.train, self.val, self.test = (
            self._stack([getattr(client, mask) for client in clients], torch.bool) for mask in ("train", "val", "test")
        )
        self.degree = self._stack([np.bincount(client.edges[0], minlength=client.num_nodes) for client in clients], dtype)
        self.num_nodes = np.array([client.num_nodes for client in clients])
        self.num_train = np.array([int(client.train.sum()) for client in clients])
        self.replicas = torch.arange(self.size, device=device)
        self._operators: dict[Operator, BlockSparse] = {}
        self._parent: tuple[Batch, tuple[int, ...]] | None = None

    def _stack(self, arrays: Sequence[np.ndarray], dtype: torch.dtype) -> Tensor:
        out = np.zeros((self.size, self.nodes), dtype=arrays[0].dtype)
        for i, array in enumerate(arrays):
            out[i, : array.size] = array
        return torch.from_numpy(out).to(self.device, dtype)

    def _stack_features(self) -> BlockSparse | DenseBlocks:
        blocks = [client.features for client in self.clients]
        if not is_dense(blocks, self.device):
            return BlockSparse.stack([sp.csr_matrix(b) for b in blocks], self.nodes, blocks[0].shape[1], self.dtype, self.device)
        out = torch.zeros(self.size, self.nodes, blocks[0].shape[1], dtype=self.dtype)
        for i, block in enumerate(blocks):
            out[i, : block.shape[0]] = torch.from_numpy(block.toarray() if sp.issparse(block) else np.asarray(block))
        return DenseBlocks(out.to(self.device))

    @cached_property
    def training_nodes(self) -> TrainingNodes:
        """Where the loss is taken."""
        index = self.train.flatten().nonzero()[:, 0]
        each = 1 / self.train.sum(1).clamp(min=1).to(self.dtype)
        return TrainingNodes(index, self.labels.flatten()[index], each[index // self.nodes])

    def operator(self, build: Operator) -> BlockSparse:
        """The block-diagonal matrix that ``build`` makes of every client graph, made once."""
        if build not in self._operators:
            if self._parent is None:
                blocks = [build(client) for client in self.clients]
                self._operators[build] = BlockSparse.stack(blocks, self.nodes, self.nodes, self.dtype, self.device)
            else:
                parent, rows = self._parent
                self._operators[build] = parent.operator(build).select(rows)
        return self._operators[build]

    def select(self, rows: Sequence[int]) -> Batch:
        """The replicas ``rows`` (host integers) as a batch of their own; padding stays, so numbers stay."""
        rows = tuple(int(i) for i in rows)
        part = object.__new__(Batch)
        part.clients = tuple(self.clients[i] for i in rows)
        part.dtype, part.device, part.size, part.nodes = self.dtype, self.device, len(rows), self.nodes
        part.features = self.features.select(rows)
        index = torch.as_tensor(rows, device=self.device)
        for name in ("labels", "valid", "train", "val", "test", "degree", "replicas"):
            setattr(part, name, getattr(self, name)[index])
        part.num_nodes, part.num_train = self.num_nodes[list(rows)], self.num_train[list(rows)]
        part._operators, part._parent = {}, (self, rows)
        return part
