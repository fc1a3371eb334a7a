"""Centralised training, the upper reference (the file's name: ``global`` is a word of Python's own)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fgl_bench.algorithms.local import Alone
from fgl_bench.algorithms.powers import Federating
from fgl_bench.data.graph import Federation
from fgl_bench.data.pooling import pool
from fgl_bench.data.splits.base import Split
from fgl_bench.errors import Unsuited
from fgl_bench.models.base import Backbone


@dataclass
class Global(Alone, Federating):
    """One model trained on the nodes of all clients at once, on their training nodes together; nothing travels.

    The federation becomes one client before anything is batched, so that a run has S replicas and not S * C. Scores are still
    kept client by client, on the graph that was trained on. Rounds are counted as those of a federation: a round of
    ``local_epochs`` steps stands for as many client trips as clients would take part in it.

    Resolutions: nodes that no client holds (overlapping splits) are left out; a node that is a training node of any client is scored
    nowhere. Under topology sparsity the edges between clients are all there; in the inductive setting those between training
    nodes are. The received model of a round is the one that the last round trained.

    Attributes:
        graph: ``full``, with the edges between clients, or ``disjoint``: the clients' graphs side by side, which tells
            what the missing edges cost.
    """

    pairing: ClassVar[Mapping[str, str]] = {"split.test": "clients"}

    graph: Literal["full", "disjoint"]

    def check_choices(self, model: Backbone, split: Split) -> None:
        if split.test == "server":
            raise Unsuited("pools the nodes of clients, and with split.test=server the server holds some of them")

    def federate(self, federation: Federation) -> Federation:
        return pool(federation, self.graph == "full")
