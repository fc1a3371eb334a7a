"""Yelp's reviewers (Zeng et al., ICLR 2020), several labels each."""

from __future__ import annotations

from dataclasses import dataclass

from fgl_bench.data.datasets._graphsaint import GraphSAINT


@dataclass
class Yelp(GraphSAINT):
    """Reviewers and their friendships; the 100 kinds of business that a reviewer went to."""
