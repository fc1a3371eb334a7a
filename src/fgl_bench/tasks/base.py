"""Base of all tasks, and of the heads that turn a backbone's embeddings into logits of examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.data.federation import Labeling
from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.sparsity import NoSparsity, Sparsity
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.minibatch import Part
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.errors import UserError
from fgl_bench.models.base import Around, Backbone


class Task(Labeling):
    """Base of all tasks; the fields of a subclass are its keys.

    A task states what the examples of a client are (:class:`~fgl_bench.data.federation.Labeling`) and which network predicts their labels.
    Scenarios, methods, metrics and tables handle examples of any kind.

    Class attributes:
        name: by which datasets and methods declare the tasks that they are for.
    """

    name: ClassVar[str]

    def network(self, model: Backbone) -> Backbone:
        """Return the network that predicts the labels of examples with the layers of ``model``."""
        raise NotImplementedError  # abstract

    def check(self, split: Split, sparsity: Sparsity, out_of_core: object) -> None:
        """Raise UserError if the task is not defined for these choices."""


def check_whole_clients(task: Task, split: Split, sparsity: Sparsity, out_of_core: object) -> None:
    """Raise UserError for settings that are defined by training nodes."""
    wrong = {
        f"split.test={split.test}": ("split.test=clients", split.test != "clients"),
        "split.inductive=true": ("split.inductive=false", split.inductive),
        "out_of_core=true": ("out_of_core=false", out_of_core is True),
        f"scenario/sparsity={type(sparsity).__name__.removesuffix('Sparsity').lower()}": (
            "scenario/sparsity=none",
            not isinstance(sparsity, NoSparsity),
        ),
    }
    for setting, (allowed, found) in wrong.items():
        if found:
            raise UserError(f"{setting}: is defined for task=node only, not for task={task.name}; use {allowed}")


class Head(Around):
    """A backbone whose output is an embedding of width ``width`` per node, and the task's own last layers.

    Graphs without examples, such as a method's proxy graph, have the embeddings as output.

    Args:
        inner: the backbone; a head of its own is replaced (:meth:`Backbone.encoder`).
    """

    needs_neighbors: ClassVar[bool] = False  # a mini-batch of examples has the neighbors that it needs
    rows_suffice: ClassVar[bool] = False

    def __init__(self, inner: Backbone, width: int):
        super().__init__(inner.encoder())
        self.width = width

    @property
    def auxiliary(self) -> tuple[str, ...]:  # type: ignore[override]  # the inner network's
        return self.inner.auxiliary

    def shapes(self, num_classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the task's own parameters: linear layers."""
        raise NotImplementedError  # abstract

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        inner = self.inner.layout(num_features, self.width)
        return ParameterLayout({**inner.shapes, **self.shapes(num_classes)}, inner.inputs)

    def ends(self, layout: ParameterLayout) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*super().ends(layout), *self.shapes(1)]))

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        own = self.shapes(1)
        inner = ParameterLayout({name: shape for name, shape in layout.shapes.items() if name not in own}, layout.inputs)
        initial = self.inner.init_parameters(inner, generator)
        return {**initial, **{name: like_linear(layout, name, generator) for name in own}}

    def settle(
        self,
        clients: Sequence[ClientGraph],
        num_classes: int,
        device: torch.device,
        steps: int,
        batch_nodes: int | None,
        fits: Callable[[int], bool],
    ) -> Backbone:
        settled = copy(self)
        settled.inner = self.inner.settle(clients, self.width, device, steps, None, fits)
        return settled

    def scope(self, batch: Batch) -> Batch:
        """Return the batch of the nodes that the examples of ``batch`` need."""
        raise NotImplementedError  # abstract

    def first_of(self, parameters: Parameters, part: Part) -> Tensor:
        return self.inner.first(parameters, self.scope(part))

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        scope = self.scope(batch) if isinstance(batch, Part) else batch
        embeddings = self.inner.forward(parameters, scope, first, dropout).logits
        if scope.clients[0].of_nodes:
            return Output(embeddings, embeddings)
        return self.predict(parameters, batch, scope, embeddings, dropout)

    def predict(self, parameters: Parameters, batch: Batch, scope: Batch, embeddings: Tensor, dropout: DropoutFunction) -> Output:
        """Return the output for the examples of ``batch``, ``[k, m, ...]``.

        Args:
            scope: the batch of the nodes.
            embeddings: ``[k, n, width]``, of the nodes of ``scope``.
        """
        raise NotImplementedError  # abstract
