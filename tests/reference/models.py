"""The reference backbone on PyTorch Geometric's own layers, and the named parameters in which both sides talk."""

from __future__ import annotations

import torch
from torch.nn import functional
from torch_geometric.nn import GCNConv

Parameters = dict[str, torch.Tensor]


class GCN(torch.nn.Module):
    """Graph convolutions with ReLU and dropout between them; the last one gives the logits.

    Args:
        widths: feature width, hidden widths, number of classes: one layer between each two.
        dropout: probability, applied after every layer but the last.
        normalize: False where the caller passes edges that hold the self loops and weights of ``gcn_norm`` already.
    """

    def __init__(self, widths: list[int], dropout: float = 0.0, normalize: bool = True):
        super().__init__()
        pairs = zip(widths[:-1], widths[1:], strict=True)
        self.convs = torch.nn.ModuleList([GCNConv(wide, narrow, normalize=normalize) for wide, narrow in pairs])
        self.dropout = dropout

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None = None) -> torch.Tensor:
        for conv in self.convs[:-1]:
            x = functional.relu(conv(x, edge_index, edge_weight))
            x = functional.dropout(x, self.dropout, self.training)
        return self.convs[-1](x, edge_index, edge_weight)


def widths_of(parameters: Parameters) -> list[int]:
    """The layer widths that a set of named parameters was made for."""
    weights = [parameters[f"conv{layer}.weight"] for layer in range(len(parameters) // 2)]
    return [weights[0].shape[0], *(weight.shape[1] for weight in weights)]


def read_parameters(model: GCN) -> Parameters:
    """Copies of the model's parameters: ``conv{l}.weight`` ``[in, out]`` and ``conv{l}.bias`` ``[out]``."""
    parameters = {}
    for layer, conv in enumerate(model.convs):
        parameters[f"conv{layer}.weight"] = conv.lin.weight.detach().t().clone(memory_format=torch.contiguous_format)
        parameters[f"conv{layer}.bias"] = conv.bias.detach().clone()
    return parameters


@torch.no_grad()
def write_parameters(model: GCN, parameters: Parameters) -> None:
    """Copy named parameters into the model in place, so that its optimiser keeps its moments."""
    for layer, conv in enumerate(model.convs):
        conv.lin.weight.copy_(parameters[f"conv{layer}.weight"].t())
        conv.bias.copy_(parameters[f"conv{layer}.bias"])


def initial_parameters(
    num_features: int, num_classes: int, *, hidden: int = 64, layers: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Parameters:
    """Glorot-uniform weights and small non-zero biases (zeros would hide a bias that is never mixed)."""
    generator = torch.Generator().manual_seed(seed)
    widths = [num_features, *[hidden] * (layers - 1), num_classes]
    parameters = {}
    for layer, (wide, narrow) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        bound = (6.0 / (wide + narrow)) ** 0.5
        weight = torch.rand(wide, narrow, generator=generator, dtype=torch.float64)
        bias = torch.rand(narrow, generator=generator, dtype=torch.float64)
        parameters[f"conv{layer}.weight"] = ((2 * weight - 1) * bound).to(dtype)
        parameters[f"conv{layer}.bias"] = ((2 * bias - 1) * 0.01).to(dtype)
    return parameters


def flatten(parameters: Parameters) -> torch.Tensor:
    """All parameters as one vector, in the order of the names' layers, weight before bias."""
    return torch.cat([tensor.reshape(-1) for tensor in parameters.values()])


def combine(weights: list[float], sources: list[Parameters]) -> Parameters:
    """The weighted sum of parameter sets, name by name; sources of weight zero are left out."""
    used = [(weight, source) for weight, source in zip(weights, sources, strict=True) if weight != 0.0]
    return {name: sum(weight * source[name] for weight, source in used) for name in sources[0]}
