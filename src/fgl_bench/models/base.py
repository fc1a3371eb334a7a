"""The base of all backbones, on stacked parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.stacked_optimizers import Rates


@dataclass
class Backbone:
    """A graph neural network for all replicas at once; a subclass's fields are its hyperparameters.

    Parameters are stacks ``[k, *shape]``; the graph of replica i is used with the parameters of replica i only.

    Class attributes:
        needs_neighbors: whether a node's logits need its neighbors at run time, so that ``batch_nodes`` makes no sense.
        beside: layers outside the chain from the features to the logits, such as those that weight hops.
    """

    needs_neighbors: ClassVar[bool] = True
    beside: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:  # a field of most backbones; a class attribute would become that field's default

        @property
        def dropout(self) -> float: ...

    @property
    def rows_suffice(self) -> bool:
        """Whether a node's logits need nothing but that node's rows of matrices made beforehand."""
        return False

    @property
    def drops(self) -> bool:
        """Whether training mode draws dropout masks at all."""
        return bool(self.dropout)

    @property
    def rates(self) -> Mapping[str, Rates]:
        """Parameters with a learning rate or a weight decay of their own, by name. A method's own learning rate takes their place too."""
        return {}

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        """Names and shapes of the parameters."""
        raise NotImplementedError  # abstract

    def chain(self, layout: ParameterLayout) -> list[tuple[str, ...]]:
        """Names of the parameters of every layer, from the features to the logits (for methods that treat the last ones differently).

        ``conv0.weight`` is of the layer ``conv0``. Parameters of no layer (slopes, a filter's coefficients), or of one in :attr:`beside`,
        belong to the first.
        """
        layer = {name: name.rpartition(".")[0] for name in layout.shapes}
        _, *rest = dict.fromkeys(found for found in layer.values() if found and found not in self.beside)
        late = [tuple(name for name in layer if layer[name] == found) for found in rest]
        return [tuple(name for name in layer if layer[name] not in rest), *late]

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Unstacked initial parameters (float64): Glorot-uniform matrices, zero biases, as in PyG's convolutions."""
        return {
            name: glorot(shape, generator) if len(shape) > 1 else torch.zeros(shape, dtype=torch.float64)
            for name, shape in layout.shapes.items()
        }

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """The part of the forward pass before any dropout, ``[k, n, h]``.

        It is the same in training and evaluation mode, so evaluating a received model and the next training step share it.
        """
        raise NotImplementedError  # abstract

    def first_of(self, parameters: Parameters, part: Part) -> Tensor:
        """:meth:`first` of a mini-batch of nodes: rows of the result for the whole batch, unless a backbone overrides it."""
        return part.take(self.first(parameters, part.whole))

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        """The rest of the forward pass, from what :meth:`first` returned."""
        raise NotImplementedError  # abstract

    def widest(self, num_features: int, num_classes: int) -> int:
        """Columns of the widest ``[n, columns]`` that a step makes: where programs are large, an operation has several threads."""
        return max((shape[-1] for shape in self.layout(num_features, num_classes).shapes.values() if len(shape) > 1), default=1)

    def reads_shared_matrices(self, nodes: int, num_features: int, num_classes: int) -> bool:
        """Whether a step of a client of so many nodes mostly reads matrices that seeds with the same clients share.

        On a CPU one program then trains several seeds, and reads the matrices once for all of them.
        """
        return False

    def settle(
        self,
        clients: Sequence[ClientGraph],
        num_classes: int,
        device: torch.device,
        steps: int,
        batch_nodes: int | None,
        fits: Callable[[int], bool],
    ) -> Backbone:
        """This backbone with all choices made that depend on the data; called once, before the parameters are laid out.

        Args:
            steps: local epochs that every client will train.
            batch_nodes: training nodes per gradient step; None means all.
            fits: whether so many dense matrices ``[n, F]`` of every client stay within the budget of memory.
        """
        return self


@dataclass
class Spectral(Backbone):
    """A backbone that filters with ``sum_j w_j B_j``, one scalar for each of J bases; methods that align filters compare these scalars."""

    coefficients: ClassVar[str] = "filter"  # the parameter [J] behind w

    @property
    def scalar(self) -> bool:
        """Whether the filter has one scalar per order."""
        return True

    def weights(self, parameters: Parameters) -> Tensor:
        """w, ``[k, J]``."""
        return parameters[self.coefficients]

    def label_basis(self, batch: Batch, labels: Tensor) -> Tensor:
        """``B_j labels`` with ``labels [k, n, Y]`` instead of the features, ``[k, J, n, Y]``."""
        raise NotImplementedError  # abstract

    def mean_responses(self, batch: Batch) -> Tensor:
        """The mean over a client's nodes of the rows of ``B_j X``, ``[k, J, F]``."""
        raise NotImplementedError  # abstract


class Around(Backbone):
    """A network around another one, for a method with parameters or inputs of its own; this base does not change it."""

    def __init__(self, inner: Backbone):
        self.inner = inner

    @property
    def dropout(self) -> float:
        return self.inner.dropout

    @property
    def drops(self) -> bool:
        return self.inner.drops

    @property
    def rates(self) -> Mapping[str, Rates]:
        return self.inner.rates

    @property
    def needs_neighbors(self) -> bool:  # type: ignore[override]  # the inner network decides
        return self.inner.needs_neighbors

    @property
    def rows_suffice(self) -> bool:
        return self.inner.rows_suffice

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        return self.inner.layout(num_features, num_classes)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        return self.inner.init_parameters(layout, generator)

    def widest(self, num_features: int, num_classes: int) -> int:
        return self.inner.widest(num_features, num_classes)

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        return self.inner.first(parameters, batch)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        return self.inner.forward(parameters, batch, first, dropout)


def hidden_widths(hidden: int | list[int], layers: int, head: str) -> list[int]:
    """Widths of the hidden representations of ``layers`` convolutions, the last of which gives the logits unless ``head`` is linear.

    Raises:
        ValueError: ``hidden`` is a list of another length, or not of positive numbers.
    """
    count = layers if head == "linear" else layers - 1
    if layers < 1:
        raise ValueError(f"layers={layers}: must be at least 1")
    widths = list(hidden) if isinstance(hidden, list | tuple) else [hidden] * count
    if len(widths) != count:
        raise ValueError(f"hidden={widths}: layers={layers} with head={head} has {count} hidden widths; give as many, or one number")
    if not all(isinstance(width, int) and width >= 1 for width in widths):
        raise ValueError(f"hidden={hidden}: must be an integer of at least 1, or a list of such")
    return widths
