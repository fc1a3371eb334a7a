"""Decoupled backbones, one client at a time, on PyTorch Geometric's layers and transforms or written out hop by hop.

Every class takes the parameters of the stacked backbone, unstacked, and gives logits for one client.
"""

from __future__ import annotations

import warnings

import torch
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import SGConv, SSGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.transforms import SIGN as HopsOf
from torch_geometric.transforms import AddSelfLoops, Compose
from torch_geometric.utils import to_dense_adj

Parameters = dict[str, torch.Tensor]


def gcn_matrix(edges: torch.Tensor, nodes: int) -> torch.Tensor:
    """S, dense, from PyG's normalisation."""
    index, weight = gcn_norm(edges, num_nodes=nodes, dtype=torch.float64)
    return to_dense_adj(index, edge_attr=weight, max_num_nodes=nodes)[0]


def hops(x: torch.Tensor, edges: torch.Tensor, count: int) -> list[torch.Tensor]:
    """``S^k x`` for k = 0..count, by PyG's transform on a graph that holds its self loops."""
    if not count:
        return [x]
    graph = Data(x=x, edge_index=edges, edge_weight=torch.ones(edges.shape[1], dtype=x.dtype), num_nodes=len(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the transform's sparse tensors are in beta state
        data = Compose([AddSelfLoops("edge_weight"), HopsOf(count)])(graph)
    return [x, *(data[f"x{hop + 1}"] for hop in range(count))]


def linear(x: torch.Tensor, parameters: Parameters, name: str) -> torch.Tensor:
    return functional.linear(x, parameters[f"{name}.weight"].T, parameters[f"{name}.bias"])


def perceptron(x: torch.Tensor, parameters: Parameters, numbers: range) -> torch.Tensor:
    """PReLU, then a linear layer, for every number; no dropout."""
    for number in numbers:
        x = linear(functional.prelu(x, parameters["slope"]), parameters, f"linear{number}")
    return x


def sgc(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, count: int) -> torch.Tensor:
    conv = SGConv(*parameters["linear0.weight"].shape, K=count).double()
    moved = {"lin.weight": parameters["linear0.weight"].T, "lin.bias": parameters["linear0.bias"]}
    return torch.func.functional_call(conv, moved, (x, edges))


def s2gc(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, count: int, alpha: float) -> torch.Tensor:
    conv = SSGConv(*parameters["linear0.weight"].shape, alpha=alpha, K=count).double()
    moved = {"lin.weight": parameters["linear0.weight"].T, "lin.bias": parameters["linear0.bias"]}
    return torch.func.functional_call(conv, moved, (x, edges))


def gbp(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, count: int, beta: float, r: float, layers: int) -> torch.Tensor:
    adjacency = to_dense_adj(edges, max_num_nodes=len(x))[0].to(x) + torch.eye(len(x), dtype=x.dtype)
    degree = adjacency.sum(1)
    matrix = torch.diag(degree ** (r - 1)) @ adjacency @ torch.diag(degree**-r)
    mixed = sum(beta * (1 - beta) ** hop * torch.linalg.matrix_power(matrix, hop) @ x for hop in range(count + 1))
    return perceptron(linear(mixed, parameters, "linear0"), parameters, range(1, layers))


def sign(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, count: int, layers: int) -> torch.Tensor:
    weights, biases = parameters["hops.weight"].chunk(count + 1, 1), parameters["hops.bias"].chunk(count + 1)
    each = [functional.linear(z, w.T, b) for z, w, b in zip(hops(x, edges, count), weights, biases, strict=True)]
    return perceptron(torch.cat(each, 1), parameters, range(1, layers))


def gamlp(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, count: int, layers: int) -> torch.Tensor:
    """Node by node, as the attention's formula has it."""
    found = hops(x, edges, count)
    weight = parameters["attention.weight"].T.reshape(-1)  # [(K+2) F]
    rows = []
    for node in range(len(x)):
        mine = [z[node] for z in found]
        scores = torch.stack([torch.sigmoid(torch.dot(weight, torch.cat([*mine, z])) + parameters["attention.bias"][0]) for z in mine])
        weights = torch.softmax(scores, 0)
        if weights.requires_grad:  # a node whose hops are alike has no gradient: none rather than a rounding, which Adam would blow up
            weights.register_hook(lambda gradient: gradient - gradient[0])
        rows.append(sum(a * z for a, z in zip(weights, mine, strict=True)))
    return perceptron(linear(torch.stack(rows), parameters, "linear0"), parameters, range(1, layers))


def mlp(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int) -> torch.Tensor:
    for number in range(layers - 1):
        x = functional.relu(linear(x, parameters, f"linear{number}"))
    return linear(x, parameters, f"linear{layers - 1}")
