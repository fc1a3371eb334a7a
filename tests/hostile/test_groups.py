"""Choices of groups, options of the command line, Hydra's own keys, and sweeps."""

from __future__ import annotations

import pytest

from tests.hostile.bed import TINY, Case, Pool, T, accepted, as_expected, failures, refused

CHOICES = {
    "dataset=[cora,csbm]": "takes one choice",
    "algorithm=../dataset/cora": "no choice of algorithm",
    "dataset=/etc/passwd": "no choice of dataset",
    "model=gcn/": "no choice of model",
    "dataset=cora,csbm": "dataset",
    "dataset=csbm.yaml": "dataset=csbm",
    "dataset@model=csbm": "model|dataset",
    "algorithm@algorithm.strategy=fedavg": "takes no strategy",
    "algorithm=fedgl algorithm@algorithm.strategy=fedbuff": "supports only|strategy",
    "scenario=decentralized": "scenario=decentralized",
    "~scenario/sparsity": "sparsity",
    "schema/settings=x": "schema",
}
HYDRA = {
    "hydra.run.dir=/proc/x": "/proc/x",
    "hydra.job.chdir=maybe": "chdir",
    "hydra.nonsense=1": "nonsense",
    "hydra.sweeper.params={a:1}": "hydra.sweeper.params: not supported",
    "-m hydra.launcher._target_=os.system": "os.system",
    "hydra.searchpath=[nonsense://x]": "searchpath|nonsense|not",
    "hydra.mode=NONSENSE": "mode|NONSENSE",
}
OPTIONS = {
    "--foo": "unrecognized",
    "--experimental-rerun x": "not supported",
    "--cfg nonsense": "invalid choice",
    "--config-dir": "expected one argument",
    "--config-dir nowhere": "nowhere",
    "--config-name ../x": "x",
    "--config-path pkg://no.such": "no",
    "--cfg job --multirun": "Only one of",
    "--package nonsense --cfg job": "nonsense",
    "--shell-completion": ".",
}
SWEEPS = {
    "algorithm=fedavg,local": r"several values; add -m to run each$",
    "seeds=range(3)": r"several values; add -m to run each, or write seeds=\[0,1,2\] for a list$",
    "dataset.path=a,b.npz": r"several values; add -m to run each, or write 'dataset.path=\"a,b.npz\"' for a name with a comma$",
    "dataset=graph.npz": r"a graph of your own is dataset=custom dataset.path=graph.npz$",
    "seeds=0,1": r"several values; add -m to run each, or write seeds=\[0,1\] for a list",
    "-m algorithm=": "no choice of algorithm",
    "-m 'algorithm=choice()'": "cannot read|nothing to sweep|algorithm",
    "-m 'num_clients=range(5,5)'": "nothing to sweep over",
    "-m 'num_clients=range(1,1000000000000)'": "more than",
    "-m 'num_clients=range(1,5,0)'": "range|step",
    "-m 'lr=interval(0,1)'": "interval",
    "-m dataset=csbm,../dataset/cora": "no choice of dataset",
    "-m 'seeds=range(0,3)'": "seeds",
    "-m lr=0.1,nan": "lr",
    "-m algorithm=fedavg,fedprox algorithm.nu=1": "nu",
    "-m nonsense": "nonsense",
}
PRINTED = {
    "--cfg job": "prints the configuration",
    "--cfg all": "prints the configuration, Hydra's too",
    "--cfg hydra": "prints Hydra's configuration",
    "--info searchpath": "prints where Hydra looks",
    "--hydra-help": "prints Hydra's help",
    "--help": "prints the help",
    "--version": "prints the version",
    "--help --foo": "help is help",
}


@pytest.mark.nightly
def test_choices_of_groups(pool: Pool) -> None:
    as_expected(pool, refused(CHOICES))


@pytest.mark.nightly
def test_hydra_s_own_keys(pool: Pool) -> None:
    as_expected(pool, refused(HYDRA))


def test_options(pool: Pool) -> None:
    as_expected(pool, [*refused(OPTIONS, before=""), *accepted(PRINTED, before="", sane=False)])


def test_sweeps(pool: Pool) -> None:
    cases = [Case((*TINY.split(), *case.arguments), case.refused) for case in refused(SWEEPS, before="")]
    faults = [fault for fault in failures(pool, cases) if ": refused, but it left ['results/runs/" not in fault]  # of the other jobs
    assert not faults, "\n".join(faults)


def test_a_sweep_of_one_is_a_run(pool: Pool) -> None:
    table = {"-m lr=0.1": "one value", "-m 'lr=choice(0.1)'": "one value", "-m 'rounds=range(1,3)'": "two runs", "-m": "one run"}
    as_expected(pool, accepted(table, before=T))
