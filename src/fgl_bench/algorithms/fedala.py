"""FedALA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.network import Parameters, node_losses
from fgl_bench.engine.random_numbers import draws64, step_key
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, UserError, above, at_least

LOSSES = 10  # last losses whose standard deviation is compared with the tolerance


@dataclass
class FedALA(FedAvg):
    """Clients start from an element-wise mixture of the global and their own last model (Zhang et al., AAAI 2023, algorithm 1).

    In the first layers a client starts from the global model w. In the last ``adapted_layers`` layers it starts from
    ``theta_i + (w - theta_i) * W_i`` (eq. 4), theta_i the model that it trained last. W_i is one at first and is kept between trips. Before
    every trip it takes a step ``W_i <- clip(W_i - step_size * (w - theta_i) * gradient of CE at the mixture, 0, 1)`` on a random share of
    the training nodes (eq. 5 and 6). Before a client's second trip it takes such steps until the standard deviation of the last ten
    losses is below ``tolerance``. With ``adapted_layers=0`` or ``step_size=0`` this is FedAvg.

    The mixture is made at the client, so nothing travels in addition to the models. It is the client's received model, which is
    scored; W_i keeps the steps if the client takes part in the next round. A client that has not trained yet starts from w.

    Resolutions: W_i is learned without dropout, in one batch of the drawn nodes, at least one; at most ``most_steps`` steps before the
    second trip, where the paper and the authors' code set no limit.

    Attributes:
        adapted_layers: p, number of last layers that are mixed.
        step_size: eta, step size of W_i.
        sample: s, share of the training nodes that W_i is learned from.
        tolerance: largest standard deviation of the losses after which W_i has converged.
        most_steps: as above.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        "adapted_layers": at_least(0), "step_size": at_least(0), "sample": Range(0, 1, above=True), "tolerance": above(0),
        "most_steps": at_least(1),
    }  # fmt: skip

    adapted_layers: int
    step_size: float
    sample: float
    tolerance: float
    most_steps: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        layers, batch = setting.model.chain(setting.layout), setting.batch
        if self.adapted_layers > len(layers):
            raise UserError(f"algorithm.adapted_layers={self.adapted_layers}: allowed for this model: 0 to {len(layers)}")
        shapes = {name: setting.layout.shapes[name] for name in chain.from_iterable(layers[len(layers) - self.adapted_layers :])}
        self.weights = {name: torch.ones(batch.size, *shape, dtype=batch.dtype, device=batch.device) for name, shape in shapes.items()}
        self.pending = {name: weight.clone() for name, weight in self.weights.items()}  # of the next trip
        self.trained, self.learned = (np.zeros(batch.size, dtype=bool) for _ in range(2))
        self.chunk = 1  # most replicas that trained together
        self.streams, self.turn = setting.streams("local aggregation"), torch.zeros(batch.size, dtype=torch.int64, device=batch.device)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        rows, index = list(trips.rows), trips.batch.replicas
        for name, weight in self.weights.items():
            weight[index] = self.pending[name][index]
        self.learned[rows], self.trained[rows] = self.trained[rows], True
        self.chunk = max(self.chunk, len(rows))
        return {}

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        if not self.weights:
            return received
        self.turn += 1
        shared, local = received.flatten(0, 1), uploaded.flatten(0, 1)
        starts = shared.clone()
        for part, batch in self._chunks():
            self._mix_locally(part, batch, shared[part], local[part], starts[part])
        return starts.view_as(received)

    def _chunks(self) -> Iterator[tuple[slice, Batch]]:
        """Yield all replicas and their graphs, as many at a time as train together."""
        batch = self.setting.batch
        for start in range(0, batch.size, self.chunk):
            rows = range(start, min(start + self.chunk, batch.size))
            yield slice(rows.start, rows.stop), batch if len(rows) == batch.size else batch.select(rows)

    def _mix_locally(self, part: slice, batch: Batch, shared: Tensor, local: Tensor, starts: Tensor) -> None:
        """Learn the weights of the replicas ``part`` and write the models that they start from to ``starts [k, P]``."""
        layout = self.setting.layout
        ends = {name: (layout.view(local, name), layout.view(shared, name)) for name in self.weights}
        weights = {name: self.weights[name][part].clone() for name in ends}
        parameters, share, losses = layout.views(starts), self._share(part, batch), []
        active, unlearned = put(self.trained[part], batch.device), put(~self.learned[part], batch.device)
        for number in range(self.most_steps if (self.trained & ~self.learned)[part].any() else 1):
            self._apply(weights, ends, parameters)
            loss, slopes = self._slopes(batch, parameters, share)
            for name, (own, new) in ends.items():
                moved = (weights[name] - self.step_size * slopes[name] * (new - own)).clamp_(0, 1)
                weights[name] = torch.where(active.view(-1, *[1] * (moved.ndim - 1)), moved, weights[name])
            losses.append(loss)
            active = active & unlearned
            if number >= LOSSES:
                active = active & (torch.stack(losses[-LOSSES:]).std(0, correction=0) >= self.tolerance)
                if not active.any():
                    break
        self._apply(weights, ends, parameters)
        for name, weight in weights.items():
            self.pending[name][part] = weight

    def _apply(self, weights: Parameters, ends: dict[str, tuple[Tensor, Tensor]], parameters: Parameters) -> None:
        for name, (own, new) in ends.items():
            parameters[name].copy_(torch.lerp(own, new, weights[name]))

    def _share(self, part: slice, batch: Batch) -> Tensor:
        """Return the weights of the drawn training nodes in the loss, ``[k, m]``; 0 for other nodes."""
        drawn = batch.train
        if self.sample < 1:
            key = step_key(self.streams[part], self.turn[part], 0)
            draws = draws64(key, batch.examples).masked_fill(~drawn, torch.iinfo(torch.int64).max)
            most = (self.sample * drawn.sum(1, keepdim=True)).long().clamp(min=1)
            drawn = drawn & (draws.argsort(dim=1, stable=True).argsort(dim=1) < most)
        return drawn.to(batch.dtype) / drawn.sum(1, keepdim=True).clamp(min=1)

    @torch.enable_grad()
    def _slopes(self, batch: Batch, parameters: Parameters, share: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses ``[k]``, float64, and the gradients of the adapted parameters by name."""
        model, own = self.setting.model, {name: parameters[name].detach().requires_grad_() for name in self.weights}
        mixture = {**parameters, **own}
        logits = model.forward(mixture, batch, model.first(mixture, batch), no_dropout).logits
        losses = (node_losses(logits.flatten(0, 1), batch.labels.flatten(0, 1)).view_as(share) * share).sum(1)
        return losses.detach().double(), dict(zip(own, torch.autograd.grad(losses.sum(), list(own.values())), strict=True))
