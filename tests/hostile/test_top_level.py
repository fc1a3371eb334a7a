"""Top-level keys, the names that results are filed under, and keys that nothing reads."""

from __future__ import annotations

import pytest

from tests.hostile.bed import Answer, Pool, accepted, as_expected, refused

LONG = "x" * 300
NAMES = {
    "dataset.name=../../../escaped": "filed under this name; allowed are letters",
    "dataset.name=..": "filed under this name",
    "dataset.name=a/b": "filed under this name",
    "'dataset.name=\"a\\tb\"'": "filed under this name|control characters",
    "dataset.name=''": "filed under this name",
    f"dataset.name={LONG}": r"300 characters",
    "dataset.name=null": "dataset.name",
    "'dataset.name=\"größe\"'": "filed under this name",
    "+split.name=../../x": "filed under this name|unknown key",
}
UNKNOWN = {
    "+foo=1": "foo: unknown key",
    "foo.bar=1": "foo: unknown key",
    "+algorithm._partial_=true": "_partial_: unknown key",
    "+algorithm._args_=[1]": "_args_: unknown key",
    "+dataset._partial_=true": "_partial_: unknown key",
    "+scenario.sparsity._partial_=true": "_partial_: unknown key",
    "+dataset.foo=1": "foo: unknown key of ",
    "~lr": "lr",
    "~algorithm": "algorithm",
    "~algorithm._target_": "_target_",
    "algorithm._target_=os.path": "not a class",
    "algorithm._target_=collections.OrderedDict": "is not a method",
    "algorithm._target_=": "_target_",
    "algorithm._target_=a..b": "_target_",
    "algorithm._target_=fgl_bench.no_such.X": "cannot be imported",
    "model._target_=fgl_bench.algorithms.fedavg.FedAvg": "is not a backbone|unknown key",
    "split._target_=builtins.int": "is not a split",
    "tracker._target_=builtins.int": "is not a tracker",
}
ODD = """\
import types

def nothing(**keys): return None
def mapping(**keys): return {}
def number(**keys): return 0.5
def fails(**keys): raise RuntimeError("odd")
def leaves(**keys): raise SystemExit(0)

class Hollow:
    def __init__(self, **keys): pass
    report = load = assign = layout = start = run = apply = mix = print

def hollow(**keys): return Hollow()
"""
KINDS = {
    "nothing": "NoneType",
    "mapping": "dict",
    "number": "float",
    "fails": "RuntimeError: odd",
    "leaves": "SystemExit",
    "hollow": "Hollow",
}
GROUPS = ("algorithm", "dataset", "split", "model", "optimizer", "scenario", "scenario.sparsity", "tracker")
TARGETS = {
    "algorithm._target_=os.getcwd": r"algorithm\._target_=os\.getcwd: gives a str, not a method",
    "algorithm=fedgl algorithm@algorithm.strategy=fedavg algorithm.strategy._target_=os.getcwd": r"strategy\._target_=os\.getcwd: gives",
    **{f"{group}._target_=odd.{name}": rf"{group}\._target_=odd\.{name}: .*{said}"
       for group in GROUPS for name, said in KINDS.items()
       if (group, name) not in (("scenario.sparsity", "hollow"), ("tracker", "hollow"))},
    **{f"{group}._target_=odd.Hollow": f"{group}|Hollow" for group in GROUPS if group not in ("scenario.sparsity", "tracker")},
}  # fmt: skip
TWICE = {"rounds=1 rounds=2": "Hydra takes the last of two, as its documentation says"}
FINE = {
    "lr=1e30": "a large step is a choice; scores stay scores",
    "participation=1e-9": "at least one client takes part",
    "num_clients=1": "a federation of one",
    "seeds=[9223372036854775807]": "any integer that json and the generators hold is a seed",
    "mixing_at=[-1,99999999]": "no matrix is kept where no trip is",
    "rounds=null trips=1": "a single trip is a round",
    "dataset.num_classes=1": "one class: everything is right",
    "dataset.num_edges=0": "a graph without edges",
    "'dataset.name=\"a+b.c-d_e\"'": "all signs that are allowed",
    f"dataset.name={'y' * 100}": "the longest name",
    "dtype=float64": "double precision",
    "'lr=${weight_decay}'": "an interpolation of a number is a number",
    **TWICE,
}


def test_names_stay_below_the_results_folder(pool: Pool) -> None:
    def inside(answer: Answer) -> None:
        assert not answer.left

    as_expected(pool, refused(NAMES, check=inside))


@pytest.mark.nightly
def test_keys_that_nothing_reads_are_refused(pool: Pool) -> None:
    as_expected(pool, refused(UNKNOWN))


@pytest.mark.nightly
def test_targets_that_give_no_object_of_the_group(pool: Pool) -> None:
    as_expected(pool, refused(TARGETS, files={"odd.py": ODD}))


@pytest.mark.nightly
def test_strange_values_that_are_right(pool: Pool) -> None:
    as_expected(pool, accepted(FINE))
