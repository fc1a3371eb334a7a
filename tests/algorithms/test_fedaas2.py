"""FedAAS2: all neighbours, at FedAAS' adaptive interval."""

from __future__ import annotations

from tests.algorithms.comparing import assert_same_trips
from tests.algorithms.crossing import configured, fedaas, run
from tests.reference.cross_client import small_served


def test_it_scores_nothing_and_takes_every_neighbour():
    federation, method = small_served(), configured("fedaas2", interval=4)
    recorded = run([federation], method)
    assert not method.scored
    unlimited = fedaas(fanout=1000, sampling="uniform", interval=4, adaptive=True)
    assert_same_trips(recorded, run([federation], unlimited), fewest=8)
    assert int(method.moved.rows.sum()) == int(unlimited.moved.rows.sum())


def test_the_interval_follows_the_loss_as_fedaas_does():
    federation = small_served()
    methods = configured("fedaas2", interval=4), configured("fedaas", interval=4)
    for method in methods:
        run([federation], method, rounds=3)
        assert method.adaptive and len(method.losses) >= 2
