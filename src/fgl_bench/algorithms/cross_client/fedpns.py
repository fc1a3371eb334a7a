"""FedPNS."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.algorithms.cross_client.base import CrossClient


@dataclass
class FedPNS(CrossClient):
    """Periodic neighbor sampling (Du & Wu, IWQoS 2022), as in the baseline of FedAAS.

    Random neighbors: from all clients in every ``interval``-th batch, from the client itself in the other batches. The original
    adapts the interval by trading error against time; only its abstract is public, and the baseline's interval is fixed.
    """
