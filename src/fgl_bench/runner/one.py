"""Run one configuration: check it, run it and report it to the tracker.

Importing this module is cheap: heavy imports wait until the configuration is known to be valid.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from fgl_bench.config.groups import build_group, label
from fgl_bench.config.pairing import overrides_of
from fgl_bench.config.settings import expand_paths
from fgl_bench.errors import UserError, raised_by_user
from fgl_bench.results import tracking
from fgl_bench.runner.validation import check_configuration, checked_names, validate
from fgl_bench.utils.patience import say_once
from fgl_bench.utils.world import World, enter, launched, world

if TYPE_CHECKING:
    from fgl_bench.runner.run_store import Finished
    from fgl_bench.runner.spec import RunSpec

NATURAL = ("fgl_bench.data.splits.natural.Natural", "fgl_bench.data.splits.natural.Domains")


VALIDATED: dict[str, RunSpec] = {}
"""Configurations of a sweep that :func:`refused` has accepted, until they are run."""


def key_of(cfg: DictConfig) -> str:
    return json.dumps([OmegaConf.to_container(cfg), overrides_of(cfg)], default=str)


def run_one(cfg: DictConfig, watch: Callable[[Mapping[str, Any]], None] | None = None, title: str = "") -> Finished:
    """Check one configuration and make its run, unless it is there already.

    Args:
        watch: called with every evaluation point of a new run, a row of ``history.csv`` without bytes and costs; an exception from it
            ends the run.
        title: stands before the method's name in lines of progress.
    """
    expand_paths(cfg)
    take_owners(cfg)
    check_configuration(cfg)
    spell(cfg)
    tracker = build_group(cfg, "tracker")
    tracking.check_installed(tracker)
    from fgl_bench.runner.run_store import early_store, with_targets

    workers, names = join(), checked_names(cfg)
    store = early_store(cfg, names)
    finished = None if store is None or cfg.overwrite else workers.first(store.finished)
    if finished is None:
        with workers.in_turn():  # worker 0 reports errors that all workers share
            spec = VALIDATED.pop(key_of(cfg), None) or validate(cfg)
        from fgl_bench.runner.run import run

        try:
            finished = run(spec, store, watch, title)
        except SystemExit as error:  # sys.exit(0) in a user's module would end a run that has not been made with status 0
            where = raised_by_user(error)
            if where is None:
                raise
            raise UserError(where) from error
    if finished.again:
        finished = workers.first(partial(with_targets, finished, cfg.targets))
        if not workers.rank:
            tracking.publish(tracker, finished.folder)
    return finished


def join() -> World:
    """Join the workers that the launcher has started, until this process ends; a world of one if there is no launcher.

    Raises:
        UserError: they cannot be reached.
    """
    if world().size == 1 and launched()[1] > 1:
        from fgl_bench.utils.group import joined

        enter(joined())
    return world()


def spell(cfg: DictConfig) -> None:
    """Normalize equivalent spellings: the order of seeds and metrics, and the path of a file.

    A path below the current folder is relative, any other is absolute. Runs that are spelled differently are then one run.
    """
    cfg.seeds = sorted(cfg.seeds)
    cfg.metrics = sorted(set(cfg.metrics), reverse=True)  # the order that stored runs have
    path = cfg.dataset.get("path")
    if isinstance(path, str) and path:
        with suppress(OSError):  # the current folder does not exist
            path = os.path.abspath(os.path.expanduser(path))
            cfg.dataset.path = os.path.relpath(path) if Path(path).is_relative_to(os.getcwd()) else path


def check_one(cfg: DictConfig) -> None:
    """Refuse what :func:`run_one` would refuse before it trains, as far as that shows without a partition; absent files are downloaded.

    Raises:
        UserError: naming the first key that is wrong and what it may be.
    """
    from fgl_bench.data.sums import fingerprint

    expand_paths(cfg)
    take_owners(cfg)
    dataset = validate(cfg).dataset
    if fingerprint(dataset, cfg.data_dir, cfg.cache_dir) is None:
        dataset.load(cfg.data_dir)


def refused(cfg: DictConfig) -> bool:
    """Return True if :func:`run_one` would refuse a configuration before it reads data; it does not validate an accepted one again."""
    try:
        expand_paths(cfg)
        spell(cfg)
        VALIDATED[key_of(cfg)] = validate(cfg)
    except (Exception, SystemExit):  # a user's class may raise anything; the run itself says what
        return True
    return False


def take_owners(cfg: DictConfig) -> None:
    """Set ``num_clients``, unless the command gives it, to what the split states for the graph (:meth:`fgl_bench.Split.clients`)."""
    target = OmegaConf.select(cfg, "split._target_")
    if any(text.startswith("num_clients=") for text in overrides_of(cfg)) or (
        isinstance(target, str) and target.startswith("fgl_bench.") and target not in NATURAL
    ):  # which state none, and import torch
        return
    from fgl_bench.data.splits.base import Split

    split = build_group(cfg, "split")
    if type(split).clients is Split.clients:
        return
    with join().in_turn():
        graph = build_group(cfg, "dataset").load(cfg.data_dir)
        stated = split.stated(graph)
    if stated is not None and stated != cfg.num_clients:
        cfg.num_clients = stated
        say_once(f"note: num_clients={stated}, as split={label(cfg, 'split')} states for dataset={graph.name}")
