"""FedAAS1."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.algorithms.cross_client.fedaas import FedAAS


@dataclass
class FedAAS1(FedAAS):
    """FedAAS without history: a synchronisation before every batch (Li et al., 2024, ablation).

    Its yaml has interval 1 and no adaptation; with a fixed interval of 1, FedAAS is this.
    """
