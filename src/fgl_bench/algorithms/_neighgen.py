"""FedSage+'s generators of neighbors, and clients' graphs with the generated neighbors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, InputFeatures, Limited, Operator, adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.linear import ragged
from fgl_bench.engine.network import Network
from fgl_bench.engine.random_numbers import normal
from fgl_bench.engine.sparse import Bags
from fgl_bench.engine.transfer import put
from fgl_bench.models.graphsage import Convolved, GraphSAGE
from fgl_bench.utils.seeding import derive_seed


class Generated(NamedTuple):
    """Generated neighbors of some nodes, slot by slot.

    Attributes:
        features: ``[k, m_j, F]`` for every slot j in use, of the first m_j of ``nodes``.
        nodes: ``[k, m]``, distinct nodes in descending order of their slots.
        count: ``[k, m]``, number of slots per node.
    """

    features: list[Tensor]
    nodes: Tensor
    count: Tensor  # type: ignore[assignment]  # it hides tuple.count

    def slots(self, most: int) -> Tensor:
        """Return positions ``[k, sum of m_j]`` among the ``most`` slots of all nodes."""
        return torch.cat([self.nodes[:, : rows.shape[1]] * most + slot for slot, rows in enumerate(self.features)], 1)

    def products(self, weight: Tensor) -> Tensor:
        """Return the features times ``weight [k, F, h]``, ``[k, sum of m_j, h]``."""
        return torch.cat([torch.bmm(rows, weight) for rows in self.features], 1)

    def sums(self) -> Tensor:
        """Return the sum of each node's generated neighbors, ``[k, m_0, F]``."""
        return _Summed.apply(self.count, *self.features)


class _Summed(torch.autograd.Function):
    """The sum of blocks ``[k, m_j, F]``, j = 0, 1, ..., over the rows with more than j slots."""

    @staticmethod
    def forward(ctx: Any, count: Tensor, *blocks: Tensor) -> Tensor:
        ctx.has = [(count[:, : block.shape[1], None] > j).to(block.dtype) for j, block in enumerate(blocks)]
        total = blocks[0] * ctx.has[0]
        for block, has in zip(blocks[1:], ctx.has[1:], strict=True):
            total[:, : block.shape[1]].addcmul_(block, has)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(gradient[:, : has.shape[1]] * has for has in ctx.has)


class _Interleaved(Convolved):
    """Features of every real node followed by those of its P slots; zero for unused slots.

    Args:
        whole: generated neighbors with their own output.
        near: generated neighbors that only contribute to means, or None.
    """

    def __init__(self, real: InputFeatures, whole: Generated, near: Generated | None, most: int):
        self.real, self.whole, self.near, self.most = real, whole, near, most
        self.slots = whole.slots(most)

    def __matmul__(self, weight: Tensor) -> Tensor:
        assert self.near is None
        real = self.real @ weight
        return _interleaved(real, self._own(weight, real.shape[1]))

    def _own(self, weight: Tensor, nodes: int) -> Tensor:
        """Return the products of the slots, ``[k, n, P, h]``."""
        return scattered(self.whole.products(weight), self.slots, nodes * self.most).unflatten(1, (-1, self.most))

    def convolved(self, batch: Batch, weight: Tensor) -> Tensor:
        """As :class:`Convolved`; the sum over a node's slots is multiplied once, and only used slots are computed.

        Args:
            batch: the :class:`AugmentedGraph` with these features.
        """
        (near, own), graph = weight.chunk(2, -1), cast(AugmentedGraph, batch)
        real_near, real_own = (self.real @ weight).chunk(2, -1)
        n = real_near.shape[1]
        sums = graph.batch.operator(adjacency) @ real_near
        for part in (self.whole, self.near):
            if part is not None:
                summed = part.sums()
                sums = sums + scattered(torch.bmm(summed, near), part.nodes[:, : summed.shape[1]], n)
        real = sums / graph.degree.unflatten(1, (n, -1))[:, :, :1].clamp(min=1) + real_own
        return _interleaved(real, real_near[:, :, None] * graph.slots[..., None] + self._own(own, n))


def _interleaved(real: Tensor, generated: Tensor) -> Tensor:
    """Interleave ``[k, n, h]`` and ``[k, n, P, h]`` to ``[k, n (1 + P), h]``."""
    return torch.cat([real[:, :, None], generated], 2).flatten(1, 2)


class _Limited(Limited):
    refusal = "cannot train this backbone on augmented graphs, which have no {name}"


class AugmentedGraph(_Limited):
    """Impaired graphs with generated neighbors, as input of a backbone instead of a batch; differentiable in the features.

    Nodes: every real node followed by its P slots, ``n (1 + P)`` in total (so that dropout does not depend on padding). A slot in
    use is joined with its node in both directions.

    Args:
        slots: ``[k, n, P]`` bool, slots in use.
        whole, near: the generated neighbors with their own output, and those that only contribute to means; see
            :func:`seen`.
    """

    def __init__(self, batch: Batch, slots: Tensor, whole: Generated, near: Generated | None = None):
        self.batch, self.slots = batch, slots.to(batch.dtype)
        self.features = _Interleaved(batch.features, whole, near, slots.shape[2])
        degree = (batch.degree + self.slots.sum(-1))[..., None]
        self.degree = torch.cat([degree, self.slots], 2).flatten(1, 2)
        self.valid = self.reference = torch.cat([batch.valid[..., None], slots], 2).flatten(1, 2)

    def real(self, x: Tensor) -> Tensor:
        """Return the real nodes' rows, ``[k, n (1 + P), h]`` to ``[k, n, h]``."""
        return x.unflatten(1, (self.batch.nodes, -1))[:, :, 0]

    def neighbors(self, x: Tensor) -> Tensor:
        """Sum over neighbors, ``[k, n (1 + P), h]`` to the same shape."""
        slots, generated, real = self.slots[..., None], x.unflatten(1, (self.batch.nodes, -1))[:, :, 1:], self.real(x)
        near = self.batch.operator(adjacency) @ real + (generated * slots).sum(2)
        return torch.cat([near[:, :, None], real[:, :, None] * slots], 2).flatten(1, 2)

    def operator(self, build: Operator) -> _Operator:
        if build not in OPERATORS:
            self.__getattr__(build.__name__)
        return _Operator(self, OPERATORS[build])


@dataclass
class _Operator(_Limited):
    graph: AugmentedGraph
    apply: Callable[[AugmentedGraph, Tensor], Tensor]

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.apply(self.graph, x)


def _mean(graph: AugmentedGraph, x: Tensor) -> Tensor:
    return graph.neighbors(x) / graph.degree.clamp(min=1)[..., None]


def _symmetric(graph: AugmentedGraph, x: Tensor) -> Tensor:
    scale = (graph.degree + 1).rsqrt()[..., None]
    return scale * (graph.neighbors(scale * x) + scale * x)


def _without_loops(graph: AugmentedGraph, x: Tensor) -> Tensor:
    scale = torch.where(graph.degree > 0, graph.degree.clamp(min=1).rsqrt(), 0.0)[..., None]
    return scale * graph.neighbors(scale * x)


OPERATORS = {mean_operator: _mean, gcn_operator: _symmetric, plain_operator: _without_loops, adjacency: AugmentedGraph.neighbors}


def scattered(rows: Tensor, index: Tensor, count: int) -> Tensor:
    """Return ``[k, count, h]`` with row ``index[i, j]`` equal to ``rows[i, j]`` and zeros elsewhere."""
    return rows.new_zeros(len(rows), count, rows.shape[2]).scatter(1, index[..., None].expand_as(rows), rows)


class AugmentedFeatures(Convolved):
    """Input features of augmented graphs: original features of real nodes, dense features of generated nodes.

    Args:
        real: ``[k, n, F]``, zero for generated nodes.
        means: of some real nodes, the sum of their generated neighbors divided by their degree.
        generated: features of generated nodes.
    """

    def __init__(self, real: InputFeatures, means: DenseRows, generated: DenseRows):
        self.real, self.means, self.generated, self.shape = real, means, generated, real.shape
        self.nodes = torch.cat([means.nodes, generated.nodes], 1)

    def select(self, rows: Sequence[int]) -> AugmentedFeatures:
        return AugmentedFeatures(self.real.select(rows), self.means.select(rows), self.generated.select(rows))

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.real @ weight + scattered(self.generated @ weight, self.generated.nodes, self.shape[1] + 1)[:, :-1]

    def convolved(self, batch: Batch, weight: Tensor) -> Tensor:
        """As :class:`Convolved`: a generated node has one real neighbor; a real node adds the mean of its generated neighbors."""
        near, own = weight.chunk(2, -1)
        real_near, real_own = (self.real @ weight).chunk(2, -1)
        products = torch.cat([self.means @ near, self.generated @ own], 1)
        return batch.operator(mean_operator) @ real_near + real_own + scattered(products, self.nodes, self.shape[1] + 1)[:, :-1]


@dataclass
class DenseRows:
    """Feature rows of some nodes.

    Attributes:
        values: ``[k, m, F]``; zeros in padding.
        nodes: ``[k, m]``, nodes of the rows; the number of nodes in padding.
        counts: rows of each replica.
    """

    values: Tensor
    nodes: Tensor
    counts: list[int]

    @classmethod
    def of(cls, blocks: Sequence[Tensor], nodes: Sequence[np.ndarray], end: int) -> DenseRows:
        """Stack every replica's rows ``[m_i, F]`` and their nodes, of ``end`` nodes."""
        counts = [len(block) for block in blocks]
        values = blocks[0].new_zeros(len(blocks), max(counts), blocks[0].shape[1])
        index = np.full((len(blocks), max(counts)), end)
        for i, count in enumerate(counts):
            values[i, :count], index[i, :count] = blocks[i], nodes[i]
        return cls(values, put(index, values.device), counts)

    def select(self, rows: Sequence[int]) -> DenseRows:
        index = put(rows, self.nodes.device)
        return DenseRows(self.values[index], self.nodes[index], [self.counts[i] for i in rows])

    def __matmul__(self, weight: Tensor) -> Tensor:
        """Return the rows times ``weight [k, F, h]``, ``[k, m, h]``."""
        return ragged(self.values, weight, self.counts)


def augmented(batch: Batch, slots: np.ndarray, generated: Sequence[Tensor], owners: Sequence[np.ndarray | None] = (None,)) -> list[Batch]:
    """Return ``batch`` with ``slots[i, v]`` new neighbors of node v of replica i, with features ``generated[i]`` in order of v.

    Args:
        owners: for every graph to return ``[k, n]`` bool, the nodes whose generated neighbors have their own features; other generated
            neighbors have zeros and only contribute to means. None: all.
    """
    if not slots.any():
        return [batch] * len(owners)
    clients = [_extended(client, count[: client.num_nodes]) for client, count in zip(batch.clients, slots, strict=True)]
    whole, graphs = Batch(clients, batch.dtype, batch.device, batch.feature_dtype), []
    sums = [_means(*each) for each in zip(generated, slots, whole.degree, strict=True)]
    means = DenseRows.of(sums, [np.flatnonzero(count) for count in slots], whole.nodes)
    for chosen in owners:
        owned = [np.repeat(np.ones(count.shape, bool) if chosen is None else chosen[i], count) for i, count in enumerate(slots)]
        own = [rows if keep.all() else rows[put(np.flatnonzero(keep), rows.device)] for rows, keep in zip(generated, owned, strict=True)]
        columns = [client.num_nodes + np.flatnonzero(keep) for client, keep in zip(batch.clients, owned, strict=True)]
        graph = copy(whole)
        graph.features, graph._derived = AugmentedFeatures(whole.features, means, DenseRows.of(own, columns, whole.nodes)), {}
        graphs.append(graph)
    return graphs


def _means(rows: Tensor, count: np.ndarray, degree: Tensor) -> Tensor:
    """Return, for every node v with ``count[v]`` of the ``rows`` (in order of v), their sum divided by ``degree[v]``, ``[m, F]``."""
    has = np.flatnonzero(count)
    count, start = count[has], (np.cumsum(count) - count)[has]
    total = rows[put(start, rows.device)]
    for position in range(1, count.max(initial=0)):
        more = np.flatnonzero(count > position)
        total[put(more, rows.device)] += rows[put(start[more] + position, rows.device)]
    return total / degree[put(has, rows.device)][:, None]


def seen(model: Network, batch: Batch, mask: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return where generated neighbors affect the outputs of nodes ``mask [k, n]``: fully, and through means, ``[k, n]`` bool each.

    In GraphSAGE with L layers, their own first layer matters within L - 2 hops, and that of their real node within L - 1. Other
    backbones may use all of them.
    """
    masks = np.ones((2, *mask.shape), dtype=bool)
    if isinstance(model, GraphSAGE):
        for hops, kind in zip((model.layers - 2, model.layers - 1), masks, strict=True):
            for row, client, nodes in zip(kind, batch.clients, mask.cpu().numpy(), strict=True):
                row[:] = within(client, nodes, max(hops, 0))
    return masks[0], masks[1]


def within(client: ClientGraph, nodes: np.ndarray, hops: int) -> np.ndarray:
    """Return the nodes within ``hops`` hops of ``nodes [n]`` (bool), ``[n]`` bool."""
    reached = nodes
    for _ in range(hops):
        row, column = client.edges
        reached, before = reached.copy(), reached
        reached[row[before[column]]] = True
    return reached


def _extended(client: ClientGraph, count: np.ndarray) -> ClientGraph:
    """Return ``client`` with ``count[v]`` additional neighbors of node v, without features, labels and masks."""
    real = np.repeat(np.arange(client.num_nodes), count)
    new = client.num_nodes + np.arange(real.size)
    edges = np.concatenate([client.edges, np.stack([real, new]), np.stack([new, real])], 1)
    features: np.ndarray | sp.csr_matrix
    if not isinstance(client.features, np.ndarray):
        features = client.features.tocsr(copy=True)
        features.resize(client.num_nodes + real.size, features.shape[1])  # type: ignore[call-arg, arg-type]  # the stubs take Never
    else:
        features = np.concatenate([client.features, np.zeros((real.size, client.features.shape[1]), client.features.dtype)])
    masks = {name: np.append(getattr(client, name), np.zeros(real.size, dtype=bool)) for name in ("train", "val", "test")}
    return ClientGraph(
        nodes=np.append(client.nodes, np.full(real.size, -1)),
        features=features,
        edges=np.ascontiguousarray(edges[:, np.lexsort((edges[1], edges[0]))]),
        labels=np.append(client.labels, np.full(real.size, -1)),
        present=None if client.present is None else np.append(client.present, np.ones(real.size, dtype=bool)),
        **masks,
    )


def generator_layout(encoder: GraphSAGE, features: int, latent: int, hidden: Sequence[int], generated: int) -> ParameterLayout:
    """Return the layout of encoder, degree head and feature head; the latter generates ``generated`` scalars per node."""
    shapes = dict(encoder.layout(features, latent).shapes)
    shapes["degree.weight"], shapes["degree.bias"] = (latent, 1), (1,)
    widths = [latent, *hidden, generated]
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
        shapes[f"feature{i}.weight"], shapes[f"feature{i}.bias"] = (wide, narrow), (narrow,)
    return ParameterLayout(shapes, inputs=("conv0.weight",))


def initial(encoder: GraphSAGE, layout: ParameterLayout, seed: int, degree: float | None = 1.0) -> Tensor:
    """Return initial parameters ``[P]``, uniform within 1/sqrt(in), except for the degree's bias ``degree`` (None: uniform too)."""
    parameters = encoder.init_parameters(layout, torch.Generator().manual_seed(derive_seed(seed, "fedsage_plus", "generator")))
    if degree is not None:
        # With a negative initial bias the ReLU would be dead in every node.
        parameters["degree.bias"].fill_(degree)
    return layout.pack(parameters)


class Neighborhoods:
    """Features and neighbors of all nodes of all replicas, on the host, as targets of generated features.

    Args:
        dtype: type of the features.

    Attributes:
        offsets: ``[B]``, start of each replica's nodes.
    """

    def __init__(self, clients: Sequence[ClientGraph], per_seed: int, dtype: type[np.floating] = np.float64):
        self.per_seed = per_seed
        sizes = np.array([client.num_nodes for client in clients])
        self.offsets = np.cumsum(sizes) - sizes
        self.features = sp.vstack([sp.csr_matrix(client.features, dtype=dtype) for client in clients]).tocsr()
        self.square = np.asarray(self.features.multiply(self.features).sum(1, dtype=np.float64)).ravel()
        edges = np.concatenate([client.edges + offset for client, offset in zip(clients, self.offsets, strict=True)], 1)
        edges = edges[:, np.lexsort((edges[1], edges[0]))]
        self.columns = np.append(edges[1], 0)
        self.degree = np.bincount(edges[0], minlength=sizes.sum())
        self.start = np.cumsum(self.degree) - self.degree
        self.joined = np.append(np.flatnonzero(self.degree), 0)
        owner = np.repeat(np.arange(sizes.size), sizes)
        self.count = np.bincount(owner[self.degree > 0], minlength=sizes.size)
        self.first = np.cumsum(self.count) - self.count

    def draw(self, seeds: np.ndarray, node: np.ndarray, neighbor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw random neighborhoods in every client of the seed, with replacement.

        Args:
            seeds: ``[T]``.
            node, neighbor: uniform draws ``[T, C]`` and ``[T, C, P]``.

        Returns:
            node ids ``[T, C, P]``, and ``[T, C]`` bool, True if the client has a neighborhood.
        """
        replicas = seeds[:, None] * self.per_seed + np.arange(self.per_seed)
        exists = self.count[replicas] > 0
        chosen = self.joined[np.where(exists, self.first[replicas] + (node * self.count[replicas]).astype(np.int64), 0)]
        return self.columns[self.start[chosen][..., None] + (neighbor * self.degree[chosen][..., None]).astype(np.int64)], exists

    def nearest(self, generated: Tensor, ids: np.ndarray, valid: np.ndarray) -> Tensor:
        """Return each generated row's mean squared distance to the nearest valid target, ``[T, C, P]``; 0 without a valid target.

        Args:
            generated: ``[T, P, F]``.
            ids, valid: ``[T, C, K]`` targets.
        """
        return _Nearest.apply(generated, self, ids, valid)

    def dots(self, generated: Tensor, ids: np.ndarray) -> Tensor:
        """Return the products ``[T, C, K, P]`` of the targets ``ids [T, C, K]`` with their ``generated [T, P, F]``."""
        t, p, width = generated.shape
        targets = self.features[ids.ravel()]
        # Each target is a sparse row, multiplied only with the generated rows of its node.
        shift = np.repeat(np.arange(t).repeat(ids[0].size) * width, np.diff(targets.indptr))
        block = sp.csr_matrix((targets.data, targets.indices + shift, targets.indptr), shape=(ids.size, t * width))
        bags = Bags.of([block], ids.size, generated.dtype, generated.device)
        rows = generated.detach().mT.reshape(t * width, p)
        return bags.reduce(rows, t * width, 0, 0).view(*ids.shape, p)

    def weighted(self, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sums of the features of ``ids [m, C]`` with ``weights [m, C]``, ``[m, F]``."""
        m, c = ids.shape
        matrix = sp.csr_matrix((weights.ravel(), ids.ravel(), np.arange(m + 1) * c), shape=(m, len(self.square)), copy=True)
        matrix.eliminate_zeros()  # in place
        return (matrix @ self.features).toarray()


class _Nearest(torch.autograd.Function):
    """:meth:`Neighborhoods.nearest`; backward reads the nearest targets only."""

    @staticmethod
    def forward(ctx: Any, generated: Tensor, among: Neighborhoods, ids: np.ndarray, valid: np.ndarray) -> Tensor:
        square, allowed = (torch.from_numpy(x).to(generated.device) for x in (among.square[ids], valid))
        distance = generated.square().sum(-1)[:, None, None] - 2 * among.dots(generated, ids) + square[..., None].to(generated.dtype)
        nearest, nearest_index = torch.where(allowed[..., None], distance / generated.shape[2], torch.inf).min(2)
        ctx.save_for_backward(generated)
        ctx.among, ctx.exists, ctx.chosen = among, allowed.any(2)[..., None], np.take_along_axis(ids, nearest_index.cpu().numpy(), 2)
        return torch.where(ctx.exists, nearest, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (generated,), gradient = ctx.saved_tensors, torch.where(ctx.exists, gradient, 0.0)
        t, c, p = gradient.shape
        targets = ctx.among.weighted(ctx.chosen.swapaxes(1, 2).reshape(t * p, c), gradient.mT.reshape(t * p, c).cpu().numpy())
        targets = torch.from_numpy(targets).to(generated.device, generated.dtype).view(generated.shape)
        return 2 / generated.shape[2] * (gradient.sum(1)[..., None] * generated - targets), None, None, None


def described(
    encoder: GraphSAGE, views: dict[str, Tensor], batch: Batch, noise: Tensor, dropout: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return degrees ``[k, n]`` of all nodes, and the input of the generator's last layer, ``[k, n, h]``."""
    latent = encoder.forward(views, batch, encoder.first(views, batch), dropout).logits
    degree = torch.relu(torch.baddbmm(views["degree.bias"][:, None], latent, views["degree.weight"]))[..., 0]
    hidden = latent + normal(noise.to(batch.device), batch.nodes, latent.shape[2], batch.dtype)
    last = last_layer(views)
    for i in range(last):
        hidden = torch.relu(torch.baddbmm(views[f"feature{i}.bias"][:, None], hidden, views[f"feature{i}.weight"]))
        hidden = dropout(hidden) if i == last - 1 else hidden
    return degree, hidden


def last_layer(views: dict[str, Tensor]) -> int:
    """Return the number of the feature generator's last layer."""
    return sum(name.startswith("feature") and name.endswith(".weight") for name in views) - 1


def features_of(views: dict[str, Tensor], hidden: Tensor, sizes: Sequence[int], most: int) -> list[Tensor]:
    """Return features of generated neighbors, slot by slot.

    Args:
        hidden: ``[k, m, h]``, input of the last layer for m nodes.
        sizes: for every slot in use, the number of nodes that use it; these nodes come first.
        most: P, slots per node.

    Returns:
        ``[k, size, F]`` for every one of ``sizes``.
    """
    weight, bias = (views[f"feature{last_layer(views)}.{name}"] for name in ("weight", "bias"))
    layers = zip(weight.chunk(most, 2), bias[:, None].chunk(most, 2), sizes, strict=False)  # chunks share one gradient in backward
    return [torch.tanh(torch.baddbmm(b, hidden[:, :size], w)) for w, b, size in layers]


def used_slots(degree: Tensor, visible: Tensor, most: int) -> Tensor:
    """Return the slots in use ``[k, n, P]`` bool: the first floor(degree) slots of every visible node; P = ``most``."""
    return (torch.arange(most, device=degree.device) < degree.detach().floor()[..., None]) & visible[..., None]


def needed(views: dict[str, Tensor], hidden: Tensor, slots: Tensor) -> Generated:
    """Return the generated features of ``slots [k, n, P]``, and few others, from ``hidden [k, n, h]``."""
    count, nodes = slots.sum(2).sort(dim=1, descending=True, stable=True)
    sizes = [size for size in slots.sum(1).amax(0).tolist() if size] or [1]
    first = nodes[:, : sizes[0], None].expand(-1, -1, hidden.shape[2])
    return Generated(features_of(views, hidden.gather(1, first), sizes, slots.shape[2]), nodes, count)


def in_order(views: dict[str, Tensor], hidden: Tensor, slots: Tensor) -> list[Tensor]:
    """Return each replica's generated features of ``slots [k, n, P]``, ``[m_i, F]``, by node and slot."""
    (weight, bias), features = (views[f"feature{last_layer(views)}.{name}"] for name in ("weight", "bias")), []
    for matrix, offset, rows, used in zip(weight, bias, hidden, slots, strict=True):
        node, slot = used.nonzero(as_tuple=True)
        layers = list(zip(matrix.chunk(used.shape[1], 1), offset.chunk(used.shape[1]), strict=True))
        values = rows.new_empty(len(node), layers[0][0].shape[1])
        for j, (w, b) in enumerate(layers):
            at = (slot == j).nonzero()[:, 0]
            values[at] = torch.tanh(torch.addmm(b, rows[node[at]], w))
        features.append(values)
    return features
