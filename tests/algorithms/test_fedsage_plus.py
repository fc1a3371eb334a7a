"""FedSage+: what is hidden, the joint objective against a naive loop, the mended graphs, and the limits in which it is FedAvg."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from fgl_bench.algorithms._neighgen import AugmentedGraph, Generated, Neighborhoods, augmented, described, features_of
from fgl_bench.algorithms.fedadam import FedAdam
from fgl_bench.algorithms.fedsage_plus import FedSagePlus, hidden_nodes, impair
from fgl_bench.data.graph import training_view
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.random_numbers import mix, normal
from fgl_bench.errors import UserError
from fgl_bench.models.gcn import GCN
from fgl_bench.models.gin import GIN
from fgl_bench.models.graphsage import GraphSAGE
from tests.algorithms.comparing import UniformAverage, assert_same_trips, watch
from tests.engine.graphs import from_edges, make_client
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous

KEYS = {
    "max_neighbours": 3, "gen_rounds": 2, "hidden_share": 0.5, "latent": 5, "encoder_hidden": 4, "gen_hidden": [6, 7], "gen_dropout": 0.0,
    "gen_lr": None, "gen_weight_decay": 0.0, "degree_weight": 0.9, "feature_weight": 1.1, "class_weight": 0.8, "weighting": "uniform",
    "hide": "auto", "strategy": None,
}  # fmt: skip
SAGE = GraphSAGE(hidden=4, layers=2, dropout=0.0)
MODEL = 2 * 6 * 4 + 4 + 2 * 4 * 3 + 3


def method(**changes):
    return FedSagePlus(**{**KEYS, **changes})


def run(made, seeds=(0, 1), federations=None, **settings):
    federations = federations or [small_federation(seed) for seed in seeds]
    return simulate(federations, made, synchronous(), **{"rounds": 4, "model": SAGE, **settings})


def raise_degrees(made, by=2.5):
    """Generators that want about ``by`` neighbours more for every node than they would."""
    made.layout.view(made.generators, "degree.bias").add_(by)


def ready(seeds=(0,), federations=None, by=2.5, model=SAGE, **changes):
    """A method before its first step, its generators' degrees raised, and the run it belongs to."""
    made = method(**changes)
    sim = run(made, seeds, federations, rounds=1, model=model).sim
    made.prepare(sim.setting)
    raise_degrees(made, by)
    return made, sim


def in_all_places(made, batch):
    """Every node's degree, and the features of its neighbours in all places, ``[k, n, F]`` each."""
    views = made.layout.views(made.generators)
    degree, hidden = described(made.encoder, views, batch, mix(made.streams), no_dropout)
    return degree, features_of(views, hidden, [batch.nodes] * made.max_neighbours, made.max_neighbours)


# ---- what is hidden


def test_half_of_the_validation_nodes_are_hidden_and_nothing_else():
    client = make_client(30)
    hidden = hidden_nodes(client, 0.5, np.random.default_rng(0))
    assert hidden.sum() == round(0.5 * client.val.sum()) and not (hidden & ~client.val).any()
    assert not hidden_nodes(client, 0.0, np.random.default_rng(0)).any()
    assert (hidden_nodes(client, 1.0, np.random.default_rng(0)) == client.val).all()


def test_impairing_by_hand():
    client = from_edges([(0, 1), (0, 2), (0, 3), (3, 4), (2, 3)], [0] * 5)
    graph, count, first = impair(client, np.array([0, 0, 1, 1, 0], dtype=bool), most=2)
    assert graph.edges.tolist() == [[0, 1], [1, 0]]
    assert count.tolist() == [2, 0, 0, 0, 1], "hidden nodes 2 and 3 miss nothing themselves"
    assert first[0].tolist() == [2, 3] and first[4, 0] == 3
    assert impair(client, np.array([0, 0, 1, 1, 0], dtype=bool), most=1)[2].tolist() == [[2], [0], [0], [0], [3]]


# ---- targets


@pytest.fixture
def neighborhoods():
    clients = [
        make_client(6, seed=1),
        make_client(5, edges=0.0),
        make_client(8, seed=2),
        make_client(6, seed=3),
        make_client(4, 1.0),
        make_client(7),
    ]
    return clients, Neighborhoods(clients, 3)


def test_drawn_neighborhoods_are_those_of_one_node_of_the_right_client(neighborhoods):
    clients, made = neighborhoods
    draw, seeds = np.random.default_rng(0), np.array([0, 1] * 40)
    ids, exists = made.draw(seeds, draw.random((80, 3)), draw.random((80, 3, 4)))
    reached = [set() for _ in clients]
    for t, seed in enumerate(seeds):
        for j in range(3):
            number = seed * 3 + j
            assert exists[t, j] == (clients[number].edges.size > 0)
            if exists[t, j]:
                local = set((ids[t, j] - made.offsets[number]).tolist())
                row, column = clients[number].edges
                assert any(local <= set(column[row == u].tolist()) for u in range(clients[number].num_nodes))
                reached[number] |= local
    for client, seen in zip(clients, reached, strict=True):
        assert seen == set(client.edges[0].tolist())


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("sparse", [True, False])
def test_nearest_targets(sparse, places):
    client = make_client(9, sparse=sparse)
    x = torch.from_numpy(client.features.toarray() if sparse else client.features)
    made, draw = Neighborhoods([client], 1), np.random.default_rng(0)
    generated = torch.from_numpy(draw.normal(size=(4, places, 5))).requires_grad_()
    ids, valid = draw.integers(9, size=(4, 3, 5)), draw.random((4, 3, 5)) < 0.6
    valid[1, 2] = False
    nearest, expected = made.nearest(generated, ids, valid), torch.zeros(4, 3, places, dtype=torch.float64)
    for t, c, j in np.ndindex(4, 3, places):
        distances = [(generated[t, j] - x[i]).square().mean() for i, ok in zip(ids[t, c], valid[t, c], strict=True) if ok]
        if distances:
            expected[t, c, j] = torch.stack(distances).min()
    torch.testing.assert_close(nearest, expected)
    assert not nearest[1, 2].any()
    used = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)[:, None]
    ours, theirs = (torch.autograd.grad((used * v.square()).sum(), generated, retain_graph=True)[0] for v in (nearest, expected))
    torch.testing.assert_close(ours, theirs)


# ---- the joint objective


def sage(parameters, x, edges):
    for layer in range(2):
        weight, bias = parameters[f"conv{layer}.weight"], parameters[f"conv{layer}.bias"]
        conv = SAGEConv(weight.shape[0], bias.shape[0]).double()
        near, own = weight.chunk(2, -1)
        del conv.lin_l.weight, conv.lin_l.bias, conv.lin_r.weight
        conv.lin_l.weight, conv.lin_l.bias, conv.lin_r.weight = near.T, bias, own.T
        x = conv(x, edges)
        x = x if layer else torch.relu(x)
    return x


def naive_objective(made, sim, federated, i, generator, classifier, targets):
    """Client i's objective with PyG layers and one node, neighbour and target at a time; ``targets[v][j]`` are client j's rows."""
    client, p, keys = federated.observed[i], made.max_neighbours, made._keys([i])
    visible = made.visible[i, : client.num_nodes].numpy()
    row, column = client.edges
    alive = torch.from_numpy(client.edges[:, visible[row] & visible[column]])
    x = torch.from_numpy(np.asarray(client.features, dtype=np.float64))
    z = sage(generator, x, alive)
    degree = torch.relu(z @ generator["degree.weight"] + generator["degree.bias"])[:, 0]
    h = z + normal(keys[0], made.impaired.nodes, made.latent, torch.float64)[0, : len(z)]
    h = torch.relu(h @ generator["feature0.weight"] + generator["feature0.bias"])
    h = torch.relu(h @ generator["feature1.weight"] + generator["feature1.bias"])
    made_up = torch.tanh(h @ generator["feature2.weight"] + generator["feature2.bias"]).view(len(z), p, -1)
    rows, links = [x], [alive]
    for v in range(len(z)):
        for j in range(min(p, int(degree[v]))):
            if visible[v]:
                new = sum(len(block) for block in rows)
                rows.append(made_up[v, j][None])
                links.append(torch.tensor([[v, new], [new, v]]))
    train = np.flatnonzero(client.train)
    logits = sage(classifier, torch.cat(rows), torch.cat(links, 1))
    classes = functional.cross_entropy(logits[train], torch.from_numpy(client.labels)[train])
    missing = {v: sorted(u for a, u in client.edges.T.tolist() if a == v and not visible[u]) for v in train.tolist()}
    degrees = torch.stack([functional.smooth_l1_loss(degree[v], torch.tensor(float(len(missing[v])))) for v in train]).mean()
    near = 0.0
    for v in train.tolist():
        for j in range(min(p, int(degree[v]))):
            most = min(p, len(missing[v]))
            sets = [x[missing[v][:most]], *(rows[:most] for rows in targets.get(v, []))]
            near = near + sum((made_up[v, j] - rows).square().mean(1).min() for rows in sets if len(rows))
    terms = made.degree_weight * degrees + made.class_weight * classes + made.feature_weight * near / (len(train) * p)
    return terms / federated.num_clients


def test_the_objective_and_its_gradients_equal_a_naive_loop(monkeypatch):
    federated = small_federation(3, clients=5)
    made, sim = ready(federations=[federated], by=1.2, hidden_share=1.0)
    seen, nearest = {}, made.neighborhoods.nearest

    def recording(generated, ids, valid):
        seen["ids"], seen["valid"] = ids, valid
        return nearest(generated, ids, valid)

    monkeypatch.setattr(made.neighborhoods, "nearest", recording)
    views = {name: view.clone().requires_grad_() for name, view in made.layout.views(made.generators).items()}
    weights = {name: view.clone().requires_grad_() for name, view in sim.setting.layout.views(sim.initial).items()}
    loss = made.objective(views, weights, made.impaired, range(5))
    ours = torch.autograd.grad(loss, [*views.values(), *weights.values()])
    everything = torch.from_numpy(made.neighborhoods.features.toarray().astype(np.float64))
    pairs = [
        (i, v) for i, c in enumerate(federated.observed) for v in np.flatnonzero(c.train & (made.missing[i, : c.num_nodes].numpy() > 0))
    ]
    assert len(pairs) == len(seen["ids"]) > 3
    expected, counted = 0.0, 0
    for i, client in enumerate(federated.observed):
        if not client.train.any():
            continue
        targets = {}
        for t, (owner, v) in enumerate(pairs):
            if owner == i:
                others = [j for j in range(5) if j != i and federated.observed[j].edges.size]
                targets[int(v)] = [everything[seen["ids"][t, j]] for j in others]
                counted += len(others)
        own = ({name: view[i] for name, view in named.items()} for named in (views, weights))
        expected = expected + naive_objective(made, sim, federated, i, *own, targets)
    assert counted
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    theirs = torch.autograd.grad(expected, [*views.values(), *weights.values()], allow_unused=True)
    for name, a, b in zip([*views, *weights], ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")
    assert all(gradient.any() for gradient in ours)


def test_the_classifier_takes_the_objectives_gradient():
    """What ``local_loss`` returns has the classifiers' gradient and the generators have moved down their own."""
    made, sim = ready()
    weights = {name: view.clone().requires_grad_() for name, view in sim.setting.layout.views(sim.initial).items()}
    start = {name: view.clone().requires_grad_() for name, view in made.layout.views(made.generators).items()}
    wanted = torch.autograd.grad(made.objective(start, weights, made.impaired, range(5)), [*start.values(), *weights.values()])
    before = made.generators.clone()
    step = type("Step", (), {"rows": tuple(range(5)), "parameters": weights})()
    gradients = torch.autograd.grad(made.local_loss(step), list(weights.values()))
    for a, b in zip(gradients, wanted[len(start) :], strict=True):
        torch.testing.assert_close(a, b)
    moved = made.layout.views(made.generators - before)
    for (name, move), gradient in zip(moved.items(), wanted, strict=False):
        large = (gradient.abs() > 1e-6) & torch.tensor([c.train.any() for c in small_federation(0).clients]).view(
            -1, *[1] * (gradient.dim() - 1)
        )
        torch.testing.assert_close(move[large], -0.01 * gradient.sign()[large], rtol=0.02, atol=0, msg=name)
    assert torch.equal(made.generators[-1], before[-1]), "a client without training nodes has nothing to learn from"


# ---- mended graphs


@pytest.mark.parametrize("model", [SAGE, GCN(hidden=4, layers=3, dropout=0.0), GIN(4, 2, 0.0, "batch", "mlp")])
@pytest.mark.parametrize("sparse", [True, False])
def test_graphs_being_mended_are_the_mended_graphs(model, sparse):
    """The differentiable view, the mended batch and its parts agree, on real nodes, with the graph written out."""
    clients = [make_client(9, sparse=sparse), make_client(6, edges=0.0, sparse=sparse), make_client(12, seed=1, sparse=sparse)]
    batch, draw = Batch(clients, torch.float64, "cpu"), np.random.default_rng(0)
    features = torch.from_numpy(draw.normal(size=(3, 12, 2, 5)))
    slots = (torch.arange(2) < torch.from_numpy(draw.integers(3, size=(3, 12, 1)))) & batch.valid[..., None]
    slots[2] = False  # the last client generates nothing
    layout = model.layout(5, 3)
    theta = torch.stack([layout.pack(model.init_parameters(layout, torch.Generator().manual_seed(i))) for i in range(3)])
    (made,) = augmented(batch, slots.sum(-1).numpy(), [block[mask] for block, mask in zip(features, slots, strict=True)])

    def logits(graph, rows=slice(None)):
        parameters = layout.views(theta[rows])
        return model.forward(parameters, graph, model.first(parameters, graph), no_dropout).logits

    count, nodes = slots.sum(-1).sort(dim=1, descending=True, stable=True)
    in_order = features.gather(1, nodes[..., None, None].expand_as(features))
    places = [in_order[:, :size, place] for place, size in enumerate(slots.sum(1).amax(0).tolist())]
    moving = AugmentedGraph(batch, slots, Generated(places, nodes, count))
    view, fixed = moving.real(logits(moving)), logits(made)
    for i, client in enumerate(clients):
        generated = features[i][slots[i]].numpy()
        real = np.repeat(np.arange(batch.nodes), slots[i].sum(-1).numpy())
        new = client.num_nodes + np.arange(len(generated))
        x = np.concatenate([client.features.toarray() if sparse else client.features, generated])
        edges = np.concatenate([client.edges, np.stack([real, new]), np.stack([new, real])], 1)
        mask = np.zeros(len(x), dtype=bool)
        written = replace(
            client, features=x, edges=edges, labels=np.zeros(len(x), int), train=mask, val=mask, test=mask, nodes=np.arange(len(x))
        )
        expected = logits(Batch([written], torch.float64, "cpu"), [i])[0]
        torch.testing.assert_close(view[i, : client.num_nodes], expected[: client.num_nodes], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(fixed[i, : len(x)], expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(logits(made.select([2, 0]), [2, 0]), fixed[[2, 0]])
    for name in ("train", "val", "test"):
        assert (getattr(made, name).sum(1) == getattr(batch, name).sum(1)).all(), "generated nodes are in no mask"
    assert (made.num_train == batch.num_train).all()


def test_only_kept_nodes_get_neighbours_and_as_many_as_their_degree_says():
    made, sim = ready()
    batch = sim.setting.batch
    (graph,) = made.augment(batch)
    degree, generated = in_all_places(made, batch)
    for i, client in enumerate(batch.clients):
        n = client.num_nodes
        extra = np.bincount(graph.clients[i].edges[0], minlength=n)[:n] - np.bincount(client.edges[0], minlength=n)
        wanted = np.minimum(degree[i, :n].detach().numpy().astype(int), 3) * made.visible[i, :n].numpy()
        assert extra.tolist() == wanted.tolist() and extra.max() > 0
        count = graph.clients[i].num_nodes - n
        flat = torch.stack([generated[j][i, v] for v in range(n) for j in range(wanted[v])])
        assert count == wanted.sum() == len(flat)
        torch.testing.assert_close(graph.features.generated.values[i, :count], flat.detach())


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_no_mask_sees_is_not_computed_and_changes_no_output(layers):
    made, sim = ready(model=GraphSAGE(hidden=4, layers=layers, dropout=0.0))
    model, layout, batch = sim.setting.model, sim.setting.layout, sim.setting.batch
    (whole,), graphs = made.augment(batch), made._graphs(batch, batch)
    parameters = layout.views(sim.initial)

    def logits(graph):
        return model.forward(parameters, graph, model.first(parameters, graph), no_dropout).logits

    own = [sum(graph.features.generated.counts) for graph in (*graphs, whole)]
    assert own[0] < own[1] <= own[2] if layers < 3 else own[0] <= own[2]
    for graph, masks in zip(graphs, (["train"], ["val", "test"]), strict=True):
        for name in masks:
            mask = getattr(graph, name)
            assert mask.any() and torch.equal(mask, getattr(whole, name))
            torch.testing.assert_close(logits(graph)[mask], logits(whole)[mask], rtol=1e-12, atol=1e-14)


def test_another_method_or_model_on_top_has_all_neighbours_in_full():
    for made, sim in (ready(strategy=FedAdam(server_lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3, rule="adam")), ready(model=GCN(4, 2, 0.0))):
        graphs = made._graphs(sim.setting.batch, sim.setting.batch)
        assert graphs[0] is graphs[1]
        assert max(graphs[0].features.generated.counts) == (graphs[0].num_nodes - sim.setting.batch.num_nodes).max() > 0


def test_nodes_that_are_not_there_get_no_neighbours():
    whole = small_federation(0)
    made, sim = ready(federations=[replace(whole, observed=tuple(training_view(c, c.train) for c in whole.clients))])
    joined = {"observed": [], "scored": []}
    for name, batch in (("observed", sim.setting.batch), ("scored", sim.trainer.evaluation)):
        for before, after in zip(batch.clients, made.augment(batch)[0].clients, strict=True):
            from_, to = after.edges
            real = np.unique(from_[(from_ < before.num_nodes) & (to >= before.num_nodes)])
            joined[name] += (np.ones(before.num_nodes, bool) if before.present is None else before.present)[real].tolist()
    assert len(joined["scored"]) > len(joined["observed"]) > 0 and all(joined["observed"])


def test_no_wish_for_neighbours_leaves_the_graphs_unmended():
    made, sim = ready(by=-50.0)
    assert made.augment(sim.setting.batch)[0] is sim.setting.batch
    graphs = made.regraph(2, sim.setting.batch, sim.setting.batch)
    assert graphs[0] is graphs[1] is sim.setting.batch


def test_what_is_observed_and_what_is_scored_are_both_mended():
    whole = small_federation(0)
    poorer = tuple(replace(c, edges=c.edges[:, :0]) for c in whole.clients)
    made = method()
    calls, prepare = watch(made, "regraph"), made.prepare

    def raised(setting):
        prepare(setting)
        raise_degrees(made)

    made.prepare = raised
    result = run(made, federations=[replace(whole, observed=poorer)])
    (observed, evaluated), trainer = calls[2][1], result.sim.trainer
    assert trainer.batch is observed and trainer.evaluation is evaluated and observed is not evaluated
    for i, client in enumerate(whole.clients):
        assert (evaluated.clients[i].edges < client.num_nodes).all(0).sum() == client.edges.shape[1]
        assert not (observed.clients[i].edges < client.num_nodes).all(0).any()
        assert observed.clients[i].num_nodes > client.num_nodes and evaluated.clients[i].num_nodes > client.num_nodes
    assert [result for _, result in calls].count(None) == 3


# ---- rounds


def test_classifiers_are_their_own_first_and_averaged_uniformly_after_phase_0():
    result = run(method(gen_rounds=2), seeds=(0,), rounds=4, mixing_at=(10, 15))
    assert torch.equal(result.sim.mixing[10][0], torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(result.sim.mixing[15][0], torch.full((5, 5), 0.2, dtype=torch.float64))
    for trips in result.trips:
        assert torch.equal(trips[1][0], trips[0][1]) and torch.equal(trips[2][0], trips[1][1])
        torch.testing.assert_close(trips[3][0], torch.stack([other[2][1] for other in result.trips]).mean(0))


def test_the_first_average_is_the_model_that_a_strategy_goes_on_from():
    strategy = FedAdam(server_lr=1e-9, beta1=0.9, beta2=0.99, tau=1e-3, rule="adam")
    result = run(method(gen_rounds=2, strategy=strategy), seeds=(0,), rounds=4)
    weights = result.sim.setting.weights[0] / result.sim.setting.weights[0].sum()
    mean = sum(weight * trips[2][1] for weight, trips in zip(weights, result.trips, strict=True))
    for trips in result.trips:
        torch.testing.assert_close(trips[3][0], mean, rtol=0, atol=1e-8)


@pytest.mark.parametrize("changes", [{"max_neighbours": 0}, {"gen_rounds": 0}])
def test_without_neighbours_it_is_uniform_fedavg_of_graphsage(changes):
    made = method(**changes)
    prepare = made.prepare

    def unwilling(setting):
        prepare(setting)
        if made.max_neighbours:
            raise_degrees(made, -50.0)

    made.prepare = unwilling
    model = GraphSAGE(hidden=4, layers=2, dropout=0.5)
    assert_same_trips(run(made, model=model), run(UniformAverage(), model=model), exact=True, fewest=40)


def test_partial_participation_keeps_absent_generators_still():
    made = method(gen_rounds=3)
    result = run(made, seeds=(0,), rounds=1, participation=0.4)
    moved = (made.generators != made.generators[-1]).any(1)
    assert [bool(m) for m in moved[:-1]] == [bool(trips) for trips in result.trips[:-1]]


def test_bytes_follow_the_papers_gradient_protocol_and_then_fedavg():
    federated = small_federation(0)
    history = run(method(gen_rounds=2), seeds=(0,), rounds=4, local_epochs=3).histories[0]
    features = (5 * 6 + 6) + (6 * 7 + 7) + (7 * 18 + 18)
    up = down = 0
    for i, client in enumerate(federated.clients):
        samples = int(client.train.sum())
        for j, other in enumerate(federated.clients):
            if i != j and samples and other.edges.size:
                up, down = up + 3 * 4 * (features + samples * 5), down + 3 * 4 * features
    each = 5 * 4 * MODEL
    assert history.upload.tolist() == [0, up, 2 * up, 2 * up + each, 2 * up + 2 * each]
    assert history.download.tolist() == [0, down, 2 * down, 2 * down + each, 2 * down + 2 * each]


def test_a_model_that_cannot_run_on_graphs_being_mended_is_refused():
    class Odd(GraphSAGE):
        def first(self, parameters, batch):
            return super().first(parameters, batch) + 0 * batch.num_nodes.sum()

    with pytest.raises(UserError, match="num_nodes"):
        run(method(), model=Odd(hidden=4, layers=2, dropout=0.0))


# ---- what the generators learn
