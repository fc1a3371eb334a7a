"""Ditto."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.network import Output, Parameters, node_losses
from fgl_bench.engine.stacked_optimizers import Rates
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import Range, at_least
from fgl_bench.models.base import Around, Backbone

PERSONAL = "personal."


@dataclass
class TwoModels(FedAvg):
    """Base of methods whose clients train a personal model v_i next to the global model w, which alone is averaged as in FedAvg.

    Both start from the same initial model, take the same local steps, and draw the same dropout masks. The client's score, received
    or trained, is that of its personal model, which no server changes; the nodes of a server (``split.test=server``) are predicted by w.
    """

    def backbone(self, model: Backbone) -> Backbone:
        return Pair(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.shared = cast(Pair, setting.model).names

    def local_loss(self, step: LocalStep) -> Tensor:
        train = step.batch.training_nodes
        logits = step.output.hidden.flatten(0, 1).index_select(0, train.index)
        return super().local_loss(step) + torch.dot(node_losses(logits, train.labels), train.weights)

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        return cast(Pair, model).answer(parameters, batch, first, personal=batch is not self.setting.server)

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return replace(super().mix(reports, arrived), shared=self.shared)

    def traffic(self) -> Traffic:
        layout = self.setting.layout
        model = {"model": sum(layout.numel(name) for name in self.shared if name not in layout.personal)}
        return Traffic(upload=model, download=model)


@dataclass
class Ditto(TwoModels):
    """Personal models pulled to the global one (Li, Hu, Beirami, Smith, ICML 2021, eq. 1 and algorithm 1).

    A participant trains the global model as in FedAvg. Its personal model takes the same number of steps on
    ``CE(v_i) + penalty/2 ||v_i - w||^2``, w the received model, and never leaves the client. With ``penalty=0`` personal models are those
    of local training; the global model is FedAvg's for every penalty.

    Resolutions: both models take ``local_epochs`` steps, on the same mini-batches, as in the authors' code, with the benchmark's optimizer,
    which has separate states for the two. The average is weighted by size (``agg_weight=uniform``: the paper's).

    Attributes:
        penalty: lambda, strength of the pull.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"penalty": at_least(0)}

    penalty: float

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        for name in self.shared if self.penalty else ():
            own = step.layout.view(gradient, PERSONAL + name)
            own.add_(step.layout.view(step.theta, PERSONAL + name), alpha=self.penalty)
            own.sub_(step.layout.view(step.received, name), alpha=self.penalty)
        return gradient


class Pair(Around):
    """Two copies of a network: that of w and, with names that begin with ``personal.``, that of v_i.

    In :class:`Output`, ``logits`` are the personal model's and ``hidden`` is the logits of w.
    """

    @property
    def rates(self) -> Mapping[str, Rates]:
        return {**self.inner.rates, **{PERSONAL + name: rates for name, rates in self.inner.rates.items()}}

    @property
    def auxiliary(self) -> tuple[str, ...]:  # type: ignore[override]  # the inner network's
        return self.inner.auxiliary

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters of w."""
        return tuple(self.single.shapes)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        self.single = single = self.inner.layout(num_features, num_classes)
        both = {prefix + name: shape for prefix in ("", PERSONAL) for name, shape in single.shapes.items()}
        return ParameterLayout(both, (*single.inputs, *(PERSONAL + name for name in single.inputs)))

    def ends(self, layout: ParameterLayout) -> tuple[str, ...]:
        ends = self.inner.ends(self.single)
        return (*ends, *(PERSONAL + name for name in ends))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        initial = self.inner.init_parameters(self.single, generator)
        return {**initial, **{PERSONAL + name: value for name, value in initial.items()}}

    def both(self, parameters: Parameters) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the parameters of w and of the client's own model, by the names of the inner network."""
        return ({name: parameters[name] for name in self.names}, {name: parameters[PERSONAL + name] for name in self.names})

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """Return both results side by side, ``[k, n, 2h]``."""
        return torch.cat([self.inner.first(each, batch) for each in self.both(parameters)], -1)

    def first_of(self, parameters: Parameters, part: Part) -> Tensor:
        return torch.cat([self.inner.first_of(each, part) for each in self.both(parameters)], -1)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        shared, own = (
            self.inner.forward(each, batch, begun, copy(dropout))  # a copy draws the same masks
            for each, begun in zip(self.both(parameters), first.chunk(2, -1), strict=True)
        )
        return Output(shared.logits, own.logits)

    def answer(self, parameters: Parameters, batch: Batch, first: Tensor, personal: bool) -> Tensor:
        """Return the logits ``[k, n, Y]`` of one of the two models, without dropout."""
        return self.inner.forward(self.both(parameters)[personal], batch, first.chunk(2, -1)[personal], no_dropout).logits
