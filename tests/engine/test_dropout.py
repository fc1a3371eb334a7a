"""Dropout masks: what they depend on, what they must not depend on, and whether they look random."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fgl_bench.engine.dropout import Dropout, Layers, StepKeys, _mask, no_dropout
from fgl_bench.engine.random_numbers import mix, step_key
from fgl_bench.utils.seeding import derive_seed

N, H = 200, 16


def streams(count):
    return torch.tensor([derive_seed(0, "training", i) for i in range(count)])


def mask(key, nodes=N, units=H, rate=0.5, layer=1):
    dropout, ones = Dropout(rate, key), torch.ones(len(key), nodes, units, dtype=torch.float64)
    for _ in range(layer):
        out = dropout(ones)
    return out


def key(count=3, trip=0, epoch=0):
    return step_key(streams(count), torch.full((count,), trip), epoch)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_keep_rate_and_mean(rate):
    out = mask(key(4), nodes=2000, units=32, rate=rate)
    count = out.numel()
    kept = (out > 0).double().mean().item()
    assert kept == pytest.approx(1 - rate, abs=5 * (rate * (1 - rate) / count) ** 0.5 + 2**-16)
    # Kept units are scaled by exactly one over their probability (of the rate as resolved to 1/65,536).
    assert set(out.unique().tolist()) == {0.0, 65536 / (65536 - round(rate * 65536))}
    assert out.mean().item() == pytest.approx(1, abs=5 * (rate / (1 - rate) / count) ** 0.5)


def test_the_ends_of_the_range():
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    assert Dropout(0.0, key(2))(x) is x and no_dropout(x) is x
    assert not Dropout(1.0, key(2))(x).any()


def test_a_mask_does_not_depend_on_who_shares_the_batch():
    together = mask(key(6))
    for rows in ([0], [5, 2], [1, 3, 4, 0]):
        assert torch.equal(mask(key(6)[rows]), together[rows])


def test_a_mask_does_not_depend_on_padding():
    for nodes in (1, 7, N - 1):
        assert torch.equal(mask(key(), nodes=nodes), mask(key())[:, :nodes])


def test_masks_of_different_steps_layers_and_replicas_are_unrelated():
    """Neighbours on every axis agree in half of their units, as independent fair coins do."""
    masks = {
        ("trip", trip, "epoch", epoch, "layer", layer, "replica", replica): (out > 0).double() * 2 - 1
        for trip in (0, 1, 2) for epoch in (0, 1, 2) for layer in (1, 2)
        for replica, out in enumerate(mask(key(3, trip, epoch), layer=layer))
    }  # fmt: skip
    flat = torch.stack([m.flatten() for m in masks.values()])
    agreement = flat @ flat.T / flat.shape[1]
    assert agreement.fill_diagonal_(0).abs().max() < 5.5 / flat.shape[1] ** 0.5


def test_mix_is_splitmix64():
    """The first outputs of SplitMix64 from seed 1234567, as published with the algorithm's reference code."""
    golden = -7046029254386353131
    state = torch.tensor([1234567], dtype=torch.int64) + torch.arange(1, 4) * golden
    assert [int(x) % 2**64 for x in mix(state)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_deep_networks_have_a_mask_for_every_layer():
    dropout, ones = Dropout(0.5, key()), torch.ones(3, N, H)
    masks = [dropout(ones) for _ in range(6)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(masks, 2))


@pytest.mark.parametrize("epochs", [1, 3, 100])
def test_keys_of_many_trips_at_once_are_those_of_each(epochs):
    own, x = streams(3), torch.ones(3, 7, 6)
    ahead = StepKeys(own, epochs)
    for trip in (0, 1, 63, 64, 200, 3):
        for epoch in (0, epochs - 1):
            alone = step_key(own, torch.full((3,), trip), epoch)
            together, layers = ahead.of(trip, epoch)
            assert torch.equal(together, alone)
            one, other = Dropout(0.5, alone), Dropout(0.5, together, Layers(layers))
            for _ in range(StepKeys.LAYERS + 2):
                assert torch.equal(one(x), other(x))


@pytest.mark.parametrize("epochs", [1, 3])
def test_masks_made_for_trips_to_come_are_those_of_each(epochs):
    own, x, threshold = streams(3), torch.ones(3, 7, 6), -100
    ahead, made = StepKeys(own, epochs), 0
    for trip in (0, 1, 15, 16, 63, 64, 200, 3):
        for epoch in (0, epochs - 1):
            _, layers = ahead.of(trip, epoch)
            for call in (1, StepKeys.LAYERS):
                mask = ahead.mask(trip, epoch, call, x, threshold)
                assert torch.equal(mask, _mask(layers[call - 1], x, threshold))
                made += 1
            assert ahead.mask(trip, epoch, StepKeys.LAYERS + 1, x, threshold) is None, "no key is held for it"
    assert made and ahead.mask(3, 0, 1, torch.ones(3, 2000, 2000), threshold) is None, "two do not fit"


def test_replicas_at_trips_of_their_own_draw_as_those_that_go_together():
    own, rows, done = streams(6), (4, 0, 5), np.array([3, 0, 0, 0, 700, 2**40])
    ahead = StepKeys(own, 2)
    for epoch in (0, 1):
        index = torch.tensor(rows)
        found, layers = ahead.step(rows, index, done, epoch)
        assert torch.equal(found, step_key(own[index], torch.from_numpy(done)[index], epoch))
        one, other = Dropout(0.5, found, layers), Dropout(0.5, found)
        for _ in range(StepKeys.LAYERS + 2):
            x = torch.ones(3, 4, 5)
            assert torch.equal(one(x), other(x))
    together, _ = ahead.step(tuple(range(6)), slice(None), np.full(6, 9), 1)
    assert torch.equal(together, step_key(own, torch.full((6,), 9), 1))
