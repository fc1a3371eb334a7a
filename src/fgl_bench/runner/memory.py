"""How many replicas to train at once, from the memory that a rehearsal of the run took. See docs/memory.md."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from fgl_bench.data.federation import Federation
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.errors import UserError

T = TypeVar("T")
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
    """Memory of one seed, in bytes.

    Attributes:
        clients: C.
        whole: all clients trained at once.
        single: one client at a time.
        step: each further client that is trained at the same time.
        row: one model of every client. Of one seed an average is a view for all clients, of several seeds in one program it is not.
    """

    clients: int
    whole: int
    single: int
    step: int
    row: int = 0

    def program(self, seeds: int, replicas: int | None = None) -> int:
        """Bytes of ``seeds`` seeds in one program that trains ``replicas`` at once (None: all)."""
        rows = self.row if seeds > 1 else 0
        if replicas is None:
            return seeds * (self.whole + rows)
        return seeds * (self.single - self.step + rows) + replicas * self.step


def available_bytes(device: torch.device) -> int:
    """Memory that a run may use by default: four fifths of what is free on the GPU, half of the machine's on a CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # memory left by an earlier run of this process is free
        free, _ = torch.cuda.mem_get_info(device)
        # Memory freed by earlier runs of this process is available: torch caches it, and the driver counts it as used.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return (free + kept) * 4 // 5
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def plan(
    federations: Sequence[Federation],
    layout: ParameterLayout,
    widest: int,
    need: Need,
    device: torch.device,
    budget: int,
    seeds_per_chunk: int | None,
    together: int = 1,
) -> Plan:
    """Seeds first, then clients, until a program fits ``budget`` bytes; the numbers of a run do not depend on it, except for rounding.

    On a CPU every seed is a program of its own, unless ``together`` is larger: five in one fall out of the cache and are
    slower per seed. The threads of a program depend on sizes alone, not on measurements, since sums of several threads round differently.

    Args:
        widest: columns of the widest result of an operation, ``Backbone.widest``.
        together: most seeds in a program on a CPU.
    """
    clients = need.clients
    most = min(together, len(federations)) if device.type == "cpu" else len(federations)
    fitting = (count for count in range(most, 1, -1) if need.program(count) <= budget)
    seeds = min(seeds_per_chunk or next(fitting, 1), len(federations))
    elements = seeds * clients * max(layout.size, largest_client(federations) * widest)
    threads = torch.get_num_threads() if elements >= WIDE else 1
    if need.program(seeds) <= budget:
        cores = torch.get_num_threads()
        # Oversubscribe only in the last group, if its programs would not gain from another core (see ``workers.groups``).
        side_by_side = 1 if device.type != "cpu" else cores if threads > 1 else 2 * cores - 1
        return Plan(seeds, None, max(1, min(side_by_side, budget // need.program(seeds))), threads)
    most = max(1, seeds * clients - 1)  # all of them at once do not fit
    return Plan(seeds, max(1, min(most, (budget - need.program(seeds, 0)) // need.step)), 1, threads)


def largest_client(federations: Sequence[Federation]) -> int:
    """Nodes of the largest client, to which all are padded."""
    return max(client.num_nodes for federation in federations for client in federation.clients)


def out_of_memory(error: BaseException) -> bool:
    """Return True if an operation ran out of memory, on a GPU or in one of the host's allocators."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in ("can't allocate memory", "bad_alloc"))


def halving(train: Callable[[int | None], T], chunk: int | None, replicas: int) -> T:
    """``train(chunk)``; where memory runs out, again from the start with half as many of the ``replicas`` at once, one at least.

    Args:
        chunk: replicas to train at once; None means all.
    """
    while True:
        try:
            return train(chunk)
        except (MemoryError, RuntimeError) as error:
            chunk = chunk or replicas
            if not out_of_memory(error) or chunk == 1:
                raise
        chunk //= 2  # outside of the except clause, which keeps the tensors of the failed attempt alive
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(f"warning: memory ran out; beginning again with {chunk} clients at once", file=sys.stderr)


def once(train: Callable[[int | None], T], chunk: int | None, replicas: int) -> T:
    """``train(chunk)``, arguments as :func:`halving`; raises UserError where memory runs out."""
    try:
        return train(chunk)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        way = "use a smaller memory_budget_gb, or more workers on other machines"
        raise UserError(f"memory ran out with {chunk or replicas} clients at once; {way}") from error
