"""Message-passing backbones, one client at a time, on PyTorch Geometric's convolutions; no dropout.

Every function takes the parameters of the stacked backbone, unstacked, and gives logits for one client.
"""

from __future__ import annotations

import torch
from torch.func import functional_call
from torch.nn import functional
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv

Parameters = dict[str, torch.Tensor]
ACTS = {"relu": functional.relu, "elu": functional.elu}


def linear(x: torch.Tensor, parameters: Parameters, name: str) -> torch.Tensor:
    return functional.linear(x, parameters[f"{name}.weight"].T, parameters[f"{name}.bias"])


def own(parameters: Parameters, layer: int) -> Parameters:
    return {name.partition(".")[2]: value for name, value in parameters.items() if name.startswith(f"conv{layer}.")}


def stack(convolve, parameters: Parameters, x: torch.Tensor, layers: int, act: str = "relu") -> torch.Tensor:
    """``convolve(own parameters, x, whether it gives the logits)`` layer by layer, and the linear head if there is one."""
    head = "head.weight" in parameters
    for layer in range(layers):
        last = layer == layers - 1 and not head
        x = convolve(own(parameters, layer), x, last)
        x = x if last else ACTS[act](x)
    return linear(x, parameters, "head") if head else x


def gcn(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int) -> torch.Tensor:
    def convolve(mine, x, last):
        conv = GCNConv(*mine["weight"].shape).double()
        return functional_call(conv, {"lin.weight": mine["weight"].T, "bias": mine["bias"]}, (x, edges))

    return stack(convolve, parameters, x, layers)


def residual_gcn(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int) -> torch.Tensor:
    for layer in range(layers):
        mine = own(parameters, layer)
        near, self_ = mine["weight"].chunk(2, -1)
        conv = functional_call(GCNConv(*near.shape).double(), {"lin.weight": near.T, "bias": mine["bias"]}, (x, edges))
        x = torch.relu(torch.nn.functional.layer_norm(conv + x @ self_, self_.shape[1:], mine["scale"], mine["shift"]))
    return linear(x, parameters, "head")


def sage(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int) -> torch.Tensor:
    def convolve(mine, x, last):
        near, self_ = mine["weight"].chunk(2, -1)
        moved = {"lin_l.weight": near.T, "lin_l.bias": mine["bias"], "lin_r.weight": self_.T}
        return functional_call(SAGEConv(*near.shape).double(), moved, (x, edges))

    return stack(convolve, parameters, x, layers)


def gat(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int, act: str = "relu") -> torch.Tensor:
    def convolve(mine, x, last):
        heads, each = mine["source"].shape
        conv = GATConv(len(mine["weight"]), each, heads, concat=not last).double()
        moved = {"lin.weight": mine["weight"].T, "att_src": mine["source"][None], "att_dst": mine["target"][None], "bias": mine["bias"]}
        return functional_call(conv, moved, (x, edges))

    return stack(convolve, parameters, x, layers, act)


def gatv2(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int, act: str = "relu") -> torch.Tensor:
    def convolve(mine, x, last):
        heads, each = mine["attention"].shape
        conv = GATv2Conv(len(mine["weight"]), each, heads, concat=not last).double()
        moved = {"att": mine["attention"][None], "bias": mine["bias"]}
        for side, weight, shift in zip("lr", mine["weight"].chunk(2, -1), mine["shift"].chunk(2, -1), strict=True):
            moved |= {f"lin_{side}.weight": weight.T, f"lin_{side}.bias": shift}
        return functional_call(conv, moved, (x, edges))

    return stack(convolve, parameters, x, layers, act)


def batch_norm(x: torch.Tensor, parameters: Parameters, name: str) -> torch.Tensor:
    """PyTorch's in training mode, which a single row is too few for: its mean is itself."""
    if f"{name}_scale" not in parameters:
        return x
    scale, shift = parameters[f"{name}_scale"], parameters[f"{name}_shift"]
    return functional.batch_norm(x, None, None, scale, shift, training=True) if len(x) > 1 else (x - x) * scale + shift


def gin(parameters: Parameters, x: torch.Tensor, edges: torch.Tensor, *, layers: int) -> torch.Tensor:
    for layer in range(layers):
        mine = own(parameters, layer)

        class Perceptron(torch.nn.Module):
            def forward(self, x, mine=mine):
                x = functional.relu(batch_norm(functional.linear(x, mine["weight"].T, mine["bias"]), mine, "inner"))
                return functional.linear(x, mine["out_weight"].T, mine["out_bias"])

        conv = GINConv(Perceptron(), train_eps=True).double()
        x = functional.relu(batch_norm(functional_call(conv, {"eps": mine["epsilon"]}, (x, edges)), mine, "out"))
    if "middle.weight" in parameters:
        x = functional.relu(batch_norm(linear(x, parameters, "middle"), parameters, "middle.out"))
    return linear(x, parameters, "head")
