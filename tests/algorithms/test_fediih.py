"""FedIIH: the bound's terms and the divergence by hand, mixing factor by factor, and its limits."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Independent, Normal, kl_divergence

from fgl_bench.algorithms.fediih import CENTRES, FedIIH, divergence, elbo_terms, pair_entropy
from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.models.disengcn import DisenGCN
from tests.algorithms.comparing import TIGHT, UniformAverage, assert_same_trips, watch
from tests.engine.graphs import from_edges, make_client
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {"tau": 10.0, "elbo_weight": 0.0, "inference": "free", "inference_layers": 1, "inference_activation": "leaky_relu"}
BOUND = {"elbo_weight": 0.5, "inference": "learned"}
SCALARS = 6 * 6 + 6 + 6 * 3 + 3  # a DisenGCN of 2 factors of width 3


def method(**changes):
    return FedIIH(**{**KEYS, **changes})


def network(**changes):
    keys = {"factors": 2, "width": 3, "layers": 1, "iterations": 2, "temperature": 1.0, "dropout": 0.0}
    return DisenGCN(**{**keys, **changes})


def run(made, **settings):
    return simulate([small_federation(seed) for seed in (0, 1)], made, synchronous(), **{"rounds": 3, "model": network(), **settings})


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---- the evidence lower bound


@pytest.mark.parametrize("factors", [1, 3])
def test_the_terms_of_the_bound_are_what_torchs_distributions_say(factors):
    """Pair by pair, node by node, factor by factor."""
    clients = [make_client(7), make_client(4, edges=0.0), make_client(1)]
    batch, d = Batch(clients, torch.float64, "cpu"), 2
    mean, spread, noise = (random(3, 7, factors, d, seed=i) for i in range(3))
    centres, common = random(3, factors, d, seed=3), random(3, factors, d, seed=4)
    terms = elbo_terms(mean, spread, noise, centres, common, batch)

    def around(c):
        return Independent(Normal(c, torch.full_like(c, 0.5)), 1)

    for i, client in enumerate(clients):
        n, matrix = client.num_nodes, torch.from_numpy(adjacency(client).toarray())
        z = mean[i, :n] + noise[i, :n] * torch.exp(spread[i, :n] / 2)
        edges = factors_kl = 0.0
        for u in range(n):
            for v in range(n):
                score = (z[u] * z[v]).sum()
                edges -= (matrix[u, v] * F.logsigmoid(score) + (1 - matrix[u, v]) * F.logsigmoid(-score)).item()
            for k in range(factors):
                q = Independent(Normal(mean[i, u, k], torch.exp(spread[i, u, k] / 2)), 1)
                factors_kl += kl_divergence(q, around(centres[i, k])).item()
        assert terms["edges"][i].item() == pytest.approx(edges)
        assert terms["factors"][i].item() == pytest.approx(factors_kl)
        centre_kl = sum(kl_divergence(around(centres[i, k]), around(common[i, k])).item() for k in range(factors))
        assert terms["centres"][i].item() == pytest.approx(centre_kl)
        prior = -Normal(0.0, 1.0).log_prob(centres[i]).sum() - factors * d * math.log(2 * math.pi) / 2
        assert terms["prior"][i].item() == pytest.approx(prior.item())


def test_one_pair_by_hand():
    """Two joined nodes, z = 1 and 2: ln(1 + e^1) + ln(1 + e^4) + 2 (ln(1 + e^2) - 2)."""
    batch = Batch([from_edges([(0, 1)], [0, 1]), make_client(3, edges=0.0, features=2, sparse=False)], torch.float64, "cpu")
    z = torch.tensor([[[1.0], [2.0], [0.0]], [[0.0], [0.0], [0.0]]], dtype=torch.float64)
    entropy = pair_entropy(z, batch.operator(adjacency), batch.valid)
    by_hand = math.log(1 + math.e) + math.log(1 + math.e**4) + 2 * (math.log(1 + math.e**2) - 2)
    assert entropy[0].item() == pytest.approx(by_hand) and entropy[1].item() == pytest.approx(9 * math.log(2))


@pytest.mark.parametrize(("inference", "share"), [("free", 0.98), ("learned", 0.8)])
def test_the_bound_falls_and_reaches_the_projection(inference, share):
    """Measured with its weight on, against cross-entropy alone."""
    losses, made = [], method(elbo_weight=1.0, inference=inference)
    penalty = made.local_penalty

    def recording(step):
        value = penalty(step)
        losses.append(value.detach().sum().item())
        gradient = torch.autograd.grad(value.sum(), step.parameters["projection.weight"], retain_graph=True)[0]
        assert (gradient.abs().amax((1, 2)) > 0).all()
        return value

    made.local_penalty = recording
    with_bound, without = run(made, rounds=20), run(method(), rounds=20)
    assert sum(losses[-5:]) < share * sum(losses[:5])
    a, b = (r.named(r.trips[0][-1][1])["projection.weight"] for r in (with_bound, without))
    assert not torch.allclose(a, b, atol=1e-2)


# ---- the server


def test_the_divergence_is_that_of_torchs_gaussians_symmetric_and_zero_for_equals():
    mean, variance = random(4, 5), random(4, 5, seed=1).exp()
    mean[3], variance[3] = mean[0], variance[0]
    found = divergence(mean, variance)
    for i in range(4):
        for j in range(4):
            middle = Independent(Normal((mean[i] + mean[j]) / 2, ((variance[i] + variance[j]) / 2).sqrt()), 1)
            both = [kl_divergence(Independent(Normal(mean[x], variance[x].sqrt()), 1), middle) for x in (i, j)]
            assert found[i, j].item() == pytest.approx(sum(both).item() / 2, abs=1e-12)
    torch.testing.assert_close(found, found.mT)
    assert ((found < 1e-12) == (torch.eye(4) + torch.eye(4)[[3, 1, 2, 0]] > 0)).all()
    # Means 0 and 0.5 in 128 dimensions: not bounded by ln 2.
    far = divergence(torch.stack([torch.zeros(128), torch.full((128,), 0.5)]).double(), torch.ones(2, 128).double())
    assert far[0, 1].item() == pytest.approx(4.0)


@pytest.mark.parametrize(("changes", "factors"), [({}, 2), (BOUND, 2), ({}, 1)])
def test_every_factor_is_mixed_by_its_own_similarity(changes, factors):
    """Slice by slice, from the reports; centres stay, the bias is averaged uniformly."""
    made = method(**changes)
    calls = watch(made, "report")
    result = run(made, model=network(factors=factors, width=3), rounds=2)
    for s in (0, 1):
        reports = {name: value[5 * s : 5 * s + 5] for name, value in calls[0][1].items()}
        trained = [result.named(result.trips[5 * s + i][0][1]) for i in range(5)]
        matrices = []
        for k in range(factors):
            js = divergence(reports["mean"][:, k], reports["spread"][:, k].exp())
            power = torch.exp(10.0 * (1 - js / math.log(2)))
            matrices.append(power / power.sum(1, keepdim=True))
        for i in range(5):
            received = result.named(result.trips[5 * s + i][1][0])
            for name, value in received.items():
                if name == CENTRES:
                    assert torch.equal(value, trained[i][name])
                    continue
                if name == "classifier.bias":
                    torch.testing.assert_close(value, sum(t[name] for t in trained) / 5, **TIGHT)
                    continue
                for k in range(factors):
                    at = (slice(None), slice(3 * k, 3 * k + 3)) if name == "projection.weight" else slice(3 * k, 3 * k + 3)
                    at = k if name.startswith("inference") else at
                    wanted = sum(matrices[k][i, j] * trained[j][name][at] for j in range(5))
                    torch.testing.assert_close(value[at], wanted, **TIGHT)
        if factors == 2:
            assert not torch.allclose(matrices[0], matrices[1], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, [-0.01 * 0.1, 0.7]),
        ({"inference_layers": 2}, [-0.01 * 0.001 / 0.7 / math.hypot(1, 0.001 / 0.7), 1 / math.hypot(1, 0.001 / 0.7)]),
        ({"inference_activation": "none"}, [-0.1, 0.7]),
    ],
)
def test_two_joined_nodes_inferred_by_hand(changes, wanted):
    """Rows (.6, .8) and (-.8, .6) of one factor both become their sum (-.2, 1.4), divided by its length sqrt 2; LeakyReLU shrinks the
    negative number to a hundredth. In a second layer both rows are alike: they keep their direction.
    """
    made = method(**changes)
    made.network = network(factors=1, width=2)
    batch = Batch([from_edges([(0, 1)], [0, 1])], torch.float64, "cpu")
    mean, spread = made.infer(torch.tensor([[[3.0, 4.0], [-4.0, 3.0]]], dtype=torch.float64), {}, batch)
    scale = 1.0 if changes.get("inference_layers") == 2 else math.sqrt(2)
    torch.testing.assert_close(mean, scale * torch.tensor([wanted, wanted], dtype=torch.float64)[None, :, None], rtol=1e-12, atol=1e-14)
    assert torch.equal(mean, spread)


def test_reports_are_the_means_over_real_nodes_of_one_more_layer():
    made, model = method(), network()
    calls = watch(made, "report")
    result = run(made, rounds=1)
    for i, client in enumerate(result.sim.setting.batch.clients):
        alone, layout = Batch([client], torch.float64, "cpu"), result.sim.setting.layout
        parameters = layout.views(result.trips[i][0][1][None])
        hidden = model.forward(parameters, alone, model.first(parameters, alone), lambda x: x).hidden
        mean = model.convolve(hidden, alone, 0.01).mean(1).view(2, 3)
        torch.testing.assert_close(calls[0][1]["mean"][i], mean, **TIGHT)
        torch.testing.assert_close(calls[0][1]["spread"][i], mean, **TIGHT)


def test_without_sharpness_and_bound_it_is_the_uniform_average():
    settings = {"model": network(dropout=0.35), "local_epochs": 2}
    assert_same_trips(run(method(tau=0.0), **settings), run(UniformAverage(), **settings), fewest=30)


def test_global_centres_are_smoothed_means_and_begin_as_the_clients():
    made = method(**BOUND)
    calls = watch(made, "report")
    made_first = []
    initialize = made.initialize
    made.initialize = lambda initial: made_first.append(initialize(initial)) or made_first[0]
    result = run(made, rounds=1)
    common = result.named(made_first[0][0])[CENTRES]
    assert torch.equal(result.named(result.trips[0][0][0])[CENTRES], common) and common.std() > 0.3
    torch.testing.assert_close(made.centres[1], calls[0][1]["mean"][5:].sum(0) / 5.25)


def test_only_participants_count_and_receive():
    made = method()
    run(made, participation=0.6, rounds=1)
    arrived = torch.tensor([[True, False, True, True, False]] * 2)
    reports = {"mean": random(2, 5, 2, 3), "spread": random(2, 5, 2, 3, seed=1)}
    mixing = made.mix(reports, arrived)
    assert torch.equal(mixing.receivers, arrived)
    for weights, _ in mixing.blocks:
        assert (weights.expand(2, 5, 5)[..., ~arrived[0]] == 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(made.centres, reports["mean"][:, arrived[0]].sum(1) / 3.25)


def test_where_nobody_arrives_the_centres_stay():
    made = method(**BOUND)
    run(made, rounds=1)
    before = made.centres.clone()
    reports = {"mean": random(2, 5, 2, 3), "spread": random(2, 5, 2, 3, seed=1)}
    made.mix(reports, torch.tensor([[False] * 5, [True] * 5]))
    assert torch.equal(made.centres[0], before[0]) and before[0].any()
    torch.testing.assert_close(made.centres[1], reports["mean"][1].sum(0) / 5.25)


# ---- messages, batching


def test_bytes_are_the_network_and_the_statistics():
    history = run(method(), rounds=2).histories[0]
    assert history.upload[-1] == 10 * 4 * (SCALARS + 2 * 6) and history.download[-1] == 10 * 4 * (SCALARS + 6)
    history, maps = run(method(**BOUND), rounds=2).histories[0], 2 * (2 * 3 * 3 + 2 * 3)
    assert history.upload[-1] == 10 * 4 * (SCALARS + maps + 2 * 6) and history.download[-1] == 10 * 4 * (SCALARS + maps + 6)
