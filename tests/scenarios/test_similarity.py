"""The server's view of how alike clients are, kept for pictures at the trips that were asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.fedbuff import FedBuff
from fgl_bench.algorithms.fedgta import FedGTA
from fgl_bench.algorithms.fedsa_gcl import FedSAGCL
from tests.reference.small import small_federation
from tests.scenarios.loops import watched_loops
from tests.small_runs import semi_async, simulate, synchronous
from tests.test_equivalence import BUFF, GTA, SAGCL


def federations():
    return [small_federation(seed, clients=5) for seed in (0, 1)]


def test_rounds_keep_what_the_clusters_were_made_from():
    method = FedGTA(**{**GTA, "threshold": 0.9})
    sim = simulate(federations(), method, synchronous(), rounds=3, mixing_at=(5, 15)).sim
    assert set(sim.similarity) == set(sim.mixing) == {5, 15}
    for at, similarity in sim.similarity.items():
        alike = (similarity >= 0.9) | torch.eye(5, dtype=torch.bool)
        assert similarity.shape == (2, 5, 5)
        # A client without edges has no confidence, and so no weight in its clusters.
        counts = torch.tensor([[client.edges.shape[1] > 0 for client in f.clients] for f in federations()])
        used, expected = (sim.mixing[at] > 0) & counts[:, None], alike & counts[:, None]
        assert (used == expected).all() and not alike.all()


@pytest.mark.parametrize("clusters", ["sfm", "moments"])
def test_the_event_loop_keeps_cosines_of_the_clients_that_have_reported(clusters):
    method = FedSAGCL(**{**SAGCL, "clusters": clusters, "buffer": 2})
    with watched_loops() as loops:
        sim = simulate(federations(), method, semi_async(slow_fraction=0.4, lag=[3, 3]), trips=30, mixing_at=(1, 4, 30)).sim
    assert set(sim.similarity) == {4, 30}  # at trip 1 the server had not processed anything
    early, late = sim.similarity[4].numpy(), sim.similarity[30].numpy()
    for s, loop in enumerate(loops):
        features = loop.server.reports["cluster"].reshape(5, -1)
        for i in range(5):
            for j in range(5):
                norms = np.linalg.norm(features[i]) * np.linalg.norm(features[j])
                # A client without edges has no features and is like nobody.
                assert late[s, i, j] == pytest.approx(features[i] @ features[j] / norms if norms else 0.0)
        # Two clients lag by 15 trips, so that at the fourth trip the server knows none of them.
        slow = list(loop.schedule.slow)
        assert len(slow) == 2 and np.isnan(early[s, slow]).all() and np.isnan(early[s][:, slow]).all()
        assert (~np.isnan(early[s])).sum() >= 4


def test_methods_that_compare_nobody_keep_nothing():
    assert simulate(federations(), FedAvg(), synchronous(), mixing_at=(5,)).sim.similarity == {}
    assert simulate(federations(), FedBuff(**BUFF), semi_async(), trips=20, mixing_at=(10,)).sim.similarity == {}
