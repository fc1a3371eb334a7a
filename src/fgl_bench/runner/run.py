"""One run: build the federations, train every seed, write the run directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig

from fgl_bench.config.pairing import suited
from fgl_bench.data.federation import MORE_TRAINING_NODES, Federation, build_federations
from fgl_bench.data.raw import data_root
from fgl_bench.data.unseen import leave_out
from fgl_bench.results.callbacks import Callback, Callbacks, PointCallback
from fgl_bench.results.progress import ProgressBar
from fgl_bench.results.store import superseded
from fgl_bench.results.trackers.none import NoTracker
from fgl_bench.results.tracking import TrackerCallback
from fgl_bench.runner.build import check_scores
from fgl_bench.runner.checkpoints import Checkpoints
from fgl_bench.runner.devices import joined, pick_devices, run_on
from fgl_bench.runner.memory import available_bytes
from fgl_bench.runner.program import simulate
from fgl_bench.runner.run_store import Finished, RunStore
from fgl_bench.runner.share import Share, narrowed, share_of
from fgl_bench.runner.spec import RunSpec, resolve
from fgl_bench.runner.summary import Facts, summarize
from fgl_bench.utils.masking import masked_config
from fgl_bench.utils.stopping import held_back
from fgl_bench.utils.world import world

Watch = Callable[[Mapping[str, Any]], None]


def run(spec: RunSpec, store: RunStore | None = None, watch: Watch | None = None, title: str = "") -> Finished:
    """Return the run of ``spec``; train it unless it is complete already.

    Args:
        store: of this run, if it is known.
        watch: called with every evaluation point.
        title: stands before the method's name in lines of progress.
    """
    settings, workers = spec.settings, world()
    store = store or RunStore.of(spec.config, spec.names, spec.budget, spec.dataset)
    earlier = workers.first(store.reusable)
    if earlier is not None and not settings.overwrite:
        return Finished(store.folder, earlier, True)
    say(superseded(store.folder, store.identity, spec.dataset.files(data_root(settings.data_dir))))

    devices = pick_devices(settings.device)
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    share, begin = share_of(spec, workers), time.perf_counter()
    sent = share.shard.world.sent
    with workers.in_turn():
        federations = prepare(spec, share.seeds)
    if store.data is None:  # the raw files have been downloaded
        store = RunStore.of(spec.config, spec.names, spec.budget, spec.dataset)
    check_scores(settings, federations[0])
    facts = Facts.of(settings, federations)
    say(untrained(spec, facts))
    federations = [narrowed(federation, share.shard) for federation in federations]
    prepared = time.perf_counter()

    checkpoints = checkpoints_of(spec, store, share)
    with (
        held_back(f"the finished run {store.folder}") if checkpoints else nullcontext(),
        Callbacks(callbacks_of(spec, store, share, facts, watch, title)) as callbacks,
    ):
        with suited(spec.names["algorithm"], spec.algorithm.pairing, spec.overrides):
            train = partial(simulate, spec, callbacks=callbacks, shard=share.shard, checkpoints=checkpoints)
            outcome = run_on(devices, federations, train, callbacks.cancel)
        trained = time.perf_counter()
        before = checkpoints.earlier if checkpoints else 0.0  # training before an interruption counts
        seconds = {"prepare": prepared - begin, "train": before + trained - prepared, "total": before + trained - begin}
        traffic = {"world_size": workers.size, "worker_bytes": sum(workers.gather(share.shard.world.sent - sent))}
        parts = [part for part in workers.collect((outcome, facts) if share.reports else None) if part is not None]

        def write() -> dict[str, Any]:
            outcome, facts = joined([part[0] for part in parts]), Facts.joined([part[1] for part in parts])
            summary = summarize(spec, store.identity, facts, outcome, devices, seconds, traffic)
            store.write(summary, outcome, facts.weights)
            callbacks.run_end(store.folder)
            return summary

        summary = workers.first(write)
        store.discard_checkpoints()  # a worker on another machine has a folder of its own
    return Finished(store.folder, summary, False)


def callbacks_of(spec: RunSpec, store: RunStore, share: Share, facts: Facts, watch: Watch | None, title: str) -> list[Callback]:
    """The callbacks of a run. Worker 0 has them, the others have none."""
    settings, names, callbacks = spec.settings, spec.names, list[Callback]()
    if world().rank:
        return callbacks
    if not isinstance(spec.tracker, NoTracker):
        config = masked_config(spec.config)
        callbacks.append(TrackerCallback(spec.tracker, store.digest, names, config, settings.seeds))
    if watch is not None:
        callbacks.append(PointCallback(watch, store.discard_checkpoints))
    if settings.progress:
        title += f"{names['algorithm']} on {names['dataset']}/{names['split']}"
        callbacks.append(ProgressBar(title, spec.trips * len(share.seeds), facts.metric))
    return callbacks


def checkpoints_of(spec: RunSpec, store: RunStore, share: Share) -> Checkpoints | None:
    """The checkpoints of a run; None if it writes none."""
    minutes, identity = spec.settings.checkpoint_minutes, f"{store.digest} {store.models}"
    if minutes is None:
        return None
    return Checkpoints(store.folder, identity, 60 * minutes, spec.names["algorithm"], world=share.shard.world)


def untrained(spec: RunSpec, facts: Facts) -> str | None:
    """A note about clients with an empty training set; None if there are none."""
    if not max(facts.untrained):
        return None
    counts, why = ", ".join(map(str, facts.untrained)), f"; {MORE_TRAINING_NODES}" * (spec.split.masks == "client")
    return f"note: of {spec.settings.num_clients} clients {counts} (by seed) have an empty training set{why}"


def say(note: str | None) -> None:
    """Print a note on stderr, if there is one."""
    if note is not None:
        print(note, file=sys.stderr)


def prepare(spec: RunSpec, seeds: Sequence[int] | None = None) -> list[Federation]:
    """The federations of ``seeds`` (None: all); with ``out_of_core=auto`` in files where features would take a third of the memory."""
    settings, on_disk = spec.settings, spec.settings.out_of_core
    if on_disk == "auto":
        on_disk = 3 * spec.dataset.feature_bytes() > (settings.memory_budget_gb or available_bytes(torch.device("cpu")) / 1e9) * 1e9
    federations = build_federations(
        spec.dataset,
        spec.split,
        spec.sparsity,
        num_clients=spec.num_clients,
        seeds=list(settings.seeds if seeds is None else seeds),
        data_dir=settings.data_dir,
        cache_dir=settings.cache_dir,
        out_of_core=on_disk,
        labeling=spec.task,
        noise=spec.noise,
    )
    unseen = spec.num_clients - settings.num_clients
    return [spec.attack.compromise(leave_out(federation, unseen)) for federation in federations]


def federations_of(cfg: DictConfig) -> list[Federation]:
    """The federations of a configuration, for plots of data."""
    return prepare(resolve(cfg))
