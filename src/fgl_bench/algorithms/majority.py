"""The majority baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.local import Local
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.stacked_optimizers import Rates
from fgl_bench.models.base import Around, Backbone


@dataclass
class Majority(Local):
    """Every client predicts the most frequent class of its training nodes (the smallest class of a tie).

    There is no model and no communication. On label-skewed partitions it beats the averaged model of many methods, so every table
    has a row for it. A client without training nodes predicts class 0.
    """

    by_clients: ClassVar[bool] = True
    multilabel: ClassVar[bool] = False
    trains: ClassVar[bool] = False

    def backbone(self, model: Backbone) -> Backbone:
        return Unused(model)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch = setting.batch
        counts = (F.one_hot(batch.labels, setting.num_classes) * batch.train[..., None]).sum(1)
        self._answer = F.one_hot(counts.argmax(1), setting.num_classes).to(batch.dtype)

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        return self._answer[batch.replicas][:, None].expand(-1, batch.examples, -1)


class Unused(Around):
    """Replaces a network whose predictions are not used: one parameter, and no pass over the features."""

    @property
    def rates(self) -> Mapping[str, Rates]:
        return {}

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        return ParameterLayout({"unused": (1,)})

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        return {"unused": torch.zeros(1, dtype=torch.float64)}

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return parameters["unused"]
