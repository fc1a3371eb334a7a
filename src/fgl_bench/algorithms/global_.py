"""Centralized training, the upper reference (``global`` is a Python keyword, hence the module's name)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fgl_bench.algorithms.local import Alone
from fgl_bench.algorithms.powers import Federating
from fgl_bench.data.graph import Federation
from fgl_bench.data.pooling import pool


@dataclass
class Global(Alone, Federating):
    """One model trained on the nodes of all clients at once, on their training nodes together; nothing travels.

    The federation becomes one client before anything is batched, so that a run has S replicas and not S * C. Scores are still
    kept client by client, on the graph that was trained on. Rounds are counted as those of a federation: a round of
    ``local_epochs`` steps stands for as many client trips as clients would take part in it. With ``split.test=server`` the server scores
    the model on its own nodes, in the whole graph, as it scores a federation's: the ceiling of methods with edges between clients.

    Resolutions: nodes that no client holds (overlapping splits) are left out; a node that is a training node of any client is scored
    nowhere. Under topology sparsity the edges between clients are all there; in the inductive setting those between training
    nodes are. The received model of a round is the one that the last round trained.

    Attributes:
        graph: ``full``, with the edges between clients, or ``disjoint``: the union of the clients' graphs, which
            measures the effect of the missing edges.
    """

    graph: Literal["full", "disjoint"]

    def federate(self, federation: Federation) -> Federation:
        return pool(federation, self.graph == "full")
