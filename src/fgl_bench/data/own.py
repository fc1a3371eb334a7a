"""A user's own graph as plain arrays: from an ``.npz`` or ``.pt`` file, or from an object, which is kept in a file."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.masks import GIVEN
from fgl_bench.data.npz import CSR_PARTS, array_shapes
from fgl_bench.data.raw import MOST_FEATURES
from fgl_bench.errors import UserError
from fgl_bench.utils.files import write_bytes
from fgl_bench.utils.patience import say_once

KEYS = ("x", *(f"x_{part}" for part in CSR_PARTS), "edge_index", "y", "num_classes", "owner", "id", *GIVEN)
PYG = ("data.data.Data", "data.data.DataEdgeAttr", "data.data.DataTensorAttr", "data.storage.GlobalStorage") + (
    "data.hetero_data.HeteroData", "data.storage.BaseStorage", "data.storage.NodeStorage", "data.storage.EdgeStorage",
)  # fmt: skip
ONE_BY_ONE = "save one of them, torch.save(dataset[0], 'graph.pt'), or a file for each client: dataset.path='clients/*.pt'"


class Arrays(NamedTuple):
    """The values of :data:`KEYS` that a graph has, and the names of what else it has."""

    content: dict[str, Any]
    ignored: list[str]


def read_npz(path: Path) -> Arrays:
    """The arrays of an ``.npz`` file; the shape of x is checked before it is unpacked."""
    with path.open("rb") as file:
        shape = array_shapes(file).get("x", ())
        if len(shape) > 1 and shape[1] > MOST_FEATURES:
            raise ValueError(f"x has {shape[1]} columns; at most {MOST_FEATURES} are allowed")
        with np.load(file, allow_pickle=False) as archive:
            return Arrays({key: archive[key] for key in archive.files if key in KEYS}, [key for key in archive.files if key not in KEYS])


def read_pt(path: Path) -> Arrays:
    """The tensors of a ``.pt`` file: a dictionary, or a PyG ``Data``, whose class is not imported."""
    import torch

    known = {each for each in torch.serialization.get_safe_globals() if isinstance(each, type)}  # by PyG, once it is imported
    names = {f"torch_geometric.{name}" for name in PYG} - {f"{cls.__module__}.{cls.__qualname__}" for cls in known}
    allowed: list[Any] = [(type(name.rpartition(".")[2], (), {}), name) for name in names]  # these keep what the file says and do nothing
    try:
        # Without the check a sparse tensor may name cells that it does not have.
        with path.open("rb") as file, torch.sparse.check_sparse_tensor_invariants(), torch.serialization.safe_globals(allowed):
            content = torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        match = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(f"it holds a {match[1]}, which could run code; save a dictionary of tensors" if match else str(error)) from None
    return arrays_of(content)


READERS = {".npz": read_npz, ".pt": read_pt}


def arrays_of(value: Any) -> Arrays:
    """The arrays of a mapping, a PyG ``Data`` (or what ``InMemoryDataset`` saves of a single one) or a networkx graph.

    Raises:
        ValueError: it is something else, or several graphs; the message says what to do.
    """
    if isinstance(value, tuple) and len(value) in (2, 3) and value[1] is None:  # data, slices and class: InMemoryDataset.save
        value = value[0]
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise ValueError(f"several graphs (a {type(value).__name__}); {ONE_BY_ONE}")
        value = value[0]
    classes = {cls.__name__ for cls in type(value).__mro__}
    if "networkx" in sys.modules and isinstance(value, sys.modules["networkx"].Graph):
        return _of_networkx(value)
    if "HeteroData" in classes:
        raise ValueError("a HeteroData; make one graph of it: torch.save(data.to_homogeneous(), 'graph.pt')")
    if "Data" in classes:
        inside = vars(value)
        value = vars(inside["_store"])["_mapping"] if "_store" in inside else inside
    if not isinstance(value, Mapping):
        raise ValueError(f"a {type(value).__name__} is not a dictionary of tensors, nor a PyG Data")
    content = {key: _array(value[key]) for key in KEYS if value.get(key) is not None}
    return Arrays(content, [str(key) for key in value if key not in KEYS and value[key] is not None])


def _array(value: Any) -> Any:
    """Dense tensors as arrays; anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    if value.untyped_storage().nbytes() < value.numel() * value.element_size():
        raise ValueError(f"a tensor of shape {list(value.shape)} repeats its numbers")
    value = value.detach().cpu()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


def _of_networkx(graph: Any) -> Arrays:
    """Nodes in the graph's order; x, y, owner and masks are attributes of nodes. A node without y (or with None) has no label."""
    index = {node: number for number, node in enumerate(graph.nodes)}
    ends = np.array([(index[start], index[end]) for start, end in graph.edges()], dtype=np.int64).reshape(-1, 2)
    content: dict[str, Any] = {"edge_index": ends.T}
    names = list(dict.fromkeys(name for _, attributes in graph.nodes(data=True) for name in attributes))
    for name in KEYS:
        if name in names:
            values = [attributes.get(name) for _, attributes in graph.nodes(data=True)]
            lacking = next((node for node, each in zip(graph.nodes, values, strict=True) if each is None), None)
            if lacking is not None and name != "y":
                raise ValueError(f"node {lacking} has no {name}")
            content[name] = plain_labels(np.array(values, dtype=object)) if name == "y" else np.array([_array(each) for each in values])
    of_edges = dict.fromkeys(name for *_, attributes in graph.edges(data=True) for name in attributes)
    return Arrays(content, [str(name) for name in names if name not in KEYS] + [f"{name} of edges" for name in of_edges])


def plain_labels(values: np.ndarray) -> np.ndarray:
    """An array of objects as strings or numbers, where None is no label ('' or -1); as it is if it holds anything else."""
    if values.dtype != object or values.ndim != 1:
        return values
    known = np.array([value is not None for value in values], dtype=bool)
    try:
        plain = np.asarray(values[known].tolist())
    except (TypeError, ValueError, OverflowError):
        return values
    text = plain.dtype.kind == "U"  # as numpy makes of a mixture too
    if plain.ndim != 1 or plain.dtype.kind not in "biufU" or (text and not all(isinstance(value, str) for value in values[known])):
        return values
    labels = np.full(values.size, "" if text else -1, dtype=np.int64 if plain.dtype.kind == "b" else plain.dtype)
    labels[known] = plain
    return labels


def keep(value: Any, cache_dir: str) -> str:
    """Keep a graph in a file below ``cache_dir`` that is named by its content; returns the file's path, for ``dataset.path``.

    Raises:
        UserError: the value is no graph, or the file cannot be written.
    """
    try:
        content, ignored = arrays_of(value)
        packed = pack(content)
    except (TypeError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        allowed = "the name of a dataset, a Dataset, a PyG Data, a dict of arrays with x, edge_index and y, or a networkx graph"
        raise UserError(f"dataset: {error}; expected {allowed}") from None
    if ignored:
        say_once(f"note: dataset: ignored: {', '.join(ignored)}")
    path = Path(os.path.expanduser(cache_dir)).absolute() / "graphs" / f"{hashlib.sha256(packed).hexdigest()[:16]}.npz"
    try:
        if not path.is_file() or path.read_bytes() != packed:
            write_bytes(path, packed)
    except OSError as error:
        raise UserError(f"cache_dir: cannot keep the graph in {path} ({error.strerror or error}); name another folder") from None
    return str(path)


def pack(content: Mapping[str, Any]) -> bytes:
    """Return the ``.npz`` file of a graph's arrays.

    Raises:
        ValueError: one of them is not an array of numbers or strings.
    """
    arrays: dict[str, Any] = dict(content)
    x = arrays.get("x")
    if x is not None and not isinstance(x, np.ndarray) and (sp.issparse(x) or hasattr(x, "to_sparse_coo")):
        matrix = sparse_matrix(arrays.pop("x"))
        arrays |= {f"x_{part}": np.asarray(getattr(matrix, part)) for part in CSR_PARTS}
    arrays = {key: plain_labels(np.asarray(each)) for key, each in arrays.items()}
    unfit = [key for key, array in arrays.items() if array.dtype == object]
    if unfit:
        raise ValueError(f"{unfit[0]} is not an array of numbers or strings")
    archive = io.BytesIO()
    np.savez(archive, **arrays)
    return archive.getvalue()


def sparse_matrix(value: Any) -> sp.csr_matrix:
    """CSR of a scipy matrix or a sparse tensor."""
    if sp.issparse(value):
        return sp.csr_matrix(value)  # type: ignore[call-overload]  # the stubs' issparse narrows wrongly
    coo = value.detach().to_sparse_coo().coalesce()
    return sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))
