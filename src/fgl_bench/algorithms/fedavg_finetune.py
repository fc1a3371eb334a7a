"""FedAvg with fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal

from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Staging
from fgl_bench.algorithms.records import Stage
from fgl_bench.engine.mixing import Mixing, alone
from fgl_bench.errors import Range, UserError, at_least


@dataclass
class FedAvgFinetune(FedAvg, Staging):
    """FedAvg, then fine-tuning of the global model by every client alone (Collins et al., NeurIPS 2022, FedAvg+FT).

    After ``federated_rounds`` rounds every client downloads the global model once more and trains it in the remaining rounds,
    ``local_epochs`` each, without communication: M is then the identity. With no more rounds than ``federated_rounds`` this is FedAvg;
    with ``federated_rounds=0`` it is local training.

    Resolutions: fine-tuning starts with new optimizers, and with the model of the last federated round, whose scores count for both
    stages when the best point is selected.

    Attributes:
        federated_rounds: later rounds are fine-tuning.
        tuned: layers that fine-tuning trains: ``all``, the ``head`` or the ``body``; the others stay as in the global model.
        head_layers: number of last layers that are the head.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"federated_rounds": at_least(0), "head_layers": at_least(0)}

    federated_rounds: int
    tuned: Literal["all", "head", "body"]
    head_layers: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        layers = setting.model.chain(setting.layout)
        if self.head_layers > len(layers):
            raise UserError(f"algorithm.head_layers={self.head_layers}: allowed for this model: 0 to {len(layers)}")
        parts = {"body": layers[: len(layers) - self.head_layers], "head": layers[len(layers) - self.head_layers :]}
        self.body, self.head = (tuple(chain.from_iterable(parts[name])) for name in ("body", "head"))
        self.finetunes = False

    @property
    def frozen(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the stage
        return {"all": (), "head": self.body, "body": self.head}[self.tuned] if self.finetunes else ()

    def stage(self, number: int, received: Tensor) -> Stage | None:
        if self.finetunes or number < self.federated_rounds:
            return None
        self.finetunes = True
        return Stage(self.setting.model, self.setting.layout, received.clone())

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return alone(arrived) if self.finetunes else super().mix(reports, arrived)

    def traffic(self) -> Traffic:
        model = {"model": self.setting.layout.count}  # of the federated rounds
        return Traffic(upload=model, download=model)

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        federated = min(rounds, self.federated_rounds) * (trips // max(rounds, 1))
        last = self.setting.num_clients if rounds > self.federated_rounds > 0 else 0
        up, down, _ = self.traffic().bytes
        return [(federated * up, (federated + last) * down)] * len(self.setting.seeds)
