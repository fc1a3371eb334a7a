"""FedALA."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.batch import Batch, TrainingNodes
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

    rebuilt: ClassVar[tuple[str, ...]] = ("train",)

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
        self.local = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}  # theta_i
        self.trained, self.learned = (np.zeros(batch.size, dtype=bool) for _ in range(2))
        self.train = batch.training_nodes
        self.parts: list[int] = []  # replicas that trained together, in this round
        self.streams, self.turn = setting.streams("local aggregation"), torch.zeros(batch.size, dtype=torch.int64, device=batch.device)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        rows, index = list(trips.rows), trips.batch.replicas
        for name, weight in self.weights.items():
            weight[index] = self.pending[name][index]
            self.local[name][index] = trips.layout.view(trips.trained, name)
        self.learned[rows], self.trained[rows] = self.trained[rows], True
        self.parts.append(len(rows))
        return {}

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        if not self.weights:
            return received
        self.turn += 1
        shared, batch = received.flatten(0, 1), self.setting.batch
        starts, most = shared.clone(), max(self.parts) if len(self.parts) > 1 else batch.size
        self.parts.clear()
        for start in range(0, batch.size, most):
            part = slice(start, min(start + most, batch.size))
            graphs = batch if most == batch.size else batch.select(range(part.start, part.stop))
            train = self.train if graphs is batch else graphs.training_nodes
            self._mix_locally(part, graphs, train, shared[part], starts[part])
        return starts.view_as(received)

    def _mix_locally(self, part: slice, batch: Batch, train: TrainingNodes, shared: Tensor, starts: Tensor) -> None:
        """Learn the weights of the replicas ``part`` and write the models that they start from to ``starts [k, P]``."""
        layout = self.setting.layout
        ends = {name: (local[part], layout.view(shared, name)) for name, local in self.local.items()}
        weights = {name: self.weights[name][part].clone() for name in ends}
        parameters, share, losses = layout.views(starts), self._share(part, batch, train), []
        active, unlearned = put(self.trained[part], batch.device), put(~self.learned[part], batch.device)
        for number in range(self.most_steps if (self.trained & ~self.learned)[part].any() else 1):
            self._apply(weights, ends, parameters)
            loss, slopes = self._slopes(batch, train, parameters, share)
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

    def _share(self, part: slice, batch: Batch, train: TrainingNodes) -> Tensor:
        """Return the weights ``[T]`` of the training nodes in their clients' losses; 0 for nodes that are not drawn."""
        if self.sample == 1:
            return train.weights
        key = step_key(self.streams[part], self.turn[part], 0)
        number = (batch.train.cumsum(1) - 1).clamp(min=0)  # among the client's training nodes
        draws = draws64(key, batch.examples).gather(1, number).masked_fill(~batch.train, torch.iinfo(torch.int64).max)
        count = (self.sample * batch.train.sum(1, keepdim=True)).long().clamp(min=1)
        share = (draws.argsort(dim=1, stable=True).argsort(dim=1) < count).to(batch.dtype) / count
        return share.flatten().index_select(0, train.index)

    @torch.enable_grad()
    def _slopes(self, batch: Batch, train: TrainingNodes, parameters: Parameters, share: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the losses ``[k]``, float64, and the gradients of the adapted parameters by name."""
        model = self.setting.model
        own = {name: parameters[name].detach().requires_grad_() for name in self.weights}
        mixture = {**parameters, **own}
        logits = model.forward(mixture, batch, model.first(mixture, batch), no_dropout).logits.flatten(0, 1)
        losses = node_losses(logits.index_select(0, train.index), train.labels) * share
        slopes = torch.autograd.grad(losses.sum(), list(own.values()))
        each = share.new_zeros(batch.size * batch.examples, dtype=torch.float64).index_copy_(0, train.index, losses.detach().double())
        return each.view(batch.size, -1).sum(1), dict(zip(own, slopes, strict=True))
