"""Sets of graphs of the TU collection (Morris et al., 2020), in PyG's layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fgl_bench.data.datasets.base import Dataset, below, check_owners
from fgl_bench.data.graph import Graph
from fgl_bench.data.graph_set import GraphSet
from fgl_bench.data.raw import reading
from fgl_bench.errors import Range, UserError, at_least

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/{}.zip"


@dataclass
class TU(Dataset):
    """The graphs of PyG's ``TUDataset``, of one set or of several; edges are made undirected, their labels are not used.

    Features of a node are its attributes (if ``use_node_attr``), then its label (one-hot). A set without node labels has the degree of
    a node instead (one-hot). Of several sets each is an owner of its graphs (``split=domains``), and features begin in the first column.

    Attributes:
        sets: names of the sets in the collection.
        node_labels, node_attributes: which of these files the sets have.
        use_node_attr: attributes are features, as with PyG's key of this name.
        max_degree: larger degrees count as this one.
    """

    tasks: ClassVar[tuple[str, ...]] = ("graph",)
    ranges: ClassVar[dict[str, Range]] = {"max_degree": at_least(1)}

    sets: list[str]
    node_labels: bool
    node_attributes: bool
    use_node_attr: bool
    max_degree: int

    def __post_init__(self) -> None:
        check_owners("dataset.sets", self.sets, list(dict.fromkeys(self.sets)))
        if self.largest_component:
            raise UserError("dataset.largest_component=true: a set of graphs has many components; set it to false")
        if self.use_node_attr and not self.node_attributes:
            raise UserError(f"dataset.use_node_attr=true: dataset={self.name} has no node attributes; set it to false")

    def files(self, root: Path) -> dict[str, Path]:
        kinds = ["A", "graph_indicator", "graph_labels", *["node_labels"] * self.node_labels, *["node_attributes"] * self.node_attributes]
        return below(root, *(f"tu/{name}/raw/{name}_{kind}.txt" for name in self.sets for kind in kinds))

    def address(self, file: str) -> str:
        return ADDRESS.format(Path(file).parts[1])

    def read(self, root: Path) -> Graph:
        paths = self.raw(root)
        each = len(paths) // len(self.sets)
        return self.graph_set([self._one(paths[start : start + each]) for start in range(0, len(paths), each)])

    def _one(self, paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Features ``[N, F]``, edges ``[2, E]``, graph of each node ``[N]`` and labels of the graphs ``[M]`` in the files of one set."""
        known = {}
        for path in paths if self.use_node_attr or not self.node_attributes else paths[:-1]:
            kind = path.stem.removeprefix(f"{path.parent.parent.name}_")
            with reading(self.name, path):
                known[kind] = np.loadtxt(path, dtype=float if kind == "node_attributes" else np.int64, delimiter=",", ndmin=2)
        edges, graph = known["A"].T - 1, known["graph_indicator"][:, 0] - 1
        labels = np.unique(known["graph_labels"][:, 0], return_inverse=True)[1]
        nodes, path = graph.size, paths[0]
        wrong = {
            "an edge names a node that does not exist": edges.size > 0 and not 0 <= edges.min() <= edges.max() < nodes,
            "the graphs' numbers do not ascend from 1 to the number of labels": not np.array_equal(np.unique(graph), np.arange(labels.size))
            or bool((np.diff(graph) < 0).any()),
            "files differ in the number of nodes": any(
                len(known[name]) != nodes for name in ("node_labels", "node_attributes") if name in known
            ),
        }
        wrong["an edge joins two graphs"] = not any(wrong.values()) and bool((graph[edges[0]] != graph[edges[1]]).any())
        for fault, found in wrong.items():
            if found:
                raise UserError(f"dataset={self.name}: {path.parent}: {fault}")
        attributes = known["node_attributes"] if "node_attributes" in known else np.empty((nodes, 0))
        kinds = known.get("node_labels", np.minimum(np.bincount(edges[0], minlength=nodes), self.max_degree)[:, None])
        one_hot = [np.eye(column.max() - least + 1)[column - least] for column, least in zip(kinds.T, kinds.min(0), strict=True)]
        return np.concatenate([attributes, *one_hot], 1), edges, graph, labels

    def graph_set(self, sets: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> GraphSet:
        """The graphs of several sets, one after the other; narrower features are padded with zeros, and each set is an owner."""
        width = max(features.shape[1] for features, *_ in sets)
        nodes, graphs = (np.cumsum([0, *(len(part[i]) for part in sets)]) for i in (0, 3))
        features = np.concatenate([np.pad(part[0], ((0, 0), (0, width - part[0].shape[1]))) for part in sets])
        edges = np.concatenate([part[1] + start for part, start in zip(sets, nodes[:-1], strict=True)], 1)
        whole = self.graph(features, edges[0], edges[1], np.zeros(nodes[-1], dtype=np.int64))
        labels = np.concatenate([part[3] for part in sets])
        parts: dict[str, Any] = {"features": whole.features, "edges": whole.edges, "labels": labels, "metric": self.metric}
        parts["graph"] = np.concatenate([part[2] + start for part, start in zip(sets, graphs[:-1], strict=True)])
        owner = np.repeat(np.arange(len(sets)), np.diff(graphs)) if len(sets) > 1 else None
        return GraphSet(self.name, num_classes=int(labels.max()) + 1, owner=owner, **parts)
