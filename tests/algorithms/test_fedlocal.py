"""FedLocal: only models travel, and edges between clients are not there."""

from __future__ import annotations

import torch

from tests.algorithms.crossing import configured, run
from tests.reference.cross_client import small_served


def test_only_models_travel():
    recorded = run([small_served()], configured("fedlocal"), rounds=3)
    model = 4 * recorded.sim.setting.layout.count
    assert recorded.histories[0].upload[-1] == recorded.histories[0].download[-1] == 3 * 4 * model


def test_what_other_clients_hold_does_not_reach_a_client_within_a_round():
    federation, other = small_served(), small_served()
    for client in other.observed[1:]:
        client.features[:] = 7.0
    first, second = (run([f], configured("fedlocal"), rounds=1).trips[0][0][1] for f in (federation, other))
    assert torch.equal(first, second)
    # ... which is what the edges between clients do otherwise
    first, second = (run([f], configured("fedaas1"), rounds=1).trips[0][0][1] for f in (federation, other))
    assert not torch.equal(first, second)
