"""The shared parts of backbones whose propagation has no parameters, and the perceptron that follows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import DENSE_ABOVE, Batch, is_dense, nonzeros
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.linear import affine, prelu
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.propagation import Hops
from fgl_bench.errors import UserError
from fgl_bench.models.base import Backbone


class Columns(NamedTuple):
    """Widths of the products in one forward pass.

    Attributes:
        inputs: columns that the features are multiplied with, propagating afterwards.
        propagated: columns that are then propagated one hop, over all hops.
        made: columns that the precomputed matrices are multiplied with, over all of them.
    """

    inputs: int
    propagated: int
    made: int


@dataclass
class Decoupled(Backbone):
    """Hops of propagation, then a network on every node by itself; linear in the features up to the first weight W.

    ``S^k (X W) = (S^k X) W``: either the hops are made beforehand (``precomputed``: dense matrices, one product a step), or the
    narrow product is propagated at every step (``lazy``: no memory, sparse features stay sparse). Logits and gradients are
    equal up to rounding. ``auto`` counts multiplications and takes the cheaper one that fits the memory budget.

    Attributes:
        propagation: as above.
    """

    needs_neighbors: ClassVar[bool] = False

    propagation: Literal["auto", "precomputed", "lazy"]

    def hops_made(self) -> Hops:
        """The precomputed matrices."""
        raise NotImplementedError  # abstract

    def columns(self, num_classes: int) -> Columns:
        """The widths of the products, which decide which way is cheaper."""
        raise NotImplementedError  # abstract

    def made(self, batch: Batch) -> bool:
        """Whether this batch is multiplied with precomputed matrices.

        Features that a method has put in place of the clients' own may carry gradients, and are multiplied first.
        """
        return self.propagation == "precomputed" and isinstance(batch, Batch) and batch.pristine

    @property
    def rows_suffice(self) -> bool:
        return self.propagation == "precomputed"

    def series(self, batch: Batch, weight: Tensor) -> Tensor:
        """``sum_l c_l S_r^l X W`` with the one row c of :meth:`hops_made`: ``weight [k, F, h]`` to ``[k, n, h]``."""
        hops = self.hops_made()
        if self.made(batch):
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
        return self.first(parameters, part) if self.made(part) else super().first_of(parameters, part)

    def settle(
        self,
        clients: Sequence[ClientGraph],
        num_classes: int,
        device: torch.device,
        steps: int,
        batch_nodes: int | None,
        fits: Callable[[int], bool],
    ) -> Backbone:
        """Decides between ``precomputed`` and ``lazy`` for ``auto``.

        Raises:
            UserError: ``precomputed`` is asked for and does not fit.
        """
        if self.propagation == "lazy":
            return self
        copies = self.hops_made().copies
        if self.propagation == "precomputed":
            if not fits(copies):
                raise UserError(
                    f"model.propagation=precomputed: {copies} dense copies of the features do not fit memory_budget_gb; "
                    "raise it, or use model.propagation=lazy"
                )
            return self
        made, lazy = work(self, clients, num_classes, device, steps, batch_nodes)
        return replace(self, propagation="precomputed" if made < lazy and fits(copies) else "lazy")


def work(
    model: Decoupled, clients: Sequence[ClientGraph], num_classes: int, device: torch.device, steps: int, batch_nodes: int | None
) -> tuple[float, float]:
    """Multiplications of ``steps`` epochs of all clients, precomputed and lazily, one of a sparse product counting as several dense ones.

    Forward and backward cost the same. With mini-batches the lazy way propagates everything at every step.
    """
    slow = 1 / DENSE_ABOVE.get(device.type, 0.5)
    hops, columns = model.hops_made(), model.columns(num_classes)
    blocks = [client.features for client in clients]
    width = blocks[0].shape[1]
    full = len(clients) * max(client.num_nodes for client in clients) * width
    edges = sum(client.edges.shape[1] + client.num_nodes for client in clients)
    filled = full if is_dense(blocks, device) else slow * nonzeros(blocks)
    passes = 1 if batch_nodes is None else max(1, max(-(-int(client.train.sum()) // batch_nodes) for client in clients))
    once = slow * (len(hops.coefficients[0]) - 1) * edges * width
    lazy = 2 * passes * steps * (filled * columns.inputs + slow * edges * columns.propagated)
    return once + 2 * steps * full * columns.made, lazy


class Perceptron(NamedTuple):
    """Linear layers with a ReLU of trained slope (one for all, as FedGTA's code) and dropout between them.

    Attributes:
        widths: of the input, the hidden layers and the output.
        first: number of the first layer, in the parameters' names.
    """

    widths: tuple[int, ...]
    first: int = 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for i, (wide, narrow) in enumerate(zip(self.widths, self.widths[1:], strict=False), self.first):
            found[f"linear{i}.weight"], found[f"linear{i}.bias"] = (wide, narrow), (narrow,)
        return {**found, "slope": (1,)} if self.first or len(self.widths) > 2 else found

    def __call__(self, parameters: Parameters, x: Tensor, dropout: Callable[[Tensor], Tensor], since: int) -> Output:
        """The layers from number ``since`` on; ``x`` is the output of the one before, not yet activated."""
        hidden = x
        for i in range(since, self.first + len(self.widths) - 1):
            hidden = dropout(prelu(x, parameters["slope"]))
            x = affine(hidden, parameters, f"linear{i}")
        return Output(hidden, x)


def xavier(layout: ParameterLayout, generator: torch.Generator, fans: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
    """Xavier-uniform matrices with the gain of a ReLU, zero biases, slopes of 0.25, as FedGTA's code; float64.

    Args:
        fans: (in, out) of parameters that are several matrices side by side.
    """
    found = {}
    for name, shape in layout.shapes.items():
        found[name] = torch.zeros(shape, dtype=torch.float64)
        if len(shape) > 1:
            bound = math.sqrt(2) * math.sqrt(6 / sum(fans.get(name, shape)))
            found[name].uniform_(-bound, bound, generator=generator)
        elif name == "slope":
            found[name].fill_(0.25)
    return found
