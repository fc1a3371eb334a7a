"""Base of all backbones, with stacked parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

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
    """A graph neural network for all replicas at once; the fields of a subclass are its hyperparameters.

    Parameters are stacks ``[k, *shape]``; parameters of replica i are applied to the graph of replica i only.

    Class attributes:
        needs_neighbors: True if a node's logits depend on its neighbors at run time, which rules out ``batch_nodes``.
        auxiliary: layers outside the chain from the features to the logits, such as attention over hops.
    """

    needs_neighbors: ClassVar[bool] = True
    auxiliary: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:  # a field of most backbones; a class attribute would become that field's default

        @property
        def dropout(self) -> float: ...

    @property
    def rows_suffice(self) -> bool:
        """Return True if a node's logits depend only on its rows of precomputed matrices."""
        return False

    @property
    def normalizes(self) -> bool:
        """Return True if a node's output depends on the nodes ``Batch.reference`` of its client, as with batch normalization."""
        return False

    @property
    def drops(self) -> bool:
        """Return True if training mode draws dropout masks."""
        return bool(self.dropout)

    @property
    def rates(self) -> Mapping[str, Rates]:
        """Return the rates of parameters with their own learning rate or weight decay, by name; a method's learning rate overrides them."""
        return {}

    def encoder(self) -> Backbone:
        """Return this backbone without a head of its own: the last convolution gives the output."""
        return replace(cast(Any, self), head="conv") if any(field.name == "head" for field in fields(self)) else self

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        """Return names and shapes of the parameters."""
        raise NotImplementedError  # abstract

    def chain(self, layout: ParameterLayout) -> list[tuple[str, ...]]:
        """Return the parameter names of every layer, from the features to the logits (for methods that treat the last layers differently).

        ``conv0.weight`` belongs to the layer ``conv0``. Parameters without a layer (slopes, a filter's coefficients), or with a layer in
        :attr:`auxiliary`, belong to the first layer.
        """
        layer = {name: name.rpartition(".")[0] for name in layout.shapes}
        _, *rest = dict.fromkeys(each for each in layer.values() if each and each not in self.auxiliary)
        late = [tuple(name for name in layer if layer[name] == each) for each in rest]
        return [tuple(name for name in layer if layer[name] not in rest), *late]

    def ends(self, layout: ParameterLayout) -> tuple[str, ...]:
        """Return the names of the parameters that multiply features, with their biases, and of those of the last layer."""
        first = [name for weight in layout.inputs for name in (weight, weight.replace("weight", "bias")) if name in layout.shapes]
        return tuple(dict.fromkeys([*first, *self.chain(layout)[-1]]))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return unstacked initial parameters (float64): Glorot-uniform matrices and zero biases, as in PyG's convolutions."""
        return {
            name: glorot(shape, generator) if len(shape) > 1 else torch.zeros(shape, dtype=torch.float64)
            for name, shape in layout.shapes.items()
        }

    def initial(self, layout: ParameterLayout, make: Callable[[], torch.Generator], replicas: range) -> Tensor:
        """Return the initial models of some replicas of one seed, ``[k, P]`` float64; ``make`` makes the seed's generator."""
        return layout.pack(self.init_parameters(layout, make())).expand(len(replicas), -1)

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """Return the result of the forward pass before any dropout, ``[k, n, h]``.

        It is the same in training and evaluation mode, so the evaluation of a received model and the next training step share it.
        """
        raise NotImplementedError  # abstract

    def first_of(self, parameters: Parameters, part: Part) -> Tensor:
        """Return :meth:`first` for a mini-batch of nodes; by default rows of the result for the whole batch."""
        return part.take(self.first(parameters, part.whole))

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        """Return the output of the rest of the forward pass, given the result of :meth:`first`."""
        raise NotImplementedError  # abstract

    def widest(self, num_features: int, num_classes: int) -> int:
        """Return the columns of a step's widest ``[n, columns]`` tensor; operations of large programs use several threads."""
        return max((shape[-1] for shape in self.layout(num_features, num_classes).shapes.values() if len(shape) > 1), default=1)

    def reads_shared_matrices(self, nodes: int, num_features: int, num_classes: int) -> bool:
        """Return True if a step of a client of ``nodes`` nodes mostly reads matrices shared by seeds with the same clients.

        On a CPU, one program then trains several seeds and reads the matrices once for all of them.
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
        """Return this backbone with data-dependent choices resolved; called once, before the parameters are laid out.

        Args:
            steps: local epochs per client over the whole run.
            batch_nodes: training nodes per gradient step; None means all.
            fits: returns True if this number of dense matrices ``[n, F]`` per client fits the memory budget.
        """
        return self


@dataclass
class Spectral(Backbone):
    """A backbone that filters with ``sum_j w_j B_j``, one scalar per basis; methods that align filters compare these scalars."""

    coefficients: ClassVar[str] = "filter"  # the parameter [J] behind w

    @property
    def scalar(self) -> bool:
        """Return True if the filter has one scalar per order."""
        return True

    def weights(self, parameters: Parameters) -> Tensor:
        """Return w, ``[k, J]``."""
        return parameters[self.coefficients]

    def label_basis(self, batch: Batch, labels: Tensor) -> Tensor:
        """Return ``B_j labels`` with ``labels [k, n, Y]`` in place of the features, ``[k, J, n, Y]``."""
        raise NotImplementedError  # abstract

    def mean_responses(self, batch: Batch) -> Tensor:
        """Return the mean of the rows of ``B_j X`` over a client's nodes, ``[k, J, F]``."""
        raise NotImplementedError  # abstract


class Around(Backbone):
    """Wrapper of a backbone, for a method with its own parameters or inputs; the base forwards everything."""

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

    @property
    def normalizes(self) -> bool:
        return self.inner.normalizes

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
    """Return the hidden widths of ``layers`` convolutions; the last convolution gives the logits unless ``head`` is linear.

    Raises:
        ValueError: ``hidden`` has the wrong length or holds numbers that are not positive.
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
