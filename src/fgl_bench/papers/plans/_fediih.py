"""FedIIH on every dataset as its authors ran it: the folders of their code that the readme names, and each folder's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fgl_bench.papers.plan import Column


class Chosen(NamedTuple):
    """``layers`` counts as the released code does: two of them are the projection and the classifier, but one at least routes."""

    factors: int
    width: int = 256
    layers: int = 5
    iterations: int = 6
    dropout: float = 0.35
    lr: float = 0.01
    weight_decay: float = 1e-6

    def overrides(self) -> tuple[str, ...]:
        few = self.layers <= 2
        return (
            f"model.factors={self.factors}",
            f"model.width={self.width}",
            f"model.layers={1 if few else self.layers - 2}",
            f"model.iterations={self.iterations}",
            f"model.dropout={self.dropout}",
            f"algorithm.inference_layers={1 if few else 2}",
            f"lr={self.lr}",
            f"weight_decay={self.weight_decay}",
        )


DISJOINT = {
    "cora": Chosen(2, width=128, layers=4, dropout=0.3, lr=0.02, weight_decay=5e-3),
    "citeseer": Chosen(2),
    "pubmed": Chosen(4, layers=1, dropout=0.25, weight_decay=4.5e-3),
    "computers": Chosen(6, width=128, layers=1, dropout=0.4, lr=0.015),
    "photo": Chosen(6, layers=1, dropout=0.4, lr=0.015),
    "ogbn_arxiv": Chosen(2, width=128),
    "roman_empire": Chosen(4, width=128, layers=1, lr=0.015),
    "amazon_ratings": Chosen(4, width=128, layers=3, iterations=7),
    "minesweeper": Chosen(6),
    "tolokers": Chosen(10, width=128, layers=1, iterations=2, weight_decay=4.5e-3),
    "questions": Chosen(8),
}
OVERLAPPING = {
    "cora": Chosen(2),
    "citeseer": Chosen(2),
    "pubmed": Chosen(2, layers=1, dropout=0.4, lr=0.015),
    "computers": Chosen(4, width=128, lr=0.015),
    "photo": Chosen(10, width=128, layers=1, iterations=5),
    "ogbn_arxiv": Chosen(2, width=128),
    "roman_empire": Chosen(4, width=128, layers=1, lr=0.015),
    "amazon_ratings": Chosen(4),
    "minesweeper": Chosen(4, width=128, layers=6, iterations=7),
    "tolokers": Chosen(10, width=128, layers=1, iterations=2, weight_decay=4.5e-3),
    "questions": Chosen(2),
}


def overrides(column: Column) -> tuple[str, ...]:
    """The keys of a column's run; ``column.where`` names split and number of clients."""
    chosen: Mapping[str, Chosen] = OVERLAPPING if column.where["split"] == "metis_overlap" else DISJOINT
    own = chosen[column.dataset]
    if (column.dataset, column.where["split"], column.where["num_clients"]) == ("computers", "metis", "5"):
        own = own._replace(dropout=0.35)
    return own.overrides()
