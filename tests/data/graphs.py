"""Small graphs and configured objects for the tests of the data stage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hydra.utils import instantiate
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fgl_bench.data.canonical import canonical_edges
from fgl_bench.data.graph import ClientGraph, Graph

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
DATA = Path(os.environ.get("FGL_BENCH_DATA") or ROOT.parent / "shared" / "data")


def configured(group: str, name: str, **changes: Any) -> Any:
    """The object that ``conf/<group>/<name>.yaml`` describes, with some keys changed."""
    return instantiate(OmegaConf.merge(OmegaConf.load(CONF / group / f"{name}.yaml"), changes))


def need(*files: str) -> str:
    """The folder of real datasets; skips the test where a file is absent."""
    missing = [file for file in files if not (DATA / file).is_file()]
    if missing:
        pytest.skip(f"{missing[0]} is not at hand")
    return str(DATA)


def make_graph(num_nodes: int, num_edges: int, num_classes: int = 3, seed: int = 0, unlabelled: float = 0.0) -> Graph:
    """A random graph; its features are the node ids, so that a node is recognised wherever it goes."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(num_nodes, size=(2, num_edges))
    labels = rng.integers(num_classes, size=num_nodes)
    labels[rng.random(num_nodes) < unlabelled] = -1
    features = sp.csr_matrix(np.arange(1, num_nodes + 1, dtype=np.float32)[:, None])
    return Graph("toy", features, canonical_edges(ends[0], ends[1], num_nodes), labels, num_classes)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 60) -> Graph:
    """Random graphs, from a single node without any edge to dense ones."""
    num_nodes = draw(st.integers(1, max_nodes))
    num_edges = draw(st.sampled_from([0, 1, num_nodes, 4 * num_nodes]))
    return make_graph(num_nodes, num_edges, draw(st.integers(1, 4)), draw(st.integers(0, 1000)))


def make_client(num_nodes: int = 40, num_edges: int = 100, words: int = 12, seed: int = 0, dense: bool = False) -> ClientGraph:
    """A client with random features and masks."""
    rng = np.random.default_rng(seed)
    graph = make_graph(num_nodes, num_edges, seed=seed)
    features = (rng.random((num_nodes, words)) < 0.6).astype(np.float32) * rng.uniform(1, 2, (num_nodes, words)).astype(np.float32)
    role = rng.integers(3, size=num_nodes)
    held = features if dense else sp.csr_matrix(features)
    return ClientGraph(np.arange(num_nodes), held, graph.edges, graph.labels, role == 0, role == 1, role == 2)
