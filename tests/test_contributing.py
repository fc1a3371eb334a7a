"""CONTRIBUTING.md: its methods keep all promises, and its table has every hook."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.fednova import FedNova
from fgl_bench.cli.check import examine
from fgl_bench.scenarios.hooks import OWNERS, hooks
from tests.reference.small import small_federation
from tests.small_runs import simulate, synchronous
from tests.warm import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {re.search(r"class (\w+)", text)[1]: text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S)}
KEYS = {"FedNova": [], "Blend": ["algorithm.alpha=0.5"], "LazyRing": ["algorithm.keep=0.3"]}
ROWS = re.findall(r"^\| `(\w+)` \| (\**)`(\w+)`\** \|", PAGE, re.M)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_keeps_all_promises(name, tmp_path, capsys):
    path = tmp_path / f"example_{name.lower()}.py"
    path.write_text(EXAMPLES[name], encoding="utf-8")
    assert examine(str(path), KEYS[name]) == 0, capsys.readouterr().out


def test_there_is_one_for_every_scenario():
    assert EXAMPLES.keys() == KEYS.keys()


def test_fednova_of_the_page_is_the_package_s():
    space: dict = {}
    exec(EXAMPLES["FedNova"], space)  # noqa: S102 (our own page)
    federations = [small_federation(seed) for seed in (0, 1)]
    one, other = (simulate(federations, method(), synchronous(), local_epochs=2) for method in (space["FedNova"], FedNova))
    assert all(torch.equal(a[0], b[0]) for x, y in zip(one.trips, other.trips, strict=True) for a, b in zip(x, y, strict=True))


def test_the_table_has_every_hook():
    told = [(base, hook) for base, _, hook in ROWS]
    expected = [(base.__name__, hook) for base in (Algorithm, *OWNERS) for hook in hooks(base)]
    assert sorted(told) == sorted(expected)


def test_what_must_be_there_is_bold():
    bases = {base.__name__: base for base in (Algorithm, *OWNERS)}
    for base, bold, hook in ROWS:
        assert bool(bold) == getattr(getattr(bases[base], hook), "__isabstractmethod__", False), (base, hook)


def test_every_hook_says_what_it_does():
    for base in (Algorithm, *OWNERS):
        assert base.__doc__
        for hook in hooks(base):
            assert inspect.getdoc(getattr(base, hook)), (base, hook)
