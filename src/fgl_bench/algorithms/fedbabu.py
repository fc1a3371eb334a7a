"""FedBABU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg_finetune import FedAvgFinetune
from fgl_bench.errors import Unsuited


@dataclass
class FedBABU(FedAvgFinetune):
    """FedAvg of the body with a head that stays as initialized, then fine-tuning (Oh, Kim, Yun, ICLR 2022, algorithm 1).

    In the first ``federated_rounds`` rounds clients train and send the body only; the head is the same random one everywhere. Then
    every client fine-tunes the global model alone, as in :class:`FedAvgFinetune`: head and body, or one of them (the paper's table 4).
    With ``head_layers=0`` this is :class:`FedAvgFinetune`.

    Resolutions: those of :class:`FedAvgFinetune`; averages are weighted by size, as in FedAvg (``agg_weight=uniform``: the authors' code).
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if not self.body:
            raise Unsuited(
                f"needs a backbone with more layers than algorithm.head_layers={self.head_layers}, since the head is not trained"
            )

    @property
    def frozen(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the stage
        return super().frozen if self.finetunes else self.head

    def traffic(self) -> Traffic:
        layout = self.setting.layout
        body = {"body": sum(layout.numel(name) for name in self.body if name not in layout.personal)}
        return Traffic(upload=body, download=body)
