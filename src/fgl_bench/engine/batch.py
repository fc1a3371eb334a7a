"""The graphs of many replicas as stacked tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.graph_set import ClientOfGraphs
from fgl_bench.data.storage import release
from fgl_bench.engine import Bool, Float, Int
from fgl_bench.engine.derived import Derived, DerivedBlocks
from fgl_bench.engine.linear import product
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.transfer import put
from fgl_bench.errors import Unsuited

# Above this share of non-zero entries a dense product is faster. On a CPU measured with Photo and Computers (35 % filled: the
# sparse product takes two thirds of the time); on a GPU a guess, its matrix units are that much faster than its gathers.
DENSE_ABOVE = {"cpu": 0.5, "cuda": 0.1}


class TrainingNodes(NamedTuple):
    """The T training nodes of all replicas.

    Attributes:
        index: ``[T]`` positions in the flattened ``[k * m]`` examples.
        labels: ``[T]``, or ``[T, Y]``.
        weights: ``[T]``, 1 / the number of training nodes of the replica.
    """

    index: Int[Tensor, " T"]  # type: ignore[assignment]  # it hides tuple.index
    labels: Int[Tensor, " T"] | Float[Tensor, "T Y"]
    weights: Float[Tensor, " T"]


class ScoredNodes(NamedTuple):
    """The nodes that scores count.

    Attributes:
        unscored: ``[k, n]`` bool, all others.
        each: ``[k, n, 2]``, 1 for validation and for test nodes, else 0.
    """

    unscored: Bool[Tensor, "k n"]
    each: Float[Tensor, "k n 2"]

    @classmethod
    def of(cls, val: Bool[Tensor, "k n"], test: Bool[Tensor, "k n"], dtype: torch.dtype) -> ScoredNodes:
        return cls(~(val | test), torch.stack([val, test], -1).to(dtype))


Operator = Callable[[ClientGraph], sp.csr_matrix]


def nonzeros(blocks: Sequence[np.ndarray | sp.csr_matrix]) -> int:
    """Entries of these matrices that are not zero."""
    return sum(int(block.nnz if sp.issparse(block) else np.count_nonzero(block)) for block in blocks)


def is_dense(blocks: Sequence[np.ndarray | sp.csr_matrix], device: torch.device) -> bool:
    """Return True if the clients' input features ``[n, F]`` are multiplied as dense matrices; always True, without reading, on disk."""
    if any(isinstance(block, np.memmap) for block in blocks):
        return True
    return nonzeros(blocks) > DENSE_ABOVE.get(device.type, 0.5) * sum(block.shape[0] * block.shape[1] for block in blocks)


def adjacency(client: ClientGraph) -> sp.csr_matrix:
    """A: the client's symmetric 0/1 adjacency ``[n, n]`` without loops."""
    n, (row, column) = client.num_nodes, client.edges
    return sp.csr_matrix((np.ones(row.size), (row, column)), shape=(n, n))


def looped_operator(client: ClientGraph) -> sp.csr_matrix:
    """A + I: every node's neighbors and itself, for attention."""
    matrix = (adjacency(client) + sp.eye(client.num_nodes)).tocsr()
    matrix.sort_indices()
    return matrix


def _symmetric(matrix: sp.csr_matrix) -> sp.csr_matrix:
    degree = np.asarray(matrix.sum(1)).ravel()
    scale = sp.diags(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return (scale @ matrix @ scale).tocsr()


def gcn_operator(client: ClientGraph) -> sp.csr_matrix:
    """(D+I)^-1/2 (A+I) (D+I)^-1/2: the symmetric normalization with self loops (Kipf & Welling, ICLR 2017)."""
    return _symmetric((adjacency(client) + sp.eye(client.num_nodes)).tocsr())


def plain_operator(client: ClientGraph) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2, with a zero row for an isolated node."""
    return _symmetric(adjacency(client))


def mean_operator(client: ClientGraph) -> sp.csr_matrix:
    """D^-1 A: the mean over the neighbors, 0 for an isolated node."""
    matrix = adjacency(client)
    degree = np.asarray(matrix.sum(1)).ravel()
    return (sp.diags(np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)) @ matrix).tocsr()


class InputFeatures(Protocol):
    """Input features ``[k, n, F]``, however they are held."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def select(self, rows: Sequence[int]) -> InputFeatures: ...

    def __matmul__(self, weight: Tensor, /) -> Tensor: ...


class DenseBlocks:
    """Dense input features ``[k, n, F]`` with the interface of :class:`BlockSparse`."""

    def __init__(self, values: Float[Tensor, "k n F"]):
        self.values = values
        self.shape = tuple(values.shape)

    def select(self, rows: Sequence[int]) -> DenseBlocks:
        """The replicas ``rows`` (host integers): a view where they lie next to each other, else a copy."""
        if tuple(rows) == tuple(range(rows[0], rows[0] + len(rows))):
            return DenseBlocks(self.values[rows[0] : rows[0] + len(rows)])
        return DenseBlocks(self.values[put(rows, self.values.device)])

    def __matmul__(self, weight: Float[Tensor, "k F h"]) -> Float[Tensor, "k n h"]:
        """``[k, F, h]`` to ``[k, n, h]``."""
        return product(self.values, weight)


class Batch:
    """k replicas side by side: replica i holds one client graph, padded to the largest.

    Args:
        feature_dtype: type of dense features and of what is derived from features; None means ``dtype``. A product with them is
            made in it and returned in the weight's.

    Attributes:
        size, nodes, examples: k, n and m, the number of replicas, of node slots and of slots of examples.
            Examples have labels; where they are the nodes, m = n.
        features: ``[k, n, F]`` input features; ``features @ weight`` is their only operation.
        labels: ``[k, m]`` int64, or ``[k, m, Y]`` of 0 and 1 in the batch's type (several labels a node); 0 in padding.
        valid: ``[k, n]`` bool.
        train, val, test: ``[k, m]`` bool.
        degree: ``[k, n]`` degrees without self loops.
        num_nodes, num_train: ``[k]`` host counts.
        replicas: ``[k]`` int64, which replicas of the whole run these are.
        on_disk: True if the clients are stored in files. Features, operators and derived features are then read or computed for this batch
            at the first access, so that a batch of which only parts (:meth:`select`) are used holds no more than a part.
        per_federation: how many clients, one after the other, make up a federation (None: not known).
    """

    per_federation: int | None = None

    on_disk: bool = False

    rebuilt = ("_operators", "_derived", "_truth", "memo", "training_nodes", "scored")
    """Attributes that a checkpoint omits."""

    def __init__(
        self,
        clients: Sequence[ClientGraph],
        dtype: torch.dtype,
        device: torch.device | str,
        feature_dtype: torch.dtype | None = None,
    ):
        device = torch.device(device)
        self.clients, self.dtype, self.device, self.feature_dtype = tuple(clients), dtype, device, feature_dtype or dtype
        self.size, self.nodes = len(clients), max(client.num_nodes for client in clients)
        self.examples = max(len(client.labels) for client in clients)
        self.on_disk = clients[0].folder is not None
        if not self.on_disk:
            self.features = self._own = self._stack_features()
        kind = torch.int64 if clients[0].labels.ndim == 1 else dtype
        self.labels = self._stack([np.maximum(client.labels, 0) for client in clients], kind)
        present = [np.ones(c.num_nodes, bool) if c.present is None else c.present for c in clients]
        self.valid = self._stack(present, torch.bool)
        self.train, self.val, self.test = (
            self._stack([getattr(client, mask) for client in clients], torch.bool) for mask in ("train", "val", "test")
        )
        self.degree = self._stack([np.bincount(client.edges[0], minlength=client.num_nodes) for client in clients], dtype)
        self.num_nodes = np.array([int(mask.sum()) for mask in present])
        self.num_train = np.array([int(client.train.sum()) for client in clients])
        self.replicas = torch.arange(self.size, device=device)
        self._operators: dict[Operator, BlockSparse] = {}
        self._derived: dict[Derived, DerivedBlocks] = {}
        self._parent: tuple[Batch, tuple[int, ...]] | None = None

    def _stack(self, arrays: Sequence[np.ndarray], dtype: torch.dtype) -> Float[Tensor, "k n ..."]:
        out = np.zeros((self.size, max(map(len, arrays)), *arrays[0].shape[1:]), dtype=arrays[0].dtype)
        for i, array in enumerate(arrays):
            out[i, : len(array)] = array
        return torch.from_numpy(out).to(self.device, dtype)

    def _stack_features(self) -> InputFeatures:
        blocks = [client.features for client in self.clients]
        rows = [block.shape[0] for block in blocks]
        assert rows == [client.num_nodes for client in self.clients], "clients reduced to their labeled nodes have no features of their own"
        if not is_dense(blocks, self.device):
            return BlockSparse.stack([sp.csr_matrix(b) for b in blocks], self.nodes, blocks[0].shape[1], self.dtype, self.device)
        out = torch.zeros(self.size, self.nodes, blocks[0].shape[1], dtype=self.feature_dtype)
        for i, block in enumerate(blocks):
            out[i, : block.shape[0]] = torch.from_numpy(block.toarray() if sp.issparse(block) else np.array(block))
            release(block)
        return DenseBlocks(out.to(self.device))

    @cached_property
    def features(self) -> InputFeatures:
        self._own = self._stack_features()
        return self._own

    @cached_property
    def training_nodes(self) -> TrainingNodes:
        """The nodes of the loss."""
        index = put(np.concatenate([i * self.examples + np.flatnonzero(c.train) for i, c in enumerate(self.clients)]), self.device)
        each = 1 / torch.from_numpy(self.num_train).clamp(min=1).to(self.dtype)
        weights = put(np.repeat(each.numpy(), self.num_train), self.device)
        return TrainingNodes(index, self.labels.flatten(0, 1).index_select(0, index), weights)

    @cached_property
    def scored(self) -> ScoredNodes:
        """The nodes of the scores."""
        return ScoredNodes.of(self.val, self.test, self.dtype)

    def truth(self, classes: int) -> Float[Tensor, "k n Y"]:
        """``[k, n, Y]``, the one-hot labels of training nodes and 0 elsewhere, made once; for one class a node."""
        if classes not in self._truth:
            self._truth[classes] = F.one_hot(self.labels, classes).to(self.dtype) * self.train[..., None]
        return self._truth[classes]

    @cached_property
    def _truth(self) -> dict[int, Tensor]:
        return {}

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Results that a network computes of this batch once, by a key of its own."""
        return {}

    @cached_property
    def labeled(self) -> Bool[Tensor, "k m"]:
        """True where a slot holds an example."""
        if self.clients[0].of_nodes:
            return self.valid
        counts = put([len(client.labels) for client in self.clients], self.device)
        return torch.arange(self.examples, device=self.device) < counts[:, None]

    @cached_property
    def reference(self) -> Bool[Tensor, "k n"]:
        """The nodes over which batch normalization takes mean and variance."""
        each = [client.reference for client in self.clients]
        if each[0] is None:
            return self.valid
        return self._stack([np.pad(mask, (0, self.nodes - len(mask))) for mask in each if mask is not None], torch.bool)

    @cached_property
    def graph_sizes(self) -> np.ndarray:
        """Number of nodes of each graph, host ``[k, m]``, where examples are graphs."""
        return np.stack([np.bincount(cast(ClientOfGraphs, client).graph, minlength=self.examples) for client in self.clients])

    def operator(self, build: Operator, rows: int | None = None) -> BlockSparse:
        """The block-diagonal matrix that ``build`` makes of every client graph, made once.

        Args:
            rows: of each block, ``examples`` for a matrix ``[m, n]``; None means ``nodes``.
        """
        if build not in self._operators:
            if self._parent is None:
                blocks = [build(client) for client in self.clients]
                self._operators[build] = BlockSparse.stack(blocks, rows or self.nodes, self.nodes, self.dtype, self.device)
            else:
                parent, own = self._parent
                self._operators[build] = parent.operator(build, rows).select(own)
        return self._operators[build]

    @property
    def pristine(self) -> bool:
        """Return True if the features are the clients' own; a method may replace them."""
        return self._parent[0].pristine if self._parent else "features" not in self.__dict__ or self.features is self._own

    def derived(self, build: Derived) -> DerivedBlocks:
        """The dense matrices that ``build`` makes of every client's graph and the features held here, made once."""
        if build not in self._derived:
            if self._parent is None:
                clients: Sequence[ClientGraph] = self.clients if self.pristine else [self._held(i) for i in range(self.size)]
                clients = build.among(clients, self.per_federation)
                self._derived[build] = DerivedBlocks.of(build, clients, self.nodes, self.dtype, self.device, self.feature_dtype)
            else:
                parent, rows = self._parent
                self._derived[build] = parent.derived(build).select(rows)
        return self._derived[build]

    def _held(self, i: int) -> ClientGraph:
        """Client i with the features that replace its own."""
        unit = torch.eye(self.features.shape[2], dtype=self.dtype, device=self.device)[None]
        features = (self.features.select([i]) @ unit)[0].detach().cpu().numpy()
        return replace(self.clients[i], features=features[: self.clients[i].num_nodes])

    def unload(self) -> None:
        """Release what was read or computed for clients on disk; the next access reads it again. No effect on clients in memory."""
        if self.on_disk and self.pristine:
            self.__dict__.pop("features", None)
            self.__dict__.pop("_own", None)
            self._operators.clear()
            self._derived.clear()

    def select(self, rows: Sequence[int]) -> Batch:
        """The replicas ``rows`` (host integers) as a batch of their own; the padding does not change, so neither do the numbers."""
        rows = tuple(int(i) for i in rows)
        part = object.__new__(Batch)
        part.clients = tuple(self.clients[i] for i in rows)
        part.dtype, part.device, part.size = self.dtype, self.device, len(rows)
        part.nodes, part.examples = self.nodes, self.examples
        part.feature_dtype = self.feature_dtype
        part.on_disk = self.on_disk and self.pristine
        if not part.on_disk:
            part.features = self.features.select(rows)
        index = put(rows, self.device)
        for name in ("labels", "valid", "train", "val", "test", "degree", "replicas"):
            setattr(part, name, getattr(self, name)[index])
        part.num_nodes, part.num_train = self.num_nodes[list(rows)], self.num_train[list(rows)]
        part._operators, part._derived, part._parent = {}, {}, None if part.on_disk else (self, rows)
        return part


class Limited:
    """Base of stand-ins for a batch or an operator that support only some attributes; raises Unsuited for the others.

    Class attributes:
        refusal: the message, with ``{name}`` for the name of the attribute.
    """

    refusal: ClassVar[str]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsuited(self.refusal.format(name=name))
