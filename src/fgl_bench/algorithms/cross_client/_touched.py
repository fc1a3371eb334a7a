"""Adam over the input weight's rows that have had a gradient, and over all other parameters.

With sparse input features a mini-batch has a gradient for the rows of the features that its nodes have. As long as a row has had
none, its moments are zero and Adam (without weight decay) leaves it as it is, so that it need not be read: on a CPU, where a step
costs what it moves, that is most of the step for clients of few nodes and many features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam

from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.sparse import SparseRows


@dataclass(frozen=True)
class TouchedFeatures:
    """Input features of ``shape`` (k, c), as entries over the rows that a :class:`TouchedAdam` holds."""

    sparse: SparseRows
    shape: tuple[int, int]

    def __matmul__(self, rows: Tensor) -> Tensor:
        """``[n, h]``, the rows, to ``[k, c, h]``."""
        return (self.sparse @ rows[None]).view(*self.shape, -1)


class TouchedAdam:
    """What ``engine.adam.Adam`` does for ``count`` replicas that always step together, begin afresh in every trip and have no weight decay.

    Touched rows are held apart, one after the other in the order in which they were touched, so that a step is one pass
    over as much memory as there are; :meth:`settle` writes them back.

    Args:
        layout: with one input weight ``[F, h]``.
        capacity: how many rows, over all replicas, can ever be touched.
    """

    def __init__(self, count: int, layout: ParameterLayout, lr: float, capacity: int, dtype: torch.dtype, device: torch.device):
        (self.name,) = layout.inputs
        (self.width, h), self.layout, self.lr = layout.shapes[self.name], layout, lr
        # Rows, their moments; pages are taken as rows are touched.
        self._rows = [torch.empty(capacity, h, dtype=dtype, device=device) for _ in range(3)]
        self._end = layout.numel(self.name)
        self._rest = [torch.zeros(count, layout.size - self._end, dtype=dtype, device=device) for _ in range(3)]
        self._steps = [torch.zeros((), dtype=torch.float32, device=device) for _ in range(2)]
        self._place = np.full(count * self.width, -1)
        self._stride = layout.size // h
        self._where = torch.empty(capacity, dtype=torch.int64, device=device)
        self._opened, self.touched = False, 0

    def reset(self, rows: object = None) -> None:
        """Forget all moments; what was not written back is lost."""
        self._place.fill(-1)
        for state in (*self._rest[1:], *self._steps):
            state.zero_()
        self._opened, self.touched = False, 0

    def take(self, theta: Tensor, replica: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Where the weight's rows ``column [E]`` of ``replica [E]`` lie among those held; new ones come from ``theta [k, P]``."""
        key, wanted = replica * self.width + column, np.zeros(self._place.size, dtype=bool)
        wanted[key] = True
        new = np.flatnonzero(wanted & (self._place < 0))
        first, self.touched = self.touched, self.touched + new.size
        self._place[new] = np.arange(first, self.touched)
        span = slice(first, self.touched)
        self._where[span] = torch.from_numpy(new // self.width * self._stride + new % self.width)
        torch.index_select(self._lines(theta), 0, self._where[span], out=self._rows[0][span])
        for moment in self._rows[1:]:
            moment[span].zero_()
        if not self._opened:
            self._rest[0].copy_(theta[:, self._end :])
            self._opened = True
        return self._place[key]

    def views(self) -> dict[str, Tensor]:
        """The parameters: touched rows ``[n, h]`` of the input weight, all others ``[k, *shape]``."""
        flat, layout = self._rest[0], self.layout
        rest = {
            name: flat[:, layout.offsets[name] - self._end :][:, : layout.numel(name)].unflatten(1, shape)
            for name, shape in layout.shapes.items()
            if name != self.name
        }
        return {self.name: self._rows[0][: self.touched], **rest}

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step from the gradients of :meth:`views`, in place."""
        rest = torch.zeros_like(self._rest[0])
        for name, gradient in gradients.items():
            if name != self.name:
                start = self.layout.offsets[name] - self._end
                rest[:, start : start + self.layout.numel(name)] = gradient.flatten(1)
        held = [state[: self.touched] for state in self._rows]
        theta, first, second = zip(held, self._rest, strict=True)
        adam(
            list(theta), [gradients[self.name], rest], list(first), list(second), [], self._steps,
            foreach=False, fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=self.lr, weight_decay=0.0, eps=1e-8, maximize=False,
        )  # fmt: skip

    def settle(self, theta: Tensor) -> None:
        """Write what has been trained so far into ``theta [k, P]``."""
        if self._opened:
            self._lines(theta).index_copy_(0, self._where[: self.touched], self._rows[0][: self.touched])
            theta[:, self._end :] = self._rest[0]

    def _lines(self, theta: Tensor) -> Tensor:
        """``theta [k, P]`` as rows of the input weight's width."""
        return theta.view(-1, self._rows[0].shape[1])
