"""S2FGL with all clients in every slot of the repository, one client and one eigenvector after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from .stateful import cross_entropy, descend, gradient_of, load, mean
from .training import Client, normalize


@dataclass
class S2FGL:
    """FedAvg with the two terms of Tan et al. (ICML 2025)."""

    repository_weight: float = 5.0
    temperature: float = 1.0
    important: float = 1 / 3
    alpha: float = 0.85
    alignment_weight: float = 1.0
    aligned: float = 0.2
    neighbors: int = 3
    eigenvectors: int = 10
    projections: str = "pairs"
    classes: int = 3

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        self.repository: torch.Tensor | None = None
        self.ranked = [self.rank(client) for client in clients]

    def rank(self, client: Client) -> list[int]:
        adjacency, train = client.observed.adjacency(), client.observed.train
        walk = torch.diag(1 / adjacency.sum(1).clamp(min=1)) @ adjacency
        p = torch.linalg.inv(torch.eye(len(walk), dtype=walk.dtype) - (1 - self.alpha) * walk)[:, train]
        if not train.any():
            return list(range(client.num_nodes))
        return sorted(range(client.num_nodes), key=lambda i: -(float(p[i].max()) + self.alpha * float(p[i].sum())))

    def hidden(self, client: Client) -> torch.Tensor:
        x, *edges = client.observed.inputs
        for conv in client.model.convs[:-1]:
            x = functional.relu(conv(x, *edges))
        return x

    def knowledge(self, h: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        terms = []
        for i in range(len(h)):
            own, wanted = (
                torch.stack([functional.cosine_similarity(x[i], r, dim=0) / self.temperature for r in self.repository]).log_softmax(0)
                for x in (h, g)
            )
            terms.append((wanted.exp() * (wanted - own)).sum() * self.temperature**2)
        return sum(terms) / len(terms)

    def ends(self, rows: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The lowest and the highest eigenvectors."""
        rows, count = rows.detach(), len(rows)
        weights = torch.zeros(count, count, dtype=rows.dtype)
        for i in range(count):
            similarity = torch.stack([functional.cosine_similarity(rows[i], rows[j], dim=0) for j in range(count)])
            order = 1e-6 * torch.arange(count, dtype=rows.dtype) / count  # the first of equally near rows
            for j in (similarity - order).topk(min(self.neighbors + 1, count)).indices:
                weights[i, j] += similarity[j] / 2
                weights[j, i] += similarity[j] / 2
        apart = torch.tensor([1e-4 * i / count for i in range(count)], dtype=rows.dtype)
        vectors = torch.linalg.eigh(torch.diag(weights.sum(1) + apart) - weights).eigenvectors.T
        most = min(self.eigenvectors, count)
        return list(vectors[:most]), list(vectors.flip(0)[:most])

    def alignment(self, h: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=h.dtype)
        for own, others in zip(self.ends(h), self.ends(g), strict=True):
            parts = [(torch.outer(v, v) @ h, torch.outer(u, u) @ g) for v, u in zip(own, others, strict=True)]
            if self.projections == "space":
                parts = [(sum(a for a, _ in parts), sum(b for _, b in parts))]
            total = total + sum(functional.mse_loss(a, b) for a, b in parts)
        return total

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        load(client, w)
        with torch.no_grad():
            g = self.hidden(client)
        nodes = self.ranked[i][: int(self.aligned * client.num_nodes)]
        for _ in range(epochs):
            loss = cross_entropy(client)
            if self.repository is not None and client.num_train:
                h = self.hidden(client)
                loss = loss + self.repository_weight * self.knowledge(h, g)
                if nodes:
                    loss = loss + self.alignment_weight * self.alignment(h[nodes], g[nodes])
            descend(client, gradient_of(client, loss))

    @torch.no_grad()
    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        sums, counts = 0.0, torch.zeros(self.classes, dtype=w.dtype)
        for i in chosen:
            load(clients[i], trained[i])
            graph, h = clients[i].observed, self.hidden(clients[i])
            best = set(self.ranked[i][: int(self.important * clients[i].num_nodes)])
            among = [[v for v in best if graph.train[v] and graph.y[v] == c] for c in range(self.classes)]
            sums = sums + torch.stack([h[nodes].sum(0) for nodes in among])
            counts += torch.tensor([len(nodes) for nodes in among])
        self.repository = sums / counts.clamp(min=1)[:, None]
        return mean([trained[i] for i in chosen], normalize([float(clients[i].num_train) for i in chosen]))
