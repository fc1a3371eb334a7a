"""FedAAS with other keys: FedAAS1 (a synchronisation before every batch), FedAAS2 (all neighbors), FedAll (both), FedLocal (none)."""

from __future__ import annotations

import numpy as np
import torch

from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.crossing import KEYS, configured, fedaas, run
from tests.reference.cross_client import small_served


def test_variants_are_fedaas_with_other_keys():
    federation = small_served()
    twins = {
        "fedaas1": fedaas(interval=1),
        "fedaas2": fedaas(fanout=1000, sampling="uniform", adaptive=True),
        "fedall": configured("fedaas2", interval=1, adaptive=False),
    }
    rows = {}
    for name, twin in twins.items():
        method = configured(name, **({"fanout": 3} if name == "fedaas1" else {"interval": 4} if name == "fedaas2" else {}))
        assert_same_trips(run([federation], method), run([federation], twin), fewest=8)
        rows[name] = int(method.moved.rows.sum())
        assert rows[name] == int(twin.moved.rows.sum()) and method.scored == (name == "fedaas1") and method.adaptive == (name == "fedaas2")
        if name != "fedaas2":
            assert [int(each) for each in np.concatenate(method.moved.syncs)] == [KEYS["batches"]] * 2
    assert rows["fedall"] == max(rows.values()) > rows["fedaas1"] > 0


def test_of_fedlocal_only_models_travel_and_other_clients_do_not_matter():
    federation, other = small_served(), small_served()
    for client in other.observed[1:]:
        client.features[:] = 7.0
    first, second = (run([f], configured("fedlocal"), rounds=1) for f in (federation, other))
    assert torch.equal(first.trips[0][0][1], second.trips[0][0][1])
    model = 4 * first.sim.setting.layout.count
    assert first.histories[0].upload[-1] == first.histories[0].download[-1] == 4 * model
