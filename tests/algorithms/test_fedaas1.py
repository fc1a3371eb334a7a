"""FedAAS1: a synchronisation before every batch, and otherwise FedAAS."""

from __future__ import annotations

import numpy as np

from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.crossing import KEYS, configured, fedaas, run
from tests.reference.cross_client import small_served


def test_it_synchronises_before_every_batch_and_is_fedaas_at_interval_one():
    federation, method = small_served(), configured("fedaas1", fanout=3)
    recorded = run([federation], method)
    assert [int(each) for each in np.concatenate(method.moved.syncs)] == [KEYS["batches"]] * 2
    assert_same_trips(recorded, run([federation], fedaas(fanout=3, interval=1)), fewest=8)


def test_it_samples_by_attention():
    method = configured("fedaas1")
    assert method.sampling == "attention" and method.scored
    few, many = (run([small_served()], configured("fedaas1", fanout=limit), rounds=1) for limit in (1, 1000))
    assert few.sim.algorithm.moved.rows.sum() < many.sim.algorithm.moved.rows.sum()
