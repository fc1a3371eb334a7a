"""FedBuff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import SemiAsyncServer, Traffic
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.engine.transfer import put
from fgl_bench.errors import Range, at_least


@dataclass
class FedBuff(SemiAsyncServer):
    """Buffered asynchronous aggregation of model differences (Nguyen et al., AISTATS 2022, algorithm 1).

    After K arrivals ``w <- w + server_lr / K * sum_k s_k^(-a) omega_k (theta_k - w_base_k)`` with ``s_k = 1 + staleness``.

    Attributes:
        buffer: arrivals per server step K; null means a quarter of the clients.
        server_lr: step of the server on the averaged difference.
        staleness_exponent: a; 0.5 is the paper's 1/sqrt(1 + staleness), 0 ignores staleness.
        weighting: ``uniform`` (omega = 1) or ``samples`` (omega proportional to n_k within the buffer).
        wait: an uploader waits for the server step that uses its upload (otherwise it downloads the current model immediately).
    """

    labeled_only: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"buffer": at_least(1), "server_lr": at_least(0), "staleness_exponent": at_least(0)}

    buffer: int | None
    server_lr: float
    staleness_exponent: float
    weighting: Literal["uniform", "samples"]
    wait: bool

    @property
    def waits(self) -> bool:
        return self.wait

    def upload(self, rows: Sequence[int], received: Tensor, trained: Tensor) -> Tensor:
        return trained - received

    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        sizes = WEIGHTINGS[self.weighting](np.array([server.weights[upload.client] for upload in arrivals]))
        staleness = np.array([upload.staleness for upload in arrivals])
        factors = self.server_lr / len(arrivals) * sizes * (1.0 + staleness) ** -self.staleness_exponent
        differences = torch.stack([upload.payload for upload in arrivals])
        server.model = server.model + put(factors, differences.device, differences.dtype) @ differences
        return [Message(client, server.model) for client in dict.fromkeys(upload.client for upload in arrivals)]

    def traffic(self) -> Traffic:
        payload = {"model": self.setting.layout.count, "version": 1}
        return Traffic(upload=payload, download=payload)


WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.ones_like,
    "samples": lambda sizes: sizes * len(sizes) / max(sizes.sum(), 1e-12),
}
