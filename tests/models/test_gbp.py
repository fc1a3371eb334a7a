"""GBP; its equality with the series written out is in test_decoupled.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgl_bench.engine.batch import Batch, adjacency, gcn_operator
from fgl_bench.engine.propagation import Skewed
from fgl_bench.errors import UserError
from fgl_bench.models.gbp import GBP
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, random_models, run


@pytest.mark.parametrize("beta", [0.05, 0.1, 0.85])
def test_weights_add_up_to_what_the_cut_leaves(beta):
    (row,) = GBP("auto", 10, beta, 0.5, 4, 2, 0.0).hop_matrices().coefficients
    assert sum(row) == pytest.approx(1 - (1 - beta) ** 11)
    assert row[3] == pytest.approx(beta * (1 - beta) ** 3)


@pytest.mark.parametrize("mode", ["lazy", "precomputed"])
def test_beta_one_keeps_the_features(mode):
    batch, model = Batch([make_client(7), make_client(3)], torch.float64, "cpu"), GBP(mode, 4, 1.0, 0.5, 4, 1, 0.0)
    layout = model.layout(FEATURES, CLASSES)
    parameters, output = run(model, batch, random_models(layout, 2), layout)
    wanted = batch.features @ parameters["linear0.weight"] + parameters["linear0.bias"][:, None]
    torch.testing.assert_close(output.logits, wanted, **EXACT)


def test_operators_of_every_exponent():
    client = make_client(9)
    looped = adjacency(client).toarray() + np.eye(9)
    for r, sums in ((0.0, looped.shape[0] * [1.0]), (0.3, None), (1.0, None)):
        matrix, degree = Skewed(r)(client).toarray(), looped.sum(1)
        np.testing.assert_allclose(matrix, degree[:, None] ** (r - 1) * looped * degree[None] ** -r, rtol=1e-12)
        if sums is not None:
            np.testing.assert_allclose(matrix.sum(1), sums)
    np.testing.assert_allclose(Skewed(0.5)(client).toarray(), gcn_operator(client).toarray(), rtol=1e-12)


@pytest.mark.parametrize(("beta", "r"), [(1.2, 0.5), (0.1, -0.1)])
def test_refuses_what_makes_no_sense(beta, r):
    with pytest.raises(UserError, match="must be between 0 and 1"):
        GBP("auto", 3, beta, r, 4, 2, 0.0)
