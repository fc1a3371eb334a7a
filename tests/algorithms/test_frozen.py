"""Parameters that a method freezes: no gradient, no decay, not sent. FedBABU against a plain loop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.engine.mixing import normalize
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from tests.algorithms.batching import assert_batching_changes_nothing
from tests.algorithms.comparing import TIGHT
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

GUIDE = Path(__file__).parents[2] / "docs/guides/own_method.md"
SETTINGS = {"rounds": 4, "model": GCN(hidden=4, layers=2, dropout=0.0), "local_epochs": 2, "lr": 0.05, "weight_decay": 0.1}


def fedbabu() -> FedAvg:
    """The class of the guide."""
    [source] = [code for code in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S) if "FedBABU" in code]
    names: dict = {"__name__": "guide"}
    exec(source, names)
    return names["FedBABU"]()


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_the_head_stays_as_it_was_and_is_not_sent(participation):
    found = simulate([small_federation(seed) for seed in (0, 1)], fedbabu(), synchronous(), participation=participation, **SETTINGS)
    for replica, trips in enumerate(found.trips):
        for name, initial in found.named(found.sim.initial[replica]).items():
            same = [torch.equal(found.named(model)[name], initial) for pair in trips for model in pair]
            assert all(same) if name.startswith("conv1") else not all(same)
    layout, trips = found.sim.setting.layout, int(found.histories[0].trips[-1])
    body = 4 * sum(layout.numel(name) for name in layout.shapes if name.startswith("conv0"))
    assert (found.histories[0].upload[-1], found.histories[0].download[-1]) == (trips * body, trips * body)


def test_equals_a_plain_loop_that_trains_the_body_alone():
    federation = small_federation(0)
    found = simulate([federation], fedbabu(), synchronous(), **SETTINGS)
    body = {name: value.clone() for name, value in found.named(found.sim.initial[0]).items()}
    clients, shares = [], normalize(found.sim.setting.weights)[0]
    for client in federation.clients:
        adjacency = torch.eye(client.num_nodes, dtype=torch.float64)
        adjacency[client.edges[0], client.edges[1]] = 1
        scale = adjacency.sum(1).rsqrt()
        weights = {name: value.clone().requires_grad_(name.startswith("conv0")) for name, value in body.items()}
        adam = torch.optim.Adam([weights["conv0.weight"], weights["conv0.bias"]], lr=0.05, weight_decay=0.1)
        clients.append((client, scale[:, None] * adjacency * scale, weights, adam))
    for number in range(4):
        for i, (client, mean, weights, adam) in enumerate(clients):
            with torch.no_grad():
                for name in ("conv0.weight", "conv0.bias"):
                    weights[name].copy_(body[name])
            features = client.features.toarray() if hasattr(client.features, "toarray") else client.features
            features, labels, train = (torch.as_tensor(part) for part in (features, client.labels, client.train))
            for _ in range(2):
                hidden = torch.relu(mean @ (features.double() @ weights["conv0.weight"]) + weights["conv0.bias"])
                logits = mean @ (hidden @ weights["conv1.weight"]) + weights["conv1.bias"]
                adam.zero_grad()
                if train.any():
                    torch.nn.functional.cross_entropy(logits[train], labels[train]).backward()
                    adam.step()
            for name, value in found.named(found.trips[i][number][1]).items():
                torch.testing.assert_close(value, weights[name].detach(), **TIGHT)
        body = {name: sum(share * each[2][name].detach() for share, each in zip(shares, clients, strict=True)) for name in body}


def test_freezing_works_in_chunks_and_names_must_exist():
    assert_batching_changes_nothing(fedbabu, synchronous)
    wrong = type("Wrong", (FedAvg,), {"frozen": ("head.weight",)})
    with pytest.raises(UserError, match=r"frozen: the model has no parameter head\.weight; it has conv0\.weight"):
        simulate([small_federation(0)], wrong(), synchronous(), **SETTINGS)
