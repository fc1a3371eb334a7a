"""FGSSL on whole graphs (without augmentation), one client and one node after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from .stateful import cross_entropy, descend, gradient_of, load, mean
from .training import Client, normalize


@dataclass
class FGSSL:
    """FedAvg with the two terms of Huang et al. (IJCAI 2023), or OpenFGL's structure term."""

    contrast_weight: float = 1.5
    temperature: float = 0.1
    structure_weight: float = 1.0
    structure_temperature: float = 1.0
    structure: str = "neighborhoods"

    def start(self, clients: list[Client], initial: torch.Tensor) -> None:
        pass

    def outputs(self, client: Client) -> tuple[torch.Tensor, torch.Tensor]:
        x, *edges = client.observed.inputs
        for conv in client.model.convs[:-1]:
            x = functional.relu(conv(x, *edges))
        return x, client.model.convs[-1](x, *edges)

    def contrast(self, client: Client, h: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        train = client.observed.train.nonzero()[:, 0].tolist()
        terms = []
        for i in train:
            scores = torch.stack([functional.cosine_similarity(h[i], g[j], dim=0) / self.temperature for j in train])
            logs = torch.log(scores.exp() / scores.exp().sum())
            terms.append(-torch.stack([logs[n] for n, j in enumerate(train) if client.observed.y[i] == client.observed.y[j]]).mean())
        return sum(terms) / len(terms)

    def neighborhoods(self, client: Client, z: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        source, target = client.observed.edge_index
        terms = []
        for i in range(client.num_nodes):
            near = [i, *source[target == i].tolist()]
            own, other = (
                torch.stack([functional.cosine_similarity(x[i], x[j], dim=0) / self.structure_temperature for j in near]).log_softmax(0)
                for x in (z, wanted)
            )
            terms.append((other.exp() * (other - own)).sum())
        return sum(terms) / len(terms)

    def edges(self, client: Client, h: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        pairs = client.observed.edge_index.T.tolist()
        terms = []
        for i, j in pairs:
            own, other = (((x[i] - x[j]).abs() / self.structure_temperature).log_softmax(0) for x in (h, wanted))
            terms.append((other.exp() * (other - own)).sum())
        return sum(terms) / max(len(terms), 1)

    def trip(self, i: int, client: Client, w: torch.Tensor, epochs: int) -> None:
        load(client, w)
        with torch.no_grad():
            g, wanted = self.outputs(client)
        for _ in range(epochs):
            loss = cross_entropy(client)
            if client.num_train:
                h, z = self.outputs(client)
                structure = self.edges(client, h, g) if self.structure == "edges" else self.neighborhoods(client, z, wanted)
                loss = loss + self.contrast_weight * self.contrast(client, h, g) + self.structure_weight * structure
            descend(client, gradient_of(client, loss))

    def aggregate(self, chosen: list[int], clients: list[Client], w: torch.Tensor, trained: dict[int, torch.Tensor]) -> torch.Tensor:
        return mean([trained[i] for i in chosen], normalize([float(clients[i].num_train) for i in chosen]))
