"""The top-level keys and their constraints.

``conf/config.yaml`` has values and one-line explanations; types are here.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

from omegaconf import MISSING, DictConfig, OmegaConf

from fgl_bench.errors import SHARE, Range, UserError, above, at_least, between, check_range, require
from fgl_bench.utils.participation import participants

DEFAULT_TRIPS = 2000
MOST_SEEDS = 1000  # also the maximum length of other lists
RANGES = {
    **dict.fromkeys(("rounds", "trips", "eval_every"), between(1, 10**9)),
    **dict.fromkeys(("batch_nodes", "seeds_per_chunk", "patience", "finetune_epochs"), at_least(1)),
    **dict.fromkeys(("lr", "checkpoint_minutes", "clip_gradient", "virtual_time"), above(0)),
    **dict.fromkeys(("seeds", "weight_decay"), at_least(0)),
    "num_clients": between(1, 10**7), "local_epochs": between(1, 10**6), "threads": between(1, 1024), "targets": SHARE,
    "participation": Range(0, 1, above=True), "unseen_clients": Range(0, 1, below=True), "memory_budget_gb": Range(0, 1e9, above=True),
}  # fmt: skip
MOST_PARTS, LONGEST_PATH = 200, 3600  # of a run's folder; files in it have longer paths, and Linux allows 4,096 bytes
FILE_SIZE = 1 << 18  # bytes that must fit into results_dir; a run's files have this order of size


@dataclass
class Settings:
    """Top-level keys that are single values or lists; values and explanations are in ``conf/config.yaml``."""

    seeds: list[int] = MISSING
    num_clients: int = MISSING
    local_epochs: int = MISSING
    batch_nodes: Optional[int] = MISSING  # noqa: UP045
    rounds: Optional[int] = MISSING  # noqa: UP045 (OmegaConf reads Optional on every version it supports)
    trips: Optional[int] = MISSING  # noqa: UP045
    virtual_time: Optional[float] = MISSING  # noqa: UP045
    participation: float = MISSING
    unseen_clients: float = MISSING
    finetune_epochs: int = MISSING
    patience: Optional[int] = MISSING  # noqa: UP045
    lr: float = MISSING
    weight_decay: float = MISSING
    clip_gradient: Optional[float] = MISSING  # noqa: UP045
    opt_state: str = MISSING
    agg_weight: str = MISSING
    eval_weight: str = MISSING
    eval_every: Optional[int] = MISSING  # noqa: UP045
    selection: str = MISSING
    average: str = MISSING
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
    shard: str = MISSING
    data_dir: str = MISSING
    results_dir: str = MISSING
    cache_dir: str = MISSING
    overwrite: bool = MISSING
    progress: bool = MISSING
    checkpoint_minutes: Optional[float] = MISSING  # noqa: UP045
    keep_models: str = MISSING


@dataclass
class Configuration(Settings):
    """The schema of all top-level keys."""

    task: Any = MISSING
    dataset: Any = MISSING
    split: Any = MISSING
    model: Any = MISSING
    optimizer: Any = MISSING
    lr_schedule: Any = MISSING
    algorithm: Any = MISSING
    scenario: Any = MISSING
    aggregator: Any = MISSING
    privacy: Any = MISSING
    tracker: Any = MISSING


def check_numbers(cfg: DictConfig) -> None:
    """Check the ranges of top-level numbers; raises UserError."""
    for key in ("seeds", "metrics", "targets", "mixing_at"):  # OmegaConf accepts nested lists
        require(not any(OmegaConf.is_config(entry) for entry in cfg[key]), key, cfg[key], "a list of single values")
        require(len(cfg[key]) <= MOST_SEEDS, key, f"[... {len(cfg[key])} of them]", f"a list of at most {MOST_SEEDS}")
    for key, allowed in RANGES.items():
        check_range(key, cfg[key], allowed)
    require(len(cfg.seeds) > 0, "seeds", [], "a list of at least one integer, such as [0,1,2,3,4]")
    require(len(set(cfg.seeds)) == len(cfg.seeds), "seeds", cfg.seeds, "distinct; a repeated seed would count one repetition twice")
    names = {f"{target:g}" for target in cfg.targets}
    require(len(names) == len({*cfg.targets}), "targets", cfg.targets, "distinct in their first six digits, by which they are named")


def resolve_budget(cfg: DictConfig | SimpleNamespace) -> tuple[int, int]:
    """Return (rounds, trips) of the run; trips = rounds x clients per round.

    If neither is given, a run has 2,000 trips. ``rounds`` is rounded up; scenarios that count single
    trips stop at ``trips``.

    Raises:
        UserError: both are given and contradict each other.
    """
    each = participants(cfg.participation, cfg.num_clients - unseen_count(cfg))
    if cfg.rounds is None:
        trips = DEFAULT_TRIPS if cfg.trips is None else cfg.trips
        return math.ceil(trips / each), trips
    if cfg.trips is not None and math.ceil(cfg.trips / each) != cfg.rounds:
        raise UserError(
            f"rounds={cfg.rounds} and trips={cfg.trips} contradict each other: {each} clients per round make "
            f"{cfg.rounds * each} trips; leave one of them null"
        )
    return cfg.rounds, cfg.rounds * each if cfg.trips is None else cfg.trips


def unseen_count(cfg: DictConfig | SimpleNamespace) -> int:
    """Return the number of clients that are left out of training; raises UserError if no client is left."""
    count = round(cfg.unseen_clients * cfg.num_clients)
    require(count < cfg.num_clients, "unseen_clients", cfg.unseen_clients, f"lower; it leaves out all of num_clients={cfg.num_clients}")
    return count


def check_writable(folder: str, below: Path = Path()) -> None:
    """Raise UserError unless the path ``below`` in ``folder`` can be created and written.

    This writes an unnamed file in the deepest existing folder, so that concurrent runs do not interfere.
    """
    path = Path(folder).absolute() / below
    deep = len(path.parts) > MOST_PARTS or len(os.fsencode(path)) > LONGEST_PATH
    require(not deep, "results_dir", f"{folder[:60]}...", f"a path of at most {LONGEST_PATH} bytes and {MOST_PARTS} folders")
    try:
        existing = next(parent for parent in (path, *path.parents) if parent.is_symlink() or parent.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(FILE_SIZE))
    except OSError as error:
        reason = error.strerror or str(error)
        where = "there" if isinstance(error, FileNotFoundError) or not error.filename else error.filename
        raise UserError(f"results_dir={folder}: cannot write {where} ({reason}); choose a folder that can be written") from error


def expand_paths(cfg: DictConfig) -> None:
    """Expand a leading ``~`` in the keys of the three folders, in place.

    Without a home directory, the cache is a user folder in the system's temporary folder, with a warning.

    Raises:
        UserError: a folder's name is empty, or its home directory does not exist.
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
    """Return ``path``, created if necessary; raises UserError if another user owns it and could change its files."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise UserError(f"cache_dir: {path} belongs to another user; name another folder")
    return path
