"""That no label of a validation or test node leaves a client, or enters its training, for any method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fgl_bench.data.graph import Federation
from tests.algorithms.comparing import watch
from tests.reference.small import small_federation
from tests.small_runs import simulate


def scrambled(federation: Federation) -> Federation:
    """The same clients with other labels on all nodes that are not training nodes."""
    clients = []
    for client in federation.clients:
        labels = np.where(client.train, client.labels, (client.labels + 1) % federation.num_classes)
        clients.append(replace(client, labels=labels))
    return replace(federation, clients=tuple(clients), observed=tuple(clients))


def assert_hidden_labels_do_not_matter(method, scenario, federations=None, **settings):
    """Models and reports are the same to the last bit; ``method`` and ``scenario`` make fresh instances."""
    federations = federations or [small_federation(seed) for seed in (0, 1)]
    runs = []
    for graphs in (federations, [scrambled(f) for f in federations]):
        made = method()
        calls = watch(made, "report")
        runs.append((simulate(graphs, made, scenario(), **{"rounds": 5, **settings}), [reports for _, reports in calls]))
    (honest, told), (other, retold) = runs
    for a, b in zip(honest.trips, other.trips, strict=True):
        assert all(torch.equal(x, y) for pair, twin in zip(a, b, strict=True) for x, y in zip(pair, twin, strict=True))
    for a, b in zip(told, retold, strict=True):
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    assert any(len(trips) for trips in honest.trips)
