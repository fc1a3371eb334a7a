"""FedAAS: against a plain loop, against a forward pass on the whole graph, and what it promises."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GATv2Conv

from fgl_bench.algorithms.cross_client import base
from fgl_bench.algorithms.cross_client._active_rows import NEVER, ActiveRowsAdam
from fgl_bench.algorithms.cross_client._halo import Halo
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.evaluation.history import History
from fgl_bench.models.graphsage import GraphSAGE
from tests.algorithms.comparing import TIGHT, assert_same_trips
from tests.algorithms.crossing import configured, everything, fedaas, gat, run
from tests.reference.cross_client import Loop, small_graph, small_served


@pytest.mark.parametrize(("interval", "batches"), [(0, 4), (1, 12), (3, 4)])
def test_equals_the_plain_loop(interval, batches):
    """Of twelve mini-batches some have a single node of a client."""
    federation = small_served()
    method = fedaas(fanout=None, sampling="uniform", interval=interval, batches=batches)
    recorded = run([federation], method, rounds=2, lr=0.02)
    ids = np.concatenate([client.nodes for client in federation.observed])

    def order(epoch):
        method.epochs = epoch
        return dict(zip(ids.tolist(), method._cut().tolist(), strict=True))

    loop = Loop(federation, recorded.named(recorded.trips[0][0][0]), order, batches=batches, interval=interval, lr=0.02)
    for number in range(2):
        for k, expected in enumerate(loop.round(number)):
            found = recorded.named(recorded.trips[k][number][1])
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, **TIGHT)
    assert int(method.moved.rows.sum()) == sum(loop.fetched)
    np.testing.assert_allclose(recorded.sim.losses.read()[:, 0], loop.lost)


@pytest.mark.parametrize(("first_hop", "drop"), [("own", 0.5), ("full", 0.5), ("own", 1.0)])
def test_the_server_answers_as_the_plain_loop_does(first_hop, drop):
    federations = [small_served(seed, drop=drop) for seed in (0, 1)]
    recorded = run(federations, fedaas(first_hop=first_hop), rounds=1, lr=0.05)
    models = torch.stack([recorded.trips[replica][0][1] for replica in (0, 4)])
    answers = recorded.sim.trainer.logits(models)
    for federation, row, found in zip(federations, models, answers, strict=True):
        named = recorded.named(row)
        for node, expected in Loop(federation, named, None, batches=4, interval=1, lr=0.1).served(named, first_hop).items():
            torch.testing.assert_close(found[node], expected, **TIGHT)


@pytest.mark.parametrize("model", [gat(), gat(version="v1", heads=2, hidden=[6, 4]), GraphSAGE([5, 4], 2, 0.0, "linear")])
def test_without_edges_inside_clients_the_first_convolution_is_on_the_server_what_it_is_in_training(model):
    federation = small_served(drop=1.0)
    method = fedaas(sampling="uniform")
    theta = run([federation], method, model=model, rounds=1, lr=0.05).sim.initial
    layout, layers, halo, own = method.setting.layout, method.layers, method.halo, method._own
    here = halo.plan(halo.slots, 1)
    in_training = layers.forward(here, layout.views(theta), None, None, no_dropout).flatten(0, 1)[here.index]
    ids = np.concatenate([client.nodes for client in federation.observed])
    on_server = layers.first(own.plan.first, layout.views(theta[:1]), None, own.features)[0]
    place = {node: i for i, node in enumerate(own.plan.first.alone.tolist())}
    shared = [i for i, node in enumerate(ids.tolist()) if node in place]
    assert len(shared) > 20
    torch.testing.assert_close(on_server[[place[ids[i]] for i in shared]], in_training[shared], **TIGHT)


def test_the_first_hop_decides_what_the_server_sees_and_no_model():
    federation = small_served()
    own, full = (run([federation], fedaas(first_hop=hop, adaptive=True, batches=10, interval=10), rounds=1) for hop in ("own", "full"))
    assert torch.equal(own.trips[0][0][1], full.trips[0][0][1])
    assert own.sim.algorithm.losses != full.sim.algorithm.losses


def test_fetched_once_and_without_sampling_it_is_the_forward_pass_on_the_whole_graph():
    federation = small_served(drop=0.4)
    method = fedaas(fanout=None, sampling="uniform", interval=1)
    recorded = run([federation], method, rounds=0)
    theta = recorded.sim.initial
    found, plan, _ = everything(method, theta)
    named = recorded.named(theta[0])
    ids = np.concatenate([client.nodes for client in federation.observed])
    features = torch.tensor(np.concatenate([client.features for client in federation.observed])).double()
    inner = np.concatenate([client.nodes[client.edges] for client in federation.observed], 1)
    place = np.full(ids.max() + 1, -1)
    place[ids] = np.arange(ids.size)

    def convolution(number, edges, x):
        own = {name.partition(".")[2]: value for name, value in named.items() if name.startswith(f"conv{number}.")}
        wide, narrow = own["weight"].shape[0], own["weight"].shape[1] // 2
        layer = GATv2Conv(wide, narrow).double()
        for lin, weight, shift in zip((layer.lin_l, layer.lin_r), own["weight"].chunk(2, 1), own["shift"].chunk(2), strict=True):
            lin.weight.data, lin.bias.data = weight.T.contiguous(), shift
        layer.att.data, layer.bias.data = own["attention"][None], own["bias"]
        return layer(x, torch.tensor(place[edges][::-1].copy()))

    hidden = torch.relu(convolution(0, inner, features))
    expected = convolution(1, np.concatenate([inner, federation.cross_edges], 1), hidden)
    torch.testing.assert_close(found, expected.detach(), **TIGHT)
    np.testing.assert_array_equal(plan.slots, method.halo.slots)


def test_with_one_client_nothing_is_remote_and_nothing_travels_but_the_model():
    method = fedaas(interval=1)
    recorded = run([small_served(clients=1)], method)
    assert method.halo.owner.size == 0 and not method.moved.client_bytes().any()
    up, down, _ = method.traffic().bytes
    assert (recorded.histories[0].upload[-1], recorded.histories[0].download[-1]) == (2 * up, 2 * down)


def test_features_never_cross():
    """The first convolution's sources are the replica's own rows; what crosses has the width of a hidden layer."""
    federation = small_served()
    method = fedaas()
    recorded = run([federation], method, rounds=1)
    _, plan, seen = everything(method, recorded.sim.initial)
    first, messages = seen[0]
    assert first.entries.shape[1] == 0 and not first.remote.any() and first.shape[2] == first.own
    nodes = method.halo.nodes
    assert {*plan.first.alone.tolist(), *plan.first.sources.tolist()} <= set(method.halo.slots.tolist())
    for edge, number in zip(first.edges.target.tolist(), first.number.tolist(), strict=True):
        assert method.halo.source[number] // nodes == method.halo.target[number] // nodes == edge // first.shape[1]
    assert [store.shape[1] for store in method.store] == [5] and federation.num_features == 6
    second, _ = seen[1]
    assert second.remote.any()


def test_without_a_synchronization_edges_between_clients_are_not_there():
    federation, deep = small_served(), gat(layers=3, hidden=[5, 4, 3])
    apart = dataclasses.replace(federation, cross_edges=federation.cross_edges[:, :0])
    one, other = (run([f], fedaas(interval=0, fanout=None, sampling="uniform"), rounds=1, model=deep) for f in (federation, apart))
    assert_same_trips(one, other, fewest=4)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.sampled_from(["attention", "uniform"]))
def test_probabilities_sum_to_one_and_samples_keep_the_limit(seed, fanout, sampling):
    federation = small_served(seed % 7, drop=0.2)
    method = fedaas(fanout=fanout, sampling=sampling)
    recorded = run([federation], method, rounds=0)
    torch.manual_seed(seed)
    theta = torch.randn_like(recorded.sim.initial[:1]).expand_as(recorded.sim.initial).contiguous()
    _, plan, seen = everything(method, theta)
    level, messages = seen[1]
    target = level.edges.target
    chosen = method.chosen[0][level.number]
    assert chosen[level.loop].all()
    k, r, _ = level.shape
    near = torch.bincount(target[~level.loop], minlength=k * r)
    drawn = torch.bincount(target[chosen & ~level.loop], minlength=k * r)
    assert torch.equal(drawn, near.clamp(max=fanout))
    probabilities = torch.zeros(k * r, dtype=torch.float64)
    scores = messages.scores[0]
    largest = torch.full((k * r,), -torch.inf, dtype=torch.float64).scatter_reduce(0, target, scores, "amax")
    power = torch.exp(scores - largest[target]) * ~level.loop
    total = probabilities.index_add(0, target, power)
    some = near > 0
    sums = torch.zeros(k * r, dtype=torch.float64).index_add(0, target, power / total[target].clamp(min=1e-300))
    torch.testing.assert_close(sums[some], torch.ones_like(sums[some]))


def test_bytes_are_a_hand_count():
    """Two clients, one edge between them and every node due: one id of 8 bytes and one row of 5 numbers, twice."""
    graph = small_graph()
    federation = small_served(clients=2, drop=0.0, graph=graph)
    method = fedaas(fanout=None, sampling="uniform", interval=4)
    recorded = run([federation], method, rounds=3)
    ends = federation.cross_edges
    entries = len({(a in federation.observed[0].nodes, b) for a, b in ends.T.tolist()})
    owners = len(set(ends[1].tolist()))
    model = 4 * recorded.sim.setting.layout.count
    history = recorded.histories[0]
    assert entries > owners // 2 > 0
    np.testing.assert_array_equal(history.upload, np.arange(4) * (2 * model + 8 * entries + 4 * 5 * owners))
    np.testing.assert_array_equal(history.download, np.arange(4) * (2 * model + 8 * entries + 4 * 5 * entries))
    assert method.moved.rows.shape == (2, 2) and int(method.moved.rows.sum()) == 3 * entries
    assert not method.moved.rows.diagonal().any()


def test_without_synchronisation_only_models_travel():
    recorded = run([small_served()], fedaas(interval=0), rounds=3)
    model = 4 * recorded.sim.setting.layout.count
    assert recorded.histories[0].upload[-1] == recorded.histories[0].download[-1] == 3 * 4 * model


def test_what_is_spent_by_round_adds_up_to_the_costs_and_is_in_the_bytes():
    method = fedaas(interval=2)
    recorded = run([small_served(seed=0), small_served(seed=1)], method, rounds=3)
    course, costs, (up, down, _) = method.cost_history(), method.costs(), method.traffic().bytes
    assert set(costs) - set(course) == {"rows", "computation_seconds"}
    for name, spent in course.items():
        assert spent.shape == (2, 3) and (np.diff(spent, axis=1) > 0).all()
        assert spent[:, -1].tolist() == costs[name]
    for s, points in enumerate(recorded.sim.points):
        history = History.of(
            s, points, np.zeros((10**4, 4)), np.ones((3, 2)), 0, {"loss": np.ones((3, 2))}, {n: c[s] for n, c in course.items()}
        )
        assert history.spent["communication_seconds"].tolist() == [0, *course["communication_seconds"][s]]
        assert (history.upload - up * history.trips == history.spent["embedding_upload"]).all()
        assert (history.download - down * history.trips == history.spent["embedding_download"]).all()


def test_the_servers_model_is_reported_with_the_loss_that_steers_the_interval():
    method = fedaas(adaptive=True)
    [history] = run([small_served()], method, rounds=3).histories
    by_round = history.of_metric("loss").pooled("received")[:, 0]
    assert len(by_round) == 4 and by_round[:-1] == pytest.approx(np.array(method.losses)[:, 0])


def test_synchronisations_of_a_round():
    for interval, expected in ((0, 0), (1, 4), (2, 2), (3, 2), (4, 1)):
        method = fedaas(interval=interval)
        run([small_served()], method, rounds=2)
        assert [int(each) for each in np.concatenate(method.moved.syncs)] == [expected] * 2


def adapted(losses, **changes):
    method = fedaas(interval=10, adaptive=True, batches=10, **changes)
    method.setting = type("Setting", (), {"seeds": (0,)})
    method.losses, method.taus, found = [], [], []
    for loss in losses:
        method.losses.append([loss])
        found += method.intervals()
    return found


def test_the_interval_follows_the_loss():
    assert adapted([2.0, 2.0, 0.5, 8.0, 1e-9]) == [10, 10, 5, 10, 2]
    assert adapted([0.0, 1.0]) == [10, 10]
    assert adapted([2.0, 1e-9], min_interval=1) == [10, 1]


@given(st.lists(st.floats(1e-3, 10), min_size=2, max_size=20))
def test_falling_losses_never_raise_the_interval(losses):
    found = adapted(sorted(losses, reverse=True))
    assert all(a >= b for a, b in zip(found, found[1:], strict=False)) and min(found) >= 2


def test_the_released_codes_rule_waits_for_a_loss_that_does_not_fall():
    assert adapted([2.0, 1.0, 1.5, 1.4, 1.4], rule="authors") == [10, 10, 8, 8, 7]


def test_the_loss_is_that_of_the_servers_validation_nodes():
    federation = small_served()
    method = fedaas(adaptive=True)
    recorded = run([federation], method, rounds=1)
    named = recorded.named(recorded.sim.initial[0])
    server, trainer = federation.server, recorded.sim.trainer
    logits = trainer.logits(recorded.sim.initial[:1])[0]
    expected = torch.nn.functional.cross_entropy(logits[server.val], torch.tensor(server.labels[server.val]))
    assert named and method.losses[0][0] == pytest.approx(float(expected))


def test_received_is_the_global_model_on_the_whole_graph():
    federation = small_served()
    recorded = run([federation], fedaas(), rounds=2)
    trainer, server = recorded.sim.trainer, federation.server
    trained = torch.stack([trips[-1][1] for trips in recorded.trips])
    sizes = torch.tensor([client.num_nodes for client in federation.observed]).double()
    logits = trainer.logits((sizes / sizes.sum() @ trained)[None])[0]
    correct = logits.argmax(1).numpy() == server.labels
    history = recorded.histories[0]
    assert history.pooled("received")[-1].tolist() == pytest.approx([correct[server.val].mean(), correct[server.test].mean()])


def test_entries_are_one_per_holder_and_remote_neighbour():
    federations = [small_served(seed) for seed in (0, 1)]
    clients = [client for f in federations for client in f.observed]
    halo = Halo(clients, [f.cross_edges for f in federations], torch.float64, torch.device("cpu"))
    expected = set()
    for s, federation in enumerate(federations):
        owner = {node: (4 * s + k, i) for k, c in enumerate(federation.observed) for i, node in enumerate(c.nodes.tolist())}
        expected |= {(owner[a][0], owner[b][0] * halo.nodes + owner[b][1]) for a, b in federation.cross_edges.T.tolist()}
    assert set(zip(halo.holder.tolist(), halo.owner.tolist(), strict=True)) == expected
    assert len(expected) == halo.owner.size


@pytest.mark.parametrize("name", ["fedaas", "graphfed", "fedgraph"])
def test_steps_over_the_edges_that_they_use_equal_steps_over_all_of_them(name):
    federations, method = [small_served(seed, drop=0.3) for seed in (0, 1)], configured(name)
    prepare = method.prepare

    def widely(setting):
        prepare(setting)
        method._narrow = False

    narrow = run(federations, configured(name), rounds=2)
    method.prepare = widely
    wide = run(federations, method, rounds=2)
    assert narrow.sim.algorithm._narrow and not method._narrow
    assert narrow.sim.algorithm.costs()["rows"] == method.costs()["rows"]
    for one, other in zip(narrow.trips, wide.trips, strict=True):
        torch.testing.assert_close(one[-1][1], other[-1][1], **TIGHT)


def rare_features(seed, drop=0.3):
    """60 nodes with 3 of 40 features each: a client's nodes lack many of them."""
    graph, draw = small_graph(), np.random.default_rng(seed)
    rows = np.repeat(np.arange(60), 3)
    features = sp.csr_matrix((draw.normal(size=180).astype(np.float32), (rows, draw.integers(40, size=180))), shape=(60, 40))
    return small_served(seed, drop=drop, graph=dataclasses.replace(graph, features=features))


@pytest.mark.parametrize(
    ("name", "model"),
    [("fedgraph", gat()), ("fedaas", gat(version="v1", heads=2, hidden=[6, 4])), ("graphfed", GraphSAGE([5, 4], 2, 0.3, "linear"))],
)
def test_leaving_features_that_no_batch_had_alone_changes_nothing(name, model, monkeypatch):
    federations, keys = [rare_features(seed) for seed in (0, 1)], {"rounds": 2, "local_epochs": 2, "model": model, "lr": 0.02}
    apart = run(federations, configured(name), **keys)
    monkeypatch.setattr(base, "TOUCHED_BELOW", 0)
    whole = run(federations, configured(name), **keys)
    assert type(apart.sim.trainer.optimizer) is ActiveRowsAdam and type(whole.sim.trainer.optimizer) is StackedAdam
    assert apart.sim.algorithm.costs()["rows"] == whole.sim.algorithm.costs()["rows"]
    for one, other in zip(apart.trips, whole.trips, strict=True):
        for (received, trained), (expected, after) in zip(one, other, strict=True):
            torch.testing.assert_close(received, expected, **TIGHT)
            torch.testing.assert_close(trained, after, **TIGHT)


@pytest.mark.parametrize("layers", [2, 3])
def test_rows_of_the_input_weight_are_laid_out_by_the_first_mini_batch_that_has_them(layers):
    method = fedaas()
    run([rare_features(seed) for seed in (0, 1)], method, model=gat(layers=layers, hidden=[5, 4, 3][:layers]), rounds=1)
    halo, number = method.halo, method._cut()
    expected = np.full(halo.size * halo.features.width * halo.parts, NEVER)
    for batch in reversed(range(method.batches)):
        rows = halo.plan(halo.slots[number == batch], method.layers.depth).first.features
        expected[rows.replica * halo.features.width * halo.parts + rows.entries[1]] = batch
    found = method._first_use(number)
    assert 1 < np.unique(found).size <= method.batches + 1
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("changes", [{"weight_decay": 0.01}, {"method": fedaas(batches=20)}, {"federation": small_served()}])
def test_all_features_are_trained_where_leaving_some_alone_would_be_wrong(changes):
    """With weight decay every weight moves; with fewer nodes than batches a client sits some out; dense features are all there."""
    changes = {"federation": rare_features(0), "method": fedaas(), **changes}
    recorded = run([changes.pop("federation")], changes.pop("method"), **changes)
    assert type(recorded.sim.trainer.optimizer) is StackedAdam
