"""Flickr's pictures (Zeng et al., ICLR 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.data.datasets._graphsaint import GraphSAINT


@dataclass
class Flickr(GraphSAINT):
    """Pictures, joined where they share a place, a gallery or a commentator."""
