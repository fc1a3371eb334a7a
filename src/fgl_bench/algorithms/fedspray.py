"""FedSpray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.local import Alone
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout, uniform
from fgl_bench.engine.linear import affine
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import SHARE, Range, above, at_least
from fgl_bench.utils.seeding import derive_seed


@dataclass
class FedSpray(Alone):
    """Personal models learn from a shared encoder of features and structure proxies (Fu, Chen, Zhang, Chen & Li, KDD 2024).

    Clients share an encoder ``e = ReLU(x W + b)``, a joint classifier of e plus a structure proxy, a classifier of e alone, and a proxy
    for every class. A client has a proxy of its own for every training node; another node has the class proxies' mean, weighted by the
    softmax of the classifier of e. In a round a client

    * trains its model for ``local_epochs`` steps on the cross-entropy plus ``weight`` times the mean of ``KL(joint || model)`` over
      training nodes and nodes for which the classifier of e is surer than ``confidence``; the teacher is as received;
    * trains encoder, classifiers and its training nodes' proxies for as many steps on the cross-entropy of the classifier of e plus the
      mean of ``KL(model || joint)`` over training nodes.

    It uploads encoder and classifiers, which are averaged by the clients' sizes, and the mean proxy of each class, averaged by the class's
    share of the client's training nodes. Models never leave their clients.

    Resolutions: as the authors' code. Its clients begin the classifier of e with the received joint classifier (``begin=joint``), which
    seems a slip; the default is the received classifier of e. The model that teaches has no dropout. A class that no participant has
    keeps its proxy (the code divides by zero). The code initializes models uniformly from [0, 1); here as the backbone does.

    Attributes:
        weight: of the distillation into the model (lambda_1).
        confidence: probability above which another node counts.
        width: of encoder and proxies.
        proxy_lr: learning rate of the proxies' Adam; the encoder's has the clients' rate.
        begin: ``own`` or ``joint``.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "graphsage"}
    by_clients: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False
    multilabel: ClassVar[bool] = False
    rebuilt: ClassVar[tuple[str, ...]] = ("owner", "layout", "teacher", "share")
    ranges: ClassVar[dict[str, Range]] = {"weight": at_least(0), "confidence": SHARE, "width": at_least(1), "proxy_lr": above(0)}

    weight: float
    confidence: float
    width: int
    proxy_lr: float
    begin: Literal["own", "joint"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, seeds, classes = setting.batch, len(setting.seeds), setting.num_classes
        self.owner = torch.arange(batch.size, device=batch.device) // (batch.size // seeds)
        shapes: dict[str, tuple[int, ...]] = {"encoder.weight": (batch.features.shape[2], self.width), "encoder.bias": (self.width,)}
        for name in ("joint", "alone"):
            shapes |= {f"{name}.weight": (self.width, classes), f"{name}.bias": (classes,)}
        self.layout = ParameterLayout(shapes)
        rows = [self.layout.pack(initial(self.layout, seed)) for seed in setting.seeds]
        self.encoders = torch.stack(rows).to(batch.device, batch.dtype)  # [S, P]
        proxies = 0.01 * torch.arange(classes, dtype=batch.dtype, device=batch.device)
        self.proxies = proxies[None, :, None].repeat(seeds, 1, self.width)  # [S, Y, d]
        self.nodes = torch.full((batch.size, batch.nodes * self.width), 0.1, dtype=batch.dtype, device=batch.device)
        self.adam = StackedAdam(batch.size, self.layout.size, setting.lr, 0.0, batch.dtype, batch.device)
        self.proxy_adam = StackedAdam(batch.size, self.nodes.shape[1], self.proxy_lr, 0.0, batch.dtype, batch.device)

    # ---- first half of a trip

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        if not self.weight:
            return None
        if step.epoch == 0:
            self.teacher, self.share = self._teach(step.batch)
        logits = step.output.logits.log_softmax(-1)
        return self.weight * ((self.teacher.exp() * (self.teacher - logits)).sum(-1) * self.share).sum(1)

    @torch.no_grad()
    def _teach(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the received joint classifier's log-probabilities ``[k, n, Y]``, and each node's share ``[k, n]`` of the mean."""
        rows = batch.replicas
        views = self.layout.views(self.encoders[self.owner[rows]])
        encoded = encode(views, batch)
        soft = affine(encoded, views, "alone").softmax(-1)
        own, others = self.nodes[rows].view(batch.size, batch.nodes, -1), soft @ self.proxies[self.owner[rows]]
        logits = affine(encoded + torch.where(batch.train[..., None], own, others), views, "joint")
        sure = batch.valid & (batch.train | (soft.amax(-1) > self.confidence))
        return logits.log_softmax(-1), sure / sure.sum(1, keepdim=True).clamp(min=1)

    # ---- second half

    def report(self, trips: Trips) -> dict[str, Tensor]:
        batch, rows = trips.batch, trips.batch.replicas
        encoders, nodes = self.encoders[self.owner[rows]], self.nodes[rows]
        if self.begin == "joint":
            for part in ("weight", "bias"):
                self.layout.view(encoders, f"alone.{part}").copy_(self.layout.view(encoders, f"joint.{part}"))
        index = batch.training_nodes.index
        wanted = trips.output.logits.flatten(0, 1).index_select(0, index).log_softmax(-1)
        able = None if batch.num_train.all() else [i for i, count in enumerate(batch.num_train) if count > 0]
        for _ in range(self.setting.local_epochs):
            views = {name: view.detach().requires_grad_() for name, view in self.layout.views(encoders).items()}
            proxies = nodes.detach().requires_grad_()
            with torch.enable_grad():
                loss = self._objective(views, proxies.view(batch.size, batch.nodes, -1), batch, wanted)
                *gradients, to_proxies = torch.autograd.grad(loss, [*views.values(), proxies])
            self.adam.step(encoders, self.layout.collect(dict(zip(views, gradients, strict=True))), trips.rows, able)
            self.proxy_adam.step(nodes, to_proxies, trips.rows, able)
        self.nodes[rows] = nodes
        truth = batch.truth(self.setting.num_classes)
        counts = truth.sum(1)
        means = truth.mT @ nodes.view(batch.size, batch.nodes, -1) / counts.clamp(min=1)[..., None]
        return {"encoder": encoders, "proxies": means, "shares": counts / counts.sum(1, keepdim=True).clamp(min=1)}

    def _objective(self, views: Parameters, proxies: Tensor, batch: Batch, wanted: Tensor) -> Tensor:
        """Return the sum of the clients' objectives; ``wanted [T, Y]`` are the models' log-probabilities of training nodes."""
        train, encoded = batch.training_nodes, encode(views, batch)
        inputs = {"alone": encoded, "joint": encoded + proxies}
        logits = {name: affine(x, views, name).flatten(0, 1).index_select(0, train.index) for name, x in inputs.items()}
        divergence = (wanted.exp() * (wanted - logits["joint"].log_softmax(-1))).sum(-1)
        return torch.dot(F.cross_entropy(logits["alone"], train.labels, reduction="none") + divergence, train.weights)

    # ---- server

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        weights = normalize(self.setting.weights, arrived).to(self.encoders.dtype)
        someone = arrived.any(1)[:, None]
        self.encoders = torch.where(someone, (weights[:, None] @ reports["encoder"])[:, 0], self.encoders)
        shares = (reports["shares"] * arrived[..., None])[..., None]
        total = shares.sum(1)
        mean = (shares * reports["proxies"]).sum(1) / torch.where(total > 0, total, 1.0)
        self.proxies = torch.where(total > 0, mean, self.proxies)
        return super().mix(reports, arrived)

    def traffic(self) -> Traffic:
        shared = {"encoder": self.layout.count, "proxies": self.setting.num_classes * self.width}
        return Traffic(upload={**shared, "shares": self.setting.num_classes}, download=shared)


def initial(layout: ParameterLayout, seed: int) -> dict[str, Tensor]:
    """Return weights and biases uniform within 1/sqrt(out), as the authors draw them."""
    draw = torch.Generator().manual_seed(derive_seed(seed, "fedspray"))
    return {name: uniform(shape, shape[-1], draw) for name, shape in layout.shapes.items()}


def encode(views: Parameters, batch: Batch) -> Tensor:
    """Return e ``[k, n, d]``."""
    return torch.relu(batch.features @ views["encoder.weight"] + views["encoder.bias"][:, None])
