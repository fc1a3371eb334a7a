"""The top-level keys and the rules between them, with errors that a person can act on.

Values and their one-line explanations are in ``conf/config.yaml``; types are here.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Optional

from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf

from fgl_bench.errors import UserError, one_of, require
from fgl_bench.groups import build, check_role, label
from fgl_bench.pairing import suited
from fgl_bench.processes import import_torch
from fgl_bench.values import check_keys, check_name, check_values

DEFAULT_TRIPS = 2000
GROUPS = ("dataset", "split", "model", "algorithm", "scenario", "scenario.sparsity", "tracker")
CHOICES = {
    "opt_state": ("persist", "reset"),
    "agg_weight": ("train", "nodes"),
    "eval_weight": ("test", "nodes"),
    "dtype": ("float32", "float64"),
    "feature_dtype": (None, "bfloat16"),
    "out_of_core": ("auto", True, False),
}
LEAST = {"layers": 1, "hops": 0, "hidden": 1}
MOST = {"threads": 1024, "num_clients": 10**7, "local_epochs": 10**6, "rounds": 10**9, "trips": 10**9, "eval_every": 10**9}
MOST_SEEDS = 1000
FILE_SIZE = 1 << 18  # that must find room in results_dir: a run's own are of this order


@dataclass
class Settings:
    """The schema of the top-level keys; every value comes from yaml."""

    seeds: list[int] = MISSING
    num_clients: int = MISSING
    local_epochs: int = MISSING
    batch_nodes: Optional[int] = MISSING  # noqa: UP045
    rounds: Optional[int] = MISSING  # noqa: UP045 (OmegaConf reads Optional on every version it supports)
    trips: Optional[int] = MISSING  # noqa: UP045
    participation: float = MISSING
    lr: float = MISSING
    weight_decay: float = MISSING
    opt_state: str = MISSING
    agg_weight: str = MISSING
    eval_weight: str = MISSING
    eval_every: Optional[int] = MISSING  # noqa: UP045
    metrics: list[str] = MISSING
    targets: list[float] = MISSING
    mixing_at: list[int] = MISSING
    device: str = MISSING
    cuda_graphs: bool = MISSING
    dtype: str = MISSING
    feature_dtype: Optional[str] = MISSING  # noqa: UP045
    threads: Optional[int] = MISSING  # noqa: UP045
    memory_budget_gb: Optional[float] = MISSING  # noqa: UP045
    seeds_per_chunk: Optional[int] = MISSING  # noqa: UP045
    out_of_core: Any = MISSING
    data_dir: str = MISSING
    results_dir: str = MISSING
    cache_dir: str = MISSING
    overwrite: bool = MISSING
    progress: bool = MISSING
    dataset: Any = MISSING
    split: Any = MISSING
    model: Any = MISSING
    algorithm: Any = MISSING
    scenario: Any = MISSING
    tracker: Any = MISSING


def validate(cfg: DictConfig) -> None:
    """Check the rules that types cannot express: ranges, keys against each other, the method against the scenario.

    Cheap checks come first; only the last import torch and the chosen classes.

    Raises:
        UserError: naming the first key that is wrong and what it may be.
    """
    for group in GROUPS:
        if OmegaConf.select(cfg, group) is None:
            raise UserError(f"{group} is not chosen; write {group.replace('.', '/')}=..., see fgl-bench --help")
        if not isinstance(OmegaConf.select(cfg, group), DictConfig):
            raise UserError(f"{group} is no group of keys; write {group.replace('.', '/')}=CHOICE, see fgl-bench --help")
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise UserError(f"{missing[0]} has no value; write {missing[0]}=...")
    check_keys(cfg, {field.name: field for field in fields(Settings)})
    check_values(cfg)
    check_numbers(cfg)
    for key, allowed in CHOICES.items():
        require(cfg[key] in allowed, key, cfg[key], "one of " + one_of(allowed))
    resolve_budget(cfg)
    check_metrics(cfg)
    check_ratios(cfg)
    import_torch()  # what follows needs it
    check_device(cfg.device)
    require(not cfg.cuda_graphs or cfg.device.startswith("cuda"), "cuda_graphs", cfg.cuda_graphs, "false unless device=cuda")
    names = {group: label(cfg, group) for group in ("dataset", "split", "scenario", "algorithm", "model", "scenario/sparsity")}
    for group, name in names.items():
        check_name(f"{group}.name" if name == cfg[group.partition("/")[0]].get("name") else group, name)
    check_writable(cfg.results_dir, Path(names["dataset"], f"{names['split']}-{cfg.num_clients}", names["scenario"], names["algorithm"]))
    classes = {group: check_role(group, OmegaConf.select(cfg, group)) for group in GROUPS}
    check_model(cfg.model)
    check_scenario(cfg, classes["algorithm"])
    check_served(cfg, classes["scenario"])
    check_batch_nodes(cfg, classes["model"], classes["algorithm"])
    for group in GROUPS:  # what the classes themselves refuse, before anything is read
        build(OmegaConf.select(cfg, group))
    with suited(cfg):
        build(cfg.algorithm).check_choices(build(cfg.model), build(cfg.split))
    check_buffer(cfg)


def check_numbers(cfg: DictConfig) -> None:
    """Ranges of the top-level numbers; raises UserError."""
    for key in ("seeds", "metrics", "targets", "mixing_at"):  # OmegaConf lets lists inside pass
        require(not any(OmegaConf.is_config(entry) for entry in cfg[key]), key, cfg[key], "a list of single values")
    seeds = list(cfg.seeds)
    require(len(seeds) > 0, "seeds", seeds, "a list of at least one integer, such as [0,1,2,3,4]")
    require(len(set(seeds)) == len(seeds), "seeds", seeds, "distinct; a repeated seed would count one repetition twice")
    require(min(seeds) >= 0, "seeds", seeds, "non-negative integers")
    require(len(seeds) <= MOST_SEEDS, "seeds", f"[... {len(seeds)} of them]", f"at most {MOST_SEEDS} integers")
    for key in ("num_clients", "local_epochs"):
        require(cfg[key] >= 1, key, cfg[key], "an integer of at least 1")
    for key in ("batch_nodes", "rounds", "trips", "eval_every", "threads", "seeds_per_chunk"):
        require(cfg[key] is None or cfg[key] >= 1, key, cfg[key], "null or an integer of at least 1")
    for key, most in MOST.items():
        require(cfg[key] is None or cfg[key] <= most, key, cfg[key], f"an integer of at most {most}")
    require(0 < cfg.participation <= 1, "participation", cfg.participation, "above 0 and at most 1")
    require(0 < cfg.lr < math.inf, "lr", cfg.lr, "a number above 0")
    require(0 <= cfg.weight_decay < math.inf, "weight_decay", cfg.weight_decay, "a number of at least 0")
    require(all(0 <= target <= 1 for target in cfg.targets), "targets", cfg.targets, "a list of accuracies between 0 and 1")
    budget = cfg.memory_budget_gb
    require(budget is None or 0 < budget < math.inf, "memory_budget_gb", budget, "null or a number above 0")


def participants(cfg: DictConfig) -> int:
    """How many clients take part in a round: participation x num_clients, rounded, at least one."""
    return max(1, round(cfg.participation * cfg.num_clients))


def resolve_budget(cfg: DictConfig) -> tuple[int, int]:
    """(rounds, trips) of the run; one follows from the other: trips = rounds x clients that take part in a round.

    With neither given a run has 2,000 trips. Trips that do not fill the last round are rounded up to whole rounds by
    ``rounds`` alone; scenarios that count single trips stop at ``trips``.

    Raises:
        UserError: both are given and contradict each other.
    """
    each = participants(cfg)
    if cfg.rounds is None:
        trips = DEFAULT_TRIPS if cfg.trips is None else cfg.trips
        return math.ceil(trips / each), trips
    if cfg.trips is not None and math.ceil(cfg.trips / each) != cfg.rounds:
        raise UserError(
            f"rounds={cfg.rounds} and trips={cfg.trips} contradict each other: {each} clients a round make "
            f"{cfg.rounds * each} trips; leave one of them null"
        )
    return cfg.rounds, cfg.rounds * each if cfg.trips is None else cfg.trips


def check_metrics(cfg: DictConfig) -> None:
    """metrics, those that the evaluation has; raises UserError."""
    if cfg.metrics:
        from fgl_bench.data.checks import METRICS

        require(set(cfg.metrics) <= set(METRICS), "metrics", cfg.metrics, "a list of " + one_of(METRICS))


def check_ratios(cfg: DictConfig) -> None:
    """split.ratios and dataset.ratios, where there are such, by the data stage's own rule."""
    for key in ("split.ratios", "dataset.ratios"):
        ratios = OmegaConf.select(cfg, key)
        if ratios is not None:
            from fgl_bench.data.checks import check_ratios as check

            check(list(ratios) if isinstance(ratios, ListConfig) else ratios, key)


def check_device(device: str) -> None:
    """``auto``, ``cpu``, or a CUDA device that this machine has; raises UserError."""
    require(re.fullmatch(r"auto|cpu|cuda(:\d+)?", device) is not None, "device", device, "one of auto, cpu, cuda, cuda:N")
    if device.startswith("cuda"):
        import torch

        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(device.partition(":")[2] or 0)
        require(index < found, "device", device, f"one of {one_of(['auto', 'cpu', *(f'cuda:{i}' for i in range(found))])} on this machine")


def check_writable(folder: str, below: Path = Path()) -> None:
    """Try to create the path ``below`` in ``folder`` and a file in it, then take away what was made; raises UserError when that fails."""
    path = Path(folder).absolute() / below
    new: list[Path] = []
    try:
        new = [parent for parent in (path, *path.parents) if not parent.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(FILE_SIZE))
    except OSError as error:
        reason = error.strerror or str(error)
        where = "there" if isinstance(error, FileNotFoundError) or not error.filename else error.filename
        raise UserError(f"results_dir={folder}: cannot write {where} ({reason}); choose a folder that can be written") from error
    finally:
        for parent in new:
            try:
                parent.rmdir()
            except OSError:  # never made, or another run is using it by now
                break


def check_scenario(cfg: DictConfig, method: Any) -> None:
    """The chosen scenario must be among those that the method's class lists in ``scenarios``; raises UserError."""
    supported, chosen, name = getattr(method, "scenarios", None), label(cfg, "scenario"), label(cfg, "algorithm")
    if supported is None:  # a function that makes a method says nothing
        return
    if isinstance(supported, str) or not supported:
        told = repr(supported) if supported else "empty"
        raise UserError(f"algorithm={name}: {method.__name__}.scenarios is {told}; it must name at least one scenario, such as ('sync',)")
    if chosen not in supported:
        raise UserError(f"scenario={chosen}: algorithm={name} supports only scenario={one_of(supported)}")
    from fgl_bench.scenarios.hooks import check_hooks

    check_hooks(method)


def check_buffer(cfg: DictConfig) -> None:
    """A server that waits for more arrivals than there are clients waits for ever; raises UserError."""
    size = cfg.algorithm.get("buffer")
    if isinstance(size, int) and size > cfg.num_clients:
        raise UserError(f"algorithm.buffer={size} does not fit num_clients={cfg.num_clients}; allowed: 1 to {cfg.num_clients}")


def check_served(cfg: DictConfig, scenario: Any) -> None:
    """A server with validation and test nodes needs a scenario of rounds, after which it scores its model; raises UserError."""
    if OmegaConf.select(cfg, "split.test") == "server":
        from fgl_bench.scenarios.base import Rounds

        if not (isinstance(scenario, type) and issubclass(scenario, Rounds)):
            raise UserError(f"split.test=server: scenario={label(cfg, 'scenario')} has no rounds after which a server scores; use sync")


def check_model(model: DictConfig) -> None:
    """Ranges of what most backbones have, by the names of the keys; raises UserError."""
    for name, value in model.items():
        if str(name).endswith("dropout") and isinstance(value, int | float):
            require(0 <= value <= 1, f"model.{name}", value, "between 0 and 1")
        elif name in LEAST and isinstance(value, int):
            require(value >= LEAST[name], f"model.{name}", value, f"an integer of at least {LEAST[name]}")


def check_batch_nodes(cfg: DictConfig, backbone: Any, method: Any) -> None:
    """batch_nodes needs a backbone and a method that treat nodes one by one; raises UserError."""
    if cfg.batch_nodes is None:
        return
    if getattr(backbone, "needs_neighbours", True):
        raise UserError(
            f"batch_nodes={cfg.batch_nodes}: model={label(cfg, 'model')} needs a node's neighbours at run time; "
            "use batch_nodes=null, or a model without propagation between its layers (mlp, sgc, s2gc, sign, gbp, gamlp)"
        )
    if not getattr(method, "node_batches", True):
        raise UserError(
            f"batch_nodes={cfg.batch_nodes}: the local objective of algorithm={label(cfg, 'algorithm')} needs all nodes of a client; "
            "use batch_nodes=null"
        )


def expand_paths(cfg: DictConfig) -> None:
    """Replace a leading ``~`` in the three folders' keys by the home directory, in place.

    Without a home the cache goes to a folder of this user's below the system's temporary one, with a warning.

    Raises:
        UserError: a folder cannot be told: it is empty, or below a home that there is not.
    """
    for key in ("data_dir", "results_dir", "cache_dir"):
        require(bool(cfg[key]) and "\0" not in cfg[key], key, repr(cfg[key]), "the path of a folder")
        path = os.path.expanduser(cfg[key])
        if path.startswith("~") and key == "cache_dir" and cfg[key].startswith("~/"):
            path = str(own_folder(Path(tempfile.gettempdir(), f"fgl-bench-{os.getuid()}")))
            print(f"warning: there is no home directory; cache_dir={path}", file=sys.stderr)
        if path.startswith("~"):
            raise UserError(f"{key}={cfg[key]}: there is no such home directory; name another folder")
        cfg[key] = path


def own_folder(path: Path) -> Path:
    """``path``, made if need be; raises UserError where it is somebody else's, who could put anything there."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise UserError(f"cache_dir: {path} belongs to somebody else; name another folder")
    return path
