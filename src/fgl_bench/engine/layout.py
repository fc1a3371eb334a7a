"""The place of each named parameter in a replica's flat row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fgl_bench.engine import Float
from fgl_bench.engine.transfer import copy_


class ParameterLayout:
    """The slices of a replica's ``[P]`` row, and views of a stack of rows.

    The weights that multiply sparse input features are placed first, at offsets that are multiples of their width, and
    P is padded to such a multiple as well. A stack ``theta [k, P]`` is then, without a copy, one matrix with rows of that
    width, in which every replica's input weight is a block of rows: what a sparse product with block columns needs.
    The padding is zero, gets no gradient, is never sent and is not counted.

    Args:
        shapes: parameter names and shapes (without the replica dimension).
        inputs: names of the ``[F, h]`` weights that multiply the input features.

    Attributes:
        size: P, padding included.
        count: number of real scalars (the D of the specifications), which is what clients send; without ``personal`` ones.
        personal: names of the parameters that stay with the client in every method; set by :func:`fgl_bench.runner.build.simulation`.
        padding: (start, end) of the gaps between and after the parameters.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], inputs: tuple[str, ...] = ()):
        ordered = [*inputs, *(name for name in shapes if name not in inputs)]
        self.shapes = {name: tuple(shapes[name]) for name in ordered}
        self.inputs = tuple(inputs)
        self.personal: tuple[str, ...] = ()
        self.offsets: dict[str, int] = {}
        end, width = 0, 1
        for name, shape in self.shapes.items():
            step = shape[-1] if name in inputs else 1
            width = math.lcm(width, step)
            end = -(-end // step) * step
            self.offsets[name] = end
            end += math.prod(shape)
        self.size = -(-end // width) * width
        ends = [self.offsets[name] + math.prod(shape) for name, shape in self.shapes.items()]
        self.padding = [(a, b) for a, b in zip(ends, [*self.offsets.values(), self.size][1:], strict=True) if a < b]

    @property
    def count(self) -> int:
        return sum(math.prod(shape) for name, shape in self.shapes.items() if name not in self.personal)

    def of(self, replica: int) -> ParameterLayout:
        """The layout of one replica's row: this one, unless clients have backbones of their own."""
        return self

    def numel(self, name: str) -> int:
        """Scalars of one parameter."""
        return math.prod(self.shapes[name])

    def scalars(self) -> list[int]:
        """Positions of the real scalars in a row, ascending."""
        return [self.offsets[name] + i for name in self.shapes for i in range(self.numel(name))]

    def view(self, theta: Float[Tensor, "k P"], name: str) -> Float[Tensor, "k ..."]:
        """The parameter ``name`` of every replica: ``[k, P]`` to a view ``[k, *shape]``."""
        shape, start = self.shapes[name], self.offsets[name]
        return theta[:, start : start + math.prod(shape)].unflatten(1, shape)

    def views(self, theta: Float[Tensor, "k P"]) -> dict[str, Float[Tensor, "k ..."]]:
        """All parameters of every replica as views ``[k, *shape]``, keyed by name."""
        return {name: self.view(theta, name) for name in self.shapes}

    def overwrite(self, row: Float[Tensor, " P"], source: Float[Tensor, " P"], names: Iterable[str] | None) -> Float[Tensor, " P"]:
        """``row [P]`` with the parameters ``names`` (None: all) copied from ``source [P]``, in place."""
        if names is None:
            return row.copy_(source)
        for name in names:
            self.view(row[None], name).copy_(self.view(source[None], name))
        return row

    def pack(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " P"]:
        """One flat row ``[P]`` from unstacked parameters."""
        row = next(iter(parameters.values())).new_zeros(1, self.size)
        for name, view in self.views(row).items():
            view[0].copy_(parameters[name])
        return row[0]

    def collect(self, gradients: Mapping[str, Float[Tensor, "k ..."]]) -> Float[Tensor, "k P"]:
        """The flat gradient ``[k, P]`` from per-parameter gradients ``[k, *shape]``.

        The gradient of the first input weight usually lies in a zeroed ``[k, P]`` buffer already (see
        :class:`~fgl_bench.engine.sparse.BlockSparse`); that buffer is then used and only the small ones are copied.
        """
        first, *rest = self.shapes
        gradient = gradients[first]
        k, itemsize = gradient.shape[0], gradient.element_size()
        whole = gradient.untyped_storage().nbytes() == k * self.size * itemsize
        if whole and gradient.stride(0) == self.size and gradient.storage_offset() == self.offsets[first] == 0:
            flat = gradient.as_strided((k, self.size), (self.size, 1), 0)
        else:
            flat = gradient.new_empty(k, self.size)
            for start, end in self.padding:
                flat[:, start:end].zero_()
            rest = list(self.shapes)
        if rest:
            copy_([self.view(flat, name) for name in rest], [gradients[name] for name in rest])
        return flat


def glorot(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Glorot-uniform weights ``[in, out]``, as PyG's linear layers draw them."""
    bound = math.sqrt(6.0 / (shape[-2] + shape[-1]))
    return torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator)


def uniform(shape: tuple[int, ...], fan: int, generator: torch.Generator) -> Tensor:
    """Numbers within 1/sqrt(fan), as PyTorch's linear layers with ``fan`` inputs draw weights and biases."""
    return torch.empty(shape, dtype=torch.float64).uniform_(-(fan**-0.5), fan**-0.5, generator=generator)


def like_linear(layout: ParameterLayout, name: str, generator: torch.Generator) -> Tensor:
    """Initialize the weight ``name``, or the bias of a weight, as PyTorch's linear layers do."""
    return uniform(layout.shapes[name], layout.shapes[name.replace("bias", "weight")][0], generator)
