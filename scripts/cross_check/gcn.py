"""PyTorch Geometric's two-layer GCN on an exported client, for code that brings no network for nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch


def loaded(job: Path, number: int) -> Any:
    from torch_geometric.data import Data

    arrays = np.load(job / f"client_{number}.npz")
    masks = {f"{part}_mask": torch.from_numpy(arrays[part]) for part in ("train", "val", "test")}
    x, edges, y = (torch.from_numpy(arrays[name]) for name in ("x", "edge_index", "y"))
    return Data(x=x, edge_index=edges, y=y, classes=int(np.load(job / "global.npz")["num_classes"]), **masks)


def network(settings: dict[str, Any], data: Any) -> torch.nn.Module:
    from torch_geometric.nn import GCNConv

    class GCN(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv0, self.conv1 = GCNConv(data.num_features, settings["hidden"]), GCNConv(settings["hidden"], data.classes)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            hidden = torch.nn.functional.dropout(self.conv0(x, edges).relu(), settings["dropout"], self.training)
            return self.conv1(hidden, edges)

    return GCN()


def begin(model: torch.nn.Module, job: Path) -> None:
    """Our initial weights."""
    for name, value in np.load(job / "initial.npz").items():
        layer, part = name.split(".")
        own = model.get_parameter({"weight": f"{layer}.lin.weight", "bias": f"{layer}.bias"}[part])
        own.data.copy_(torch.from_numpy(value.T))


@torch.no_grad()
def right(model: torch.nn.Module, data: Any) -> dict[str, int]:
    """Right answers among validation and test nodes."""
    model.eval()
    hits = model(data.x, data.edge_index).argmax(1) == data.y
    return {part: int(hits[getattr(data, f"{part}_mask")].sum()) for part in ("val", "test")}
