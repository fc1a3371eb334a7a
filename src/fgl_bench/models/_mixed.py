"""Clients with backbones of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, DropoutFunction, no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.transfer import put
from fgl_bench.models.base import Backbone
from fgl_bench.utils.seeding import generator


def mixed(**backbones: Backbone) -> Backbone:
    """Return the network of a federation whose clients have these backbones; equal backbones are one."""
    distinct: dict[str, Backbone] = {}
    for name, backbone in backbones.items():
        if backbone.rates:
            raise ValueError(f"{name}: parameters with a learning rate or weight decay of their own need model={name} for all clients")
        distinct[name] = next((other for other in distinct.values() if other == backbone), backbone)
    first, *others = distinct.values()
    return Mixed(distinct) if any(other is not first for other in others) else first


class MixedLayout(ParameterLayout):
    """A replica's parameters as one vector, as long as the largest backbone's row; shorter rows end in zeros.

    Attributes:
        layouts: of the backbones, by name.
        names: the backbone of every replica of this worker; empty before they are dealt.
    """

    def __init__(self, layouts: Mapping[str, ParameterLayout], names: Sequence[str]):
        super().__init__({"parameters": (max(layout.size for layout in layouts.values()),)})
        self.layouts, self.names = dict(layouts), tuple(names)

    def of(self, replica: int) -> ParameterLayout:
        return self.layouts[self.names[replica]]


class Mixed(Backbone):
    """Several backbones, each for its share of the clients. A forward pass runs them one after the other, each on its own clients.

    A client's initial parameters, dropout masks and gradients are those of a run in which all clients have its backbone.

    Args:
        backbones: by the names of their keys.
    """

    dropout: ClassVar[float] = 0.0  # each backbone has its own

    def __init__(self, backbones: Mapping[str, Backbone]):
        self.backbones = dict(backbones)
        self.names: tuple[str, ...] = ()  # the backbone of every replica of this worker, once they are dealt
        self.layouts: Mapping[str, ParameterLayout] = {}

    def each(self, function: Callable[[Backbone], Backbone]) -> Mixed:
        """Return the same network with ``function`` applied to every backbone."""
        return Mixed({name: function(backbone) for name, backbone in self.backbones.items()})

    def dealt(self, seed: int, clients: int) -> list[str]:
        """Return the backbone of every client: they are dealt in turn, to the clients in a random order of this seed."""
        names, known = [""] * clients, list(self.backbones)
        for turn, client in enumerate(generator(seed, "backbones").permutation(clients).tolist()):
            names[client] = known[turn % len(known)]
        return names

    def deal(self, seeds: Sequence[int], clients: int, own: slice, num_features: int, num_classes: int) -> Mixed:
        """Return the network of the clients ``own`` of every seed."""
        network = Mixed(self.backbones)
        network.names = tuple(name for seed in seeds for name in self.dealt(seed, clients)[own])
        network.layouts = network.layout(num_features, num_classes).layouts
        return network

    @property
    def drops(self) -> bool:
        return any(backbone.drops for backbone in self.backbones.values())

    def layout(self, num_features: int, num_classes: int) -> MixedLayout:
        return MixedLayout({name: backbone.layout(num_features, num_classes) for name, backbone in self.backbones.items()}, self.names)

    def initial(self, layout: ParameterLayout, make: Callable[[], torch.Generator], replicas: range) -> Tensor:
        rows = {}
        for name, inner in self.layouts.items():
            row = inner.pack(self.backbones[name].init_parameters(inner, make()))
            rows[name] = F.pad(row, (0, layout.size - inner.size))
        return torch.stack([rows[self.names[replica]] for replica in replicas])

    def widest(self, num_features: int, num_classes: int) -> int:
        return max(backbone.widest(num_features, num_classes) for backbone in self.backbones.values())

    def settle(self, *what: Any) -> Backbone:
        return self.each(lambda backbone: backbone.settle(*what))

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """Return an empty tensor ``[k, n, 0]``: the backbones' results have different widths, so :meth:`forward` computes them."""
        return parameters["parameters"].new_empty(batch.size, batch.nodes, 0)

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Output:
        """Return the output of all replicas; hidden representations are padded with zeros to the widest."""
        outputs, (groups, order) = [], self._groups(batch)
        for name, index, part in groups:
            backbone = self.backbones[name]
            own = pieces(parameters["parameters"].index_select(0, index), self.layouts[name])
            masks = dropout.select(index, backbone.dropout) if isinstance(dropout, Dropout) and backbone.drops else no_dropout
            outputs.append(backbone.forward(own, part, backbone.first(own, part), masks))
        wide = max(output.hidden.shape[-1] for output in outputs)
        hidden = torch.cat([F.pad(output.hidden, (0, wide - output.hidden.shape[-1])) for output in outputs])
        return Output(hidden.index_select(0, order), torch.cat([output.logits for output in outputs]).index_select(0, order))

    def _groups(self, batch: Batch) -> tuple[list[tuple[str, Tensor, Batch]], Tensor]:
        """Return name, positions and batch of every backbone's replicas, and the replicas' places when they lie group after group."""
        if self.names not in batch.memo:
            names = [self.names[replica] for replica in batch.replicas.tolist()]
            rows = {name: [row for row, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}
            order = np.argsort(np.concatenate(list(rows.values())))
            groups = [(name, put(own, batch.device, torch.int64), batch.select(own)) for name, own in rows.items()]
            batch.memo[self.names] = groups, put(order.tolist(), batch.device, torch.int64)
        return batch.memo[self.names]


def pieces(theta: Tensor, layout: ParameterLayout) -> dict[str, Tensor]:
    """Return the parameters ``[k, *shape]`` in ``theta [k, P]``, whose gradient is put together at once."""
    sizes, end = [], 0
    for name, start in layout.offsets.items():
        sizes += [start - end, layout.numel(name)]  # what lies between two parameters, mostly nothing
        end = start + layout.numel(name)
    parts = theta.split([*sizes, theta.shape[1] - end], 1)[1::2]
    return {name: part.unflatten(1, layout.shapes[name]) for name, part in zip(layout.offsets, parts, strict=True)}
