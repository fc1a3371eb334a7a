"""How much memory replicas take, and how many to train at once. docs/memory.md explains the formula."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fgl_bench.data.federation import Federation
from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.served import Served
from fgl_bench.engine.activations import Activations, activation_bytes
from fgl_bench.engine.batch import is_dense, nonzeros
from fgl_bench.engine.layout import ParameterLayout

# Elements of a program's largest tensor above which an operation gains from several CPU threads (measured: Cora's size does not,
# CS's and Physics' do).
WIDE = 4_000_000


@dataclass(frozen=True)
class Plan:
    """Attributes: seeds in one program; clients of them trained at once (None: all); most programs side by side; threads in each."""

    seeds: int
    replicas: int | None
    programs: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Need:
    """What one seed takes, in bytes.

    Attributes:
        clients: C.
        kept: flat rows that one replica keeps whether or not it is being trained.
        step: one replica while it is trained: gradient, activations, dropout masks.
        graphs: features, operators, labels and masks of all C clients; of clients on disk labels and masks, the rest is in ``step``.
        derived: dense features made beforehand of all C clients, of which chunks are views.
        whole: what is not divided among clients: the graph that a server holds and one forward pass on it, what a method adds.
        making: what is there besides only while graphs are made, before anything is trained.
        row: one flat row of a replica. Of one seed an average is a view for all clients, of several seeds in one program it is not.
    """

    clients: int
    kept: int
    step: int
    graphs: int
    derived: int = 0
    whole: int = 0
    making: int = 0
    row: int = 0

    def program(self, seeds: int, replicas: int | None = None) -> int:
        """Bytes of ``seeds`` seeds in one program that trains ``replicas`` at once (None: all).

        Chunks hold their graphs once more: a chunk is cut out once and comes again every round.
        """
        rows = self.kept + (self.row if seeds > 1 else 0)
        kept = seeds * (self.clients * rows + self.graphs + self.derived + self.whole)
        if replicas is None:
            return kept + seeds * max(self.clients * self.step, self.making)
        return kept + seeds * self.graphs + replicas * self.step


def model_bytes(layout: ParameterLayout, stacks: int, itemsize: int) -> int:
    """Bytes per replica of ``stacks`` flat rows."""
    return stacks * layout.size * itemsize


def sparse_bytes(entries: int, blocks: int, rows: int, columns: int, itemsize: int) -> int:
    """Bytes of ``entries`` non-zeros in ``blocks`` sparse blocks, both directions of the product.

    Per direction an entry has its column (4), its column in the stack (4) and its value; a row has its count (8) and offset (4).
    """
    return entries * 2 * (8 + itemsize) + 12 * blocks * (rows + columns)


def graph_bytes(clients: Sequence[ClientGraph], operators: int, itemsize: int, device: torch.device, held: int | None = None) -> int:
    """Bytes of all clients' graphs as a :class:`~fgl_bench.engine.batch.Batch` holds them, with so many n x n operators.

    Args:
        held: bytes of a dense feature; None means ``itemsize``.
    """
    count, nodes, features = len(clients), max(client.num_nodes for client in clients), clients[0].features.shape[1]
    blocks = [client.features for client in clients]
    if is_dense(blocks, device):
        total = count * nodes * features * (held or itemsize)
    else:
        total = sparse_bytes(nonzeros(blocks), count, nodes, features, itemsize)
    edges = sum(client.edges.shape[1] + client.num_nodes for client in clients)
    return total + operators * sparse_bytes(edges, count, nodes, nodes, itemsize) + label_bytes(clients, itemsize)


def label_bytes(clients: Sequence[ClientGraph], itemsize: int) -> int:
    """Bytes of labels, masks and degrees of all clients, padded, and of where the loss is taken."""
    count, nodes, labels = len(clients), max(client.num_nodes for client in clients), clients[0].labels
    each = 8 if labels.ndim == 1 else labels.shape[1] * itemsize
    return count * nodes * (each + 4 + itemsize) + sum(int(client.train.sum()) for client in clients) * (8 + each + itemsize)


def loaded_bytes(clients: Sequence[ClientGraph], operators: int, derived: int, itemsize: int, held: int) -> int:
    """Bytes that one client on disk takes while it is in a chunk: features or what is derived of them (``held`` each), and operators."""
    nodes, edges = max(client.num_nodes for client in clients), max(client.edges.shape[1] for client in clients)
    features = nodes * clients[0].features.shape[1] * held * max(1, derived)
    return features + operators * sparse_bytes(edges + nodes, 1, nodes, nodes, itemsize)


def seed_bytes(
    federations: Sequence[Federation],
    layout: ParameterLayout,
    activations: Activations,
    stacks: int,
    itemsize: int,
    device: torch.device,
    operators: int = 1,
    copies: int = 0,
    derived: int = 0,
    held: int | None = None,
    batches: int = 1,
) -> Need:
    """What the largest of the seeds takes.

    Args:
        activations: of one step of the backbone.
        stacks: flat rows per replica that stay: models of the scenario, moments, the method's own.
        operators: n x n matrices that the backbone and the method multiply with.
        copies: of the graphs that are kept besides, cut out for subsets of the clients.
        derived: dense ``[n, F]`` matrices made of every client's features beforehand.
        held: bytes of their scalars and of dense features'; None means ``itemsize``.
        batches: mini-batches that a client's nodes are divided into, of which a step computes one.
    """
    held = held or itemsize
    clients = federations[0].num_clients
    nodes = max(client.num_nodes for federation in federations for client in federation.clients)
    sizes: dict[int, int] = {}
    made = 0
    sets, on_disk = 1, federations[0].observed[0].folder is not None
    for federation in federations:
        each = {id(g): g for g in (federation.observed, federation.clients)}.values()
        sets = max(sets, len(each))
        for graphs in each:
            taken = label_bytes(graphs, itemsize) if on_disk else graph_bytes(graphs, operators, itemsize, device, held)
            sizes[federation.seed] = sizes.get(federation.seed, 0) + taken
            made = max(made, taken if on_disk else graph_bytes(graphs, 1, itemsize, device, held))
    dense = sets * clients * nodes * derived * federations[0].num_features * held
    step = model_bytes(layout, 1, itemsize) + activation_bytes(-(-nodes // batches), activations, itemsize)
    if on_disk:
        step += max(loaded_bytes(federation.observed, operators, derived, itemsize, held) for federation in federations)
        dense = 0
    served = [federation.server for federation in federations if isinstance(federation, Served)]
    on_server = [graph_bytes([g], operators, itemsize, device, held) for g in served]
    forward = (g.num_nodes * (activations.kept // 4 + activations.passing) * itemsize for g in served)
    return Need(
        clients,
        kept=model_bytes(layout, stacks, itemsize),
        step=step,
        graphs=(1 + copies) * max(sizes.values()),
        derived=(1 + copies) * dense,
        whole=max(map(sum, zip(on_server, forward, strict=True)), default=0),
        making=(made + max(on_server, default=0)) // 2,
        row=model_bytes(layout, 1, itemsize),
    )


def available_bytes(device: torch.device) -> int:
    """Memory that a run may use by default: four fifths of what is free on the GPU, half of the machine's on a CPU."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free * 4 // 5
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def plan(
    federations: Sequence[Federation],
    layout: ParameterLayout,
    widest: int,
    need: Need,
    device: torch.device,
    budget: int,
    seeds_per_chunk: int | None,
) -> Plan:
    """Seeds first, then clients, until a program fits ``budget`` bytes; the numbers of a run do not depend on it.

    On a CPU every seed is a program of its own: five in one fall out of the cache and are slower per seed.
    """
    clients = need.clients
    nodes = max(client.num_nodes for federation in federations for client in federation.clients)
    fitting = (count for count in range(len(federations), 1, -1) if need.program(count) <= budget)
    seeds = min(seeds_per_chunk or (1 if device.type == "cpu" else next(fitting, 1)), len(federations))
    elements = seeds * clients * max(layout.size, nodes * widest)
    threads = torch.get_num_threads() if elements >= WIDE else 1
    if need.program(seeds) <= budget:
        cores = torch.get_num_threads()
        # More than the cores only as the last group, of programs that would not gain from a core more (see ``workers.groups``).
        side_by_side = 1 if device.type != "cpu" else cores if threads > 1 else 2 * cores - 1
        return Plan(seeds, None, max(1, min(side_by_side, budget // need.program(seeds))), threads)
    return Plan(seeds, max(1, int((budget - need.program(seeds, 0)) // need.step)), 1, threads)
