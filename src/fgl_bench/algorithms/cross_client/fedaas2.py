"""FedAAS2."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.algorithms.cross_client.fedaas import FedAAS


@dataclass
class FedAAS2(FedAAS):
    """FedAAS without sampling: all neighbours, at the adaptive interval (Li et al., 2024, ablation).

    Its yaml has no fan-out, so that nothing is scored.
    """
