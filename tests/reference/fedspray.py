"""FedSpray, one client after the other, on PyTorch's modules and optimizers."""

from __future__ import annotations

import torch
from torch.nn import functional

from fgl_bench.data.graph import Federation

from .models import Parameters, read_parameters
from .stateful import cross_entropy
from .training import Client, make_clients, normalize

Shared = dict[str, torch.Tensor]


class Half:
    """What a client has besides its personal model."""

    def __init__(self, client: Client, shared: Shared, width: int):
        self.parameters = {name: value.clone().requires_grad_() for name, value in shared.items()}
        self.proxies = torch.full((client.num_nodes, width), 0.1, dtype=torch.float64, requires_grad=True)
        self.optimizers = [torch.optim.Adam(self.parameters.values(), 0.01), torch.optim.Adam([self.proxies], 0.02)]


def encode(shared: Shared, x: torch.Tensor) -> torch.Tensor:
    return functional.relu(x @ shared["encoder.weight"] + shared["encoder.bias"])


def classify(shared: Shared, name: str, x: torch.Tensor) -> torch.Tensor:
    return x @ shared[f"{name}.weight"] + shared[f"{name}.bias"]


def divergence(wanted: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return functional.kl_div(logits.log_softmax(1), wanted.detach().log_softmax(1), reduction="batchmean", log_target=True)


def teach(client: Client, half: Half, shared: Shared, classes: torch.Tensor, confidence: float) -> tuple[torch.Tensor, torch.Tensor]:
    encoded = encode(shared, client.observed.x)
    soft = classify(shared, "alone", encoded).softmax(1)
    proxies = torch.stack([
        half.proxies[v] if client.observed.train[v] else sum(soft[v, c] * proxy for c, proxy in enumerate(classes))
        for v in range(client.num_nodes)
    ])  # fmt: skip
    sure = [v for v in range(client.num_nodes) if client.observed.train[v] or float(soft[v].max()) > confidence]
    return classify(shared, "joint", encoded + proxies).detach(), torch.tensor(sure, dtype=torch.long)


def run(
    federation: Federation, initial: Parameters, shared: Shared, *, rounds: int, epochs: int, weight: float, confidence: float, width: int,
    begin: str,
) -> list[list[Parameters]]:  # fmt: skip
    """Return every client's trained model after every round, ``[rounds][C]``."""
    clients = make_clients(federation, initial)
    halves = [Half(client, shared, width) for client in clients]
    sizes = normalize([float(client.num_train) for client in clients])
    classes = torch.stack([torch.full((width,), 0.01 * c, dtype=torch.float64) for c in range(federation.num_classes)])
    trace = []
    for _ in range(rounds):
        shares, means = [], []
        for client, half in zip(clients, halves, strict=True):
            graph, train = client.observed, client.observed.train
            wanted, sure = teach(client, half, shared, classes, confidence)
            with torch.no_grad():
                for name, parameter in half.parameters.items():
                    parameter.copy_(shared[name.replace("alone", "joint") if begin == "joint" else name])
            for _ in range(epochs if client.num_train else 0):
                loss = cross_entropy(client) + weight * divergence(wanted[sure], client.model(*graph.inputs)[sure])
                client.optimizer.zero_grad()
                loss.backward()
                client.optimizer.step()
            model = client.model(*graph.inputs)
            for _ in range(epochs if client.num_train else 0):
                encoded = encode(half.parameters, graph.x)
                plain = classify(half.parameters, "alone", encoded)[train]
                joint = classify(half.parameters, "joint", encoded + half.proxies)[train]
                loss = functional.cross_entropy(plain, graph.y[train]) + divergence(model[train], joint)
                for optimizer in half.optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in half.optimizers:
                    optimizer.step()
            counts = [(train & (graph.y == c)).nonzero()[:, 0] for c in range(federation.num_classes)]
            shares.append([len(nodes) / max(client.num_train, 1) for nodes in counts])
            means.append([half.proxies[nodes].mean(0).detach() if len(nodes) else torch.zeros(width).double() for nodes in counts])
        shared = {name: sum(size * half.parameters[name].detach() for size, half in zip(sizes, halves, strict=True)) for name in shared}
        for c in range(federation.num_classes):
            if total := sum(share[c] for share in shares):
                classes[c] = sum(share[c] * mean[c] for share, mean in zip(shares, means, strict=True)) / total
        trace.append([read_parameters(client.model) for client in clients])
    return trace
