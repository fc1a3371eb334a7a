"""The label propagation baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.local import Local
from fgl_bench.algorithms.majority import Unused
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.network import Parameters
from fgl_bench.errors import SHARE, Range, at_least
from fgl_bench.models.base import Backbone

TIE = 1e-6  # weight of the class shares, which decide where no label arrives


@dataclass
class LabelPropagation(Local):
    """Every client spreads the labels of its training nodes over its edges: ``F' = alpha S F + (1 - alpha) Y``, from ``F = Y``.

    Zhou et al., NeurIPS 2003. There is no model, no feature is read, and nothing is communicated. S is the GCN's operator. A node that no
    label reaches gets the client's most frequent class.

    Attributes:
        alpha: weight of the neighbors.
        steps: number of propagation steps.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    by_clients: ClassVar[bool] = True
    multilabel: ClassVar[bool] = False
    trains: ClassVar[bool] = False
    labeled_only: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {"alpha": SHARE, "steps": at_least(0)}

    alpha: float
    steps: int

    def backbone(self, model: Backbone) -> Backbone:
        return Unused(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch = setting.batch
        known = F.one_hot(batch.labels, setting.num_classes).to(batch.dtype) * batch.train[..., None].to(batch.dtype)
        operator, spread = batch.operator(gcn_operator), known
        for _ in range(self.steps):
            spread = self.alpha * (operator @ spread) + (1 - self.alpha) * known
        self._answer = spread + TIE * known.mean(1, keepdim=True)

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        return self._answer[batch.replicas]
