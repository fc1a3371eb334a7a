"""FedSage+'s neighbor generators: parameters, generated features, and target neighborhoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fgl_bench.algorithms.fedsage_plus._mending import Generated
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.bags import Bags
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.random_numbers import normal
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.utils.seeding import derive_seed


def generator_layout(encoder: GraphSAGE, features: int, latent: int, hidden: Sequence[int], most: int) -> ParameterLayout:
    """Return the layout of encoder, degree head and feature head."""
    shapes = dict(encoder.layout(features, latent).shapes)
    shapes["degree.weight"], shapes["degree.bias"] = (latent, 1), (1,)
    widths = [latent, *hidden, most * features]
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
        shapes[f"feature{i}.weight"], shapes[f"feature{i}.bias"] = (wide, narrow), (narrow,)
    return ParameterLayout(shapes, inputs=("conv0.weight",))


def initial(encoder: GraphSAGE, layout: ParameterLayout, seed: int) -> Tensor:
    """Return initial parameters ``[P]``, uniform within 1/sqrt(in), except for the degree's bias of 1."""
    parameters = encoder.init_parameters(layout, torch.Generator().manual_seed(derive_seed(seed, "fedsage_plus", "generator")))
    # With a negative initial bias the ReLU would be dead in every node.
    parameters["degree.bias"].fill_(1.0)
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
        nearest, which = torch.where(allowed[..., None], distance / generated.shape[2], torch.inf).min(2)
        ctx.save_for_backward(generated)
        ctx.among, ctx.exists, ctx.chosen = among, allowed.any(2)[..., None], np.take_along_axis(ids, which.cpu().numpy(), 2)
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
        node, place = used.nonzero(as_tuple=True)
        layers = list(zip(matrix.chunk(used.shape[1], 1), offset.chunk(used.shape[1]), strict=True))
        values = rows.new_empty(len(node), layers[0][0].shape[1])
        for j, (w, b) in enumerate(layers):
            at = (place == j).nonzero()[:, 0]
            values[at] = torch.tanh(torch.addmm(b, rows[node[at]], w))
        features.append(values)
    return features
