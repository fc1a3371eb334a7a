"""A user's own graph, from an ``.npz`` of plain arrays or a ``.pt`` dictionary of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.datasets.base import Dataset
from fgl_bench.data.graph import Graph
from fgl_bench.data.raw import CSR_PARTS, one_line
from fgl_bench.errors import UserError

LAYOUT = "it needs x [N, F] (or x_data, x_indices, x_indptr, x_shape), edge_index [2, E] and y [N]"


@dataclass
class Custom(Dataset):
    """The graph in ``path``: keys x (or its CSR parts), edge_index, y (-1 = no label), optional num_classes and owner.

    Attributes:
        path: a ``.npz`` or ``.pt`` file; neither is unpickled, so a file of unknown origin cannot run code.
    """

    path: str | None

    def read(self, root: Path) -> Graph:
        if not self.path:
            raise UserError("dataset.path is not set: it must name your .npz or .pt file")
        path = Path(self.path).expanduser()
        readers = {".npz": _read_npz, ".pt": _read_pt}
        if path.suffix not in readers:
            raise UserError(f"dataset.path={path}: must end in {' or '.join(readers)}")
        if not path.is_file():
            raise UserError(f"dataset.path={path}: there is no such file")
        try:
            content = readers[path.suffix](path)
        except Exception as error:  # parsers of damaged files raise nearly anything
            raise UserError(f"dataset.path={path}: cannot be read as plain arrays ({one_line(error)})") from None
        return self._checked(content, f"dataset.path={path}")

    def _checked(self, content: dict[str, Any], source: str) -> Graph:
        features = _features(content, source)
        nodes = features.shape[0]
        edges = _integers(content, "edge_index", source)
        labels = _integers(content, "y", source).reshape(-1)
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise UserError(f"{source}: edge_index has shape {list(edges.shape)}; {LAYOUT}")
        if edges.size and (edges.min() < 0 or edges.max() >= nodes):
            raise UserError(f"{source}: edge_index names a node outside 0..{nodes - 1}")
        if labels.size != nodes:
            raise UserError(f"{source}: y has {labels.size} entries for {nodes} nodes")
        given = content.get("num_classes")
        num_classes = max(int(labels.max(initial=-1)) + 1, 1) if given is None else int(np.asarray(given))
        owner = None if content.get("owner") is None else _integers(content, "owner", source).reshape(-1)
        if owner is not None and owner.size != nodes:
            raise UserError(f"{source}: owner has {owner.size} entries for {nodes} nodes")
        return self.graph(features, edges[0], edges[1], labels, num_classes=num_classes, owner=owner)


def _read_npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _read_pt(path: Path) -> dict[str, Any]:
    import torch

    content = torch.load(path, weights_only=True, map_location="cpu")
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, not a dictionary of tensors")
    return {str(key): _array(value) for key, value in content.items()}


def _array(value: Any) -> Any:
    """Tensors as arrays, sparse ones as CSR; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if value.layout is torch.strided:
        return value.numpy()
    coo = value.to_sparse_coo().coalesce()
    return sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))


def _features(content: dict[str, Any], source: str) -> np.ndarray | sp.csr_matrix:
    parts = [f"x_{part}" for part in CSR_PARTS]
    try:
        if all(part in content for part in parts):
            data, indices, indptr, shape = (np.asarray(content[part]) for part in parts)
            features = sp.csr_matrix((data, indices, indptr), shape=tuple(int(size) for size in shape))
            features.check_format(full_check=True)
        else:
            features = content["x"] if sp.issparse(content["x"]) else np.asarray(content["x"])
        features = features.astype(np.float32)
    except KeyError:
        raise UserError(f"{source}: no x; {LAYOUT}") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{source}: x is not a numeric matrix ({one_line(error)}); {LAYOUT}") from None
    if features.ndim != 2 or 0 in features.shape:
        raise UserError(f"{source}: x has shape {list(features.shape)}; {LAYOUT}")
    return features


def _integers(content: dict[str, Any], key: str, source: str) -> np.ndarray:
    if key not in content:
        raise UserError(f"{source}: no {key}; {LAYOUT}")
    values = np.asarray(content[key])
    if values.size and values.dtype.kind not in "iu":
        raise UserError(f"{source}: {key} must hold integers, not {values.dtype}")
    return values.astype(np.int64)
