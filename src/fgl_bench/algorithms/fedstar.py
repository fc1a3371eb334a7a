"""FedStar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Federating
from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.engine.batch import Batch, adjacency, gcn_operator
from fgl_bench.engine.layout import ParameterLayout, glorot, like_linear
from fgl_bench.engine.linear import affine, linear
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.stacked_optimizers import Rates
from fgl_bench.errors import Range, Unsuited, at_least
from fgl_bench.models.base import Around, Backbone
from fgl_bench.models.gin_plain import convolve


@dataclass
class FedStar(FedAvg, Federating):
    """Structural knowledge is shared, features stay with the client (Tan et al., AAAI 2023).

    A node has a structure encoding: the diagonals of the first ``walks`` powers of the random walk ``A D^-1``, and its degree (one-hot,
    1 to ``degrees``). Structure embeddings ``s' = tanh(GCN(s))`` run along those of features, ``x' = dropout(ReLU(GIN([x, s])))``, and
    a linear layer of both goes into the readout. The structure encoder (the encoding's linear layer and the graph convolutions of s) is
    averaged as in FedAvg; all other parameters are the client's own.

    Resolutions: width, layers and dropout are those of the model, whose convolutions are replaced by the authors' GIN (no normalization,
    eps 0); a node without edges has a random walk of zeros (the authors' code divides by zero) and the degree 1. The paper classifies
    graphs; where nodes are classified, the linear layer of both gives the logits.

    Attributes:
        walks, degrees: lengths of the two parts of the encoding.
    """

    pairing: ClassVar[Mapping[str, str]] = {"model": "gin_plain"}
    ranges: ClassVar[dict[str, Range]] = {"walks": at_least(1), "degrees": at_least(1)}

    walks: int
    degrees: int

    def federate(self, federation: Federation) -> Federation:
        clients = tuple(self._encoded(client) for client in federation.clients)
        same = federation.observed is federation.clients
        observed = clients if same else tuple(self._encoded(client) for client in federation.observed)
        width = federation.num_features + self.walks + self.degrees
        return replace(federation, clients=clients, observed=observed, num_features=width)

    def _encoded(self, client: ClientGraph) -> ClientGraph:
        matrix = adjacency(client)
        degree = np.asarray(matrix.sum(1)).ravel()
        walk = (matrix @ sp.diags(np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0))).tocsr()
        power, diagonals = walk, [walk.diagonal()]
        for _ in range(self.walks - 1):
            power = power @ walk
            diagonals.append(power.diagonal())
        one_hot = np.eye(self.degrees)[degree.clip(1, self.degrees).astype(int) - 1]
        encoding = np.concatenate([np.stack(diagonals, 1), one_hot], 1).astype(np.float32)
        if sp.issparse(client.features):
            return replace(client, features=sp.hstack([client.features, sp.csr_matrix(encoding)]).tocsr())
        return replace(client, features=np.concatenate([client.features, encoding], 1))

    def backbone(self, model: Backbone) -> Backbone:
        if not isinstance(model, Around):
            return Structural(model, self.walks + self.degrees)
        whole = copy(model)  # a task's head
        whole.inner = Structural(model.inner, self.walks + self.degrees)
        return whole

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self.shared = tuple(name for name in setting.layout.shapes if name.startswith("structure"))

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return replace(super().mix(reports, arrived), shared=self.shared)

    def traffic(self) -> Traffic:
        structure = {"structure": sum(self.setting.layout.numel(name) for name in self.shared)}
        return Traffic(upload=structure, download=structure)


class Structural(Around):
    """The authors' two channels in place of the convolutions of a backbone; the last ``encoding`` columns of the features are structure."""

    def __init__(self, inner: Backbone, encoding: int):
        super().__init__(inner)
        hidden, layers = getattr(inner, "hidden", None), getattr(inner, "layers", None)
        if not (isinstance(hidden, int) and isinstance(layers, int)):
            raise Unsuited("needs a backbone with one hidden width, from which it takes the width and the number of its layers")
        self.encoding, self.hidden, self.layers = encoding, hidden, layers

    needs_neighbors: ClassVar[bool] = True  # two kinds of convolutions
    rows_suffice: ClassVar[bool] = False
    rates: ClassVar[Mapping[str, Rates]] = {}
    widest = Backbone.widest

    @property
    def drops(self) -> bool:
        return bool(self.dropout)

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        h = self.hidden
        shapes: dict[str, tuple[int, ...]] = {"input.weight": (num_features - self.encoding, h), "input.bias": (h,)}
        shapes |= {"structure.weight": (self.encoding, h), "structure.bias": (h,)}
        for i in range(self.layers):
            shapes |= {f"conv{i}.weight": (2 * h, h), f"conv{i}.bias": (h,), f"conv{i}.out.weight": (h, h), f"conv{i}.out.bias": (h,)}
            shapes |= {f"structure{i}.weight": (h, h), f"structure{i}.bias": (h,)}
        return ParameterLayout({**shapes, "joint.weight": (2 * h, num_classes), "joint.bias": (num_classes,)})

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return linear layers uniform within 1/sqrt(in), as in PyTorch; graph convolutions Glorot-uniform with zero biases, as in PyG."""
        initial = {name: like_linear(layout, name, generator) for name in layout.shapes}
        for i in range(self.layers):
            initial[f"structure{i}.weight"] = glorot(layout.shapes[f"structure{i}.weight"], generator)
            initial[f"structure{i}.bias"].zero_()
        return initial

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """Return features and structure after their linear layers, ``[k, n, 2h]``."""
        own, structure = parameters["input.weight"], parameters["structure.weight"]
        h = own.shape[2]
        both = torch.cat([F.pad(own, (0, h)), F.pad(structure, (h, 0))], 1)
        return batch.features @ both + torch.cat([parameters["input.bias"], parameters["structure.bias"]], 1)[:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        x, s = first.chunk(2, -1)
        for i in range(self.layers):
            x = dropout(convolve(torch.cat([x, s], -1), i, parameters, batch))
            moved = batch.operator(gcn_operator) @ linear(s, parameters[f"structure{i}.weight"])
            s = torch.tanh(moved + parameters[f"structure{i}.bias"][:, None])
        both = torch.cat([x, s], -1)
        return Output(both, affine(both, parameters, "joint"))
