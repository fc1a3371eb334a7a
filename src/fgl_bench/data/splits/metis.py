"""METIS (Karypis and Kumar, 1998): balanced parts with few edges between them, one part a client."""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.canonical import adjacency
from fgl_bench.data.checks import check_between, check_choice, check_num_clients
from fgl_bench.data.graph import Graph
from fgl_bench.data.splits.base import Split, fill_empty, members
from fgl_bench.errors import SHARE, Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed, generator

LIBMETIS_OPTIONS = 40
"""METIS_NOPTIONS of METIS 5."""


def pymetis_parts(matrix: sp.csr_matrix, num_parts: int, seed: int | None) -> np.ndarray:
    """Parts by pymetis's bundled METIS: 64-bit, recursive bisection for up to 8 parts."""
    import pymetis

    options = pymetis.Options() if seed is None else pymetis.Options(seed=seed)
    lists = pymetis.CSRAdjacency(adj_starts=matrix.indptr, adjacent=matrix.indices)
    return np.asarray(pymetis.part_graph(num_parts, adjacency=lists, options=options)[1], dtype=np.int64)


def libmetis_parts(matrix: sp.csr_matrix, num_parts: int, seed: int | None) -> np.ndarray:
    """Parts by the system's METIS 5.1.0: 32-bit, k-way, no options, as the Python packages ``metis`` and ``metispy`` call it.

    Raises:
        UserError: there is no such library; a seed is given.
    """
    if seed is not None:
        raise UserError("split.backend=libmetis: it is called without a seed")
    library = libmetis()
    starts, adjacent, parts = (array.astype(np.int32) for array in (matrix.indptr, matrix.indices, np.zeros(matrix.shape[0])))
    numbers = [ctypes.byref(ctypes.c_int32(number)) for number in (parts.size, 1, num_parts, 0)]
    nodes, constraints, wanted, cut = numbers
    options = np.full(LIBMETIS_OPTIONS, -1, dtype=np.int32)
    address = [array.ctypes.data_as(ctypes.c_void_p) for array in (starts, adjacent, options, parts)]
    weights = (None, None, None)  # of nodes, their sizes, of edges
    status = library.METIS_PartGraphKway(
        nodes, constraints, address[0], address[1], *weights, wanted, None, None, address[2], cut, address[3]
    )
    if status != 1:
        raise UserError(f"split.backend=libmetis: METIS ended with status {status}")
    return parts.astype(np.int64)


def libmetis() -> ctypes.CDLL:
    """The system's library, if its numbers are of 32 bits."""
    path = ctypes.util.find_library("metis")
    remedy = "needs METIS 5.1 with 32-bit numbers as a library of the system: apt-get install libmetis5; or split.backend=pymetis"
    if path is None:
        raise UserError(f"split.backend=libmetis {remedy}")
    library = ctypes.CDLL(path)
    options = np.zeros(2 * LIBMETIS_OPTIONS, dtype=np.int32)
    library.METIS_SetDefaultOptions(options.ctypes.data_as(ctypes.c_void_p))
    if options[LIBMETIS_OPTIONS:].any():  # it has written 64 bits for each option
        raise UserError(f"split.backend=libmetis {remedy}; {path} has 64-bit numbers")
    return library


BACKENDS = {"pymetis": pymetis_parts, "libmetis": libmetis_parts}


def metis_parts(graph: Graph, num_parts: int, seed: int | None, backend: str = "pymetis") -> np.ndarray:
    """``[N]`` int64 part of every node; some parts may be empty on tiny graphs.

    Args:
        seed: None leaves METIS its own, a constant.
        backend: which METIS; ``pymetis`` or ``libmetis``.

    The neighbor lists are sorted, since their order changes the result, and the seed is hashed, since METIS treats
    its seeds 0 and 1 alike. METIS takes 32-bit seeds.
    """
    check_choice("split.backend", backend, BACKENDS)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    hashed = None if seed is None else derive_seed(seed, "partition", "metis") % 2**31
    return BACKENDS[backend](adjacency(graph.edges, graph.num_nodes), num_parts, hashed)


@dataclass
class Metis(Split):
    """As many METIS parts as clients.

    Attributes:
        seeded: METIS gets a seed. Otherwise it is called without any option, as in OpenFGL, and all repetitions have one partition:
            that of ``pymetis.part_graph`` on the graph as networkx has it.
    """

    seeded: bool = field(default=True, kw_only=True)

    def parts(self, graph: Graph, num_clients: int, seed: int) -> np.ndarray:
        return metis_parts(graph, num_clients, seed if self.seeded else None)


@dataclass
class MetisOverlap(Split):
    """Clients ``s * samples_per_part .. (s + 1) * samples_per_part - 1`` sample part s; a node may have several clients, or none.

    Attributes:
        samples_per_part: clients of every part; FedSSA has 5 (2, 6 and 10 parts for 10, 30 and 50 clients).
        fraction: share of the part's nodes in each sample.
        masks: ``global`` or ``given``, because clients share nodes: drawn inside each client, a third of the test nodes would be
            training nodes of another client.
        seeded: METIS gets a seed; otherwise it is called without any option. The samples are drawn with a seed in any case.
    """

    overlaps: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"samples_per_part": at_least(1), "fraction": SHARE}

    samples_per_part: int
    fraction: float
    masks: str = field(kw_only=True)
    seeded: bool = field(default=True, kw_only=True)

    def assign(self, graph: Graph, num_clients: int | None, seed: int) -> list[np.ndarray]:
        num_clients = check_num_clients(num_clients, graph.num_nodes)
        check_between("split.samples_per_part", self.samples_per_part, 1, graph.num_nodes)
        check_between("split.fraction", self.fraction, 0, 1)
        if num_clients % self.samples_per_part:
            raise UserError(f"num_clients={num_clients}: must be a multiple of split.samples_per_part={self.samples_per_part}")
        num_parts = num_clients // self.samples_per_part
        parts = members(fill_empty(metis_parts(graph, num_parts, seed if self.seeded else None), num_parts), num_parts)
        rng = generator(seed, "partition", "metis_overlap")
        return [
            np.sort(rng.choice(nodes, size=max(1, int(self.fraction * nodes.size)), replace=False))
            for nodes in parts
            for _ in range(self.samples_per_part)
        ]
