"""Workers that share the clients of a seed have together what one has that trains them all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fgl_bench.engine import shard as shards
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Blockwise, Mixing, alone, normalize, product
from fgl_bench.engine.shard import Shard
from tests.engine.worlds import together

SEEDS, CLIENTS, SIZE = 2, 5, 7
LAYOUT = ParameterLayout({"w": (2, 2), "b": (3,)})


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(parts, 1)


def test_every_client_has_one_worker_and_all_workers_almost_the_same_number() -> None:
    for size in (1, 2, 3, 5):
        parts = Shard(13, SimpleNamespace(size=size, rank=0)).parts
        assert np.concatenate([np.arange(13)[part] for part in parts]).tolist() == list(range(13))
        assert max(part.stop - part.start for part in parts) - min(part.stop - part.start for part in parts) <= 1


def block(name: str) -> Callable[[torch.Tensor, ParameterLayout], torch.Tensor]:
    return lambda flat, layout: layout.view(flat, name)


MIXINGS = {
    "one row for all": lambda weights: Mixing(weights[:, :1]),
    "a row each": lambda weights: Mixing(weights),
    "some receive": lambda weights: Mixing(weights, receivers=torch.arange(CLIENTS).expand(SEEDS, -1) % 2 == 0),
    "a row for all and some receive": lambda weights: Mixing(weights[:, :1], receivers=torch.arange(CLIENTS).expand(SEEDS, -1) % 2 == 0),
    "some parameters": lambda weights: Mixing(weights, shared=("b",)),
    "blocks": lambda weights: Blockwise(weights, blocks=((weights, block("w")), (weights[:, :1], block("b")))),
    "nobody": lambda weights: alone(torch.ones(SEEDS, CLIENTS, dtype=torch.bool)),
}  # fmt: skip


@pytest.mark.parametrize("size", (2, 3, 5))
@pytest.mark.parametrize("kind", MIXINGS)
def test_models_are_mixed_as_by_one_worker(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PIECE", 3 * SEEDS * CLIENTS)  # three columns at a time
    mixing = MIXINGS[kind](normalize(random(SEEDS, CLIENTS, CLIENTS).abs()))
    models, received, trained = random(SEEDS, CLIENTS, SIZE), random(SEEDS, CLIENTS, SIZE) + 1, random(SEEDS, CLIENTS, SIZE) - 1
    whole = mixing.apply(models, received.clone(), LAYOUT, trained)

    def job(world):
        mine = Shard(CLIENTS, world)
        return mixing.apply(*(mine.of(each).clone() for each in (models, received)), LAYOUT, mine.of(trained).clone(), mine)

    torch.testing.assert_close(joined(together(size, job)), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", (1, CLIENTS))
def test_peers_average_as_one_worker_does_in_double_precision(rows: int) -> None:
    matrix, models = normalize(random(SEEDS, rows, CLIENTS).abs()), random(SEEDS, CLIENTS, SIZE).float()

    def job(world):
        mine = Shard(CLIENTS, world)
        return product(matrix.float(), mine.of(models), mine)

    whole, parts = product(matrix.float(), models), together(2, job)
    assert parts[0].dtype == torch.float32
    assert torch.equal(parts[1] if rows == 1 else joined(parts), whole)  # the last bits are those of double precision


def test_means_and_rows_of_all() -> None:
    models = random(SEEDS, CLIENTS, SIZE)

    def job(world):
        mine = Shard(CLIENTS, world)
        return mine.mean(mine.of(models)), mine.whole(mine.of(models))

    for mean, whole in together(3, job):
        torch.testing.assert_close(mean, models.mean(1, keepdim=True), rtol=0, atol=1e-12)
        assert torch.equal(whole, models)


CHOSEN = {
    "all": np.ones((SEEDS, CLIENTS), dtype=bool),
    "some": np.array([[True, False, True, False, True], [False, True, False, False, True]]),
    "none of one worker": np.array([[False, False, True, False, True], [False, False, False, True, True]]),
    "none of the last": np.array([[True, True, False, False, False], [True, False, False, False, False]]),
}


@pytest.mark.parametrize("who", CHOSEN)
def test_reports_of_any_shape_and_type_come_in_the_order_of_the_clients(who: str) -> None:
    chosen, count = CHOSEN[who], SEEDS * CLIENTS
    reports = {
        "scalar": random(count), "moments": random(count, 2, 3).float(), "steps": torch.arange(count), "able": torch.arange(count) % 3 == 0,
        "half": random(count, 3).bfloat16(),
    }  # fmt: skip
    numbers = np.arange(count).reshape(SEEDS, CLIENTS)

    def job(world):
        mine = Shard(CLIENTS, world)
        rows = numbers[:, mine.own][chosen[:, mine.own]]
        own = {name: value[rows] for name, value in reports.items() if rows.size}
        return mine.rows(mine.named(own, chosen, torch.device("cpu")), chosen)

    for found in together(2, job):
        assert list(found) == list(reports)
        assert all(torch.equal(found[name], value[numbers[chosen]]) for name, value in reports.items())


def test_nothing_is_copied_where_there_is_one_worker() -> None:
    models, mine = random(SEEDS, CLIENTS, SIZE), Shard(CLIENTS)
    assert mine.of(models).data_ptr() == models.data_ptr() and mine.whole(models) is models
    assert mine.rows({"a": models}, CHOSEN["all"])["a"] is models
