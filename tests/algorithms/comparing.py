"""What tests of methods have in common: comparing runs, watching aggregation, stepping a server by hand."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import torch

from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.records import Server, Upload
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.mixing import Mixing, normalize

MODEL_SCALARS = 6 * 4 + 4 + 4 * 3 + 3  # the GCN of small_runs on small_federation: 6 features, 4 hidden units, 3 classes
TIGHT = {"rtol": 1e-9, "atol": 1e-9}


class UniformAverage(FedAvg):
    """FedAvg in which every participant counts alike."""

    def mix(self, reports, arrived):
        return Mixing(normalize(arrived.double())[:, None])


def assert_same_trips(left, right, *, exact=False, received=True, fewest=1):
    """Two runs made the same trips, one by one, as far as both of them went.

    A run's last trips may have no counterpart where an event loop stops in the middle of a cycle.
    """
    compared = 0
    for a, b in zip(left.trips, right.trips, strict=True):
        for one, other in zip(a, b, strict=False):
            for x, y in zip(one if received else one[1:], other if received else other[1:], strict=True):
                if exact:
                    assert torch.equal(x, y)
                else:
                    torch.testing.assert_close(x, y, **TIGHT)
            compared += 1
    assert compared >= fewest


def watch(method, name):
    """Record (copies of) the arguments and the result of every call of the method's hook ``name``."""
    calls, hook = [], getattr(method, name)

    def recording(*args, **kwargs):
        given = deepcopy(args)
        result = hook(*args, **kwargs)
        calls.append((given, result))
        return result

    setattr(method, name, recording)
    return calls


def trips_of(clients, logits):
    """Finished trips whose trained models predict ``logits`` (a list of ``[n, Y]``), as a method's ``report`` sees them."""
    batch = Batch(clients, torch.float64, "cpu")
    stacked = torch.zeros(batch.size, batch.nodes, logits[0].shape[1], dtype=torch.float64)
    for row, values in zip(stacked, logits, strict=True):
        row[: len(values)] = torch.as_tensor(values)
    return SimpleNamespace(batch=batch, output=SimpleNamespace(logits=stacked))


def server(uploads, *, version=0, known=None, base_version=None, weights=None, **reports):
    """A semi-asynchronous server that holds these uploads ``[C, P]``; ``version`` counts the step in progress."""
    uploads = torch.as_tensor(np.asarray(uploads, dtype=float))
    count = len(uploads)
    return Server(
        model=torch.zeros(uploads.shape[1], dtype=uploads.dtype),
        uploads=uploads,
        known=np.ones(count, dtype=bool) if known is None else np.asarray(known),
        base_version=np.full(count, version - 1) if base_version is None else np.asarray(base_version),
        weights=np.ones(count) if weights is None else np.asarray(weights, dtype=float),
        reports={name: np.asarray(values, dtype=float) for name, values in reports.items()},
        version=version,
    )


def arrivals(state, clients):
    """Uploads of these clients in this order, as the event loop hands them to ``serve``."""
    return [Upload(i, state.uploads[i], int(state.base_version[i]), int(state.version - 1 - state.base_version[i]), {}) for i in clients]
