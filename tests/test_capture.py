"""State taken apart and put together: the same values, the same bits, and what was one object is one object."""

from __future__ import annotations

import collections
import functools
import gc
import json
import random
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fgl_bench.utils.capture import Capture, Uncaptured
from fgl_bench.utils.given import Given
from fgl_bench.utils.restore import Restore

HERE = ("tests",)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Frozen:
    value: Any


@dataclass
class Node:
    rebuilt = ("cache",)
    name: str
    others: list[Any] = field(default_factory=list)
    cache: dict[Any, Any] = field(default_factory=dict)


def again(value: Any, given: Given | None = None, packages: tuple[str, ...] = HERE) -> Any:
    """``value`` after a journey through JSON and copies of its memory."""
    given = given or Given({}, {})
    capture = Capture(given, packages)
    top = capture.of(value, "top")
    text = json.dumps({"top": top, **capture.finish()})
    stored = json.loads(text)
    blocks = {name: block.copy() for name, block in capture.blocks.items()}
    return Restore(stored, blocks, given, torch.device("cpu"), packages).of(stored["top"])


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2**80, 0.1, -0.0, float("inf"), "text", b"\x00\xff", (1, "a", None), (1, [2, (3,)]), [1, [2]], {1, 2},
        frozenset({"a"}), {1: "a", (2, 3): [4]}, np.float32(0.1), np.int16(-3), np.dtype("float32"), range(2, 9, 3), slice(1, None),
        torch.float64, torch.Size([2, 3]), Pair(1, [2]), Frozen([1.5]), collections.deque([1, 2], 3), collections.OrderedDict(b=1, a=2),
    ],
    ids=repr,
)  # fmt: skip
def test_plain_values_come_back_equal_and_of_their_type(value: Any) -> None:
    found = again(value)
    assert type(found) is type(value) and found == value and repr(found) == repr(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64])
def test_tensors_keep_bits_shape_strides_and_place_in_the_cache_line(dtype: torch.dtype) -> None:
    whole = torch.arange(24).view(4, 6).to(dtype)
    for view in (whole, whole.T, whole[1:3, ::2], whole[0, 0], whole[:0], whole[:1].expand(5, 6)):
        found = again(view)
        assert found.dtype == dtype and found.stride() == view.stride() and torch.equal(found, view)
        assert not view.numel() or found.data_ptr() % 64 == view.data_ptr() % 64
    odd = torch.tensor([float("nan"), -0.0]).to(torch.float32)
    assert again(odd).view(torch.int32).tolist() == odd.view(torch.int32).tolist()


def test_a_block_outlives_the_object_that_it_was_taken_from() -> None:
    """The state of a generator, for example, is a copy that nobody else holds."""
    array = np.arange(1000)
    held = weakref.ref(array)
    capture = Capture(Given({}, {}))
    capture.of(array, "draws")
    capture.finish()
    blocks = capture.blocks
    del array, capture
    gc.collect()
    assert held() is not None and blocks["draws"].tolist() == list(range(1000))
    blocks.clear()
    gc.collect()
    assert held() is None, "and not longer"


def test_names_of_one_object_and_views_of_one_memory_stay_together() -> None:
    base, node = torch.zeros(3, 4), Node("a")
    node.others += [node, base, base[1], base.unbind(), base.numpy()[2]]
    one, two = again([node, node])
    assert one is two and one.others[0] is one
    _, whole, row, rows, host = one.others
    whole += 1
    assert row.eq(1).all() and rows[2].eq(1).all() and (host == 1).all()
    apart = again([torch.ones(2), torch.ones(2)])
    apart[0] += 1
    assert apart[1].eq(1).all()


def test_arrays_of_any_kind_come_back() -> None:
    grid = np.arange(12, dtype=np.int32).reshape(3, 4)
    for array in (grid, grid[::-1], grid.T, grid[:, 1], np.array(["ab", "c"]), np.zeros((0, 2)), np.array(3.5), grid.astype(">f8")):
        found = again(array)
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)
    matrix = sp.random(5, 4, 0.4, "csr", random_state=np.random.default_rng(0))
    assert (again(matrix) != matrix).nnz == 0


def test_generators_go_on_where_they_were() -> None:
    made = [torch.Generator().manual_seed(1), np.random.default_rng(2), random.Random(3)]
    torch.rand(3, generator=made[0]), made[1].random(3), made[2].random()
    found = again(made)
    assert torch.equal(torch.rand(5, generator=found[0]), torch.rand(5, generator=made[0]))
    assert (found[1].random(5) == made[1].random(5)).all() and found[2].random() == made[2].random()


def test_a_network_and_its_optimizer_train_on_as_before() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam([{"params": network[0].parameters(), "lr": 0.1}, {"params": network[2].parameters()}], weight_decay=0.01)
    scheduler = functools.partial(torch.nn.functional.leaky_relu, negative_slope=0.3)
    x = torch.randn(8, 3)

    def step(network: Any, optimizer: Any, scheduler: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = scheduler(network(x)).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(network, optimizer, scheduler)
    copy = again((network, optimizer, scheduler))
    for _ in range(3):
        assert torch.equal(step(*copy), step(network, optimizer, scheduler))


def test_what_is_given_is_named_and_not_stored() -> None:
    held = {"features": torch.arange(10.0), "names": Frozen((1, 2))}
    given = Given({"held": held}, {"method": object()})
    value = [held["names"], held["features"][2:6], given.objects["method"]]
    capture = Capture(given, HERE)
    capture.of(value, "top")
    capture.finish()
    assert not capture.blocks
    found = again(value, given)
    assert found[0] is held["names"] and found[2] is given.objects["method"]
    held["features"] += 1
    assert found[1].tolist() == [3, 4, 5, 6]


def test_what_a_class_rebuilds_is_left_out() -> None:
    assert again(Node("a", cache={"x": lambda: 0})).cache == {}


class Foreign:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (iter([1]), "list_iterator"), ((x for x in ()), "generator"), (lambda: 0, "function that has no name"), (open, "function"),
        (np.array([object()]), "array of objects"), (torch.eye(2).to_sparse(), "layout"), (object(), "builtins.object"),
    ],
    ids=["iterator", "generator", "lambda", "builtin", "objects", "sparse", "object"],
)  # fmt: skip
def test_what_cannot_be_stored_is_named(value: Any, words: str) -> None:
    with pytest.raises(Uncaptured, match=rf"top\['here'\] \(.*{words}"):
        again({"here": value})


def test_objects_of_other_packages_are_not_taken_apart() -> None:
    with pytest.raises(Uncaptured, match="Foreign"):
        again(Foreign(), packages=())


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:Popen", "builtins:eval", "fgl_bench.runner.started:subprocess.Popen", "torch:hub.load", "torch:load"]
)
def test_no_other_function_or_class_is_looked_up(name: str) -> None:
    for entry in ({"function": name}, {"class": name}, {"object": name, "attributes": {}}):
        with pytest.raises((ValueError, TypeError)):
            Restore({"table": [entry], "places": []}, {}, Given({}, {}), torch.device("cpu"), HERE).of({"@": 0})
