"""Bases of backbones whose first layer is linear in propagated features, and the perceptron that follows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import DENSE_ABOVE, Batch, Operator, is_dense, nonzeros
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.linear import affine, prelu
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import Hops, OneHop
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone


class Columns(NamedTuple):
    """Widths of the products in one forward pass.

    Attributes:
        inputs: columns of the weight that multiplies the features before propagation.
        propagated: columns propagated by one hop, summed over all hops.
        precomputed: columns multiplied with precomputed matrices, summed over all of them.
    """

    inputs: int
    propagated: int
    precomputed: int


@dataclass
class Decoupled(Backbone):
    """Hops of propagation, then a network on each node separately; linear in the features up to the first weight W.

    Since ``S^k (X W) = (S^k X) W``, either the hops are precomputed (``precomputed``: dense matrices, one product per step), or the
    narrow product is propagated at every step (``lazy``: no extra memory, sparse features stay sparse). Logits and gradients are
    equal up to rounding. ``auto`` counts multiplications and takes the cheaper way that fits the memory budget.

    Attributes:
        propagation: as above.
    """

    needs_neighbors: ClassVar[bool] = False

    propagation: Literal["auto", "precomputed", "lazy"]

    def hop_matrices(self) -> Hops:
        """Return the matrices to precompute."""
        raise NotImplementedError  # abstract

    def columns(self, num_classes: int) -> Columns:
        """Return the widths of the products, which determine the cheaper way."""
        raise NotImplementedError  # abstract

    def uses_precomputed(self, batch: Batch) -> bool:
        """Return True if ``batch`` is multiplied with precomputed matrices.

        Features that a method substitutes for the clients' own may carry gradients, so they are multiplied first.
        """
        return self.propagation == "precomputed" and isinstance(batch, Batch) and batch.pristine

    @property
    def rows_suffice(self) -> bool:
        return self.propagation == "precomputed"

    def series(self, batch: Batch, weight: Tensor) -> Tensor:
        """Return ``sum_l c_l S_r^l X W`` with the single row c of :meth:`hop_matrices`: ``weight [k, F, h]`` to ``[k, n, h]``."""
        hops = self.hop_matrices()
        if self.uses_precomputed(batch):
            return (batch.derived(hops) @ weight[:, None])[:, 0]
        (row,) = hops.coefficients
        x, total = batch.features @ weight, None
        operator = batch.operator(hops.operator) if len(row) > 1 else None
        for hop, coefficient in enumerate(row):
            x = operator @ x if hop and operator is not None else x
            if coefficient:
                term = x if coefficient == 1 else coefficient * x
                total = term if total is None else total + term
        return torch.zeros_like(x) if total is None else total

    def first_of(self, parameters: Parameters, part: Part) -> Tensor:
        return self.first(parameters, part) if self.uses_precomputed(part) else super().first_of(parameters, part)

    def settle(
        self,
        clients: Sequence[ClientGraph],
        num_classes: int,
        device: torch.device,
        steps: int,
        batch_nodes: int | None,
        fits: Callable[[int], bool],
    ) -> Backbone:
        """Choose between ``precomputed`` and ``lazy`` for ``auto``.

        Raises:
            UserError: ``precomputed`` was chosen and does not fit.
        """
        if self.propagation == "lazy":
            return self
        copies = self.hop_matrices().copies
        if self.propagation == "precomputed":
            if not fits(copies):
                raise UserError(
                    f"model.propagation=precomputed: {copies} dense copies of the features do not fit memory_budget_gb; "
                    "raise it, or use model.propagation=lazy"
                )
            return self
        precomputed, lazy = work(self, clients, num_classes, device, steps, batch_nodes)
        return replace(self, propagation="precomputed" if precomputed < lazy and fits(copies) else "lazy")


def work(
    model: Decoupled, clients: Sequence[ClientGraph], num_classes: int, device: torch.device, steps: int, batch_nodes: int | None
) -> tuple[float, float]:
    """Return the multiplications of ``steps`` epochs of all clients, precomputed and lazy; a sparse one counts as several dense ones.

    Forward and backward cost the same. With mini-batches, the lazy way propagates all features at every step.
    """
    slow = 1 / DENSE_ABOVE.get(device.type, 0.5)
    hops, columns = model.hop_matrices(), model.columns(num_classes)
    blocks = [client.features for client in clients]
    width = blocks[0].shape[1]
    full = len(clients) * max(client.num_nodes for client in clients) * width
    edges = sum(client.edges.shape[1] + client.num_nodes for client in clients)
    filled = full if is_dense(blocks, device) else slow * nonzeros(blocks)
    passes = 1 if batch_nodes is None else max(1, max(-(-int(client.train.sum()) // batch_nodes) for client in clients))
    once = slow * (len(hops.coefficients[0]) - 1) * edges * width
    lazy = 2 * passes * steps * (filled * columns.inputs + slow * edges * columns.propagated)
    return once + 2 * steps * full * columns.precomputed, lazy


class Perceptron(NamedTuple):
    """Linear layers with PReLU (one slope for all layers, as in FedGTA's code) and dropout between them.

    Attributes:
        widths: of the input, the hidden layers and the output.
        first: number of the first layer in the parameters' names.
    """

    widths: tuple[int, ...]
    first: int = 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        layers: dict[str, tuple[int, ...]] = {}
        for i, (wide, narrow) in enumerate(zip(self.widths, self.widths[1:], strict=False), self.first):
            layers[f"linear{i}.weight"], layers[f"linear{i}.bias"] = (wide, narrow), (narrow,)
        return {**layers, "slope": (1,)} if self.first or len(self.widths) > 2 else layers

    def __call__(self, parameters: Parameters, x: Tensor, dropout: Callable[[Tensor], Tensor], since: int) -> Output:
        """Apply the layers from number ``since`` on to ``x``, the output of the previous layer before activation."""
        hidden = x
        for i in range(since, self.first + len(self.widths) - 1):
            hidden = dropout(prelu(x, parameters["slope"]))
            x = affine(hidden, parameters, f"linear{i}")
        return Output(hidden, x)


def xavier(layout: ParameterLayout, generator: torch.Generator, fans: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
    """Return Xavier-uniform matrices with the gain of a ReLU, zero biases and slopes of 0.25, as in FedGTA's code; float64.

    Args:
        fans: (in, out) of parameters that concatenate several matrices.
    """
    initial = {}
    for name, shape in layout.shapes.items():
        initial[name] = torch.zeros(shape, dtype=torch.float64)
        if len(shape) > 1:
            bound = math.sqrt(2) * math.sqrt(6 / sum(fans.get(name, shape)))
            initial[name].uniform_(-bound, bound, generator=generator)
        elif name == "slope":
            initial[name].fill_(0.25)
    return initial


@dataclass
class FirstHop(Decoupled):
    """``A (X W) = (A X) W``: the first and widest propagation can be precomputed, since no dropout precedes it.

    For dense features this saves one product of the first layer. Sparse features would become dense, so ``auto`` precomputes
    them only if that takes fewer multiplications.

    Class attributes:
        hop: A.
    """

    needs_neighbors: ClassVar[bool] = True
    hop: ClassVar[Operator]

    propagation: Literal["auto", "precomputed", "lazy"] = field(default="auto", kw_only=True)

    def hop_matrices(self) -> Hops:
        return OneHop(by=type(self).hop)


def stacked(widths: Sequence[int], layers: int, sides: int = 1) -> ParameterLayout:
    """Return the layout of convolutions ``conv0``, ..., of ``sides`` matrices ``[in, sides * out]`` and a bias, then a linear ``head``.

    Args:
        widths: of the features, the hidden representations and the logits; two more than ``layers`` with a head.
        layers: number of convolutions.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
        name, count = (f"conv{i}", sides) if i < layers else ("head", 1)
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (wide, count * narrow), (narrow,)
    return ParameterLayout(shapes, inputs=("conv0.weight",))
