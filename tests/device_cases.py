"""Small runs on the pretended device, and what is recorded of them: ``python -m tests.device_cases`` writes both tables anew.

``device_waits.csv`` says for what and in which function the host waits for the device, ``device_launches.csv`` how many kernels are
launched; both are means over a run's steady rounds.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from hydra.utils import get_class
from omegaconf import OmegaConf

from fgl_bench.config.choices import config_folder
from fgl_bench.data.graph import Federation
from fgl_bench.evaluation.history import Outcome
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import RunSpec
from tests.pretend_cuda import Ledger, on_cpu, on_pretended, spec_of

HERE = Path(__file__).parent
WAITS, LAUNCHES = HERE / "device_waits.csv", HERE / "device_launches.csv"

SMALL = [
    "dataset=csbm", "dataset.num_nodes=160", "dataset.num_edges=420", "dataset.num_features=24", "dataset.words_per_node=4",
    "dataset.num_classes=3", "num_clients=4", "seeds=[0,1]", "mixing_at=[]", "rounds=5", "dtype=float64", "device=cpu", "progress=false",
    "memory_budget_gb=20",
]  # fmt: skip
QUICK = {  # what makes a method's run short
    **dict.fromkeys(("adafgl", "fedavg_finetune", "fedbabu"), "algorithm.federated_rounds=1"),
    "fedtad": "algorithm.outer=1 algorithm.generator_steps=1 algorithm.student_steps=1 algorithm.pseudo_nodes=12",
    "fedtgp": "algorithm.server_epochs=2",
    "feddep": "algorithm.gen_hidden=[16] algorithm.encoder_epochs=1 algorithm.cluster_epochs=[1,1,1]",
    "fedsage_plus": "algorithm.gen_rounds=1 algorithm.gen_hidden=[16] algorithm.latent=8",
    **dict.fromkeys(("fedaas", "fedaas2"), "algorithm.batches=4 algorithm.interval=2"),
    **dict.fromkeys(("fedcross", "fedgraph", "graphfed", "fedall", "fedaas1", "fedlocal", "fedpns"), "algorithm.batches=3"),
    "fediih": "model.width=8 model.layers=2 model.iterations=2",
    **dict.fromkeys(("gcfl", "gcfl_plus"), "algorithm.warmup=1"),
    "dfed_sst": "algorithm.refresh=2",
}
HALF = ("fedavg", "fedgta", "fedssa", "fed_pub", "fediih", "fedgl", "moon", "scaffold", "feddc", "fedprox", "fedgnn", "gcfl", "fedtad",
        "adafgl", "fedsage_plus")  # fmt: skip
VARIANTS = {
    **{f"{name} half": f"algorithm={name} participation=0.5 local_epochs=2 mixing_at=[2,4]" for name in HALF},
    "fedavg half reset": "algorithm=fedavg participation=0.5 opt_state=reset",
    "fedavg chunk": "algorithm=fedavg chunk=3",
    "fedavg chunk reset": "algorithm=fedavg chunk=3 opt_state=reset",
    **{f"fedavg {name}": f"algorithm=fedavg optimizer={name} participation=0.5" for name in ("sgd", "adamw")},
    "fedavg sgd momentum": "algorithm=fedavg optimizer=sgd optimizer.momentum=0.9 optimizer.nesterov=true opt_state=reset",
    "fedavg sgd momentum half": "algorithm=fedavg optimizer=sgd optimizer.momentum=0.9 participation=0.5",
    "fedsa_gcl atomic": "algorithm=fedsa_gcl scenario.fast_trips=atomic scenario.staleness_from=upload trips=40 rounds=10",
    "global served": "algorithm=global split=iid_server metrics=[macro_f1]",
    "fedavg deadline": "algorithm=fedavg scenario.deadline=2 scenario.slow_fraction=0.5",
    "fedavg bfloat16": "algorithm=fedavg feature_dtype=bfloat16 dataset.words_per_node=null",
    "fedavg inductive": "algorithm=fedavg split.inductive=true",
    "fedavg on disk": "algorithm=fedavg out_of_core=true dataset.words_per_node=null",
    "fedavg on disk chunk": "algorithm=fedavg out_of_core=true dataset.words_per_node=null chunk=3",
    "fedavg auc": "algorithm=fedavg dataset.num_classes=2 dataset.metric=auc",
    "fedavg served": "algorithm=fedavg split=iid_server metrics=[macro_f1,auc_ovr]",
    "gamlp batch_nodes": "algorithm=fedavg model=gamlp batch_nodes=4",
    "gamlp bfloat16": "algorithm=fedavg model=gamlp feature_dtype=bfloat16 dataset.words_per_node=null",
    "sgc batch_nodes sparse": "algorithm=fedavg model=sgc batch_nodes=4 local_epochs=2 dataset.num_features=300 dataset.words_per_node=6",
    "gat v2 heads": "algorithm=fedavg model=gat model.version=v2 model.heads=4 model.attn_dropout=0.5",
    "unifilter dropouts": "algorithm=fedavg model=unifilter model.input_dropout=0.3 model.basis_dropout=0.3 model.homophily=global",
    "unifilter rates": "algorithm=fedavg model=unifilter model.per_feature=true model.filter_lr=0.05 participation=0.5",
    "fedgta chunk": "algorithm=fedgta chunk=3",
    "fedssa chunk": "algorithm=fedssa chunk=3",
    "fed_pub chunk": "algorithm=fed_pub chunk=3",
    "fediih elbo half": "algorithm=fediih participation=0.5 algorithm.elbo_weight=1 algorithm.inference=learned model.iterations=2",
    "fedgl pseudo graph": "algorithm=fedgl participation=0.5 algorithm.pseudo_graph=0.3",
    "fedgnn ldp": "algorithm=fedgnn participation=0.5 algorithm.ldp=true",
    "fedsage_plus fedgta": "algorithm=fedsage_plus algorithm@algorithm.strategy=fedgta",
    "dfed_sst links": "algorithm=dfed_sst scenario.link_failure=0.3 mixing_at=[4,8]",
    "dfed_sst features": "algorithm=dfed_sst algorithm.similarity_of=features algorithm.selection=random",
    "d_psgd lian": "algorithm=d_psgd algorithm.order=lian local_epochs=2",
    "dfedavgm bits": "algorithm=dfedavgm algorithm.bits=8",
    "fedsa_gcl picture": "algorithm=fedsa_gcl mixing_at=[8,16] trips=40 rounds=10",
    "fedsa_gcl moments": "algorithm=fedsa_gcl algorithm.clusters=moments algorithm.merge=before_upload trips=40 rounds=10",
    "fedsa_gcl lsc": "algorithm=fedsa_gcl algorithm.lsc=fedgta trips=40 rounds=10",
    "fedssa detached": "algorithm=fedssa algorithm.encoder=detached",
    **{f"{name} graphs": f"algorithm={name} rounds=7 cuda_graphs=true" for name in ("fedavg", "fedgta", "fedssa", "fednova")},
    "fediih graphs": "algorithm=fediih algorithm.elbo_weight=1 algorithm.inference=learned model.iterations=2 rounds=7 cuda_graphs=true",
    "fedproto own backbones": "algorithm=fedproto model=gcn+gat+graphsage participation=0.5 local_epochs=2",
    "fedproto own backbones graphs": "algorithm=fedproto model=gcn+gat+graphsage algorithm.prediction=prototypes rounds=7 cuda_graphs=true",
    "fedssa half graphs": "algorithm=fedssa participation=0.5 rounds=7 cuda_graphs=true",
    "fedaas v2 sparse": "algorithm=fedaas model.version=v2 model.heads=2 dataset.num_features=300 dataset.words_per_node=6",
}


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (config_folder() / group).glob("[!_]*.yaml"))


METHODS = _choices("algorithm")
CASES = {
    **{name: f"algorithm={name}" for name in METHODS},
    **{f"fedavg on {name}": f"algorithm=fedavg model={name}" for name in _choices("model")},
    **VARIANTS,
}


def settings(case: str) -> tuple[list[str], int | None]:
    """The overrides of a case, and how many replicas it trains at once."""
    words = CASES[case].split()
    chunk = next((int(word.removeprefix("chunk=")) for word in words if word.startswith("chunk=")), None)
    words = [word for word in words if not word.startswith("chunk=")]
    method = words[0].removeprefix("algorithm=")
    target = OmegaConf.load(config_folder() / "algorithm" / f"{method}.yaml")._target_
    pairing = () if "model=" in CASES[case] else get_class(target).pairing.items()
    return [*(f"{group}={choice}" for group, choice in pairing), *QUICK.get(method, "").split(), *words], chunk


def prepared(case: str, folder: Path) -> tuple[RunSpec, list[Federation], int | None]:
    """The run, its federations and how many replicas it trains at once."""
    words, chunk = settings(case)
    spec = spec_of([*SMALL, *words, f"cache_dir={folder}"])
    return spec, prepare(spec), chunk


def run(case: str, folder: Path) -> tuple[Outcome, Outcome, Ledger]:
    """On the CPU and on the pretended device, and the latter's ledger."""
    arguments = prepared(case, folder)
    return on_cpu(*arguments), *on_pretended(*arguments)


def waits(ledger: Ledger) -> dict[tuple[str, str], float]:
    """(what for, function) to waits a round."""
    return {key: round(count, 2) for key, count in sorted(ledger.mean(ledger.waits).items())}


def launches(ledger: Ledger) -> float:
    return round(sum(ledger.mean(ledger.launches).values()), 1)


def recorded_waits() -> dict[str, dict[tuple[str, str], float]]:
    table: dict[str, dict[tuple[str, str], float]] = {}
    with WAITS.open(newline="") as file:
        for row in csv.DictReader(file):
            table.setdefault(row["case"], {})[row["reason"], row["function"]] = float(row["count"])
    return table


def recorded_launches() -> dict[str, float]:
    with LAUNCHES.open(newline="") as file:
        return {row["case"]: float(row["launches"]) for row in csv.DictReader(file)}


def record(cases: list[str]) -> None:
    """Write what these cases do, all of them where none is named, in place of what was recorded."""
    waited, launched = ({}, {}) if not cases else (recorded_waits(), recorded_launches())
    with tempfile.TemporaryDirectory() as folder:
        for case in cases or CASES:
            begin = time.process_time()
            _, _, ledger = run(case, Path(folder))
            waited[case], launched[case] = waits(ledger), launches(ledger)
            total, atomics = sum(waited[case].values()), sum(ledger.mean(ledger.atomics).values())
            seconds = time.process_time() - begin
            print(f"{case:24} {launched[case]:8g} launches {total:7g} waits {atomics:5g} atomics {seconds:6.2f} s", flush=True)
    with WAITS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["case", "reason", "function", "count"])
        table.writerows([case, *what, f"{count:g}"] for case in CASES for what, count in waited.get(case, {}).items())
    with LAUNCHES.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["case", "launches"])
        table.writerows([case, f"{launched[case]:g}"] for case in CASES if case in launched)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    record(sys.argv[1:])
