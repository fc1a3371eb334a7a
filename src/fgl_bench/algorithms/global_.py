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
    """One model trained on the pooled training nodes of all clients; nothing is communicated.

    The federation is merged into one client before batching, so a run has S replicas instead of S * C. Scores are still recorded by
    client, on the training graph. Rounds are counted as in a federation: a round of ``local_epochs`` steps counts one trip per
    participating client. With ``split.test=server`` the server scores the model on its own nodes, in the whole graph, as it scores a
    federation's model: the upper bound of methods with edges between clients.

    Resolutions: nodes that no client holds (overlapping splits) are left out; a training node of any client is never
    scored. Under topology sparsity all edges between clients are present; in the inductive setting only those between training
    nodes. The received model of a round is the model trained in the previous round.

    Attributes:
        graph: ``full``, with the edges between clients, or ``disjoint``: the union of the clients' graphs, which
            measures the effect of the missing edges.
    """

    graph: Literal["full", "disjoint"]

    def federate(self, federation: Federation) -> Federation:
        return pool(federation, self.graph == "full")
