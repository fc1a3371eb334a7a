"""Parameters with rates of their own are torch's parameter groups, for every replica."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.stacked_optimizers import Grouped, Rates, StackedAdam, StackedSGD

LAYOUT = ParameterLayout({"weight": (3, 2), "filter": (4,), "slope": (1,)}, inputs=("weight",))
RATES = {"filter": Rates(0.3, 0.0), "slope": Rates(weight_decay=0.5)}
OPTIMIZERS = {
    "adam": (lambda size, lr, decay: StackedAdam(3, size, lr, decay, torch.float64, torch.device("cpu")), torch.optim.Adam),
    "momentum": (
        lambda size, lr, decay: StackedSGD(3, size, lr, decay, torch.float64, torch.device("cpu"), 0.9),
        partial(torch.optim.SGD, momentum=0.9),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_equal_torchs_parameter_groups(name):
    make, plain = OPTIMIZERS[name]
    draw = torch.Generator().manual_seed(0)
    theta = torch.randn(3, LAYOUT.size, generator=draw, dtype=torch.float64)
    grouped = Grouped(make, LAYOUT, 0.1, 0.05, RATES)
    rows = [{n: torch.nn.Parameter(v[0].clone()) for n, v in LAYOUT.views(row[None]).items()} for row in theta]

    def fresh(own):
        groups = [
            {"params": [own["weight"]]}, {"params": [own["filter"]], "lr": 0.3, "weight_decay": 0.0},
            {"params": [own["slope"]], "weight_decay": 0.5},
        ]  # fmt: skip
        return plain(groups, lr=0.1, weight_decay=0.05)

    optimizers = [fresh(own) for own in rows]

    def step(replicas, able=None):
        gradient = torch.randn(len(replicas), LAYOUT.size, generator=draw, dtype=torch.float64)
        kept, part = gradient.clone(), theta[replicas]
        grouped.step(part, gradient, replicas, able)
        theta[replicas] = part
        assert torch.equal(gradient, kept)
        for position in range(len(replicas)) if able is None else able:
            for n, value in rows[replicas[position]].items():
                value.grad = LAYOUT.view(gradient, n)[position].clone()
            optimizers[replicas[position]].step()
        for row, own in zip(theta, rows, strict=True):
            for n, value in own.items():
                torch.testing.assert_close(LAYOUT.view(row[None], n)[0], value.detach(), rtol=1e-11, atol=1e-11)

    step([0, 1, 2])
    step([0, 1, 2])
    step([2, 0])
    step([0, 1, 2], able=[1])
    grouped.reset([1])
    optimizers[1] = fresh(rows[1])
    step([0, 1, 2])


def test_moments_that_a_method_changes_are_those_that_are_used():
    """Velocities set to zero: the next step is plain descent, in all columns."""
    grouped = Grouped(OPTIMIZERS["momentum"][0], LAYOUT, 0.1, 0.0, RATES)
    ones = torch.ones(3, LAYOUT.size, dtype=torch.float64)
    grouped.step(torch.zeros_like(ones), ones, [0, 1, 2])
    for moment in grouped.moments:
        assert (LAYOUT.view(moment, "filter") == 1).all()
        moment.zero_()
    theta = torch.zeros_like(ones)
    grouped.step(theta, ones, [0, 1, 2])
    torch.testing.assert_close(LAYOUT.view(theta, "filter"), torch.full((3, 4), -0.3, dtype=torch.float64))
    torch.testing.assert_close(LAYOUT.view(theta, "weight"), torch.full((3, 3, 2), -0.1, dtype=torch.float64))
