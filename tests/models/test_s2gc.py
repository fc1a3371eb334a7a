"""S2GC; its equality with PyG's ``SSGConv`` is in test_decoupled.py."""

from __future__ import annotations

import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.errors import UserError
from fgl_bench.models.s2gc import S2GC
from fgl_bench.models.sgc import SGC
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, random_models, run


@pytest.mark.parametrize("mode", ["lazy", "precomputed"])
def test_alpha_one_is_logistic_regression(mode):
    batch, model = Batch([make_client(7), make_client(3)], torch.float64, "cpu"), S2GC(mode, 5, 1.0)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 2)
    plain = run(SGC(mode, 0), batch, theta, layout)[1].logits
    torch.testing.assert_close(run(model, batch, theta, layout)[1].logits, plain, **EXACT)


def test_weights_of_the_hops():
    assert S2GC("auto", 4, 0.2).hop_matrices().coefficients == ((0.2, 0.2, 0.2, 0.2, 0.2),)
    assert sum(S2GC("auto", 16, 0.05).hop_matrices().coefficients[0]) == pytest.approx(1)


@pytest.mark.parametrize(("hops", "alpha", "key"), [(0, 0.5, "model.hops"), (3, 1.5, "model.alpha")])
def test_refuses_what_makes_no_sense(hops, alpha, key):
    with pytest.raises(UserError, match=key):
        S2GC("auto", hops, alpha)
