"""FedAll: all neighbours, fetched before every batch."""

from __future__ import annotations

import numpy as np

from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.crossing import KEYS, configured, run
from tests.reference.cross_client import small_served


def test_it_is_fedaas2_that_synchronises_before_every_batch():
    federation, method = small_served(), configured("fedall")
    recorded = run([federation], method)
    assert [int(each) for each in np.concatenate(method.moved.syncs)] == [KEYS["batches"]] * 2
    assert_same_trips(recorded, run([federation], configured("fedaas2", interval=1, adaptive=False)), fewest=8)


def test_nobody_sends_more():
    federation, rows = small_served(), {}
    for name in ("fedall", "fedaas", "fedaas1", "fedaas2", "fedlocal"):
        method = configured(name, **({"fanout": 2} if name in ("fedaas", "fedaas1") else {}))
        run([federation], method)
        rows[name] = int(method.moved.rows.sum())
    assert rows["fedall"] == max(rows.values()) > rows["fedaas1"] > rows["fedlocal"] == 0
