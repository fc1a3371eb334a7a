"""FedDEP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms._deep_clustering import Draws, deep_clusters
from fgl_bench.algorithms._neighgen import described, features_of, generator_layout, initial, used_slots
from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.cross_client._sampling import gumbel, largest
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedsage_plus import hidden_nodes, impair, padded
from fgl_bench.algorithms.powers import Regraphing
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, InputFeatures
from fgl_bench.engine.dropout import Dropout, DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.random_numbers import mix, uniform
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.engine.transfer import put
from fgl_bench.errors import SHARE, Range, Unsuited, UserError, above, at_least
from fgl_bench.models._decoupled import stacked
from fgl_bench.models.base import Backbone
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.utils.seeding import derive_seed, generator

GROUP = 1 << 26  # generated entries per program; more clients run in groups (results do not depend on it)


@dataclass
class FedDEP(FedAvg, Regraphing):
    """FedAvg of GraphSAGE with generated embeddings of missing neighbors (Zhang, Sun, Ding, Yiu & Yang, arXiv 2401.04336, 2024).

    Before the first round every client

    * trains an encoder, a GraphSAGE with tanh at its output, on its own labels; every node receives from at most ``sampled`` random
      neighbors per layer and step, on which the paper's edge-level privacy without noise rests;
    * clusters the encoder's embeddings by :func:`~fgl_bench.algorithms._deep_clustering.deep_clusters`. A prototype is the mean embedding
      of a cluster, and stands for the embeddings of its nodes;
    * hides a share of its validation nodes with their edges and uploads its prototypes and, for every node, the numbers of the prototypes
      of its first P hidden neighbors, or its own in place of each that it lacks. Every client downloads those of the others;
    * trains a generator as FedSage+'s, but of P embeddings per node, jointly with a classifier of its own: ``own_epochs`` steps on
      ``a L_d + b L_f + c L_c``, then ``shared_epochs`` steps on ``(a L_d + b L_f + c L_c + b sum_{j != i} L_f^{ij}) / C``.

    L_d is the smooth L1 error of the number of missing neighbors n_v, L_c the classifier's cross-entropy, both of training nodes. Of the m
    training nodes, ``L_f = 1/(m P) sum_v sum_{j <= round n_v} min_k MSE(generated_vj, target_vk)``, with the hidden neighbors' prototypes
    as targets. L_f^{ij} is the same for all nodes, with P random targets from a random node of client j.

    Classifiers are then averaged. Layer i of a classifier adds ``e_v W_i + b_i`` to its convolution; ``e_v`` is the sum of the
    ``round n_v`` embeddings generated for v, divided by P. It does not change during training.

    Resolutions: OpenFGL's reading, in which targets travel; the authors' code sends generators and embeddings of nodes to all others,
    and trains only the last part of the generator then. Losses are cross-entropies of logits; both codes apply softmax twice in the
    encoder. Encoders, generators and classifiers take steps on all training nodes, and classifiers use all neighbors.
    Embeddings are generated on a client's whole graph. An initial generator predicts about one missing neighbor, as in FedSage+; in both
    codes it predicts about none, and after the few steps that they take hardly an embedding is generated (``initial_missing=null``).
    Both codes average classifiers equally: ``agg_weight=uniform``.

    Attributes:
        max_neighbors: P, largest number of embeddings generated per node; 0 disables them: FedAvg.
        prototypes: clusters per client.
        width: of embeddings and of the encoder's hidden layers.
        sampled: neighbors per node in the encoder.
        encoder_layers, encoder_epochs, encoder_lr: its convolutions and steps, and the learning rate of its Adam.
        cluster_epochs: epochs of the autoencoder's layers, of the whole autoencoder, and of the clustering.
        hide, hidden_share, latent, gen_hidden, gen_dropout, gen_lr, degree_weight, class_weight: as FedSage+'s.
        feature_weight: b, of the distances to prototypes.
        gen_weight_decay: L2 penalty of encoder and generator.
        initial_missing: initial bias of n_v; null draws it as PyTorch's linear layers do.
        own_epochs, shared_epochs: of the generator, without and with other clients' prototypes.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "graphsage"}
    predicts_alone: ClassVar[bool] = False
    multilabel: ClassVar[bool] = False
    rebuilt: ClassVar[tuple[str, ...]] = ("streams", "layout")
    ranges: ClassVar[dict[str, Range]] = {
        "max_neighbors": at_least(0), "prototypes": at_least(1), "width": at_least(1), "sampled": at_least(1),
        "encoder_layers": at_least(1), "encoder_epochs": at_least(0), "encoder_lr": above(0), "cluster_epochs": at_least(0),
        "hidden_share": SHARE, "latent": at_least(1), "gen_hidden": at_least(1), "gen_dropout": SHARE, "gen_lr": above(0),
        "gen_weight_decay": at_least(0), "degree_weight": at_least(0), "feature_weight": at_least(0), "class_weight": at_least(0),
        "initial_missing": at_least(0), "own_epochs": at_least(0), "shared_epochs": at_least(0),
    }  # fmt: skip

    max_neighbors: int
    prototypes: int
    width: int
    sampled: int
    encoder_layers: int
    encoder_epochs: int
    encoder_lr: float
    cluster_epochs: list[int]
    hide: Literal["auto", "val", "train"]
    hidden_share: float
    latent: int
    gen_hidden: list[int]
    gen_dropout: float
    gen_lr: float | None
    gen_weight_decay: float
    degree_weight: float
    feature_weight: float
    class_weight: float
    initial_missing: float | None
    own_epochs: int
    shared_epochs: int

    def backbone(self, model: Backbone) -> Backbone:
        if not self.max_neighbors:
            return model
        if not isinstance(model, GraphSAGE):
            raise Unsuited("needs GraphSAGE, to whose convolutions it adds generated embeddings")
        return DeepSAGE(**{field.name: getattr(model, field.name) for field in fields(model)}, width=self.width)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, self.inductive = setting.batch, any(client.present is not None for client in setting.batch.clients)
        if self.hide == "val" and self.max_neighbors and self.inductive:
            raise UserError("algorithm.hide=val: in the inductive setting training sees no validation nodes; set algorithm.hide=train")
        if len(self.cluster_epochs) != 3:
            raise UserError(f"algorithm.cluster_epochs={self.cluster_epochs}: give three numbers")
        self.streams = setting.streams("feddep")
        scalars = (self.prototypes * self.width + self.max_neighbors * batch.num_nodes) * (self.max_neighbors > 0)
        self.bytes_before = 4 * np.outer(scalars.reshape(len(setting.seeds), -1).sum(1), (1, setting.num_clients - 1))
        self.encoder = GraphSAGE(self.width, 2, self.gen_dropout)
        generated = generator_layout(self.encoder, batch.features.shape[2], self.latent, self.gen_hidden, self.max_neighbors * self.width)
        classifier = {f"classifier.{name}": shape for name, shape in setting.layout.shapes.items()}
        self.layout = ParameterLayout(generated.shapes | classifier, inputs=("conv0.weight", "classifier.conv0.weight"))

    # ---- before the first round

    @torch.no_grad()
    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch] | None:
        if number or not self.max_neighbors:
            return None
        size = max(1, GROUP // (batch.nodes * max(*self.gen_hidden, self.max_neighbors * self.width)))
        groups = [list(range(start, min(start + size, batch.size))) for start in range(0, batch.size, size)]
        shared = self.share(batch, groups)
        graphs, generated = list(dict.fromkeys((batch, evaluation))), []
        for rows in groups:
            theta = self.generate(batch, rows, shared)
            generated.append([self.embeddings(theta, graph.select(rows), rows) for graph in graphs])
        graphs = [with_embeddings(graph, torch.cat(parts)) for graph, parts in zip(graphs, zip(*generated, strict=True), strict=True)]
        return graphs[0], graphs[-1]

    def share(self, batch: Batch, groups: Sequence[list[int]]) -> Shared:
        """Return what clients learn of each other."""
        inside = "train" if self.inductive else "val"
        impaired, hidden, numbers, means = [], [], [], []
        for (seed, i), client in zip(self.setting.replicas, batch.clients, strict=True):
            draw = generator(seed, "feddep", "hidden", i)
            hidden.append(hidden_nodes(client, self.hidden_share, draw, inside if self.hide == "auto" else self.hide))
            impaired.append(impair(client, hidden[-1], self.max_neighbors))
        for rows in groups:
            part, draws = batch.select(rows), Draws(self.streams[rows])
            embedded = self.encode(part, draws)
            numbers.append(deep_clusters(embedded, part.valid, self.prototypes, self.cluster_epochs, draws))
            member = F.one_hot(numbers[-1], self.prototypes).to(batch.dtype) * part.valid[..., None]
            means.append(member.mT @ embedded / member.sum(1).clamp(min=1)[..., None])
        missing = padded([count for _, count, _ in impaired], batch.nodes, 0).to(batch.device)
        first = padded([ids for _, _, ids in impaired], batch.nodes, 0).to(batch.device)
        own = torch.cat(numbers)
        targets = own.gather(1, first.flatten(1)).view(first.shape)
        lacks = torch.arange(self.max_neighbors, device=batch.device) >= missing[..., None]
        graph = Batch([each for each, _, _ in impaired], batch.dtype, batch.device, batch.feature_dtype)
        graph.features = batch.features
        visible = padded([~away for away in hidden], batch.nodes, False).to(batch.device) & batch.valid
        return Shared(torch.cat(means), torch.where(lacks, own[..., None], targets), missing, visible, graph)

    def encode(self, batch: Batch, draws: Draws) -> Tensor:
        """Train the clients' encoders and return their embeddings ``[k, n, d]``."""
        widths = [batch.features.shape[2], *[self.width] * self.encoder_layers, self.setting.num_classes]
        layout = stacked(widths, self.encoder_layers, sides=2)
        seeds = [self.setting.replicas[row][0] for row in batch.replicas.tolist()]
        each = {seed: layout.pack(_linear(layout, seed)) for seed in seeds}
        theta = torch.stack([each[seed] for seed in seeds]).to(batch.device, batch.dtype)
        adam = StackedAdam(len(seeds), layout.size, self.encoder_lr, self.gen_weight_decay, batch.dtype, batch.device)
        train = batch.training_nodes
        for _ in range(self.encoder_epochs):
            views = {name: view.detach().requires_grad_() for name, view in layout.views(theta).items()}
            with torch.enable_grad():
                dropout = Dropout(self.gen_dropout, draws())
                logits = affine(dropout(self._encoded(views, batch, draws, dropout)), views, "head")
                losses = F.cross_entropy(logits.flatten(0, 1)[train.index], train.labels, reduction="none")
                gradients = torch.autograd.grad(torch.dot(losses, train.weights), list(views.values()))
            adam.step(theta, layout.collect(dict(zip(views, gradients, strict=True))), range(len(seeds)))
        return self._encoded(layout.views(theta), batch, draws, no_dropout)

    def _encoded(self, views: Parameters, batch: Batch, draws: Draws, dropout: DropoutFunction) -> Tensor:
        product, hidden = batch.features @ views["conv0.weight"], None
        for i in range(self.encoder_layers):
            if hidden is not None:
                product = linear(dropout(torch.relu(hidden)), views[f"conv{i}.weight"])
            near, own = product.chunk(2, -1)
            blocks = [sampled_mean(*pair, self.sampled) for pair in zip(batch.clients, draws().cpu(), strict=True)]
            mean = BlockSparse.stack(blocks, batch.nodes, batch.nodes, batch.dtype, batch.device)
            hidden = mean @ near + own + views[f"conv{i}.bias"][:, None]
        assert hidden is not None
        return hidden.tanh()

    def generate(self, batch: Batch, rows: list[int], shared: Shared) -> Tensor:
        """Return the trained generators ``[k, P]`` of ``rows``."""
        seeds, dtype = [self.setting.replicas[row][0] for row in rows], batch.dtype
        each = {seed: initial(self.encoder, self.layout, seed, self.initial_missing) for seed in seeds}
        theta = torch.stack([each[seed] for seed in seeds]).to(batch.device, dtype)
        part, draws = shared.graph.select(rows), Draws(mix(self.streams[rows]))
        lr = self.setting.lr if self.gen_lr is None else self.gen_lr
        for epochs, others in ((self.own_epochs, False), (self.shared_epochs, True)):
            adam = StackedAdam(len(rows), self.layout.size, lr, self.gen_weight_decay, dtype, batch.device)
            for _ in range(epochs):
                views = {name: view.detach().requires_grad_() for name, view in self.layout.views(theta).items()}
                with torch.enable_grad():
                    loss = self.objective(views, part, rows, shared, draws, others)
                    gradients = torch.autograd.grad(loss, list(views.values()), allow_unused=True, materialize_grads=True)
                adam.step(theta, self.layout.collect(dict(zip(views, gradients, strict=True))), range(len(rows)))
        return theta

    def objective(self, views: Parameters, part: Batch, rows: Sequence[int], shared: Shared, draws: Draws, others: bool) -> Tensor:
        """Return the sum of the generators' objectives, with those of other clients' prototypes if ``others``."""
        missing, visible = shared.missing[rows], shared.visible[rows]
        degree, embeddings = self.generated(views, part, draws(), Dropout(self.gen_dropout, draws()))
        used = used_slots(degree + 0.5, visible, self.max_neighbors).to(part.dtype)
        model, prefix = self.setting.model, "classifier."
        classifier = {name.removeprefix(prefix): view for name, view in views.items() if name.startswith(prefix)}
        shown = with_embeddings(part, (embeddings * used[..., None]).mean(2))
        logits = model.forward(classifier, shown, model.first(classifier, shown), Dropout(model.dropout, draws())).logits
        train = part.training_nodes
        classes = torch.dot(F.cross_entropy(logits.flatten(0, 1)[train.index], train.labels, reduction="none"), train.weights)
        degrees = F.smooth_l1_loss(degree, missing.to(degree.dtype), reduction="none").flatten()[train.index]

        clients, flat = self.setting.num_clients, embeddings.flatten(1, 2)
        owners, me = (put(each, part.device) for each in divmod(np.asarray(rows), clients))
        everybody = shared.prototypes.unflatten(0, (-1, clients))[owners].flatten(1, 2)  # [k, C K, d]
        distance = flat.square().sum(-1, keepdim=True) - 2 * flat @ everybody.mT + everybody.square().sum(-1)[:, None]
        distance = (distance / self.width).view(*embeddings.shape[:3], clients, -1)
        own = distance[torch.arange(len(rows), device=part.device), :, :, me]
        inside = torch.arange(self.max_neighbors, device=part.device) < missing[..., None]
        nearest = _chosen(own, shared.numbers[rows]).masked_fill(~inside[:, :, None], torch.inf).amin(-1)
        local = (torch.where(inside[..., :1], nearest, 0.0) * used).mean(-1).flatten()[train.index]
        total = self.degree_weight * torch.dot(degrees, train.weights) + self.class_weight * classes
        total = total + self.feature_weight * torch.dot(local, train.weights)
        if not others:
            return total
        distances = self._remote(distance, used, visible, rows, shared, draws())
        return (total + self.feature_weight * distances.sum()) / clients

    def _remote(self, distance: Tensor, used: Tensor, visible: Tensor, rows: Sequence[int], shared: Shared, key: Tensor) -> Tensor:
        """Return ``sum_{j != i} L_f^{ij}`` of these replicas, ``[k]``.

        Args:
            distance: ``[k, n, P, C, K]``, of the generated embeddings to the prototypes of all clients of the seed.
            used: ``[k, n, P]``, 1 for embeddings that count.
        """
        k, n, p, clients, _ = distance.shape
        present, device = self.setting.batch.valid, distance.device
        owners, me = (put(each, device)[:, None] for each in divmod(np.asarray(rows), clients))
        theirs = owners * clients + torch.arange(clients, device=device)  # [k, C]
        draw = uniform(key, n, clients * (1 + p)).view(k, n, clients, -1)
        order = (~present).to(torch.uint8).argsort(dim=1, stable=True)[theirs]  # nodes that are there come first
        node = order.gather(2, (draw[..., 0] * present.sum(1)[theirs][:, None]).long().mT).mT
        drawn = shared.numbers[theirs[:, None, :, None], node[..., None], (draw[..., 1:] * p).long()]  # [k, n, C, P]
        nearest = _chosen(distance, drawn).amin(-1)
        remote = (torch.arange(clients, device=device) != me) & present.any(1)[theirs]  # a client without nodes has no targets
        each = (nearest * used[..., None] * remote[:, None, None]).mean(2).sum(-1) * visible
        return each.sum(1) / visible.sum(1).clamp(min=1)

    def generated(self, views: Parameters, batch: Batch, noise: Tensor, dropout: DropoutFunction) -> tuple[Tensor, Tensor]:
        """Return the degrees ``[k, n]`` and embeddings ``[k, n, P, d]`` that the generators predict."""
        degree, hidden = described(self.encoder, dict(views), batch, noise, dropout)
        return degree, torch.stack(features_of(dict(views), hidden, [batch.nodes] * self.max_neighbors, self.max_neighbors), 2)

    def embeddings(self, theta: Tensor, batch: Batch, rows: list[int]) -> Tensor:
        """Return e ``[k, n, d]``."""
        degree, embeddings = self.generated(self.layout.views(theta), batch, mix(mix(self.streams[rows])), no_dropout)
        return (embeddings * used_slots(degree + 0.5, batch.valid, self.max_neighbors)[..., None]).mean(2)


class Shared(NamedTuple):
    """The data on which generators are trained.

    Attributes:
        prototypes: ``[B, K, d]``.
        numbers: ``[B, n, P]``, of the prototypes that stand for every node's missing neighbors.
        missing: ``[B, n]``, numbers of hidden neighbors.
        visible: ``[B, n]`` bool, nodes that are not hidden.
        graph: without the edges of hidden nodes.
    """

    prototypes: Tensor
    numbers: Tensor
    missing: Tensor
    visible: Tensor
    graph: Batch


@dataclass
class DeepSAGE(GraphSAGE):
    """GraphSAGE whose convolutions add a linear function of every node's generated embedding (zero until there are such).

    Attributes:
        width: of the embeddings.
    """

    width: int = 0

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        plain = super().layout(num_features, num_classes)
        own: dict[str, tuple[int, ...]] = {}
        for i in range(self.layers):
            (narrow,) = plain.shapes[f"conv{i}.bias"]
            own |= {f"deep{i}.weight": (self.width, narrow), f"deep{i}.bias": (narrow,)}
        return ParameterLayout(plain.shapes | own, plain.inputs)

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return super().first(parameters, batch) + _deep(parameters, batch, 0)

    def convolution(self, parameters: Parameters, batch: Batch, hidden: Tensor, i: int) -> Tensor:
        return super().convolution(parameters, batch, hidden, i) + _deep(parameters, batch, i)


def _deep(parameters: Parameters, batch: Batch, i: int) -> Tensor:
    if isinstance(batch.features, DeepFeatures):
        return affine(batch.features.embeddings, parameters, f"deep{i}")
    return parameters[f"deep{i}.bias"][:, None]


class DeepFeatures:
    """Input features, and generated embeddings ``[k, n, d]``."""

    def __init__(self, real: InputFeatures, embeddings: Tensor):
        self.real, self.embeddings, self.shape = real, embeddings, real.shape

    def select(self, rows: Sequence[int]) -> DeepFeatures:
        return DeepFeatures(self.real.select(rows), self.embeddings[put(rows, self.embeddings.device)])

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.real @ weight


def with_embeddings(batch: Batch, embeddings: Tensor) -> Batch:
    """Return ``batch`` with generated embeddings ``[k, n, d]``."""
    shown = copy(batch)
    shown.features, shown._derived = DeepFeatures(batch.features, embeddings), {}
    return shown


def sampled_mean(client: ClientGraph, key: Tensor, most: int) -> sp.csr_matrix:
    """Return the matrix ``[n, n]`` of the means over at most ``most`` random neighbors of every node."""
    (row, column), n = client.edges, client.num_nodes
    draws = gumbel(key.expand(row.size), torch.arange(row.size), torch.float32)
    chosen = largest(draws, torch.from_numpy(np.ascontiguousarray(row)), most).numpy()
    row, column = row[chosen], column[chosen]
    return sp.csr_matrix((1 / np.bincount(row, minlength=n)[row], (row, column)), shape=(n, n))


def _chosen(distance: Tensor, numbers: Tensor) -> Tensor:
    """Return the distances ``[k, n, P, ..., K]`` to the prototypes ``numbers [k, n, ..., P]``, ``[k, n, P, ..., P]``."""
    return distance.gather(-1, numbers[:, :, None].expand(*distance.shape[:-1], numbers.shape[-1]))


def _linear(layout: ParameterLayout, seed: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(derive_seed(seed, "feddep", "encoder"))
    return {name: like_linear(layout, name, draw) for name in layout.shapes}
