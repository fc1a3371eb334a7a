"""APFL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.ditto import Pair, TwoModels
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.stacked_optimizers import Rates
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import SHARE, Range, at_least
from fgl_bench.models.base import Backbone

ALPHA = "alpha"


@dataclass
class APFL(TwoModels):
    """Clients mix a global and a model of their own (Deng, Kamani, Mahdavi, arXiv 2003.13461, 2020, algorithm 1).

    A participant trains the global model w as in FedAvg, and in the same steps its own model v_i on ``CE(alpha_i v_i + (1 - alpha_i) w)``,
    whose gradient is taken for v_i alone. It predicts with the mixture. The mixing weight takes gradient steps on the same
    loss, ``alpha_i <- alpha_i - lr (<v_i - w, gradient at the mixture> + decay alpha_i)``, and is clipped to [0, 1]. With ``adapt=never``,
    ``alpha=0`` predicts with the models of FedAvg, and ``alpha=1`` with those of local training.

    Resolutions: the mixture's w is the client's current one, in the first step the received model; the paper's algorithm does not say how
    a new global model enters the mixture. The authors' code mixes logits instead of parameters, adds 0.02 alpha to the gradient of
    alpha, and changes alpha in the first step of a trip only, which is the default here. Steps of v_i and w use the benchmark's optimizer;
    those of alpha are plain gradient descent. The average is weighted by size (``agg_weight=uniform``: the paper's).

    Attributes:
        alpha: initial alpha_i.
        adapt: when alpha_i changes: in the first step of a ``trip``, in every ``step``, or ``never``.
        decay: as above.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"alpha": SHARE, "decay": at_least(0)}

    alpha: float
    adapt: Literal["trip", "step", "never"]
    decay: float

    def backbone(self, model: Backbone) -> Backbone:
        return Mixture(model, self.alpha)

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        alpha, slope = (step.layout.view(each, ALPHA) for each in (step.theta, gradient))
        if self.adapt == "step" or (self.adapt == "trip" and step.epoch == 0):
            decay = self.decay * step.batch.train.any(1, keepdim=True)  # a client without training nodes takes no step
            alpha.sub_(slope + decay * alpha, alpha=self.setting.lr).clamp_(0, 1)
        return gradient


class Mixture(Pair):
    """A pair of models whose personal one is ``alpha v_i + (1 - alpha) w``; only v_i and alpha get its gradient."""

    def __init__(self, inner: Backbone, alpha: float):
        super().__init__(inner)
        self.alpha = alpha

    @property
    def rates(self) -> Mapping[str, Rates]:
        return {**super().rates, ALPHA: Rates(0.0, 0.0)}  # the method changes it

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        pair = super().layout(num_features, num_classes)
        return ParameterLayout({**pair.shapes, ALPHA: (1,)}, pair.inputs)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        initial = super().init_parameters(layout, generator)
        return {**initial, ALPHA: torch.full((1,), self.alpha, dtype=torch.float64)}

    def both(self, parameters: Parameters) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        shared, own = super().both(parameters)
        alpha = parameters[ALPHA]
        return shared, {name: torch.lerp(shared[name].detach(), v, alpha.view(-1, *[1] * (v.ndim - 1))) for name, v in own.items()}
