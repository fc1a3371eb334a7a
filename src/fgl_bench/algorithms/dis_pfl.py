"""Dis-PFL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.algorithms.scaffold import of_replicas
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.mixing import messages, product, self_loops, uniform
from fgl_bench.engine.network import node_losses
from fgl_bench.engine.random_numbers import mix
from fgl_bench.engine.random_numbers import uniform as draws
from fgl_bench.engine.shard import Shard
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import SHARE, Range, above, at_least
from fgl_bench.utils.seeding import derive_seed


@dataclass
class DisPFL(Peers):
    """Sparse, personal sub-networks of fixed density (Dai et al., ICML 2022, algorithms 1 and 2; its code).

    Client i updates only the coordinates of its mask mu_i. After training it drops, in every tensor, the ``ceil(alpha_t nnz)``
    active weights of smallest magnitude, ``alpha_t = anneal / 2 (1 + cos(pi t / T))``, and activates the same number of inactive
    coordinates with the largest gradient of the loss of all weights. Under its new mask it then takes, per coordinate, the mean over
    itself and its in-neighbors that trained this coordinate; a coordinate that no client trained is zero.

    Tensors have the densities of Erdős-Rényi kernels, ``(sum of shape / product of shape)^erk_power`` scaled to ``density``
    overall; vectors are dense.

    Resolutions: aggregation at the end of a round (in the code at the start of the next round, which is the
    same sequence); 30 % of the clients as random in-neighbors; regrowth by gradient, as in the paper (the released scripts: ``random``);
    different initial masks, as in those scripts; gradients clipped to norm 10, as in the code; zero optimizer moments for coordinates
    that leave or enter the mask. A message holds the non-zero weights and a mask of one bit per scalar. The matrix for plots is uniform
    over a client and its in-neighbors.

    Attributes:
        density: share of the weights that a client trains, in (0, 1].
        erk_power: 0 gives every matrix the same density.
        anneal: alpha_0, the share of the active weights dropped at first.
        regrow: by ``gradient`` or ``random``.
        different_initial: each client starts with its own mask.
        clip: largest norm of a gradient; null disables clipping.
    """

    by_clients: ClassVar[bool] = True
    own_reports: ClassVar[tuple[str, ...]] = ("gradient",)
    ranges: ClassVar[dict[str, Range]] = {"density": Range(0, 1, above=True), "erk_power": at_least(0), "anneal": SHARE, "clip": above(0)}

    density: float
    erk_power: float
    anneal: float
    regrow: Literal["gradient", "random"]
    different_initial: bool
    clip: float | None

    def topology(self) -> tuple[str, int | None]:
        return "random_k_in", None

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        layout, device = setting.layout, setting.batch.device
        shares = erk_densities(layout.shapes, self.density, self.erk_power)
        self.active = {name: max(1, round(share * layout.numel(name))) for name, share in shares.items()}
        self._streams = setting.streams("masks")
        firsts = [derive_seed(seed, "first masks", client if self.different_initial else 0) for seed, client in setting.replicas]
        keys = torch.tensor(firsts, device=device)
        mask = torch.zeros(len(firsts), layout.size, dtype=setting.batch.dtype, device=device)
        for number, (name, part) in enumerate(self._parts()):
            mask[:, part] = largest(draws(mix(keys + number), 1, layout.numel(name))[:, 0], self.active[name])
        self.mask = mask.unflatten(0, (len(setting.seeds), -1))  # floats: bools would be converted at every use

    def _parts(self) -> list[tuple[str, slice]]:
        layout = self.setting.layout
        return [(name, slice(start, start + layout.numel(name))) for name, start in layout.offsets.items()]

    def initialize(self, initial: Tensor) -> Tensor:
        return initial * self.mask.flatten(0, 1)

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        if self.clip is not None:
            gradient.mul_((self.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0))
        return gradient.mul_(of_replicas(self.mask, step.batch))

    def report(self, trips: Trips) -> dict[str, Tensor]:
        """Return the gradient of the loss in all weights, masked or not, at the trained model; it stays with the client."""
        if self.regrow == "random":
            return {}
        batch, train = trips.batch, trips.batch.training_nodes
        parameters = {name: view.detach().requires_grad_() for name, view in trips.layout.views(trips.trained).items()}
        logits = trips.model.forward(parameters, batch, trips.model.first(parameters, batch), no_dropout).logits
        loss = torch.dot(node_losses(logits.flatten(0, 1)[train.index], train.labels), train.weights)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        return {"gradient": trips.layout.collect(dict(zip(parameters, gradients, strict=True)))}

    def exchange(self, meeting: Meeting) -> Exchange:
        adjacency = meeting.graph(meeting.number)
        models = masked_mean(adjacency | self_loops(adjacency), self.mask, meeting.uploaded, self.setting.shard)
        self._evolve(meeting)
        models.mul_(self.mask)
        for moments in meeting.moments:
            moments.mul_(self.mask)  # moments of regrown coordinates are zero already: they had no gradient
        size = 4 * sum(self.active.values()) + -(-self.setting.layout.count // 8)
        return Exchange(models, uniform(adjacency), messages(adjacency, size))

    def _evolve(self, meeting: Meeting) -> None:
        """Update the masks ``[S, C, P]`` for the next round: drop by magnitude, regrow by gradient or at random."""
        rate = self.anneal / 2 * (1 + math.cos(math.pi * meeting.number / meeting.rounds))
        for number, (name, part) in enumerate(self._parts()):
            count = math.ceil(rate * self.active[name])
            if not count or self.active[name] == self.setting.layout.numel(name):
                continue
            own = drop_(self.mask[..., part], meeting.trained[..., part], count)
            if self.regrow == "gradient":
                wanted = meeting.reports["gradient"][..., part]
            else:
                key = mix(mix(self._streams + meeting.number) + number)
                wanted = draws(key, 1, self.setting.layout.numel(name)).view(own.shape)
            grow_(own, wanted, count)  # drawn numbers are not negative


def masked_mean(support: Tensor, mask: Tensor, models: Tensor, shard: Shard) -> Tensor:
    """Return the mean per coordinate over the ``models`` in ``support [S, C, C]`` (bool) whose ``mask`` has it, else 0: ``[S, C, P]``."""
    count = product(support, mask, shard)
    return product(support, models, shard).div_(count.clamp_(min=1))


def erk_densities(shapes: Mapping[str, tuple[int, ...]], density: float, power: float) -> dict[str, float]:
    """Return Erdős-Rényi-kernel densities, proportional to ``(sum / product of shape)^power``, at most 1, ``density`` overall."""
    size = {name: math.prod(shape) for name, shape in shapes.items()}
    score = {name: (sum(shape) / math.prod(shape)) ** power for name, shape in shapes.items()}
    dense = {name for name, shape in shapes.items() if len(shape) == 1}
    while len(dense) < len(size):
        left = density * sum(size.values()) - sum(size[name] for name in dense)
        scale = max(left, 0.0) / sum(score[name] * size[name] for name in size if name not in dense)
        full = {name for name in size if name not in dense and scale * score[name] > 1}
        if not full:
            return {name: 1.0 if name in dense else scale * score[name] for name in size}
        dense |= full
    return dict.fromkeys(size, 1.0)


def largest(x: Tensor, count: int) -> Tensor:
    """1 for the ``count`` greatest numbers of every row of ``x [..., n]``, else 0, in its type; of equal ones the first, on every device.

    ``topk`` takes any of them. On a CPU it and a sort take several times as long for large counts.
    """
    return _mark_(torch.zeros_like(x, memory_format=torch.contiguous_format), x, count, 0, magnitude=False, descending=True)


def drop_(mask: Tensor, x: Tensor, count: int) -> Tensor:
    """Set ``count`` ones of every row of ``mask [..., n]`` to 0, where ``x`` is least in magnitude; each row has at least ``count``."""
    return _mark_(mask, x, count, 1, magnitude=True, descending=False)


def grow_(mask: Tensor, x: Tensor, count: int) -> Tensor:
    """Set ``count`` zeros of every row of ``mask [..., n]`` to 1, where ``x`` is greatest in magnitude; each row has at least ``count``."""
    return _mark_(mask, x, count, 0, magnitude=True, descending=True)


def _mark_(mask: Tensor, x: Tensor, count: int, free: int, magnitude: bool, descending: bool) -> Tensor:
    """Turn ``count`` of the places of every row of ``mask`` that are ``free``; of equal ones the first, on every device."""
    if count < 1:
        return mask
    x = x.abs() if magnitude else x
    x = -x if descending else x
    x = (mask if free else 1 - mask).reciprocal().sub_(1).add_(x)  # infinite where nothing may be taken
    if x.device.type == "cpu":
        taken = _smallest_on_cpu(x, count)
    else:
        taken = torch.zeros_like(x).scatter_(-1, x.argsort(dim=-1, stable=True)[..., :count], 1)
    return mask.sub_(taken) if free else mask.add_(taken)


def _smallest_on_cpu(x: Tensor, count: int) -> Tensor:
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    bound = x.new_tensor([_at(row, count - 1) for row in rows.numpy()]).view(*x.shape[:-1], 1)
    # As numbers: a selection by a bool mask takes ten times as long.
    selected = torch.le(x, bound, out=torch.empty_like(x))
    exact = None if x.shape[-1] < 2**24 else torch.float64  # single precision counts so far
    excess = (selected.sum(-1, dtype=exact) - count).long()
    for row in excess.nonzero().unbind(0):
        index = tuple(row.tolist())
        equal = np.flatnonzero(x[index].numpy() == bound[index].item())
        selected[index].numpy()[equal[len(equal) - int(excess[index]) :]] = 0
    return selected


def _at(row: np.ndarray, rank: int) -> float:
    """The number of this rank in ``row``, from 0: counted by the first sixteen bits, then sought among those that share them.

    Weights and gradients have many equal numbers, with which partitions take twice as long as without.
    """
    bits = row.itemsize * 8
    number = row.view(f"i{row.itemsize}")
    number = number ^ ((number >> (bits - 1)) & np.iinfo(number.dtype).max)  # integers in the order of the numbers
    first = (number >> (bits - 16)) + (1 << 15)
    below = np.bincount(first, minlength=1 << 16).cumsum()
    bucket = int(below.searchsorted(rank, side="right"))
    rank -= int(below[bucket - 1]) if bucket else 0
    return float(np.partition(row[first == bucket], rank)[rank])
