"""FedLocal."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.algorithms.cross_client.fedaas import FedAAS


@dataclass
class FedLocal(FedAAS):
    """FedAAS without edges between clients: FedAvg over random neighbours inside (Li et al., 2024, figure 1).

    Its yaml has interval 0: only models travel.
    """
