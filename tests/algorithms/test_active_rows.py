"""Rows that are held apart are trained as torch's Adam trains all of them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fgl_bench.algorithms.cross_client import _active_rows
from fgl_bench.algorithms.cross_client._active_rows import NEVER, ActiveRowFeatures, ActiveRowsAdam
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.sparse import SparseRows

SHAPES = {"bias": (3,), "wide.weight": (9, 4), "out.weight": (4, 3)}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6), st.booleans(), st.booleans())
def test_equals_adam_on_whole_models(monkeypatch, seed, count, steps, settled, ordered):
    draw, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    layout = ParameterLayout(SHAPES, inputs=("wide.weight",))
    theta = torch.randn(count, layout.size, generator=generator, dtype=torch.float64)
    adam = ActiveRowsAdam(count, layout, 0.1, count * 9, torch.float64, torch.device("cpu"))
    for _ in range(2):  # two trips: what was touched in the first is forgotten
        whole, seen = torch.nn.Parameter(theta.clone()), set()
        plain = torch.optim.Adam([whole], lr=0.1)
        adam.reset(range(count))
        if ordered:
            adam.order = draw.choice(np.array([0, 1, 2, NEVER], dtype=np.uint16), size=count * 9)
            seen |= set(zip(*(ends.tolist() for ends in np.divmod(np.flatnonzero(adam.order < NEVER), 9)), strict=True))
        for _ in range(steps):
            replica, column = draw.integers(count, size=5), draw.integers(9, size=5)
            place = adam.take(theta, replica, column)
            seen |= set(zip(replica.tolist(), column.tolist(), strict=True))
            assert adam.active == len(seen)
            views = adam.views()
            expected = layout.view(whole.detach(), "wide.weight")[torch.from_numpy(replica), torch.from_numpy(column)]
            torch.testing.assert_close(views["wide.weight"][torch.from_numpy(place)], expected)
            each = torch.randn(5, 4, generator=generator, dtype=torch.float64)
            gradients = {name: torch.randn(view.shape, generator=generator, dtype=torch.float64) for name, view in views.items()}
            del gradients["wide.weight"]
            full = {**gradients, "wide.weight": torch.zeros(count, 9, 4, dtype=torch.float64)}
            full["wide.weight"].index_put_((torch.from_numpy(replica), torch.from_numpy(column)), each, accumulate=True)
            whole.grad = layout.collect(full)
            plain.step()
            monkeypatch.setattr(_active_rows, "PIECE", 2)
            # Five products, each with one row.
            starts, ones = np.arange(6), np.ones(5)
            rows = SparseRows(starts, place, ones, (1, 5, adam.active), torch.float64, torch.device("cpu"))
            adam.step(gradients, ActiveRowFeatures(rows, (1, 5), [5]), each[None])
            if settled:
                adam.settle(theta)
                torch.testing.assert_close(theta, whole.detach())
        adam.settle(theta)
        torch.testing.assert_close(theta, whole.detach())
