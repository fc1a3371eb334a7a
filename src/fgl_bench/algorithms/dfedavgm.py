"""DFedAvgM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Peers, Setting
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.mixing import messages, metropolis, product
from fgl_bench.engine.random_numbers import mix, uniform
from fgl_bench.engine.stacked_optimizers import StackedSGD
from fgl_bench.errors import Range, above, between


@dataclass
class DFedAvgM(Peers):
    """Local heavy-ball descent, then averaging with the neighbors (Sun, Li & Wang, TPAMI 45(4), 2023).

    ``y <- y - lr g(y) + momentum (y - y_before)`` for the epochs of a round, starting without momentum; then ``Theta <- W Theta^``
    with W symmetric and doubly stochastic (Metropolis weights; 1/3 each on a ring, the default). ``bits`` sends the quantized
    change instead, ``q_i = Q(theta^_i - theta_i)``, and takes ``theta_i <- theta_i + sum_j W_ij q_j``, as in the paper:
    the models themselves are then never mixed, but all start equal.

    Resolutions: momentum 0.9; no quantization. Q rounds to one of ``2^(bits-1) - 1`` equal steps on either side of zero, the last
    at the change's largest entry, up or down at random without bias; the step size is sent too (4 bytes).

    Attributes:
        momentum: beta.
        bits: bits per quantized scalar including the sign, 2 to 16; null sends models.
        lr: learning rate of the clients; null takes the top-level key.
    """

    by_clients: ClassVar[bool] = True
    labeled_only: ClassVar[bool] = True
    reset_optimizer: ClassVar[bool] = True
    own_optimizer: ClassVar[str | None] = "heavy-ball steps with algorithm.momentum and algorithm.lr"
    ranges: ClassVar[dict[str, Range]] = {"momentum": Range(0, 1, below=True), "bits": between(2, 16), "lr": above(0)}

    momentum: float
    bits: int | None
    lr: float | None

    def topology(self) -> tuple[str, int | None]:
        return "ring", None

    def optimizer(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        return StackedSGD(count, size, lr if self.lr is None else self.lr, weight_decay, dtype, device, self.momentum)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._streams = setting.streams("rounding")

    def exchange(self, meeting: Meeting) -> Exchange:
        adjacency = meeting.graph(meeting.number)
        matrix = metropolis(adjacency)
        if self.bits is None:
            return Exchange(product(matrix, meeting.uploaded, self.setting.shard), matrix, messages(adjacency, self.traffic().bytes[0]))
        change = self.quantized(meeting.uploaded - meeting.received, meeting.number)
        models = meeting.received + product(matrix, change, self.setting.shard)
        return Exchange(models, matrix, messages(adjacency, -(-self.setting.layout.count * self.bits // 8) + 4))

    def quantized(self, change: Tensor, number: int) -> Tensor:
        """Return Q of the clients' changes ``[S, C, P]`` in this round."""
        assert self.bits is not None
        levels = 2 ** (self.bits - 1) - 1
        step = change.abs().amax(-1, keepdim=True) / levels
        draws = uniform(mix(self._streams + number), 1, change.shape[-1])[:, 0].view(change.shape).to(change.dtype)
        scaled = torch.where(step > 0, change / torch.where(step > 0, step, 1.0), 0.0)
        return (scaled + draws).floor().clamp(-levels, levels) * step
