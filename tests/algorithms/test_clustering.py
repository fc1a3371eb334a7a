"""k-means from inner products: deterministic, the same as k-means on coordinates, and as good as scikit-learn's."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import KMeans

from fgl_bench.algorithms.fedssa import kmeans, same_cluster
from fgl_bench.engine.random_numbers import uniform


def draws(sets, clusters, attempts=10, seed=0):
    return uniform(torch.arange(sets) + seed, attempts, clusters)


def points(sets=4, count=12, width=3, seed=0):
    return torch.randn(sets, count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inertia(x, member):
    return sum(((x[member[:, c]] - x[member[:, c]].mean(0)) ** 2).sum() for c in range(member.shape[1]) if member[:, c].any())


@pytest.mark.parametrize("clusters", [2, 5])
def test_as_good_as_scikit_learn(clusters):
    x = points()
    member = kmeans(x @ x.mT, torch.ones(4, 12, dtype=torch.bool), draws(4, clusters, attempts=60), 30)
    assert (member.sum(-1) == 1).all()
    for s in range(4):
        best = KMeans(clusters, n_init=60, random_state=1).fit(x[s].numpy()).inertia_
        assert inertia(x[s], member[s]) == pytest.approx(best)


def test_the_result_is_a_function_of_its_arguments_and_sets_do_not_meet():
    x = points()
    gram, there = x @ x.mT, torch.ones(4, 12, dtype=torch.bool)
    whole = kmeans(gram, there, draws(4, 3), 20)
    assert torch.equal(whole, kmeans(gram, there, draws(4, 3), 20))
    for s in range(4):
        assert torch.equal(whole[s], kmeans(gram[s], there[s], draws(4, 3)[s], 20))


def test_well_separated_groups_are_found_and_absent_points_are_left_out():
    x = points(sets=1, count=9)
    x = x * 0.01 + torch.tensor([0.0, 5, 10]).repeat(3)[:, None]
    there = torch.ones(1, 9, dtype=torch.bool)
    there[0, [1, 4, 7]] = False  # the whole second group
    member = kmeans(x @ x.mT, there, draws(1, 2), 20)[0]
    assert same_cluster(member[None])[0].int().tolist() == [[int(i % 3 == j % 3 and i % 3 != 1) for j in range(9)] for i in range(9)]


def test_no_more_clusters_than_different_points():
    x = points(sets=1, count=2).repeat_interleave(4, 1)
    member = kmeans(x @ x.mT, torch.ones(1, 8, dtype=torch.bool), draws(1, 5), 20)[0]
    assert (member.any(0)).sum() == 2
    alone = torch.zeros(1, 8, dtype=torch.bool)
    alone[0, 3] = True
    assert kmeans(x @ x.mT, alone, draws(1, 5), 20)[0].nonzero()[:, 0].tolist() == [3]
    nobody = kmeans(x @ x.mT, torch.zeros(1, 8, dtype=torch.bool), draws(1, 5), 20)
    assert not nobody.any() and not same_cluster(nobody).any()


def test_a_cluster_that_loses_its_last_point_draws_none_to_the_origin():
    x = torch.tensor([[2.5, 0.5], [0, -1.5], [1, 0.5], [1.5, 0.5], [0, -0.5], [-1, 0], [1, 0], [-0.5, 0]], dtype=torch.float64)
    draw = torch.tensor([[0.4576, 0.307, 0.678, 0.0523]], dtype=torch.float64)
    member = kmeans(x @ x.mT, torch.ones(8, dtype=torch.bool), draw, 10)
    assert member.int().argmax(-1).tolist() == [3, 1, 0, 0, 1, 1, 0, 1] and not member[:, 2].any()


def test_first_centres_are_spread():
    """Two far groups, two centres: k-means++ hits both in nearly every attempt, uniform centres in half of them."""
    x = points(sets=1, count=20)[0] * 0.01
    x[10:] += 100
    gram = (x @ x.T)[None].expand(200, -1, -1)
    member = kmeans(gram, torch.ones(200, 20, dtype=torch.bool), draws(200, 2, attempts=1), 0)
    split = (member[:, :10].any(1) ^ member[:, 10:].any(1)).all(-1)
    assert split.double().mean() > 0.99
