"""One client of the plain loop: its graphs, its model, its optimiser, its local training and its score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn import functional
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.utils.seeding import derive_seed

from .models import GCN, Parameters, read_parameters, widths_of, write_parameters

FEATURES = {"dense": lambda x: x, "coo": torch.Tensor.to_sparse_coo, "csr": torch.Tensor.to_sparse_csr}


class LocalGraph:
    """A client graph as tensors: features, ``edge_index`` in both directions, labels and masks."""

    def __init__(
        self, graph: ClientGraph, num_classes: int, dtype: torch.dtype, device: torch.device, prenormalized: bool, features: str = "dense"
    ):
        storage = FEATURES[features]
        features = graph.features.toarray() if sp.issparse(graph.features) else np.asarray(graph.features)
        self.num_nodes = graph.num_nodes
        self.num_classes = num_classes
        self.x = storage(torch.as_tensor(features, dtype=dtype, device=device))
        self.edge_index = torch.as_tensor(graph.edges, dtype=torch.long, device=device).reshape(2, -1)
        self.y = torch.as_tensor(graph.labels, dtype=torch.long, device=device)
        self.train, self.val, self.test = (
            torch.as_tensor(mask, dtype=torch.bool, device=device) for mask in (graph.train, graph.val, graph.test)
        )
        self.inputs = (self.x, self.edge_index, None)
        if prenormalized:
            self.inputs = (self.x, *gcn_norm(self.edge_index, None, self.num_nodes, dtype=dtype))

    def adjacency(self) -> torch.Tensor:
        """``[n, n]`` float64, dense, 0/1, without self loops."""
        dense = torch.zeros(self.num_nodes, self.num_nodes, dtype=torch.float64, device=self.x.device)
        dense[self.edge_index[0], self.edge_index[1]] = 1.0
        return dense

    def train_truth(self) -> torch.Tensor:
        """``[n, Y]`` float64: the one-hot label on training rows, zero elsewhere."""
        truth = torch.zeros(self.num_nodes, self.num_classes, dtype=torch.float64, device=self.x.device)
        truth[self.train] = functional.one_hot(self.y[self.train], self.num_classes).double()
        return truth


class Client:
    """One client: it trains on what it observes and is scored on its clean graph.

    The model and its Adam live for the whole run; downloads overwrite the parameters in place and the moments stay.

    Args:
        observed: the graph to train and report on.
        clean: the graph to evaluate on.
        initial: the common first parameters; their shapes, dtype and device decide the model's.
        index, seed: name this client's dropout stream, one per trip.
        prenormalized: hand GCNConv edges normalised once instead of letting it normalise in every forward pass.
        features: a key of ``FEATURES``: how the node features are stored.
        optimizer: makes its optimiser from parameters, ``lr`` and ``weight_decay``.
        adam: further options of ``torch.optim.Adam``, such as ``{"fused": True}``.
    """

    def __init__(
        self,
        observed: ClientGraph,
        clean: ClientGraph,
        initial: Parameters,
        *,
        num_classes: int,
        index: int = 0,
        seed: int = 0,
        dropout: float = 0.0,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        prenormalized: bool = False,
        features: str = "dense",
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        adam: dict | None = None,
    ):
        first = next(iter(initial.values()))
        self.index, self.seed = index, seed
        self.observed = LocalGraph(observed, num_classes, first.dtype, first.device, prenormalized, features)
        self.clean = self.observed
        if clean is not observed:
            self.clean = LocalGraph(clean, num_classes, first.dtype, first.device, prenormalized, features)
        self.num_train = int(self.observed.train.sum())
        self.num_nodes = self.observed.num_nodes
        self.num_val, self.num_test = int(self.clean.val.sum()), int(self.clean.test.sum())
        self.model = GCN(widths_of(initial), dropout, normalize=not prenormalized).to(first.device, first.dtype)
        self.optimizer = optimizer(self.model.parameters(), lr=lr, weight_decay=weight_decay, **(adam or {}))
        self.load(initial)

    def load(self, parameters: Parameters) -> None:
        write_parameters(self.model, parameters)

    def parameters(self) -> Parameters:
        return read_parameters(self.model)

    def train(self, epochs: int, trip: int, proximal: float = 0.0) -> None:
        """Full-batch steps on the mean cross-entropy of the training nodes (one epoch is one step).

        With ``proximal`` = mu the loss has mu/2 ||theta - w||^2 added, w being the parameters held on entry. A client
        without training nodes has no loss and does nothing: no decay, no step of its optimiser.
        """
        if self.num_train == 0:
            return
        if self.model.dropout > 0.0:
            torch.manual_seed(derive_seed(self.seed, "reference dropout", self.index, trip))
        anchor = [tensor.detach().clone() for tensor in self.model.parameters()] if proximal else []
        self.model.train()
        for _ in range(epochs):
            self.optimizer.zero_grad()
            logits = self.model(*self.observed.inputs)
            loss = functional.cross_entropy(logits[self.observed.train], self.observed.y[self.observed.train])
            if proximal:
                pairs = zip(self.model.parameters(), anchor, strict=True)
                loss = loss + 0.5 * proximal * sum((tensor - start).square().sum() for tensor, start in pairs)
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def count_correct(self) -> tuple[int, int]:
        """Correct validation and test nodes of the parameters held now, on the clean graph."""
        self.model.eval()
        hit = self.model(*self.clean.inputs).argmax(dim=1) == self.clean.y
        return int(hit[self.clean.val].sum()), int(hit[self.clean.test].sum())

    @torch.no_grad()
    def probabilities(self) -> torch.Tensor:
        """``[n, Y]`` float64 class probabilities on the observed graph, without dropout."""
        self.model.eval()
        return torch.softmax(self.model(*self.observed.inputs).double(), dim=1)


def make_clients(federation: Federation, initial: Parameters, **settings) -> list[Client]:
    """One :class:`Client` per client of the federation, all starting from ``initial``; ``settings`` as Client's."""
    pairs = zip(federation.observed, federation.clients, strict=True)
    return [
        Client(observed, clean, initial, num_classes=federation.num_classes, index=index, **settings)
        for index, (observed, clean) in enumerate(pairs)
    ]


def pooled_accuracy(clients: list[Client], counts: list[tuple[int, int]]) -> tuple[float, float]:
    """Validation and test accuracy over all clients, each weighted by its number of scored nodes (nan without any)."""
    val, test = (sum(count[part] for count in counts) for part in (0, 1))
    num_val, num_test = sum(client.num_val for client in clients), sum(client.num_test for client in clients)
    return (val / num_val if num_val else float("nan"), test / num_test if num_test else float("nan"))


def normalize(weights: list[float]) -> list[float]:
    """Non-negative weights scaled to sum one; uniform where they sum to nothing."""
    total = sum(weights)
    if not np.isfinite(total) or total <= 1e-12:
        return [1.0 / len(weights)] * len(weights)
    return [weight / total for weight in weights]


def cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    """Cosine similarity in [-1, 1]; 0 where a vector is zero."""
    first, second = first.double().reshape(-1), second.double().reshape(-1)
    similarity = float(first @ second) / max(float(first.norm() * second.norm()), 1e-12)
    return min(1.0, max(-1.0, similarity))
