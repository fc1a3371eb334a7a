"""One run: prepare the federations, simulate every seed, write the run directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from omegaconf import DictConfig

from fgl_bench.algorithms.powers import federated
from fgl_bench.config.pairing import suited
from fgl_bench.config.settings import Settings
from fgl_bench.data.federation import MORE_TRAINING_NODES, Federation, build_federations
from fgl_bench.data.raw import data_root
from fgl_bench.data.sums import fingerprint
from fgl_bench.engine.hooks import JointTraining
from fgl_bench.engine.shard import ALONE, Shard
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import Outcome, history_rows
from fgl_bench.results.checkpoints import ABOUT, discard, place
from fgl_bench.results.progress import RunProgress
from fgl_bench.results.saved_models import requested_selection, saved_selection
from fgl_bench.results.store import clear_leftovers, config_hash, superseded, write_run
from fgl_bench.results.trackers.none import NoTracker
from fgl_bench.results.tracking import Tracking
from fgl_bench.runner.checkpoints import Checkpoints
from fgl_bench.runner.chosen import Chosen
from fgl_bench.runner.deal import deal, kept, own_part
from fgl_bench.runner.devices import joined, over, pick_devices
from fgl_bench.runner.finished import Finished, stored
from fgl_bench.runner.memory import Plan, available_bytes, chunks, halving, network, once
from fgl_bench.runner.points import Counts, NewPoints, history, node_counts
from fgl_bench.runner.program import reported, simulation
from fgl_bench.runner.spec import RunSpec, resolve
from fgl_bench.runner.summary import Facts, summarize
from fgl_bench.runner.workers import Job, Progress, Report, side_by_side
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.allocator import keep_freed_memory
from fgl_bench.utils.masking import masked_yaml
from fgl_bench.utils.stopping import held_back
from fgl_bench.utils.world import world


def run(spec: RunSpec, watch: Callable[[Mapping[str, Any]], None] | None = None, title: str = "") -> Finished:
    """Make the run, unless it is complete already; ``watch`` is called with every evaluation point, ``title`` begins lines of progress."""
    settings, names, workers = spec.settings, spec.names, world()
    data = fingerprint(spec.dataset, settings.data_dir, settings.cache_dir)
    what = spec.identity(data)
    folder = spec.folder(what)
    if workers.rank == 0:
        clear_leftovers(folder)
    which = requested_selection(settings.keep_models, settings.selection)
    earlier = workers.first(lambda: stored(folder))
    if earlier is not None and not settings.overwrite:
        if which is None or saved_selection(folder) == which:
            return Finished(folder, earlier, True)
        print(f"note: the complete run {folder} has not kept the models asked for ({which}) and is made again", file=sys.stderr)
    if (note := superseded(folder, what, spec.dataset.files(data_root(settings.data_dir)))) is not None:
        print(note, file=sys.stderr)

    devices = pick_devices(settings.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    task, begin = deal(spec, workers), time.perf_counter()
    before = task.shard.world.sent
    with workers.in_turn():
        federations = prepare(spec, task.seeds)
    if data is None:  # the raw files have been downloaded
        what = spec.identity(fingerprint(spec.dataset, settings.data_dir, settings.cache_dir))
        folder = spec.folder(what)
    check_scores(settings, federations[0])
    facts, weights = Facts.of(federations), node_counts(settings, federations)
    if max(facts.untrained):
        counts, why = ", ".join(map(str, facts.untrained)), f"; {MORE_TRAINING_NODES}" * (spec.split.masks == "client")
        print(f"note: of {settings.num_clients} clients {counts} (by seed) have no training node{why}", file=sys.stderr)
    prepared = time.perf_counter()
    title += f"{names['algorithm']} on {names['dataset']}/{names['split']}"
    config = masked_yaml(spec.config)
    first = workers.rank == 0  # the worker that draws the bar, holds the tracker and writes
    checkpoints = None
    if settings.checkpoint_minutes is not None:
        which_run = (folder, f"{config_hash(what)} {which}", 60 * settings.checkpoint_minutes, names["algorithm"])
        checkpoints = Checkpoints(*which_run, world=task.shard.world)
    work = partial(simulate, spec, shard=task.shard, checkpoints=checkpoints)
    federations = [kept(federation, task.shard) for federation in federations]
    tracker = spec.tracker if first else NoTracker()
    with (
        held_back(f"the finished run {folder}") if checkpoints else nullcontext(),
        Tracking(tracker, config_hash(what), names, yaml.safe_load(config), settings.seeds) as tracking,
    ):
        ended: list[Exception] = []

        def watched(row: Mapping[str, Any]) -> None:
            try:
                if watch is not None:
                    watch(row)
            except Exception as reason:
                ended.append(reason)
                raise

        hear = [call for call in (tracking.point if tracking.live else None, watched if watch and first else None) if call is not None]
        with (
            RunProgress(title, spec.trips * len(task.seeds), settings.progress and first, facts.metric, hear) as progress,
            suited(names["algorithm"], spec.algorithm.pairing, spec.overrides),
        ):
            try:
                outcome = over(devices, federations, work, progress)
            finally:
                if ended:  # the watcher cancelled the run
                    discard(folder)
        trained = time.perf_counter()
        already = checkpoints.earlier if checkpoints else 0.0  # training before an interruption counts
        seconds = {"prepare": prepared - begin, "train": already + trained - prepared, "total": already + trained - begin}
        sent = {"world_size": workers.size, "worker_bytes": sum(workers.gather(task.shard.world.sent - before))}
        parts = [part for part in workers.collect((outcome, facts, weights) if task.tells else None) if part is not None]

        def conclude() -> dict[str, Any]:
            outcome = joined([part[0] for part in parts])
            weights = None if settings.eval_weight == "test" else [each for part in parts for each in part[2] or ()]
            hashes, untrained = ([each for part in parts for each in getattr(part[1], name)] for name in ("partition_hash", "untrained"))
            known = facts._replace(partition_hash=hashes, untrained=untrained)
            summary = summarize(spec, what, known, outcome, weights, devices, {k: round(v, 3) for k, v in seconds.items()}, sent)
            write(folder, config, summary, outcome, weights, which)
            discard(folder)
            tracking.finish(folder)
            return summary

        summary = workers.first(conclude)
        discard(folder)  # a worker on another machine has a folder of its own
    return Finished(folder, summary, False)


def write(
    folder: Path, config: str, summary: dict[str, Any], outcome: Outcome, weights: Sequence[np.ndarray] | None, which: str | None
) -> None:
    """Write the run directory, with the models ``which`` (None: without); raises UserError where that fails."""
    arrays = {f"trips_{at}": matrix for at, matrix in outcome.mixing.items()}
    arrays |= {f"similarity_{at}": matrix for at, matrix in outcome.similarity.items()}
    arrays |= {} if outcome.exchanged is None else {"exchanged_bytes": outcome.exchanged}
    models = None if which is None else outcome.models
    try:
        write_run(folder, config, summary, history_rows(outcome.histories, weights), arrays, outcome.final_state, models, which or "")
    except (OSError, UserError) as error:  # the folder above it may have gone while it trained
        left = "resumes from its last checkpoint" if any(place(folder).rglob(ABOUT)) else "is lost"
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"results_dir: cannot write {folder} ({why}); a run of {summary['seconds']['total']:.0f} s {left}: "
            "make room or choose another folder, and give the same command again"
        ) from error


def prepare(spec: RunSpec, seeds: Sequence[int] | None = None) -> list[Federation]:
    """The federations of ``seeds`` (None: all); with ``out_of_core=auto`` in files where features would take a third of the memory."""
    settings, on_disk = spec.settings, spec.settings.out_of_core
    if on_disk == "auto":
        on_disk = 3 * spec.dataset.feature_bytes() > (settings.memory_budget_gb or available_bytes(torch.device("cpu")) / 1e9) * 1e9
    return build_federations(
        spec.dataset,
        spec.split,
        spec.sparsity,
        num_clients=settings.num_clients,
        seeds=list(settings.seeds if seeds is None else seeds),
        data_dir=settings.data_dir,
        cache_dir=settings.cache_dir,
        out_of_core=on_disk,
    )


def federations_of(cfg: DictConfig) -> list[Federation]:
    """The federations of a configuration, for plots of data."""
    return prepare(resolve(cfg))


def check_scores(settings: Settings, federation: Federation) -> None:
    """The area under one curve is of two classes; raises UserError."""
    key = "dataset.metric" if federation.metric == "auc" else "metrics"
    if "auc" in reported(settings, federation) and federation.num_classes != 2:
        raise UserError(f"{key}: auc is for two classes, and dataset={federation.dataset} has {federation.num_classes}; use auc_ovr")


def simulate(
    spec: RunSpec,
    federations: Sequence[Federation],
    device: torch.device,
    progress: Progress,
    chunking: Plan | None = None,
    shard: Shard = ALONE,
    checkpoints: Checkpoints | None = None,
) -> Outcome:
    """Train and evaluate every seed: as many together as the plan says, and several such programs side by side on a CPU.

    Workers that share clients make the same programs one after the other.
    """
    settings, scenario, method = spec.settings, spec.scenario, spec.fresh_algorithm()
    weights = node_counts(settings, federations)
    federations = federated(method, federations)
    mine = [own_part(federation, shard) for federation in federations]
    model = network(spec, mine, device)
    chunking = chunking or chunks(spec, mine, device)[1]
    if not shard.alone:
        chunking = replace(chunking, seeds=min(shard.world.gather(chunking.seeds)), programs=1)
    keep_freed_memory()
    parts = [slice(start, start + chunking.seeds) for start in range(0, len(federations), chunking.seeds)]
    if checkpoints is not None:
        parts = checkpoints.groups([federation.seed for federation in federations], chunking.seeds)

    def job(seeds: slice) -> Job[Outcome]:
        part = federations[seeds]

        def fresh(chunk: int | None) -> Simulation:
            what = (settings, part, model, spec.fresh_algorithm(), device, spec.rounds, spec.trips)
            sim = simulation(*what, chunk, scenario.drops_uploads, spec.optimizer, shard)
            sim.models = None if settings.keep_models == "none" else {}
            return sim

        def simulate_part(report: Report, chunk: int | None) -> Outcome:
            kept = None if checkpoints is None else checkpoints.program(scenario, [each.seed for each in part], partial(fresh, chunk))
            with kept or nullcontext(fresh(chunk)) as sim, closing(sim):
                return outcome_of(sim, report)

        def outcome_of(sim: Simulation, report: Report) -> Outcome:
            counts = [Counts.of(settings, federation) for federation in part]
            sizes = weights[seeds] if weights else None
            new_rows = NewPoints(sim, counts, sizes) if progress.hears else None
            if new_rows:
                sim.progress = lambda trips, accuracy: report(trips, accuracy, new_rows)
            else:
                sim.progress = report
            models: dict[str, np.ndarray] = {}
            if settings.keep_models == "none":
                scenario.run(sim)
            else:
                chosen = Chosen(sim, settings.selection if settings.keep_models == "best" else None, counts, sizes)
                sim.settle = chosen.settle
                scenario.run(sim)
                models = chosen.parameters()
            if new_rows:
                new_rows.finish()
            logs, cost_history = (sim.log.read(), sim.losses.read()), sim.cost_history
            histories = [
                history(seed, counts[s], points, logs, sim.warmup_rounds, {name: spent[s] for name, spent in cost_history.items()})
                for s, (seed, points) in enumerate(zip(sim.setting.seeds, sim.points, strict=True))
            ]
            mixing = {trips: kept.cpu().numpy() for trips, kept in sim.mixing.items()}
            similarity = {trips: kept.cpu().numpy() for trips, kept in sim.similarity.items()}
            final_state = {name: kept.cpu().numpy() for name, kept in sim.final_state.items()}
            return Outcome(histories, mixing, similarity, sim.costs, sim.exchanged, final_state, models)

        replicas = 1 if isinstance(method, JointTraining) else sum(federation.num_clients for federation in part)  # that can take turns
        again = halving if shard.alone else once  # a restarted worker would be out of step
        return lambda report: again(partial(simulate_part, report), chunking.replicas, replicas)

    outcomes = side_by_side([job(part) for part in parts], chunking.programs, chunking.threads, progress)
    if torch.cuda.is_initialized():  # other processes that share the GPU plan with the free memory
        torch.cuda.empty_cache()
    return joined(outcomes)
