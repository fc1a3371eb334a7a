"""FED-PUB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds, Setting, Traffic
from fgl_bench.algorithms.powers import Comparing, TrainedScore
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Mixing, cosine, normalize
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import LocalStep, Score, Trips
from fgl_bench.errors import SHARE, Range, at_least
from fgl_bench.models.base import Around, Backbone
from fgl_bench.models.gcn import GCN
from fgl_bench.utils.seeding import generator

MASK = "mask."


@dataclass
class FedPub(ServerRounds, Comparing, TrainedScore):
    """Personal averages by functional similarity, with personal sparse masks (Baek et al., ICML 2023; its code).

    Every weight matrix W has a mask mu of its shape that never leaves the client; the network computes with ``W * mu``, in
    evaluation without the entries where ``|mu| < sparsity``. A client minimizes
    ``CE + sparsity ||mu||_1 + proximity sum over matrices ||W - W_received||_2`` (the last term not in round 0) and sends W with
    its functional embedding e_i: the mean over the nodes of a random proxy graph, the same for all clients, of what
    the network makes of them. The server answers with ``M_ij = exp(tau cos(e_i, e_j)) / sum_k exp(tau cos(e_i, e_k))``.

    Resolutions: both terms have gradients, as in the paper (``reg=inert``: the released code takes them from detached tensors);
    biases have no masks and no terms; the norm is ``sqrt(||.||^2 + 1e-12)``, so that its gradient is zero, not undefined, at the
    received model (with one local epoch the term is inert), and has no matrices of a client's own (``split=domains``); tau as in the
    released scripts for disjoint clients. What e_i averages is the last convolution before its nonlinearity in a GCN with a linear head
    (the authors' network), else the hidden representation before the last layer. A client that has not taken part yet receives the
    average by size.

    Attributes:
        tau: sharpness of the softmax over similarities; 0 averages uniformly.
        sparsity: lambda_1, weight of the masks' L1 norm, and the size below which their entries are pruned in evaluation.
        proximity: lambda_2, weight of the distance to the received matrices.
        reg: ``paper``, or ``inert`` (terms without gradients).
        masks: ``trained``, or ``fixed`` at one (ablation).
        blocks, block_nodes: size of the proxy graph, a stochastic block model.
        inside, between: probabilities of its edges.
    """

    by_clients: ClassVar[bool] = True
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn_linear"}
    ranges: ClassVar[dict[str, Range]] = {
        "tau": at_least(0), "sparsity": at_least(0), "proximity": at_least(0), "blocks": at_least(1), "block_nodes": at_least(1),
        "inside": SHARE, "between": SHARE,
    }  # fmt: skip

    tau: float
    sparsity: float
    proximity: float
    reg: Literal["paper", "inert"]
    masks: Literal["trained", "fixed"]
    blocks: int
    block_nodes: int
    inside: float
    between: float

    def backbone(self, model: Backbone) -> Backbone:
        return Masked(model, self.sparsity, self.masks == "trained")

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, clients, shapes = setting.batch, setting.num_clients, setting.layout.shapes
        self.shared = tuple(name for name in shapes if not name.startswith(MASK))
        self.matrices = tuple(name for name in self.shared if len(shapes[name]) > 1)
        proxies = {seed: self.proxy(batch.features.shape[2], generator(seed, "proxy graph")) for seed in setting.seeds}
        self.proxies = ProxyBatch([proxies[seed] for seed, _ in setting.replicas], batch.dtype, batch.device)
        # Every client downloads the proxy graph once: features, and both ends of every edge (stored in both directions).
        sizes = [proxies[seed].features.size + proxies[seed].edges.shape[1] for seed in setting.seeds]
        self.bytes_before = np.array([(0, 4 * size * clients) for size in sizes])
        self._parts: dict[tuple[int, ...], Batch] = {tuple(range(batch.size)): self.proxies}
        self.number = 0
        self.seen = torch.zeros(len(proxies), clients, dtype=torch.bool, device=batch.device)

    def proxy(self, features: int, draw: np.random.Generator) -> ClientGraph:
        """A stochastic block model with normal features."""
        size = self.blocks * self.block_nodes
        block = np.arange(size) // self.block_nodes
        chance = np.where(block[:, None] == block, self.inside, self.between)
        upper = np.triu(draw.random((size, size)) < chance, 1)
        edges, none = np.stack(np.nonzero(upper | upper.T)).astype(np.int64), np.zeros(size, dtype=bool)
        values = draw.standard_normal((size, features), dtype=np.float32)
        return ClientGraph(np.arange(size), values, edges, np.zeros(size, dtype=np.int64), none, none, none)

    # ---- at the clients

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        """Add the regularizers' gradients ``sparsity sign(mu)`` and ``proximity (W - W_received) / ||W - W_received||``."""
        layout, far = step.layout, bool(self.proximity and self.number and step.epoch)
        for name in self.matrices if self.reg == "paper" else ():
            if self.masks == "trained":
                layout.view(gradient, MASK + name).add_(layout.view(step.theta, MASK + name).sign(), alpha=self.sparsity)
            if far and name not in layout.personal:
                moved = layout.view(step.theta, name) - layout.view(step.received, name)
                norm = (moved.square().sum((1, 2), keepdim=True) + 1e-12).sqrt()
                layout.view(gradient, name).add_(moved / norm, alpha=self.proximity)
        return gradient

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        network = cast(Masked, model)
        return answer(network.inner, network.pruned(parameters), batch).logits

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        network = cast(Masked, trips.model)
        trips.__dict__["pruned"] = pruned = network.pruned(trips.layout.views(trips.trained))
        return score(answer(network.inner, pruned, trips.batch).logits, trips.batch)

    @torch.no_grad()
    def report(self, trips: Trips) -> dict[str, Tensor]:
        network = cast(Masked, trips.model)
        parameters = trips.__dict__.pop("pruned", None) or network.pruned(trips.layout.views(trips.trained))
        proxies = self._parts.get(trips.rows) or self.proxies.select(trips.rows)
        if self.setting.full_participation:  # chunks repeat every round, random participants do not
            self._parts[trips.rows] = proxies
        return {"embedding": embed(network.inner, parameters, proxies).mean(1)}

    # ---- at the server

    def similarity(self, reports: dict[str, Tensor]) -> Tensor:
        return cosine(reports["embedding"].double())

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        self.number += 1
        weights = torch.softmax((self.tau * self.similarity(reports)).masked_fill(~arrived[:, None], -torch.inf), -1)
        if self.setting.full_participation:
            return Mixing(weights, shared=self.shared)
        # The scenario keeps the models of seeds without an upload.
        weights = normalize(torch.nan_to_num(weights), arrived[:, None])
        self.seen = self.seen | arrived
        average = normalize(self.setting.weights, arrived)[:, None]
        weights = torch.where(self.seen[..., None], weights, average)
        return Mixing(weights, receivers=arrived | ~self.seen, shared=self.shared)

    def traffic(self) -> Traffic:
        model = {"model": sum(self.setting.layout.numel(name) for name in self.shared)}
        return Traffic(upload={**model, "embedding": self._width()}, download=model)

    def _width(self) -> int:
        layout, part = self.setting.layout, self.proxies.select([0])
        with torch.no_grad():
            parameters = layout.views(torch.zeros(1, layout.size, dtype=part.dtype, device=part.device))
            return embed(cast(Masked, self.setting.model).inner, parameters, part).shape[2]


class Masked(Around):
    """The network with a mask ``mask.<name>``, initially one, on every matrix; or without masks."""

    def __init__(self, inner: Backbone, threshold: float, trained: bool):
        super().__init__(inner)
        self.threshold, self.trained = threshold, trained

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        self._own = self.inner.layout(num_features, num_classes)
        masks = {MASK + name: shape for name, shape in self._own.shapes.items() if self.trained and len(shape) > 1}
        return ParameterLayout({**self._own.shapes, **masks}, self._own.inputs)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        masks = {name: torch.ones(shape, dtype=torch.float64) for name, shape in layout.shapes.items() if name.startswith(MASK)}
        return {**self.inner.init_parameters(self._own, generator), **masks}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        # Evaluation calls `pruned` first.
        return self.inner.first(masked(parameters), batch)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        return self.inner.forward(masked(parameters), batch, first, dropout)

    def pruned(self, parameters: Parameters) -> dict[str, Tensor]:
        """Return the matrices for evaluation, without the entries whose mask is smaller than the threshold."""
        # In one pass; a mask equal to the threshold is dropped too.
        return masked({n: F.hardshrink(p, self.threshold) if n.startswith(MASK) else p for n, p in parameters.items()})


def masked(parameters: Parameters) -> dict[str, Tensor]:
    """Return ``W * mu`` for parameters with a mask, the others unchanged."""
    return {n: p * parameters[MASK + n] if MASK + n in parameters else p for n, p in parameters.items() if not n.startswith(MASK)}


def answer(model: Backbone, parameters: Parameters, graph: Batch) -> Output:
    """Return the output in evaluation mode."""
    return model.forward(parameters, graph, model.first(parameters, graph), no_dropout)


def embed(model: Backbone, parameters: Parameters, graph: Batch) -> Tensor:
    """Return the representations before the last layer, ``[k, n, h]``."""
    if isinstance(model, GCN) and model.head == "linear":
        # Without the head, the last convolution is the output.
        model = copy(model)
        model.head = "conv"
        return answer(model, parameters, graph).logits
    return answer(model, parameters, graph).hidden


class ProxyBatch(Batch):
    """Replicas of a few distinct graphs whose dense features are stored once."""

    def _stack_features(self) -> SharedBlocks:
        numbers: dict[int, int] = {}
        owner = [numbers.setdefault(id(client.features), len(numbers)) for client in self.clients]
        values = np.stack([np.asarray(self.clients[owner.index(i)].features) for i in range(len(numbers))])
        return SharedBlocks(torch.from_numpy(values).to(self.device, self.dtype), owner)


class SharedBlocks:
    """Dense features of k replicas of U distinct graphs, with the interface of ``DenseBlocks``; ``values [U, n, F]``."""

    def __init__(self, values: Tensor, owner: Sequence[int]):
        self.values, self.owner = values, np.asarray(owner)
        self.shape = (len(owner), *values.shape[1:])

    def select(self, rows: Sequence[int]) -> SharedBlocks:
        wanted, owner = np.unique(self.owner[list(rows)], return_inverse=True)
        return SharedBlocks(self.values[int(wanted[0]) : int(wanted[-1]) + 1], self.owner[list(rows)] - wanted[0])

    def __matmul__(self, weight: Tensor) -> Tensor:
        """``[k, F, h]`` to ``[k, n, h]``."""
        (k, nodes, _), graphs, h = self.shape, len(self.values), weight.shape[2]
        if graphs == 1:
            return torch.bmm(self.values.expand(k, -1, -1), weight)
        if np.array_equal(self.owner, np.repeat(np.arange(graphs), k // graphs)):
            side_by_side = weight.unflatten(0, (graphs, -1)).transpose(1, 2).flatten(2)
            return torch.bmm(self.values, side_by_side).unflatten(2, (-1, h)).transpose(1, 2).reshape(k, nodes, h)
        return torch.bmm(self.values[put(self.owner, weight.device)], weight)
