"""FedAll."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.algorithms.cross_client.fedaas import FedAAS


@dataclass
class FedAll(FedAAS):
    """FedAAS with neither: all neighbours, fetched before every batch (Li et al., 2024, ablation).

    Its yaml has no fan-out and interval 1: full communication.
    """
