"""FedIIH."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds, Setting, Traffic
from fgl_bench.algorithms.powers import Comparing
from fgl_bench.algorithms.scaffold import of_replicas
from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.layout import ParameterLayout, uniform
from fgl_bench.engine.mixing import Blockwise, normalize
from fgl_bench.engine.random_numbers import normal, step_key
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, Unsuited, UserError, at_least
from fgl_bench.models.base import Around, Backbone
from fgl_bench.models.disengcn import SLOPE, DisenGCN

CENTRES = "inference.centres"
VARIANCE = 0.25  # of factors around their centers, and of centers around the global centers
SMOOTHING = 0.25  # in the denominator of the global centers
SLOPES = {"leaky_relu": SLOPE, "none": 1.0}  # of the activation after a routing layer of the inference


@dataclass
class FedIIH(ServerRounds, Comparing):
    """Averaging per latent factor by the similarity of inferred distributions (Yu et al., AAAI 2025; its code).

    The network is a DisenGCN with K factors. A client infers mean and log-variance of a Gaussian for every node and factor, and sends
    their averages over its nodes. JS is the Jensen-Shannon divergence between two clients' Gaussians of factor k, with a middle of
    averaged mean and variance. Then ``S_ij = 1 - JS_ij / ln 2`` and ``M^(k)_ij = exp(tau S_ij) / sum_l exp(tau S_il)`` averages slice k
    of the projection and of the classifier; the classifier's bias is averaged uniformly. The server also sends the
    global centers ``sum_i mean_i^k / (C + 0.25)``.

    With ``elbo_weight > 0`` clients add that multiple of ``-ELBO / n^2`` to the cross-entropy: of the hierarchical model in which
    a global center gives a client's center c_k, c_k a node's factor, ``z_k ~ N(c_k, 0.25 I)``, and factors the edges, ``sigma(z z^T)``
    over all pairs (see :func:`elbo_terms`). By default it is 0: in the released code this objective never reaches the classifier.

    Resolutions: inference in evaluation mode, from additional routing layers (``inference_layers``) with LeakyReLU, as in the released
    code (``inference_activation=none``: without). With ``inference=free``, as in the released code, mean and log-variance are both the
    output (there they differ by dropout only); ``learned`` adds an affine map per factor to each, trained by the ELBO, sent and
    averaged with its factor. Terms of the ELBO have the signs of the paper (the code pushes centers away from 0). Centers start
    at random, equal for all clients, and stay local.

    Attributes:
        tau: sharpness of the softmax over similarities; 0 averages uniformly.
        elbo_weight: weight of the negative ELBO in the local loss.
        inference: ``free`` or ``learned``.
        inference_layers: routing layers of the inference.
        inference_activation: ``leaky_relu`` or ``none``, after each of these layers.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "disengcn"}
    replayable: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"tau": at_least(0), "elbo_weight": at_least(0), "inference_layers": at_least(0)}

    tau: float
    elbo_weight: float
    inference: Literal["free", "learned"]
    inference_layers: int
    inference_activation: Literal["leaky_relu", "none"]

    def backbone(self, model: Backbone) -> Backbone:
        if not isinstance(model, DisenGCN):
            raise Unsuited("needs a backbone with latent factors (model=disengcn)")
        return Inference(model, self.inference == "learned", self.elbo_weight > 0)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if self.inference == "learned" and not self.elbo_weight:
            raise UserError("algorithm.inference=learned is trained by the bound; it needs algorithm.elbo_weight above 0")
        batch = setting.batch
        self.network = cast(Inference, setting.model).inner
        self.streams = setting.streams("fediih").view(len(setting.seeds), -1)
        self.number = torch.zeros((), dtype=torch.int64, device=batch.device)  # of the round
        shape = (len(setting.seeds), self.network.factors, self.network.width)
        self.centres = torch.zeros(shape, dtype=batch.dtype, device=batch.device)

    def initialize(self, initial: Tensor) -> Tensor:
        if CENTRES in self.setting.layout.shapes:
            common = self.setting.layout.view(initial, CENTRES)
            self.centres = common[:: self.setting.num_clients].clone()
        return initial

    # ---- at the clients

    def infer(self, hidden: Tensor, parameters: dict[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of every node's factors, ``[k, n, K, d]`` each."""
        for _ in range(self.inference_layers):
            hidden = self.network.convolve(hidden, batch, SLOPES[self.inference_activation])
        slices = hidden.unflatten(2, (self.network.factors, self.network.width))
        if self.inference == "free":
            return slices, slices
        mean, spread = (
            torch.einsum("bnkd,bkde->bnke", slices, parameters[f"inference.{name}.weight"]) + parameters[f"inference.{name}.bias"][:, None]
            for name in ("mean", "spread")
        )
        return mean, spread

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        if not self.elbo_weight:
            return None
        batch = step.batch
        mean, spread = self.infer(step.output.hidden, step.parameters, batch)
        key = step_key(of_replicas(self.streams, batch), self.number, step.epoch)
        noise = normal(key, batch.nodes, mean[0, 0].numel(), mean.dtype).view_as(mean)
        everyone = self.centres[:, None].expand(-1, self.setting.num_clients, -1, -1)
        terms = elbo_terms(mean, spread, noise, step.parameters[CENTRES], of_replicas(everyone, batch), batch)
        pairs = batch.valid.sum(1).to(mean.dtype).square()
        return self.elbo_weight * sum(terms.values()) / pairs

    @torch.no_grad()
    def report(self, trips: Trips) -> dict[str, Tensor]:
        batch = trips.batch
        valid = batch.valid[..., None, None].to(batch.dtype)
        each = valid / valid.sum(1, keepdim=True)
        inferred = self.infer(trips.output.hidden, trips.layout.views(trips.trained), batch)
        return {name: (values * each).sum(1) for name, values in zip(("mean", "spread"), inferred, strict=True)}

    # ---- at the server

    def factor_similarity(self, reports: dict[str, Tensor]) -> Tensor:
        """Return ``S^(k)``, ``[S, K, C, C]``."""
        mean, variance = reports["mean"].double().transpose(1, 2), reports["spread"].double().transpose(1, 2).exp()
        return 1 - divergence(mean, variance) / math.log(2)

    def similarity(self, reports: dict[str, Tensor]) -> Tensor:
        return self.factor_similarity(reports).mean(1)

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Blockwise:
        self.number += 1
        there = arrived[:, None, None]
        weights = torch.softmax((self.tau * self.factor_similarity(reports)).masked_fill(~there, -torch.inf), -1)
        if not self.setting.full_participation:  # a seed without uploads keeps its models
            weights = normalize(torch.nan_to_num(weights), there)
        present = arrived[..., None, None].to(reports["mean"].dtype)
        centres = (reports["mean"] * present).sum(1) / (present.sum(1) + SMOOTHING)
        self.centres.copy_(torch.where(arrived.any(1)[:, None, None], centres, self.centres))
        blocks = [(normalize(arrived.double())[:, None], partial(whole, name="classifier.bias"))]
        learned = [name for name in self.setting.layout.shapes if name.startswith("inference.") and name != CENTRES]
        for k in range(self.network.factors):
            parts = [partial(part, factors=self.network.factors, k=k) for part in SLICES]
            blocks += [(weights[:, k], part) for part in (*parts, *(partial(row, name=name, k=k) for name in learned))]
        return Blockwise(weights.mean(1), None if self.setting.full_participation else arrived, blocks=tuple(blocks))

    def traffic(self) -> Traffic:
        layout, each = self.setting.layout, self.network.factors * self.network.width
        model = {"model": sum(layout.numel(name) for name in layout.shapes if name != CENTRES)}
        return Traffic(upload={**model, "mean": each, "spread": each}, download={**model, "centres": each})


class Inference(Around):
    """A DisenGCN with additional parameters for inference: affine maps per factor, and a client's centers."""

    inner: DisenGCN

    def __init__(self, inner: DisenGCN, learned: bool, centred: bool):
        super().__init__(inner)
        self.learned, self.centred = learned, centred

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        self._own, factors, width = self.inner.layout(num_features, num_classes), self.inner.factors, self.inner.width
        shapes: dict[str, tuple[int, ...]] = {CENTRES: (factors, width)} if self.centred else {}
        for name in ("mean", "spread") if self.learned else ():
            shapes |= {f"inference.{name}.weight": (factors, width, width), f"inference.{name}.bias": (factors, width)}
        return ParameterLayout({**self._own.shapes, **shapes}, self._own.inputs)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the network's own parameters as without inference, normal centers, and maps initialized as PyTorch's linear layers."""
        initial = self.inner.init_parameters(self._own, generator)
        for name, shape in layout.shapes.items():
            if name == CENTRES:
                initial[name] = torch.randn(shape, generator=generator, dtype=torch.float64)
            elif name not in initial:
                initial[name] = uniform(shape, self.inner.width, generator)
        return initial


def elbo_terms(mean: Tensor, spread: Tensor, noise: Tensor, centres: Tensor, common: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Return the terms of the negative evidence lower bound, up to constants, ``[k]`` each.

    ``edges``: cross-entropy of ``sigma(z_u . z_v)`` with A over all ordered pairs, self-pairs being none, for ``z = mean + noise
    exp(spread / 2)``. ``factors``: ``sum_v,k KL(q(z_v,k) || N(c_k, 0.25 I))``. ``centres``: ``sum_k KL(N(c_k, 0.25 I) || N(g_k, 0.25 I))``.
    ``prior``: ``-sum_k log N(c_k; 0, I)``.

    Args:
        mean, spread, noise: ``[k, n, K, d]``, spread the log-variance.
        centers, common: c and g, ``[k, K, d]``.
    """
    valid = batch.valid[..., None, None].to(mean.dtype)
    z = ((mean + noise * torch.exp(spread / 2)) * valid).flatten(2)
    deviation = centres[:, None] - mean
    kl = 0.5 * ((spread.exp() + deviation.square()) / VARIANCE - 1 - spread + math.log(VARIANCE))
    return {
        "edges": pair_entropy(z, batch.operator(adjacency), batch.valid),
        "factors": (kl * valid).sum((1, 2, 3)),
        "centres": (centres - common).square().sum((1, 2)) / (2 * VARIANCE),
        "prior": centres.square().sum((1, 2)) / 2,
    }


def pair_entropy(z: Tensor, edges: BlockSparse, valid: Tensor) -> Tensor:
    """Return ``sum_uv softplus(z_u . z_v) - A_uv z_u . z_v`` over the real nodes, ``[k]``; rows of padding must be zero."""
    padding = valid.shape[1] ** 2 - valid.sum(1).square()
    pairs = F.softplus(torch.bmm(z, z.mT)).sum((1, 2)) - padding * math.log(2)
    return pairs - (z * (edges @ z)).sum((1, 2))


def divergence(mean: Tensor, variance: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of diagonal Gaussians, with a moment-averaged middle: ``[..., C, d]`` to ``[..., C, C]``.

    Half the sum of both Kullback-Leibler divergences to ``N((m_i + m_j) / 2, (v_i + v_j) / 2)``; unlike the exact one it may exceed ln 2.
    """
    middle = (variance[..., :, None, :] + variance[..., None, :, :]) / 2
    squares = (mean[..., :, None, :] - mean[..., None, :, :]).square() / 4
    logs = variance.log()
    ratio = middle.log() - (logs[..., :, None, :] + logs[..., None, :, :]) / 2
    return 0.5 * (ratio + squares / middle).sum(-1)


# ---- blocks of parameters: views of [B, P]


def whole(theta: Tensor, layout: ParameterLayout, name: str) -> Tensor:
    return layout.view(theta, name)


def row(theta: Tensor, layout: ParameterLayout, name: str, k: int) -> Tensor:
    return layout.view(theta, name)[:, k]


def _projection(theta: Tensor, layout: ParameterLayout, factors: int, k: int) -> Tensor:
    return layout.view(theta, "projection.weight").unflatten(2, (factors, -1))[:, :, k]


def _bias(theta: Tensor, layout: ParameterLayout, factors: int, k: int) -> Tensor:
    return layout.view(theta, "projection.bias").unflatten(1, (factors, -1))[:, k]


def _classifier(theta: Tensor, layout: ParameterLayout, factors: int, k: int) -> Tensor:
    return layout.view(theta, "classifier.weight").unflatten(1, (factors, -1))[:, k]


SLICES = (_projection, _bias, _classifier)
