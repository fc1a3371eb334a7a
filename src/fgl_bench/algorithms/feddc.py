"""FedDC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import ServerRounds, Setting, Traffic
from fgl_bench.algorithms.scaffold import WEIGHTINGS, displacement, keep_unable, of_replicas
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, above, at_least


@dataclass
class FedDC(ServerRounds):
    """Local drift decoupling and correction (Gao et al., CVPR 2022; the official code).

    A client adds ``alpha_i/2 ||theta - (w - h_i)||^2 + <theta, a/n_i - a_i>`` to its loss, then its drift ``h_i`` grows by
    ``theta_i - w`` and its gradient state ``a_i`` becomes the gradient along the trip of all but the last term. The server takes
    ``w = mean over S of theta_i + mean over all clients of h_i`` and keeps ``a`` the mean of ``n_i a_i``; here ``n_i`` is the
    client's size relative to the mean size and ``alpha_i = alpha / n_i``, as in the code (``scaling=none``: all 1, the paper).

    Resolutions: the code's ``a_i <- a_i - a/n_i - (theta_i - w)/(E lr)`` presumes plain SGD, where it equals the mean of the
    gradients taken, less the last term's; that mean is accumulated here, since it is meaningful under Adam too
    (``control=literal`` uses the formula). A client without training nodes takes no step and keeps both states. An upload
    that misses a deadline is lost with its changes.

    Attributes:
        alpha: strength of the pull to the drift-corrected model.
        scaling: by ``size``, or ``none``.
        clip: largest norm of a client's gradient including penalties; null disables clipping.
        drift: false fixes h_i at zero, which with alpha = 0, no scaling and no clipping is SCAFFOLD.
        control: ``mean_gradient`` or ``literal``.
        weighting: ``uniform``, or by size (``samples``).
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    own_reports: ClassVar[tuple[str, ...]] = ("state", "moved")
    ranges: ClassVar[dict[str, Range]] = {"alpha": at_least(0), "clip": above(0)}
    unsent: ClassVar[tuple[str, ...]] = ("moved",)  # the trained minus the received model

    alpha: float
    scaling: Literal["size", "none"]
    clip: float | None
    drift: bool
    control: Literal["mean_gradient", "literal"]
    weighting: Literal["uniform", "samples"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, seeds = setting.batch, len(setting.seeds)
        shape = (seeds, batch.size // seeds, setting.layout.size)
        self._sum: Tensor  # of the gradients of a trip
        self.drifts = torch.zeros(shape, dtype=batch.dtype, device=batch.device)  # h_i
        self.states = torch.zeros_like(self.drifts)  # a_i
        self.correction = torch.zeros_like(self.drifts)  # the constant part of the added gradient: alpha_i h_i + a/n_i - a_i
        size = setting.shard.of(SCALINGS[self.scaling](setting.weights))[..., None]
        inverse = torch.where(size > 0, 1 / size, 0.0)  # a client of size 0 takes no step
        self._size, self._inverse, self._alpha = (x.to(batch.dtype) for x in (size, inverse, self.alpha * inverse))

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        gradient = gradient.add_(of_replicas(self.correction, step.batch))
        if step.epoch:
            gradient.addcmul_(of_replicas(self._alpha, step.batch), step.theta - step.received)
        if self.clip is not None:
            gradient.mul_((self.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0))
        # A client without mini-batches left takes no step.
        taken = gradient if step.batch.num_train.all() else gradient * step.batch.train.any(1, keepdim=True)
        self._sum = self._sum.add_(taken) if step.epoch else taken
        return gradient

    def report(self, trips: Trips) -> dict[str, Tensor]:
        batch = trips.batch
        # In place, since rows are long: the mean gradient minus the linear terms, correction - alpha drift.
        linear = (of_replicas(self._alpha, batch) * of_replicas(self.drifts, batch)).neg_().add_(of_replicas(self.correction, batch))
        state = linear.neg_().add_(CONTROLS[self.control](self, trips))
        return {"state": keep_unable(state, self.states, batch), "moved": trips.trained - trips.received}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        here, fresh = self.setting.shard.of(arrived)[..., None], reports["state"]
        self.states = fresh if self.setting.full_participation else torch.where(here, fresh, self.states)
        if self.drift:
            self.drifts.addcmul_(reports["moved"], here.to(self.drifts.dtype))
        cloud = self.setting.shard.mean(self._size * self.states)  # a
        self.correction = torch.addcmul(self._inverse * cloud - self.states, self._alpha, self.drifts)
        return Mixing(normalize(WEIGHTINGS[self.weighting](self.setting.weights), arrived)[:, None])

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        return (received[:, :1] + self.setting.shard.mean(self.drifts)).expand_as(received)

    def traffic(self) -> Traffic:
        count = self.setting.layout.count
        return Traffic(upload={"model_and_drift": count, "state": count}, download={"model": count, "state": count})


SCALINGS = {"size": lambda sizes: sizes / sizes.mean(1, keepdim=True).clamp(min=1e-12), "none": torch.ones_like}
CONTROLS = {"mean_gradient": lambda method, trips: method._sum / trips.steps, "literal": displacement}
