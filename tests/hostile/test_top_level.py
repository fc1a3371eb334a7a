"""Top-level keys, the names that results are filed under, and keys that nothing reads."""

from __future__ import annotations

import pytest

from tests.hostile.bed import Answer, Pool, accepted, as_expected, refused

LONG = "x" * 300
NAMES = {
    "dataset.name=../../../escaped": "filed under this name; allowed are letters",
    "dataset.name=/abs": "filed under this name",
    "dataset.name=..": "filed under this name",
    "dataset.name=.hidden": "filed under this name",
    "dataset.name=a/b": "filed under this name",
    "dataset.name='a b'": "filed under this name|cannot read",
    "'dataset.name=\"a\\tb\"'": "filed under this name|control characters",
    "dataset.name=''": "filed under this name",
    "'dataset.name=\"\"'": "filed under this name",
    f"dataset.name={LONG}": r"300 characters",
    "dataset.name=null": "dataset.name",
    "'dataset.name=\"größe\"'": "filed under this name",
    "'dataset.name=\"a\\\\b\"'": "filed under this name",
    "'dataset.name=\"*\"'": "filed under this name",
    "'dataset.name=\"${no.such.key}\"'": "no",
    "+split.name=../../x": "filed under this name|unknown key",
    "+algorithm.name=../../x": "filed under this name|unknown key",
    "+scenario.name=../../x": "filed under this name|unknown key",
    "+scenario.sparsity.name=../x": "filed under this name|unknown key",
}
UNKNOWN = {
    "+foo=1": "foo: unknown key",
    "+algorithms.mu=1": "algorithms: unknown key",
    "foo=1": "foo: unknown key",
    "foo.bar=1": "foo: unknown key",
    "+algorithm._partial_=true": "_partial_: unknown key",
    "+algorithm._recursive_=false": "_recursive_: unknown key",
    "+algorithm._convert_=all": "_convert_: unknown key",
    "+algorithm._args_=[1]": "_args_: unknown key",
    "+model._partial_=true": "_partial_: unknown key",
    "+dataset._partial_=true": "_partial_: unknown key",
    "+split._args_=[1,2]": "_args_: unknown key",
    "+scenario._partial_=true": "_partial_: unknown key",
    "+scenario.sparsity._partial_=true": "_partial_: unknown key",
    "+tracker._partial_=true": "_partial_: unknown key",
    "+scenario.sparsity.foo=1": "foo: unknown key",
    "+dataset.foo=1": "foo: unknown key",
    "+model.hiden=1": "hiden: unknown key",
    "~lr": "lr",
    "~algorithm": "algorithm",
    "~dataset.name": "name",
    "~algorithm._target_": "_target_",
    "algorithm._target_=os.system": "algorithm|mix|cannot",
    "algorithm._target_=os.path": "not a class",
    "algorithm._target_=collections.OrderedDict": "is not a method",
    "algorithm._target_=fgl_bench.data.datasets.csbm.CSBM": "CSBM|is not a method",
    "algorithm._target_=": "_target_",
    "algorithm._target_=5": "_target_",
    "algorithm._target_=null": "_target_",
    "algorithm._target_=[a]": "_target_",
    "algorithm._target_=.x": "_target_",
    "algorithm._target_=a..b": "_target_",
    "algorithm._target_=fgl_bench.no_such.X": "cannot be imported",
    "model._target_=fgl_bench.algorithms.fedavg.FedAvg": "is not a backbone|unknown key",
    "dataset._target_=builtins.print": "dataset",
    "split._target_=builtins.int": "is not a split",
    "scenario._target_=builtins.int": "is not a scenario",
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
VALUES = {
    "seeds=[]": "at least one integer",
    "seeds=[1,1]": "distinct",
    "seeds=[-1]": "allowed: 0 or more",
    "seeds=[0.5]": "seeds",
    "seeds=[nan]": "seeds",
    "seeds=[abc]": "seeds",
    "seeds=[[0]]": "seeds",
    "seeds=null": "seeds",
    "seeds=0": "seeds",
    "seeds={a:1}": "seeds",
    "seeds=[99999999999999999999]": "at most",
    "num_clients=99999999999999999999": "num_clients",
    "num_clients=121": "num_clients=121",
    "num_clients=true": "num_clients",
    "num_clients=0x3": "num_clients",
    "rounds=0 ": "rounds=0",
    "rounds=-1": "rounds=-1",
    "rounds=1e3": "rounds",
    "rounds=2000000000": "allowed: 1 to 1000000000",
    "trips=7 rounds=1": "contradict",
    "lr=0": "lr=0",
    "lr=-0.0": "lr=-0",
    "lr=inf": "lr",
    "lr=-nan": "lr",
    "weight_decay=-1e-9": "weight_decay",
    "participation=0": "participation",
    "participation=1.0000001": "participation",
    "targets=[nan]": "targets",
    "targets=[2]": "targets",
    "targets=[0.5,0.5000001]": "targets",
    "targets=0.5": "targets",
    "metrics=[nonsense]": "metrics",
    "metrics=auc": "metrics",
    "mixing_at=[abc]": "mixing_at",
    "threads=100000": "threads=100000 is out of range; allowed: 1 to 1024",
    "threads=0": "threads",
    "memory_budget_gb=0": "memory_budget_gb",
    "checkpoint_minutes=0": "checkpoint_minutes",
    "checkpoint_minutes=often": "checkpoint_minutes",
    "keep_models=all": "keep_models",
    "memory_budget_gb=-inf": "memory_budget_gb",
    "memory_budget_gb=1e300": "memory_budget_gb",
    f"algorithm=fedprox algorithm.mu={'1' * 400}": "algorithm.mu: a number of 400 digits",
    f"num_clients={'1' * 5000}": "num_clients: a number of 5000 digits",
    f"mixing_at=[{','.join(map(str, range(20000)))}]": "mixing_at=.*at most 1000",
    "out_of_core=yes": "out_of_core=yes: must be one of auto, true, false",
    "~experiment": "experiment=null",
    f"results_dir={'x/' * 2000}": "results_dir=",
    "algorithm=fedaas model=gat split=iid_server scenario/sparsity=label scenario.sparsity.rate=1": "no client has a training node left",
    "device=tpu": "device",
    "device=cuda:99": "device",
    "device=' '": "device|cannot read",
    "dtype=float16": "dtype",
    "feature_dtype=int8": "feature_dtype",
    "out_of_core=maybe": "out_of_core",
    "out_of_core=null": "out_of_core",
    "shard=rows": "shard",
    "opt_state=KEEP": "opt_state",
    "cuda_graphs=true": "cuda_graphs",
    "batch_nodes=4": "batch_nodes=4",
    "dataset.metric=auc": "auc",
    "dataset.metric=auc dataset.num_classes=3": "auc",
    "metrics=[auc]": "auc",
    "dataset=null": "dataset",
    "algorithm=5": "algorithm=5",
    "algorithm={a:1}": "algorithm",
    "split.ratios=[0.5,0.5]": "split.ratios",
    "split.ratios=[nan,0.1,0.1]": "split.ratios",
    "split.ratios=[1,0,0]": "split.ratios",
    "split.ratios=abc": "split.ratios",
    "split.ratios=[a,b,c]": "split.ratios",
    "split.ratios=[-0.1,0.5,0.5]": "split.ratios",
    "split.per_seed=[nonsense]": "split.per_seed",
    "split.per_seed=null": "split.per_seed",
    "dataset.ratios=[2,2,2]": "dataset.ratios",
    "dataset.ratios=null": "dataset.ratios",
    "dataset.num_nodes=1000000000000": "memory|num_nodes|num_edges",
    "dataset.num_features=100000000000000": "memory|num_features",
    "model.hidden=1000000000000": "memory",
    "'lr=${lr}'": "lr",
    "'lr=${no_such}'": "no_such",
    "'lr=${oc.env:NO_SUCH_VARIABLE}'": "NO_SUCH_VARIABLE",
    "'lr=${oc.env:HOME}'": "lr",
    "'data_dir=${'": "data_dir",
    "'lr=${nonsense:1}'": "nonsense",
    "'num_clients=\"3\\n\\n4\"'": "num_clients",
    "=": "Could not override",
    "=1": "group|no choice",
    "lr": "cannot read",
    "results_dir=~/x": """'results_dir="~/x"'""",
    "'lr = 1 2'": "lr|cannot read",
    "lr=": "lr",
    "'[lr]=1'": "cannot read",
    "lr==1": "lr|cannot read",
    "'lr=\"'": "cannot read",
    "@lr=1": "no choice|cannot read",
    "lr@x=1": "lr",
    "scenario.deadline=nan": "deadline",
    "scenario.deadline=inf": "deadline",
    "scenario.deadline=0": "deadline",
    "scenario.lag=[5,2]": "lag",
    "scenario.lag=[1]": "lag",
    "scenario.lag=[0,2]": "lag",
    "scenario.lag=null": "lag",
    "scenario.lag=[nan,2]": "lag",
}
TWICE = {"rounds=1 rounds=2": "Hydra takes the last of two, as its documentation says"}
FINE = {
    "lr=1e30": "a large step is a choice; scores stay scores",
    "lr=1e-300": "nothing is learned, which is what was asked for",
    "weight_decay=1e30": "a large penalty is a choice",
    "participation=1e-9": "at least one client takes part",
    "num_clients=20": "six nodes a client",
    "num_clients=1": "a federation of one",
    "seeds=[9223372036854775807]": "any integer that json and the generators hold is a seed",
    "targets=[]": "no target is reported",
    "targets=[0,1]": "the ends of what an accuracy can be",
    "mixing_at=[-1,99999999]": "no matrix is kept where no trip is",
    "eval_every=1000000000": "scores at the ends only",
    "rounds=null trips=1": "a single trip is a round",
    "dataset.num_classes=1": "one class: everything is right",
    "dataset.homophily=0": "a heterophilous graph",
    "dataset.num_edges=0": "a graph without edges",
    "dataset.words_per_node=null": "dense features, as the class says",
    "dataset.name=0": "a digit is a name",
    "dataset.name=-": "a dash is a name",
    "'dataset.name=\"a+b.c-d_e\"'": "all signs that are allowed",
    f"dataset.name={'y' * 100}": "the longest name",
    "'dataset.name=\"${lr}\"'": "0.01 is a name",
    "dtype=float64": "double precision",
    "out_of_core=true dataset.words_per_node=null": "a graph in files gives the same",
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


def test_targets_that_give_no_object_of_the_group(pool: Pool) -> None:
    as_expected(pool, refused(TARGETS, files={"odd.py": ODD}))


@pytest.mark.nightly
def test_values_of_top_level_keys(pool: Pool) -> None:
    as_expected(pool, refused(VALUES))


def test_strange_values_that_are_right(pool: Pool) -> None:
    as_expected(pool, accepted(FINE))
