"""Dis-PFL: exact sparsity, masked training, coordinate-wise averages, prune and regrow, densities, bytes."""

from __future__ import annotations

import math

import pytest
import torch

from fgl_bench.algorithms.d_psgd import DPSGD
from fgl_bench.algorithms.dis_pfl import DisPFL, erk_densities
from fgl_bench.models.gcn import GCN
from tests.algorithms.comparing import MODEL_SCALARS, TIGHT, assert_same_trips
from tests.algorithms.peers import decentralized, run

MODEL = GCN(hidden=8, layers=2, dropout=0.0)


def method(**changes):
    defaults = {"density": 0.5, "erk_power": 1.0, "anneal": 0.5, "regrow": "gradient", "different_initial": True, "clip": 10.0}
    return DisPFL(**{**defaults, **changes})


def exchanges(algorithm, **settings):
    """Every round's exchange, with the masks of its training and the new ones and the gradients that regrow."""
    seen, exchange = [], algorithm.exchange

    def recording(meeting):
        trained, old = meeting.trained.clone(), algorithm.mask.bool()
        gradient = {name: value.clone() for name, value in meeting.reports.items()}.get("gradient")
        result = exchange(meeting)
        moments = [state.clone() for state in meeting.moments]
        seen.append((trained, old, algorithm.mask.bool(), result._replace(models=result.models.clone()), gradient, moments))
        return result

    algorithm.exchange = recording
    return run(algorithm, **{"model": MODEL, "local_epochs": 2, "rounds": 6, **settings}), seen


@pytest.mark.parametrize(("regrow", "density"), [("gradient", 0.5), ("random", 0.7)])
def test_every_tensor_keeps_its_sparsity_exactly_and_masked_weights_are_zero(regrow, density):
    algorithm = method(regrow=regrow, density=density)
    result, seen = exchanges(algorithm, lr=0.1)
    layout = result.sim.setting.layout
    for trained, old, new, exchange, _, moments in seen:
        for name, part in algorithm._parts():
            for mask in (old, new):
                assert (mask[..., part].sum(-1) == algorithm.active[name]).all()
        assert old.sum(-1).unique().tolist() == [sum(algorithm.active.values())] and sum(algorithm.active.values()) < layout.count
        assert not trained[~old].any() and not exchange.models[~new].any()
        assert all(not state[~(old & new)].any() for state in moments), "no moments off the mask, nor of regrown weights"
    assert any((a[1] != a[2]).any() for a in seen), "masks evolve"


def test_after_every_step_nothing_is_off_the_mask():
    algorithm = method()
    correct, steps = algorithm.correct_gradient, []

    def checking(step, gradient):
        steps.append(bool(step.theta[~algorithm.mask.flatten(0, 1).bool()].any()))
        return correct(step, gradient)

    algorithm.correct_gradient = checking
    exchanges(algorithm, lr=0.1, weight_decay=0.1)
    assert len(steps) == 12 and not any(steps)


def test_models_are_coordinate_wise_means_over_who_trained_the_coordinate():
    algorithm = method()
    for trained, old, new, exchange, *_ in exchanges(algorithm, lr=0.1)[1]:
        for s in range(2):
            for i in range(6):
                members = [i, *torch.nonzero(exchange.sent[s, i])[:, 0].tolist()]
                assert len(members) == 3, "30 % of six clients, rounded up, and itself"
                count = old[s, members].sum(0)
                expected = trained[s, members].sum(0) / count.clamp(min=1) * new[s, i]
                torch.testing.assert_close(exchange.models[s, i], expected, **TIGHT)


def test_the_smallest_weights_go_and_the_largest_gradients_come():
    algorithm = method(anneal=0.4)
    _, seen = exchanges(algorithm, lr=0.1)
    for number, (trained, old, new, _, gradient, _) in enumerate(seen):
        for name, part in algorithm._parts():
            if algorithm.active[name] == part.stop - part.start:
                assert new[..., part].all(), "a dense tensor stays dense"
                continue
            count = math.ceil(0.2 * (1 + math.cos(math.pi * number / 6)) * algorithm.active[name])
            for s in range(2):
                for i in range(5):
                    mask, weight, wish = old[s, i, part], trained[s, i, part].abs(), gradient[s, i, part].abs()
                    active = torch.nonzero(mask)[:, 0]
                    left = mask.clone()
                    left[active[weight[active].argsort(stable=True)[:count]]] = False
                    free = torch.nonzero(~left)[:, 0]
                    floor = wish[free].sort(descending=True).values[count - 1]
                    grown = new[s, i, part] & ~left
                    assert grown.sum() == count and (wish[grown] >= floor).all() and not (left & ~new[s, i, part]).any()


def test_the_gradient_is_dense_at_the_trained_weights_and_without_dropout():
    algorithm = method()
    result, seen = exchanges(algorithm, rounds=1, weight_decay=0.0)
    trained, old, _, _, gradient, _ = seen[0]
    setting, row = result.sim.setting, 2
    batch, theta, at = setting.batch.select([row]), trained[0, row], []
    for shift in (1e-6, -1e-6):
        off = int(torch.nonzero(~old[0, row])[0])
        moved = theta.clone()
        moved[off] += shift
        whole = trained.clone()
        whole[0, row] = moved
        at.append(result.sim.trainer.losses(whole.flatten(0, 1))[row])
    assert batch.size == 1 and gradient[0, row, off].item() == pytest.approx(((at[0] - at[1]) / 2e-6).item(), rel=1e-4, abs=1e-9)


def test_full_density_is_averaging_over_the_graph():
    settings = {"model": MODEL, "local_epochs": 2, "rounds": 4}
    dense = run(method(density=1.0, clip=None), scenario=decentralized(topology="ring"), **settings)
    plain = run(DPSGD(weights="uniform", order="train_mix"), scenario=decentralized(topology="ring"), **settings)
    assert_same_trips(dense, plain, fewest=48)


def test_alone_a_client_trains_its_own_sparse_model():
    for trained, _, new, exchange, *_ in exchanges(method(), scenario=decentralized(topology="isolated"))[1]:
        torch.testing.assert_close(exchange.models, trained * new)
        assert not exchange.sent.any()


def test_without_annealing_masks_stay():
    for _, old, new, *_ in exchanges(method(anneal=0.0))[1]:
        assert torch.equal(old, new)


def test_first_masks_are_common_or_not():
    for different in (True, False):
        algorithm = method(different_initial=different)
        _, seen = exchanges(algorithm, rounds=1)
        first = seen[0][1]
        assert torch.equal(first[0, 0], first[0, 1]) != different and not torch.equal(first[0], first[1])


def test_densities_of_the_papers_backbone_on_cora():
    shapes = {"conv0.weight": (1433, 64), "conv0.bias": (64,), "conv1.weight": (64, 7), "conv1.bias": (7,)}
    densities = erk_densities(shapes, 0.5, 1.0)
    assert densities["conv0.weight"] == pytest.approx(0.497, abs=5e-4)
    assert [densities[name] for name in ("conv0.bias", "conv1.weight", "conv1.bias")] == [1, 1, 1]
    assert sum(densities[name] * math.prod(shape) for name, shape in shapes.items()) == pytest.approx(0.5 * 92231)
    assert set(erk_densities(shapes, 1.0, 1.0).values()) == {1.0}
    same = erk_densities(shapes, 0.3, 0.0)
    assert same["conv0.weight"] == same["conv1.weight"] < 0.3


def test_bytes_by_hand():
    algorithm = method()
    history = run(algorithm, rounds=3).histories[0]
    one = 4 * sum(algorithm.active.values()) + -(-MODEL_SCALARS // 8)
    assert history.upload[-1] == history.download[-1] == 3 * 6 * 2 * one


def test_gradients_are_clipped_before_they_are_masked():
    algorithm = method(clip=1e-3)
    correct, seen = algorithm.correct_gradient, []

    def recording(step, gradient):
        before = gradient.clone()
        seen.append((before, correct(step, gradient).clone(), algorithm.mask.flatten(0, 1).clone()))
        return gradient

    algorithm.correct_gradient = recording
    exchanges(algorithm, rounds=1)
    for before, after, mask in seen:
        scale = (1e-3 / (before.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)
        torch.testing.assert_close(after, before * scale * mask)
