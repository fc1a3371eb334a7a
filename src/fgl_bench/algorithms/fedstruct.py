"""FedStruct."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Federating
from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.data.pooling import pool
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.dropout import DropoutFunction
from fgl_bench.engine.layout import ParameterLayout, like_linear
from fgl_bench.engine.linear import affine
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, Unsuited, UserError, above, at_least
from fgl_bench.models.base import Around, Backbone
from fgl_bench.utils.seeding import derive_seed


@dataclass
class FedStruct(FedAvg, Federating):
    """FedAvg with learned structure features of all clients' nodes (Aliakbari, Ostman & Graell i Amat, ICLR 2025, with Hop2Vec).

    Clients share a vector per node of the union of their graphs, ``S [N, d]``, which begins as Gaussian noise and holds no feature of a
    node. With ``P = (D + I)^-1 (A + I)`` of the union, edges between clients included, the logits of client i are those of its own network
    on its own graph plus the rows of its nodes of ``P^L g(S)``, where g is a perceptron with a layer normalization at its input.
    Networks and g are averaged. Clients upload the gradient of S in place of S; the server takes a step of Adam with the mean gradient,
    weighted as models are.

    Resolutions: as the authors' code where it averages weights (``joint_train_w``). Its losses are cross-entropies of logits
    to which softmax was applied; here of the logits. With several local steps the mean of their gradients of S is uploaded. The
    protocol by which clients compute their rows of P^L without showing each other their edges is not simulated; what it sends is counted as
    one upload of the rows of P and one download of the rows of P^L, dense. The sum over hops of the paper is P^L alone, as in the code.

    Attributes:
        hops: L.
        width: d.
        hidden: width of g's hidden layer.
        spread: standard deviation of the initial S.
        structure_lr: learning rate of the server's Adam; null takes that of the clients.
        structure_weight_decay: its L2 penalty.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    predicts_alone: ClassVar[bool] = False
    node_batches: ClassVar[bool] = False
    rebuilt: ClassVar[tuple[str, ...]] = ("owner", "gradient")
    ranges: ClassVar[dict[str, Range]] = {
        "hops": at_least(1), "width": at_least(1), "hidden": at_least(1), "spread": above(0), "structure_lr": above(0),
        "structure_weight_decay": at_least(0),
    }  # fmt: skip

    hops: int
    width: int
    hidden: int
    spread: float
    structure_lr: float | None
    structure_weight_decay: float

    def check_choices(self, model: Backbone, split: Split) -> None:
        super().check_choices(model, split)
        if split.test == "server":
            raise Unsuited("needs split.test=clients: a server's nodes have no structure features")

    def federate(self, federation: Federation) -> Federation:
        if any(client.folder is not None for client in federation.clients):
            raise UserError("out_of_core=true: algorithm=fedstruct reads the edges of all clients, in memory; set out_of_core=false")
        whole = pool(federation, crossing=True)
        clients = joined(whole.clients[0], federation.clients)
        same = federation.observed is federation.clients
        return replace(federation, clients=clients, observed=clients if same else joined(whole.observed[0], federation.observed))

    def backbone(self, model: Backbone) -> Backbone:
        return Structural(model, self.width, self.hidden, self.hops)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, seeds = setting.batch, len(setting.seeds)
        clients = [cast(Joined, client) for client in batch.clients]
        count = max(client.walk.shape[0] for client in clients)
        self.owner = torch.arange(batch.size, device=batch.device) // (batch.size // seeds)
        draws = [torch.Generator().manual_seed(derive_seed(seed, "fedstruct")) for seed in setting.seeds]
        drawn = [self.spread * torch.randn(count, self.width, generator=draw, dtype=torch.float64) for draw in draws]
        self.nodes = torch.stack(drawn).to(batch.device, batch.dtype)  # [S, N, d]
        self.gradient: Tensor | None = None  # [B, N, d], the mean over the steps of a trip
        lr = setting.lr if self.structure_lr is None else self.structure_lr
        self.adam = StackedAdam(seeds, self.nodes[0].numel(), lr, self.structure_weight_decay, batch.dtype, batch.device)
        scalars = [(2 * client.walk[client.place].nnz, client.num_nodes * client.walk.shape[0]) for client in clients]
        self.bytes_before = 4 * np.array(scalars).reshape(seeds, -1, 2).sum(1)  # rows of P, and of P^L
        cast(Structural, setting.model).method = self

    # ---- rounds

    def local_loss(self, step: LocalStep) -> Tensor:
        loss = super().local_loss(step)
        (gradient,) = torch.autograd.grad(loss, [cast(Structured, step.output).nodes], retain_graph=True)
        if self.gradient is None:
            self.gradient = gradient.new_zeros(self.setting.batch.size, *gradient.shape[1:])
        rows = step.batch.replicas
        self.gradient[rows] = gradient / self.setting.local_epochs + (self.gradient[rows] if step.epoch else 0)
        return loss

    def report(self, trips: Trips) -> dict[str, Tensor]:
        assert self.gradient is not None
        return {"structure": self.gradient[trips.batch.replicas]}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        gradients = reports["structure"].flatten(2)
        mean = (normalize(self.setting.weights, arrived).to(gradients.dtype)[:, None] @ gradients)[:, 0]
        able = None if self.setting.full_participation else np.flatnonzero(arrived.any(1).cpu()).tolist()
        self.adam.step(self.nodes.flatten(1), mean, range(len(mean)), able)
        return super().mix(reports, arrived)

    def traffic(self) -> Traffic:
        model, structure = super().traffic(), {"structure": self.nodes[0].numel()}
        return Traffic(upload={**model.upload, **structure}, download={**model.download, **structure})


@dataclass(frozen=True)
class Joined(ClientGraph):
    """A client's graph, and what it knows of the union.

    Attributes:
        walk: P ``[N, N]``.
        place: ``[n]``, the rows of the client's nodes.
    """

    walk: sp.csr_matrix = field(kw_only=True)
    place: np.ndarray = field(kw_only=True)


def joined(union: ClientGraph, clients: tuple[ClientGraph, ...]) -> tuple[ClientGraph, ...]:
    """Return the clients with the random walk on the union of their graphs."""
    matrix = (adjacency(union) + sp.eye(union.num_nodes)).tocsr()
    walk = (sp.diags(1 / np.asarray(matrix.sum(1)).ravel()) @ matrix).tocsr()
    known = [{each.name: getattr(client, each.name) for each in fields(ClientGraph)} for client in clients]
    return tuple(Joined(**each, walk=walk, place=np.searchsorted(union.nodes, each["nodes"])) for each in known)


class Structured(Output):
    """Attributes: hidden ``[k, n, h]``; logits ``[k, n, Y]``; nodes ``[k, N, d]``, the structure features that they were computed from."""

    nodes: Tensor

    def __new__(cls, output: Output, nodes: Tensor) -> Structured:
        structured = super().__new__(cls, *output)
        structured.nodes = nodes
        return structured


class Structural(Around):
    """A backbone whose logits have a part that depends on the structure features only.

    Attributes:
        method: holds the structure features, and the seed of every replica.
    """

    method: FedStruct

    def __init__(self, inner: Backbone, width: int, hidden: int, hops: int):
        super().__init__(inner)
        self.width, self.hidden, self.hops = width, hidden, hops

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        plain = self.inner.layout(num_features, num_classes)
        own: dict[str, tuple[int, ...]] = {"structure_norm.weight": (self.width,), "structure_norm.bias": (self.width,)}
        for i, (wide, narrow) in enumerate(((self.width, self.hidden), (self.hidden, num_classes))):
            own |= {f"structure{i}.weight": (wide, narrow), f"structure{i}.bias": (narrow,)}
        return ParameterLayout(plain.shapes | own, plain.inputs)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Initialize the backbone first, so that it starts as without structure features."""
        own = [name for name in layout.shapes if name.startswith("structure")]
        plain = ParameterLayout({name: shape for name, shape in layout.shapes.items() if name not in own}, layout.inputs)
        parameters = self.inner.init_parameters(plain, generator)
        for name in own:
            norm = name.startswith("structure_norm")
            parameters[name] = torch.zeros(layout.shapes[name]).double() if norm else like_linear(layout, name, generator)
        parameters["structure_norm.weight"].fill_(1.0)
        return parameters

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: DropoutFunction) -> Structured:
        output = self.inner.forward(parameters, batch, first, dropout)
        nodes = self.method.nodes[self.method.owner[batch.replicas]]
        if torch.is_grad_enabled():
            nodes = nodes.detach().requires_grad_()
        weight, bias = (parameters[f"structure_norm.{name}"][:, None] for name in ("weight", "bias"))
        hidden = F.layer_norm(nodes, nodes.shape[-1:]) * weight + bias
        x = affine(dropout(torch.relu(affine(hidden, parameters, "structure0"))), parameters, "structure1")
        whole, own = walks(batch)
        for _ in range(self.hops - 1):
            x = whole @ x
        return Structured(Output(output.hidden, output.logits + own @ x), nodes)


def walks(batch: Batch) -> tuple[BlockSparse, BlockSparse]:
    """Return P ``[k, N, N]`` and the rows ``[k, n, N]`` of the clients' nodes."""
    if "walks" not in batch.memo:
        clients = [cast(Joined, client) for client in batch.clients]
        count = max(client.walk.shape[0] for client in clients)
        sides = ([client.walk for client in clients], count), ([client.walk[client.place] for client in clients], batch.nodes)
        batch.memo["walks"] = tuple(BlockSparse.stack(blocks, rows, count, batch.dtype, batch.device) for blocks, rows in sides)
    return cast(tuple[BlockSparse, BlockSparse], batch.memo["walks"])
