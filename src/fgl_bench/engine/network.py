"""What the trainer asks of a network; backbones are in ``models``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.parameter_groups import Rates

Parameters = Mapping[str, Tensor]


class Output(NamedTuple):
    """Attributes: hidden ``[k, n, h]``, the representation before the last layer; logits ``[k, n, Y]``."""

    hidden: Tensor
    logits: Tensor


class Network(Protocol):
    """A network for all replicas at once; :class:`~fgl_bench.models.base.Backbone` says what each of these is."""

    @property
    def dropout(self) -> float: ...

    @property
    def drops(self) -> bool: ...

    @property
    def rates(self) -> Mapping[str, Rates]: ...

    def first(self, parameters: Parameters, batch: Batch) -> Tensor: ...

    def first_of(self, parameters: Parameters, part: Part) -> Tensor: ...

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output: ...
