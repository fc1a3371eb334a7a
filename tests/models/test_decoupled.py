"""Backbones with propagation apart from the network: equal to plain ones, lazily or with hops made beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fgl_bench.engine.batch import Batch
from fgl_bench.errors import UserError
from fgl_bench.models.gamlp import GAMLP
from fgl_bench.models.gbp import GBP
from fgl_bench.models.s2gc import S2GC
from fgl_bench.models.sgc import SGC
from fgl_bench.models.sign import SIGN
from tests.engine.graphs import make_client
from tests.models.checking import CLASSES, EXACT, FEATURES, random_models, run
from tests.reference import decoupled as plain

MODELS = {
    "sgc": (lambda mode: SGC(mode, 3), plain.sgc, {"count": 3}),
    "sgc0": (lambda mode: SGC(mode, 0), plain.sgc, {"count": 0}),
    "s2gc": (lambda mode: S2GC(mode, 4, 0.05), plain.s2gc, {"count": 4, "alpha": 0.05}),
    "gbp": (lambda mode: GBP(mode, 5, 0.1, 0.5, 4, 3, 0.0), plain.gbp, {"count": 5, "beta": 0.1, "r": 0.5, "layers": 3}),
    "gbp_skewed": (lambda mode: GBP(mode, 3, 0.3, 0.2, 4, 1, 0.0), plain.gbp, {"count": 3, "beta": 0.3, "r": 0.2, "layers": 1}),
    "sign": (lambda mode: SIGN(mode, 3, 4, 2, 0.0), plain.sign, {"count": 3, "layers": 2}),
    "sign_deep": (lambda mode: SIGN(mode, 1, 4, 4, 0.0), plain.sign, {"count": 1, "layers": 4}),
    "sign0": (lambda mode: SIGN(mode, 0, 4, 2, 0.0), plain.sign, {"count": 0, "layers": 2}),
    "gamlp": (lambda mode: GAMLP(mode, 3, 4, 3, 0.0), plain.gamlp, {"count": 3, "layers": 3}),
    "gamlp1": (lambda mode: GAMLP(mode, 2, 4, 1, 0.0), plain.gamlp, {"count": 2, "layers": 1}),
    "gamlp0": (lambda mode: GAMLP(mode, 0, 4, 2, 0.0), plain.gamlp, {"count": 0, "layers": 2}),
}
MODES = ("lazy", "precomputed")


def both(name):
    return [MODELS[name][0](mode) for mode in MODES]


@pytest.mark.parametrize("name", MODELS)
def test_whole_components_propagate_as_in_the_whole_graph(name):
    # Two clients side by side, and one client that owns both without an edge between them.
    a, b = make_client(6), make_client(8, seed=2)
    whole = replace(
        a,
        nodes=np.arange(14),
        features=np.concatenate([a.features.toarray(), b.features.toarray()]),
        edges=np.concatenate([a.edges, b.edges + 6], 1),
        **{key: np.concatenate([getattr(a, key), getattr(b, key)]) for key in ("labels", "train", "val", "test")},
    )
    _, model = both(name)
    layout = model.layout(FEATURES, CLASSES)
    theta = random_models(layout, 1)
    parts = [run(model, Batch([c], torch.float64, "cpu"), theta, layout)[1].logits[0] for c in (a, b)]
    together = run(model, Batch([whole], torch.float64, "cpu"), theta, layout)[1].logits[0]
    torch.testing.assert_close(torch.cat(parts), together, **EXACT)


def settled(model, clients, *, room=True, steps=100, batch_nodes=None):
    return model.settle(clients, CLASSES, torch.device("cpu"), steps, batch_nodes, lambda copies: room).propagation


@pytest.mark.parametrize("name", [name for name in MODELS if not name.endswith("0")])
def test_auto_takes_what_is_cheaper_and_fits(name):
    make = MODELS[name][0]
    words = [make_client(60, 0.2, features=2000)]
    words[0].features.data[words[0].features.data < 3] = 0  # a few words of many
    words[0].features.eliminate_zeros()
    dense = [replace(c, features=np.ones((60, 4))) for c in (make_client(60, 0.9), make_client(60, 0.9, seed=2))]
    assert settled(make("auto"), words) == "lazy", "few words and many columns: the narrow product is propagated"
    assert settled(make("auto"), dense) == "precomputed", "few columns and many edges: made once"
    assert settled(make("auto"), dense, room=False) == "lazy"
    assert settled(make("lazy"), dense) == "lazy" and settled(make("precomputed"), words) == "precomputed"


def test_hops_asked_for_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="4 dense copies of the features do not fit memory_budget_gb"):
        settled(SIGN("precomputed", 3, 4, 2, 0.0), [make_client(5)], room=False)


def test_mini_batches_make_hops_made_beforehand_worth_more():
    client = make_client(90, 0.02, features=40)
    client.features.data[client.features.data < 1.3] = 0
    client.features.eliminate_zeros()
    model = SGC("auto", 1)
    assert settled(model, [client]) == "lazy"
    assert settled(model, [client], batch_nodes=1) == "precomputed"


def test_what_is_not_settled_is_propagated_at_every_step():
    model, batch = SGC("auto", 2), Batch([make_client(6)], torch.float64, "cpu")
    assert not model.uses_precomputed(batch)
