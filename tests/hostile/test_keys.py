"""No key of any choice takes a value outside its range, or that is not a number at all."""

from __future__ import annotations

import math

import pytest
import torch
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fgl_bench.config.compose import Composer
from fgl_bench.errors import UserError, ranges_of
from fgl_bench.runner.program import simulate
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import resolve
from fgl_bench.runner.validation import validate
from tests.data.graphs import CONF
from tests.hostile.keys import ALGORITHMS, MODELS, OPTIMIZERS, SCENARIOS, SPLITS, Key, bases, keys


def hostile(key: Key) -> list[object]:
    """Values that the key may not have."""
    if key.kind in ("word", "bool"):
        return ["nonsense"]
    step = 1 if key.kind.startswith("int") else 0.5
    whole = int if step == 1 else float
    below = whole(key.least if "(" in key.open else key.least - (step if key.least > 1e-3 or key.least <= 0 else key.least))
    above = [] if math.isinf(key.most) else [whole(key.most if ")" in key.open else key.most + step)]
    if key.kind.endswith("s"):
        return [[below], "abc"]
    return [below, *above, *([] if step == 1 else [float("nan")])]


def begin(cfg: DictConfig) -> None:
    """What a run does up to its end; keys that depend on the data or on the number of clients are checked when it begins."""
    validate(cfg)
    spec = resolve(cfg)
    simulate(spec, prepare(spec), torch.device("cpu"))


@pytest.fixture(scope="module")
def compose() -> Composer:
    return Composer()


@pytest.mark.parametrize(
    ("base", "keys"),
    [
        pytest.param(*each, id=" ".join(each[0].split()[7:]), marks=() if number < 3 or number % 9 == 0 else pytest.mark.nightly)
        for number, each in enumerate(bases())
    ],
)
def test_no_key_takes_what_it_does_not_allow(base: str, keys: list[Key], compose: Composer, tmp_path) -> None:
    plain = compose([*base.split(), f"results_dir={tmp_path}", f"cache_dir={tmp_path}"])
    taken = []
    for key in keys:
        for value in hostile(key):
            cfg = plain.copy()
            try:
                OmegaConf.update(cfg, key.name, value, force_add=True)
                begin(cfg)
            except OmegaConfBaseException:  # a key of the settings, which are typed
                continue
            except UserError as refusal:
                # Sizes of a generated graph are refused by what does not fit them.
                assert (key.name.rpartition(".")[2] in str(refusal) or key.name.startswith("dataset.")) and "\n" not in str(refusal)
            else:
                taken.append(f"{key.name}={value}")
    assert not taken


TABLES = {"algorithm": ALGORITHMS, "model": MODELS, "optimizer": OPTIMIZERS, "split": SPLITS, "scenario": SCENARIOS}
NARROWED = {"interval", "pseudo_nodes", "loop"}  # by other keys or by the data


@pytest.mark.parametrize("group", TABLES)
def test_the_ends_of_a_class_s_ranges_are_allowed_themselves(group: str) -> None:
    for name, text in TABLES[group].items():
        ranges = ranges_of(get_class(OmegaConf.load(CONF / group / f"{name}.yaml")._target_))
        for key in (key for key in keys(text) if key.name in ranges):
            allowed = ranges[key.name]
            assert (allowed.least, allowed.above) == (key.least, "(" in key.open) or key.name in NARROWED, f"{name}: {key}"
            assert allowed.most is None or (allowed.most, allowed.below) == (key.most, ")" in key.open), f"{name}: {key}"
