"""FedPNS."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.algorithms.cross_client.base import CrossClient


@dataclass
class FedPNS(CrossClient):
    """Periodic neighbour sampling (Du & Wu, IWQoS 2022), in the form that FedAAS compares with.

    Random neighbours, of other clients in every ``interval``-th batch, of the client itself alone in the others. The original
    chooses the interval online by trading the error against time; only its abstract is public, and the baseline's interval is fixed.
    """
