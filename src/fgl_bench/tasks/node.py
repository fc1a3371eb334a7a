"""Classification of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fgl_bench.models.base import Backbone
from fgl_bench.tasks.base import Task


@dataclass
class NodeClassification(Task):
    """Every node has a class, or several labels; the network is the backbone itself."""

    name: ClassVar[str] = "node"

    def network(self, model: Backbone) -> Backbone:
        return model
