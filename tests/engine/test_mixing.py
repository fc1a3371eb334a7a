"""Mixing matrices: normalisation, similarity, application."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics.pairwise import cosine_similarity

from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Blockwise, Mixing, alone, cosine, normalize

LAYOUT = ParameterLayout({"base": (2, 2), "head": (3,)}, inputs=("base",))
weights = hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 5)), elements=st.floats(0, 1e6))


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(weights, st.data())
def test_normalised_rows_sum_to_one_within_their_support(values, data):
    w = torch.from_numpy(values)
    support = torch.from_numpy(data.draw(hnp.arrays(bool, values.shape)))
    support[:, 0] = True
    rows = normalize(w, support)
    torch.testing.assert_close(rows.sum(-1), torch.ones(len(w), dtype=torch.float64), rtol=1e-9, atol=0)
    assert (rows >= 0).all() and not rows[~support].any()
    for row, source, members in zip(rows, w, support, strict=True):
        total = source[members].sum()
        expected = source[members] / total if total > 1e-12 else torch.full_like(source[members], 1 / int(members.sum()))
        torch.testing.assert_close(row[members], expected, rtol=1e-9, atol=1e-12)


def test_normalise_by_hand():
    assert normalize(torch.tensor([1.0, 3.0])).tolist() == [0.25, 0.75]
    assert normalize(torch.zeros(4)).tolist() == [0.25] * 4
    assert normalize(torch.tensor([1.0, 3.0, 4.0]), torch.tensor([True, True, False])).tolist() == [0.25, 0.75, 0]
    assert normalize(torch.tensor([0.0, 0.0, 4.0]), torch.tensor([True, True, False])).tolist() == [0.5, 0.5, 0]
    assert normalize(torch.tensor([torch.inf, 1.0])).tolist() == [0.5, 0.5], "what is not finite is no weight"


def test_cosine_is_the_textbook_one():
    x = random(2, 6, 4) - 0.5
    for got, rows in zip(cosine(x), x, strict=True):
        np.testing.assert_allclose(got, cosine_similarity(rows), atol=1e-12)


def stochastic(seeds=2, rows=4, clients=4, seed=0):
    return normalize(random(seeds, rows, clients, seed=seed))


def naive(matrix, models):
    return torch.stack([m @ x for m, x in zip(matrix, models, strict=True)])


def apply(mixing, models, received=None):
    received = random(*models.shape, seed=9) if received is None else received
    kept = received.clone()
    before = models.clone()
    result = mixing.apply(models, received, LAYOUT)
    assert torch.equal(models, before), "the uploads were changed"
    return result, kept


def test_a_full_matrix_mixes_every_seed_by_its_own_block():
    models, m = random(2, 4, LAYOUT.size), stochastic()
    result, _ = apply(Mixing(m), models)
    torch.testing.assert_close(result, naive(m, models), rtol=1e-12, atol=1e-12)


def test_rank_one_is_the_full_matrix_of_equal_rows():
    models, row = random(2, 4, LAYOUT.size), stochastic(rows=1)
    cheap, _ = apply(Mixing(row), models)
    full, _ = apply(Mixing(row.expand(2, 4, 4)), models)
    torch.testing.assert_close(cheap, full, rtol=1e-12, atol=1e-12)
    assert torch.equal(Mixing(row).matrix(), Mixing(row.expand(2, 4, 4)).matrix())


@pytest.mark.parametrize("view", [False, True], ids=["", "received was a view"])
def test_alone_is_the_identity_and_keeps_a_diverged_client_to_itself(view):
    models, received = random(2, 3, LAYOUT.size), random(2, 3, LAYOUT.size, seed=1)
    received = received[:, :1].expand_as(models) if view else received
    mixing = alone(torch.ones(2, 3, dtype=torch.bool))
    assert torch.equal(mixing.matrix(), torch.eye(3, dtype=torch.float64).expand(2, 3, 3))
    assert torch.equal(Mixing(mixing.weights).apply(models, received.clone(), LAYOUT), models)
    models[0, 1] = torch.nan
    result = mixing.apply(models, received, LAYOUT)
    torch.testing.assert_close(result, models, rtol=0, atol=0, equal_nan=True)
    assert result.data_ptr() != models.data_ptr(), "what clients received does not change while they train"


@pytest.mark.parametrize("rows", [1, 4])
def test_only_receivers_get_something_new(rows):
    models, m = random(2, 4, LAYOUT.size), stochastic(rows=rows)
    receivers = torch.tensor([[True, False, True, False], [False, False, False, True]])
    mixing = Mixing(m, receivers=receivers)
    result, kept = apply(mixing, models)
    assert torch.equal(result[~receivers], kept[~receivers])
    torch.testing.assert_close(result[receivers], naive(m.expand(2, 4, 4), models)[receivers], rtol=1e-12, atol=1e-12)
    matrix = mixing.matrix()
    assert torch.equal(matrix[~receivers], torch.eye(4, dtype=torch.float64).expand(2, 4, 4)[~receivers])
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("rows", [1, 4])
def test_parameters_that_are_not_shared_stay_the_clients_own(rows):
    models, m = random(2, 4, LAYOUT.size), stochastic(rows=rows)
    result, _ = apply(Mixing(m, shared=("head",)), models)
    mixed = naive(m.expand(2, 4, 4), models).flatten(0, 1)
    own, got = models.flatten(0, 1), result.flatten(0, 1)
    assert torch.equal(LAYOUT.view(got, "base"), LAYOUT.view(own, "base"))
    torch.testing.assert_close(LAYOUT.view(got, "head"), LAYOUT.view(mixed, "head"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("shared", [None, ("base",)])
def test_what_was_received_last_may_be_a_view_of_one_row(rows, shared):
    """After a rank-one step all clients' models share memory; the next step must not write through it."""
    models = random(2, 4, LAYOUT.size)
    received, _ = apply(Mixing(stochastic(rows=1)), models)
    mixing = Mixing(stochastic(rows=rows, seed=5), shared=shared)
    again, _ = apply(mixing, models, received)
    fresh, _ = apply(mixing, models)
    torch.testing.assert_close(again, fresh, rtol=0, atol=0)


def test_weights_in_double_precision_mix_single_precision_models():
    models, m = random(2, 4, LAYOUT.size).float(), stochastic()
    result = Mixing(m).apply(models, torch.zeros_like(models), LAYOUT)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), naive(m, models.double()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("receivers", [None, torch.tensor([[True, False, True], [True, True, True]])])
def test_every_block_has_its_own_matrix_and_what_lies_in_none_stays(receivers):
    """Columns of one parameter mixed by two matrices, a rank-one one for the bias, nothing for the rest."""
    layout = ParameterLayout({"weight": (4, 2), "bias": (3,), "own": (5,)})
    draw = torch.Generator().manual_seed(0)
    models, received = (torch.randn(2, 3, layout.size, dtype=torch.float64, generator=draw) for _ in range(2))
    first, second = (torch.softmax(torch.randn(2, 3, 3, dtype=torch.float64, generator=draw), -1) for _ in range(2))
    common = torch.softmax(torch.randn(2, 1, 3, dtype=torch.float64, generator=draw), -1)
    blocks = (
        (first, lambda theta, layout: layout.view(theta, "weight")[:, :, 0]),
        (second, lambda theta, layout: layout.view(theta, "weight")[:, :, 1:]),
        (common, lambda theta, layout: layout.view(theta, "bias")),
    )
    before, kept = models.clone(), received.clone()
    mixed = Blockwise(first, receivers, blocks=blocks).apply(models, received, layout)
    assert torch.equal(models, before)
    for s in range(2):
        for i in range(3):
            row = {name: view[0] for name, view in layout.views(mixed[s, i][None]).items()}
            if receivers is not None and not receivers[s, i]:
                assert torch.equal(mixed[s, i], kept[s, i])
                continue
            sources = [{name: view[0] for name, view in layout.views(before[s, j][None]).items()} for j in range(3)]
            torch.testing.assert_close(row["weight"][:, 0], sum(first[s, i, j] * sources[j]["weight"][:, 0] for j in range(3)))
            torch.testing.assert_close(row["weight"][:, 1], sum(second[s, i, j] * sources[j]["weight"][:, 1] for j in range(3)))
            torch.testing.assert_close(row["bias"], sum(common[s, 0, j] * sources[j]["bias"] for j in range(3)))
            assert torch.equal(row["own"], sources[i]["own"])
