"""The plain loop of FedAvg over PyTorch Geometric models that classify graphs or predict links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool, global_max_pool, global_mean_pool

from fgl_bench.data.graph_set import ClientOfGraphs, ClientOfPairs

Parameters = Mapping[str, Tensor]
POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


def linear(parameters: Parameters, name: str) -> nn.Linear:
    weight = parameters[f"{name}.weight"]
    layer = nn.Linear(*weight.shape, dtype=torch.float64)
    return filled(layer, weight=weight.T, bias=parameters[f"{name}.bias"])


@torch.no_grad()
def filled(module: Any, **values: Tensor) -> Any:
    """Copy values into parameters of ``module``; ``lin__weight`` is ``module.lin.weight``."""
    for path, value in values.items():
        owner, name = module, path
        while "__" in name:
            head, _, name = name.partition("__")
            owner = getattr(owner, head)
        getattr(owner, name).copy_(value.reshape(getattr(owner, name).shape))
    return module


def gcn(p: Parameters, i: int) -> nn.Module:
    wide, narrow = p[f"conv{i}.weight"].shape
    return filled(GCNConv(wide, narrow).double(), lin__weight=p[f"conv{i}.weight"].T, bias=p[f"conv{i}.bias"])


def sage(p: Parameters, i: int) -> nn.Module:
    near, own = p[f"conv{i}.weight"].chunk(2, 1)
    return filled(SAGEConv(*near.shape).double(), lin_l__weight=near.T, lin_l__bias=p[f"conv{i}.bias"], lin_r__weight=own.T)


def gat(p: Parameters, i: int) -> nn.Module:
    weight, (heads, each) = p[f"conv{i}.weight"], p[f"conv{i}.source"].shape
    last = f"conv{i + 1}.weight" not in p
    conv = GATConv(weight.shape[0], each, heads, concat=not last).double()
    ends = {"att_src": p[f"conv{i}.source"], "att_dst": p[f"conv{i}.target"]}
    return filled(conv, lin__weight=weight.T, bias=p[f"conv{i}.bias"], **ends)


def gin(p: Parameters, i: int) -> nn.Module:
    conv = GINConv(nn.Sequential(linear(p, f"conv{i}"), nn.ReLU(), linear(p, f"conv{i}.out")))
    for layer, name in ((conv.nn[0], f"conv{i}"), (conv.nn[2], f"conv{i}.out")):  # GINConv has drawn them again
        filled(layer, weight=p[f"{name}.weight"].T, bias=p[f"{name}.bias"])
    return conv


class Encoder(nn.Module):
    """Convolutions with ReLU between them; for GIN after a linear layer, and with ReLU after the last one too."""

    def __init__(self, p: Parameters, conv: Callable[[Parameters, int], nn.Module]):
        super().__init__()
        self.first = linear(p, "input") if "input.weight" in p else nn.Identity()
        self.convs = nn.ModuleList([conv(p, i) for i in range(len(p)) if f"conv{i}.bias" in p])
        self.last = functional.relu if conv is gin else nn.Identity()

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = self.first(x)
        for conv in self.convs[:-1]:
            x = functional.relu(conv(x, edges))
        return self.last(self.convs[-1](x, edges))


class GraphClassifier(nn.Module):
    def __init__(self, p: Parameters, conv: Callable[[Parameters, int], nn.Module], readout: str):
        super().__init__()
        self.encoder, self.pool = Encoder(p, conv), POOLS[readout]
        self.pooled = linear(p, "pooled") if "pooled.weight" in p else None
        self.classifier = linear(p, "classifier")

    def forward(self, data: Any) -> Tensor:
        x = self.pool(self.encoder(data.x, data.edge_index), data.batch)
        return self.classifier(x if self.pooled is None else functional.relu(self.pooled(x)))

    def loss(self, data: Any) -> Tensor:
        return functional.cross_entropy(self(data), data.y)


class LinkPredictor(nn.Module):
    def __init__(self, p: Parameters, conv: Callable[[Parameters, int], nn.Module]):
        super().__init__()
        self.encoder = Encoder(p, conv)
        self.decoder = nn.Sequential(linear(p, "decoder0"), nn.ReLU(), linear(p, "decoder1")) if "decoder0.weight" in p else None

    def forward(self, data: Any) -> Tensor:
        z = self.encoder(data.x, data.edge_index)
        product = z[data.edge_label_index[0]] * z[data.edge_label_index[1]]
        return product.sum(-1) if self.decoder is None else self.decoder(product)[:, 0]

    def loss(self, data: Any) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self(data), data.edge_label)


class StructureNetwork(nn.Module):
    """FedStar's network, as its code builds it; shared modules are named ``structure...``."""

    def __init__(self, p: Parameters, encoding: int):
        super().__init__()
        layers = [i for i in range(len(p)) if f"structure{i}.bias" in p]
        self.encoding, self.input, self.structure = encoding, linear(p, "input"), linear(p, "structure")
        self.convs = nn.ModuleList([gin(p, i) for i in layers])
        self.structures = nn.ModuleList([self._structure(p, i) for i in layers])
        self.joint, self.pooled, self.classifier = (linear(p, name) for name in ("joint", "pooled", "classifier"))

    def _structure(self, p: Parameters, i: int) -> nn.Module:
        weight = p[f"structure{i}.weight"]
        return filled(GCNConv(*weight.shape).double(), lin__weight=weight.T, bias=p[f"structure{i}.bias"])

    def loss(self, data: Any) -> Tensor:
        x, s = self.input(data.x[:, : -self.encoding]), self.structure(data.x[:, -self.encoding :])
        for conv, structure in zip(self.convs, self.structures, strict=True):
            x = functional.relu(conv(torch.cat([x, s], -1), data.edge_index))
            s = torch.tanh(structure(s, data.edge_index))
        x = global_add_pool(self.joint(torch.cat([x, s], -1)), data.batch)
        return functional.cross_entropy(self.classifier(functional.relu(self.pooled(x))), data.y)


def tensors(client: Any) -> tuple[Tensor, Tensor]:
    features = client.features.toarray() if sp.issparse(client.features) else client.features
    return torch.as_tensor(np.asarray(features), dtype=torch.float64), torch.as_tensor(client.edges)


def graphs_of(client: ClientOfGraphs) -> list[Data]:
    """The client's graphs, one ``Data`` each."""
    x, edges = tensors(client)
    out = []
    for i, label in enumerate(client.labels):
        nodes = torch.as_tensor(np.flatnonzero(client.graph == i))
        own = edges[:, (edges[0] >= nodes[0]) & (edges[0] <= nodes[-1])] - nodes[0]
        out.append(Data(x=x[nodes], edge_index=own, y=torch.tensor([label])))
    return out


def pairs_of(client: ClientOfPairs) -> Data:
    """The client's training graph with its training pairs."""
    x, edges = tensors(client)
    own = torch.as_tensor(client.train)
    labels = torch.as_tensor(client.labels, dtype=torch.float64)[own]
    return Data(x=x, edge_index=edges, edge_label_index=torch.as_tensor(client.pairs)[:, own], edge_label=labels)


def fedavg(
    models: list[Any],
    batches: list[Callable[[], list[Any]]],
    sizes: list[int],
    *,
    rounds: int,
    lr: float,
    weight_decay: float,
    shared: str = "",
) -> list[list[list[Tensor]]]:
    """Parameters of every client's trained model after each round, ``[rounds][C]``; every batch is one Adam step.

    Parameters whose names begin with ``shared`` are averaged.
    """
    optimizers = [torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay) for model in models]
    trained = []
    for _ in range(rounds):
        for model, optimizer, steps in zip(models, optimizers, batches, strict=True):
            for data in steps():
                optimizer.zero_grad()
                model.loss(data).backward()
                optimizer.step()
        trained.append([[parameter.detach().clone() for parameter in model.parameters()] for model in models])
        shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
        with torch.no_grad():
            for (name, _), *same in zip(models[0].named_parameters(), *(model.parameters() for model in models), strict=True):
                if not name.startswith(shared):
                    continue
                mean = sum(share * parameter for share, parameter in zip(shares, same, strict=True))
                for parameter in same:
                    parameter.copy_(mean)
    return trained


def loader(graphs: list[Data], size: int) -> list[Any]:
    return list(DataLoader(graphs, batch_size=size))
