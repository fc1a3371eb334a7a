"""FedPer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.mixing import Mixing
from fgl_bench.errors import Range, UserError, at_least


@dataclass
class FedPer(FedAvg):
    """FedAvg of the first layers, with personal last layers (Arivazhagan et al., arXiv 1912.00818, 2019).

    ``M_ij = n_j / n`` for the base, the identity for the head. Both are trained in every local step, from a common initial model;
    a client predicts with the head that it trained last. Layers are those between the features and the logits;
    coefficients of a filter, weights of hops and slopes belong to the base.

    Attributes:
        personal_layers: K_P, number of personal last layers; 0 is FedAvg, all layers is local training.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"personal_layers": at_least(0)}

    personal_layers: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        layers = setting.model.chain(setting.layout)
        if not 0 <= self.personal_layers <= len(layers):
            raise UserError(f"algorithm.personal_layers={self.personal_layers}: allowed for this model: 0 to {len(layers)}")
        self.shared = tuple(chain.from_iterable(layers[: len(layers) - self.personal_layers]))

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        everything = len(self.shared) == len(self.setting.layout.shapes)
        return replace(super().mix(reports, arrived), shared=None if everything else self.shared)

    def traffic(self) -> Traffic:
        base = {"base": sum(self.setting.layout.numel(name) for name in self.shared)}
        return Traffic(upload=base, download=base)
