"""FedTGP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedproto import PrototypeSharing, squared_distances
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.random_numbers import draws64, step_key
from fgl_bench.engine.stacked_optimizers import StackedSGD
from fgl_bench.errors import Range, above, at_least
from fgl_bench.utils.seeding import derive_seed


@dataclass
class FedTGP(PrototypeSharing):
    """Global prototypes are trained by the server (Zhang et al., AAAI 2024), see
    :class:`~fgl_bench.algorithms.fedproto.PrototypeSharing`.

    The server trains an embedding of every class and a network of two layers, whose outputs ``P^c`` are the global prototypes. Each of the
    clients' prototypes ``C_i^c`` is to be nearer to ``P^c`` than to the prototype of another class, by a margin d:
    cross-entropy of c under the logits ``-|C_i^c - P^k| - d [k = c]``, averaged over the prototypes. With the means Q^c of the clients'
    prototypes, the margin is the largest distance of two means, and ``threshold`` (tau) at most.

    Resolutions: ``margin=farthest`` is the paper's; in the authors' code, ``margin=nearest``, the margin is the largest distance of a
    mean to its nearest other. Embeddings begin as PyTorch's, the network's width is that of the representations, and the server uses
    plain gradient descent on shuffled mini-batches, as in the authors' code. All classes have a global prototype after the first round,
    also those that no client has.

    Attributes:
        margin: ``farthest`` or ``nearest``.
        threshold: largest margin.
        server_epochs, server_lr: epochs over the uploaded prototypes per round, and their learning rate.
        server_batch: prototypes per step.
    """

    by_clients: ClassVar[bool] = True
    replayable: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "threshold": at_least(0), "server_epochs": at_least(0), "server_lr": above(0), "server_batch": at_least(1),
    }  # fmt: skip

    margin: Literal["farthest", "nearest"]
    threshold: float
    server_epochs: int
    server_lr: float
    server_batch: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        (seeds, classes, width), device = self.prototypes.shape, self.prototypes.device
        self.layout = ParameterLayout({
            "embedding": (classes, width), "middle.weight": (width, width), "middle.bias": (width,), "last.weight": (width, width),
            "last.bias": (width,),
        })  # fmt: skip
        self.servers = torch.stack([self.layout.pack(self._initial(seed)) for seed in setting.seeds]).to(device, self.prototypes.dtype)
        self.descent = StackedSGD(seeds, self.layout.size, self.server_lr, 0.0, self.prototypes.dtype, device)
        self.streams = torch.tensor([derive_seed(seed, "fedtgp") for seed in setting.seeds], device=device)
        self.round = torch.zeros((), dtype=torch.int64, device=device)
        self.most = int((self.counts > 0).sum((1, 2)).max())  # prototypes of a round

    def _initial(self, seed: int) -> dict[str, Tensor]:
        """Return PyTorch's defaults: normal embeddings, linear layers uniform within 1/sqrt(in)."""
        draw = torch.Generator().manual_seed(derive_seed(seed, "fedtgp", "initial"))
        embedding = torch.empty(self.layout.shapes["embedding"], dtype=torch.float64).normal_(generator=draw)
        linear = {name: like_linear(self.layout, name, draw) for name in self.layout.shapes if name != "embedding"}
        return {"embedding": embedding, **linear}

    def update_prototypes(self, uploaded: Tensor, arrived: Tensor) -> None:
        present = (self.counts > 0) & arrived[..., None]
        seeds, clients, classes = present.shape
        margin = margins(uploaded, present, self.margin).clamp(max=self.threshold)
        points, flat = uploaded.flatten(1, 2), present.flatten(1)
        for epoch in range(self.server_epochs):
            order = draws64(step_key(self.streams, self.round, epoch), clients * classes)
            order = order.masked_fill(~flat, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)[:, : self.most]
            for chosen in order.split(self.server_batch, 1):
                each = points.gather(1, chosen[..., None].expand(-1, -1, points.shape[2]))
                parameters = {name: view.detach().requires_grad_() for name, view in self.layout.views(self.servers).items()}
                loss = contrast(each, chosen % classes, flat.gather(1, chosen), generate(parameters), margin).sum()
                gradients = torch.autograd.grad(loss, list(parameters.values()))
                self.descent.step(self.servers, self.layout.collect(dict(zip(parameters, gradients, strict=True))), range(seeds))
        self.round += 1
        trained = arrived.any(1)[:, None]
        self.known |= trained
        self.prototypes.copy_(torch.where(trained[..., None], generate(self.layout.views(self.servers)), self.prototypes))


def generate(parameters: dict[str, Tensor]) -> Tensor:
    """Return the global prototypes, ``[S, Y, h]``."""
    hidden = torch.baddbmm(parameters["middle.bias"][:, None], parameters["embedding"], parameters["middle.weight"])
    return torch.baddbmm(parameters["last.bias"][:, None], torch.relu(hidden), parameters["last.weight"])


def margins(uploaded: Tensor, present: Tensor, kind: str) -> Tensor:
    """Return the margin of every seed before the threshold, ``[S]``, from ``[S, C, Y, h]`` and ``[S, C, Y]``; inf without two classes."""
    count = present.sum(1)
    means = (uploaded * present[..., None]).sum(1) / count.clamp(min=1)[..., None]
    distances = (means[:, :, None] - means[:, None]).norm(dim=-1)
    pair = (count > 0)[:, :, None] & (count > 0)[:, None] & ~torch.eye(count.shape[1], dtype=torch.bool, device=count.device)
    if kind == "nearest":
        nearest = distances.masked_fill(~pair, torch.inf).amin(-1)
        return nearest.masked_fill(~pair.any(-1) & pair.any(-1).any(-1, keepdim=True), -torch.inf).amax(-1)
    return torch.where(pair.any(-1).any(-1), distances.masked_fill(~pair, -torch.inf).amax((1, 2)), torch.inf)


def contrast(points: Tensor, labels: Tensor, valid: Tensor, centers: Tensor, margin: Tensor) -> Tensor:
    """Return the server's loss of every seed, ``[S]``, 0 without a valid point.

    Args:
        points, labels, valid: ``[S, b, h]``, ``[S, b]`` and ``[S, b]``: clients' prototypes, their classes, and which of them count.
        centers: ``[S, Y, h]``, the global prototypes.
        margin: ``[S]``.
    """
    own = F.one_hot(labels, centers.shape[1]) * margin[:, None, None]
    distances = squared_distances(points, centers).clamp(min=1e-12).sqrt()  # the root has no gradient at 0
    losses = F.cross_entropy(-(distances + own).movedim(-1, 1), labels, reduction="none") * valid
    return losses.sum(1) / valid.sum(1).clamp(min=1)
