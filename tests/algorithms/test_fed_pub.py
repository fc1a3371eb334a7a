"""FED-PUB: functional similarity, masks, regularisers with gradients, and the methods at its limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from fgl_bench.algorithms.fed_pub import MASK, FedPub, SharedBlocks, embed
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.mixing import normalize
from fgl_bench.models.gcn import GCN
from fgl_bench.models.graphsage import GraphSAGE
from tests.algorithms.comparing import TIGHT, UniformAverage, assert_same_trips, watch
from tests.reference.small import small_federation
from tests.small_runs import counts, simulate, synchronous

KEYS = {
    "tau": 3.0, "sparsity": 1e-3, "proximity": 1e-3, "reg": "paper", "masks": "trained", "blocks": 3, "block_nodes": 7, "inside": 0.4,
    "between": 0.05,
}  # fmt: skip
PLAIN = {"masks": "fixed", "sparsity": 0.0, "proximity": 0.0}
MODEL = GCN(hidden=4, layers=2, dropout=0.0, head="linear")
WEIGHTS = 6 * 4 + 4 + 4 * 4 + 4 + 4 * 3 + 3


def method(**changes):
    return FedPub(**{**KEYS, **changes})


def run(made, **settings):
    return simulate([small_federation(seed) for seed in (0, 1)], made, synchronous(), **{"rounds": 4, "model": MODEL, **settings})


def pyg(named, x, edges, head=True):
    """GCN-GCN-Linear, or its second convolution."""
    out = x
    for i in range(2):
        conv = GCNConv(*named[f"conv{i}.weight"].shape).double()
        del conv.lin.weight, conv.bias
        conv.lin.weight, conv.bias = named[f"conv{i}.weight"].T, named[f"conv{i}.bias"]
        out = conv(torch.relu(out) if i else out, edges)
    return torch.relu(out) @ named["head.weight"] + named["head.bias"] if head else out


def pruned(named, threshold):
    """What a client evaluates with, from its parameters and masks."""
    kept = {n: torch.where(named[MASK + n].abs() < threshold, 0.0, named[MASK + n]) for n in named if MASK + n in named}
    return {n: value * kept.get(n, 1.0) for n, value in named.items() if not n.startswith(MASK)}


# ---- the server


def test_a_round_is_the_softmax_of_similarities_of_what_the_models_make_of_the_proxy():
    """Embeddings by PyG, cosines and matrix by hand."""
    made = method(sparsity=0.02)
    calls = watch(made, "report")
    result = run(made, rounds=3, local_epochs=2)
    for number in range(2):
        for s in (0, 1):
            proxy = made.proxies.clients[5 * s]
            x, edges = torch.from_numpy(proxy.features).double(), torch.from_numpy(proxy.edges)
            trained = [result.named(result.trips[5 * s + i][number][1]) for i in range(5)]
            e = torch.stack([pyg(pruned(named, 0.02), x, edges, head=False).mean(0) for named in trained])
            torch.testing.assert_close(calls[number][1]["embedding"][5 * s : 5 * s + 5], e, **TIGHT)
            weights = torch.stack([torch.exp(3.0 * torch.cosine_similarity(e[i : i + 1], e)) for i in range(5)])
            weights = weights / weights.sum(1, keepdim=True)
            assert (weights.argmax(1) == torch.arange(5)).all()
            for i in range(5):
                received = result.named(result.trips[5 * s + i][number + 1][0])
                for name, value in received.items():
                    if name.startswith(MASK):
                        assert torch.equal(value, trained[i][name]), "masks do not travel"
                    else:
                        torch.testing.assert_close(value, sum(weights[i, j] * trained[j][name] for j in range(5)), **TIGHT)


def test_the_matrix_has_its_maximum_on_the_diagonal_and_survives_a_zero_embedding():
    made = method(tau=1e4)
    run(made, rounds=1)
    embedding = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    embedding[0, 2] = 0
    matrix = made.mix({"embedding": embedding}, torch.ones(2, 5, dtype=torch.bool)).matrix()
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 5, dtype=torch.float64))
    others = [i for i in range(5) if i != 2]
    assert (matrix[0].argmax(1)[others] == torch.tensor(others)).all() and (matrix[1].argmax(1) == torch.arange(5)).all()
    order = torch.tensor([3, 0, 4, 1, 2])
    again = made.mix({"embedding": embedding[:, order]}, torch.ones(2, 5, dtype=torch.bool)).matrix()
    torch.testing.assert_close(again, matrix[:, order][:, :, order])


@pytest.mark.parametrize("model", [GCN(4, 3, 0.5), GraphSAGE(4, 2, 0.5)])
def test_without_masks_terms_and_sharpness_it_is_the_uniform_average(model):
    settings = {"model": model, "local_epochs": 2}
    assert_same_trips(run(method(tau=0.0, **PLAIN), **settings), run(UniformAverage(), **settings), fewest=40)


def test_who_has_not_taken_part_yet_receives_the_average_by_size():
    made = method()
    result = run(made, participation=0.4, rounds=1)
    arrived = torch.from_numpy(synchronous().draw([0, 1], 0, 2, 5))
    made.seen.zero_()
    mixing = made.mix({"embedding": torch.rand(2, 5, 4, dtype=torch.float64)}, arrived)
    assert mixing.receivers.all(), "nobody else has ever received"
    weights = normalize(result.sim.setting.weights, arrived)
    for s in (0, 1):
        for i in range(5):
            assert (mixing.weights[s, i][~arrived[s]] == 0).all()
            if not arrived[s, i]:
                torch.testing.assert_close(mixing.weights[s, i], weights[s])
    later = made.mix({"embedding": torch.rand(2, 5, 4, dtype=torch.float64)}, ~arrived)
    assert torch.equal(later.receivers, ~arrived)


# ---- the clients


@dataclass
class Penalised(FedPub):
    """The regularisers as a loss, differentiated by autograd."""

    def local_penalty(self, step):
        received, total = step.layout.views(step.received), 0.0
        for name in self.matrices:
            total = total + 0.02 * step.parameters[MASK + name].abs().sum((1, 2))
            if self.number:
                moved = step.parameters[name] - received[name]
                total = total + 0.3 * ((moved**2).sum((1, 2)) + 1e-12).sqrt()
        return total


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_regularisers_are_the_gradients_of_the_printed_terms(epochs):
    settings = {"local_epochs": epochs, "rounds": 3}
    written = run(method(sparsity=0.02, proximity=0.3), **settings)
    derived = run(Penalised(**{**KEYS, "reg": "inert", "sparsity": 0.02}), **settings)
    assert_same_trips(written, derived, fewest=30)
    inert = run(method(sparsity=0.02, proximity=0.3, reg="inert"), **settings)
    assert not torch.allclose(inert.trips[0][-1][1], written.trips[0][-1][1], atol=1e-3)


def test_evaluation_prunes_small_masks_and_training_does_not():
    made = method(sparsity=0.9, reg="inert")
    result = run(made, rounds=4, lr=0.05)
    model, batch = result.sim.setting.model, result.sim.setting.batch
    theta = torch.stack([trips[-1][1] for trips in result.trips])
    parameters = result.sim.setting.layout.views(theta)
    first = model.first(parameters, batch)
    trained, answered = model.forward(parameters, batch, first, no_dropout).logits, made.predict(model, parameters, batch, first)
    for i, client in enumerate(batch.clients):
        named, x, n = result.named(theta[i]), torch.from_numpy(client.features).double(), client.num_nodes
        plain = {name: value * named.get(MASK + name, 1.0) for name, value in named.items() if not name.startswith(MASK)}
        edges = torch.from_numpy(client.edges)
        torch.testing.assert_close(trained[i, :n], pyg(plain, x, edges), **TIGHT)
        wanted = pyg(pruned(named, 0.9), x, edges)
        torch.testing.assert_close(answered[i, :n], wanted, **TIGHT)
        right = [int((wanted.argmax(1).numpy() == client.labels)[mask].sum()) for mask in (client.val, client.test)]
        assert [*counts(result.histories[i // 5], "trained", -1)[i % 5]] == right
    assert not torch.allclose(trained, answered, atol=1e-2)


def test_masks_begin_at_one_and_weights_as_without_them():
    masked, plain = run(method(), rounds=1), run(UniformAverage(), rounds=1)
    for row, other in zip(masked.sim.initial, plain.sim.initial, strict=True):
        named = masked.named(row)
        assert all((value == 1).all() for name, value in named.items() if name.startswith(MASK))
        for name, value in plain.named(other).items():
            assert torch.equal(named[name], value)
    assert sum(name.startswith(MASK) for name in named) == 3


# ---- proxy, messages, batching


def test_the_proxy_is_a_block_model_of_its_seed_and_the_same_for_all_clients():
    made = method(blocks=4, block_nodes=30, inside=0.5, between=0.0)
    run(made, rounds=1)
    first, other = made.proxies.clients[0], made.proxies.clients[5]
    assert all(made.proxies.clients[i].features is first.features for i in range(5)) and first.features.shape == (120, 6)
    assert (first.edges[0] // 30 == first.edges[1] // 30).all() and not np.array_equal(first.features, other.features)
    assert first.edges.shape[1] / (4 * 30 * 29) == pytest.approx(0.5, abs=0.05)
    assert abs(first.features.mean()) < 0.1 and first.features.std() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("owner", [[0, 0, 0], [0, 0, 1, 1], [0, 1, 1], [0, 0, 1, 2, 2]])
def test_shared_features_multiply_as_copies_would(owner):
    draw = torch.Generator().manual_seed(0)
    blocks = SharedBlocks(torch.randn(max(owner) + 1, 6, 5, dtype=torch.float64, generator=draw), owner)
    weight = torch.randn(len(owner), 5, 3, dtype=torch.float64, generator=draw)
    wanted = torch.bmm(blocks.values[torch.tensor(owner)], weight)
    torch.testing.assert_close(blocks @ weight, wanted)
    for rows in ([1], [1, 2], list(range(len(owner)))):
        torch.testing.assert_close(blocks.select(rows) @ weight[rows], wanted[rows])


def test_another_backbones_embedding_is_its_hidden_representation():
    made, model = method(), GraphSAGE(4, 2, 0.0)
    run(made, model=model, rounds=1)
    layout = model.layout(6, 3)
    parameters = layout.views(torch.randn(10, layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    proxy = made.proxies
    hidden = model.forward(parameters, proxy, model.first(parameters, proxy), no_dropout).hidden
    assert torch.equal(embed(model, parameters, proxy), hidden) and (hidden >= 0).all()


def test_bytes_are_weights_an_embedding_and_the_proxy_once():
    made = method()
    history = run(made, rounds=3).histories[0]
    proxy = 21 * 6 + made.proxies.clients[0].edges.shape[1]
    assert history.upload.tolist() == [5 * n * 4 * (WEIGHTS + 4) for n in range(4)]
    assert history.download.tolist() == [0, *(5 * 4 * (n * WEIGHTS + proxy) for n in range(1, 4))]


def test_proxies_of_random_participants_are_not_kept():
    made = method()
    run(made, participation=0.4, rounds=5)
    assert len(made._parts) == 1
