"""One run: prepare the federations, simulate every seed, write the run directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.powers import federated
from fgl_bench.config.groups import build, label
from fgl_bench.config.pairing import suited
from fgl_bench.config.settings import resolve_budget
from fgl_bench.data.federation import Federation, build_federations
from fgl_bench.data.raw import data_root
from fgl_bench.data.sums import fingerprint
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import History, Outcome, Point
from fgl_bench.evaluation.metrics import scored_nodes
from fgl_bench.reporting.console import show
from fgl_bench.reporting.progress import RunProgress
from fgl_bench.reporting.store import Untrusted, clear_leftovers, config_hash, history_rows, identity, read_summary, run_folder, write_run
from fgl_bench.reporting.superseded import superseded
from fgl_bench.run.memory import Plan, available_bytes
from fgl_bench.run.planning import chunks, network
from fgl_bench.run.program import reported, simulation
from fgl_bench.run.summary import summarise
from fgl_bench.run.workers import Job, Progress, Report, side_by_side
from fgl_bench.utils.allocator import keep_freed_memory
from fgl_bench.utils.masking import masked_config


def run(cfg: DictConfig) -> Path:
    """Run what ``cfg`` (validated) describes, unless it is complete already; print the table; return the run directory."""
    rounds, trips = resolve_budget(cfg)
    names = {group: label(cfg, group) for group in ("dataset", "split", "scenario", "algorithm", "model", "scenario/sparsity")}
    dataset = build(cfg.dataset)
    data = fingerprint(dataset, cfg.data_dir, cfg.cache_dir)
    what = identity(cfg, rounds, trips, data)
    folder = place(cfg, names, what)
    clear_leftovers(folder)
    earlier = stored(folder)
    if earlier is not None and not cfg.overwrite:
        show(earlier, folder, again=True)
        return folder
    if (note := superseded(folder, what, dataset.files(data_root(cfg.data_dir)))) is not None:
        print(note, file=sys.stderr)

    device = pick_device(cfg.device)
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    begin = time.perf_counter()
    federations = prepare(cfg)
    if data is None:  # the raw files have been downloaded
        what = identity(cfg, rounds, trips, fingerprint(dataset, cfg.data_dir, cfg.cache_dir))
        folder = place(cfg, names, what)
    check_scores(cfg, federations[0])
    prepared = time.perf_counter()
    title = f"{names['algorithm']} on {names['dataset']}/{names['split']}"
    with RunProgress(title, trips * len(cfg.seeds), cfg.progress) as progress, suited(cfg):
        outcome = simulate(cfg, federations, device, progress)
    trained = time.perf_counter()

    weights = None if cfg.eval_weight == "test" else [np.array([c.num_nodes for c in f.clients]) for f in federations]
    seconds = {"prepare": prepared - begin, "train": trained - prepared, "total": trained - begin}
    summary = summarise(cfg, names, what, federations, outcome, weights, device, {k: round(v, 3) for k, v in seconds.items()})
    arrays = {f"trips_{at}": matrix for at, matrix in outcome.mixing.items()}
    arrays |= {f"similarity_{at}": matrix for at, matrix in outcome.similarity.items()}
    arrays |= {} if outcome.exchanged is None else {"exchanged_bytes": outcome.exchanged}
    config = OmegaConf.to_yaml(masked_config(cfg), resolve=True)
    try:
        write_run(folder, config, summary, history_rows(outcome.histories, weights), arrays, outcome.portrait)
    except OSError as error:
        raise UserError(
            f"results_dir: cannot write {folder} ({error.strerror or error}); a run of {seconds['total']:.0f} s is lost: make room or "
            "choose another folder, and give the same command again"
        ) from error
    show(summary, folder, again=False)
    return folder


def place(cfg: DictConfig, names: Mapping[str, str], what: dict) -> Path:
    """The run's directory."""
    dataset, split, scenario, algorithm = (names[group] for group in ("dataset", "split", "scenario", "algorithm"))
    return run_folder(Path(cfg.results_dir), dataset, split, cfg.num_clients, scenario, algorithm, config_hash(what))


def stored(folder: Path) -> dict | None:
    """The summary of the complete run in ``folder``; None, and a warning where there is something else, if there is none."""
    try:
        return read_summary(folder)
    except Untrusted as reason:
        print(f"warning: {folder} is not used: {reason}; what is there will be kept under another name", file=sys.stderr)
        return None


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def prepare(cfg: DictConfig) -> list[Federation]:
    """The federations of all seeds; with ``out_of_core=auto`` in files where their features would take a third of the memory."""
    dataset, on_disk = build(cfg.dataset), cfg.out_of_core
    if on_disk == "auto":
        on_disk = 3 * dataset.feature_bytes() > (cfg.memory_budget_gb or available_bytes(torch.device("cpu")) / 1e9) * 1e9
    return build_federations(
        dataset,
        build(cfg.split),
        build(cfg.scenario.sparsity),
        num_clients=cfg.num_clients,
        seeds=list(cfg.seeds),
        data_dir=cfg.data_dir,
        cache_dir=cfg.cache_dir,
        out_of_core=on_disk,
    )


def check_scores(cfg: DictConfig, federation: Federation) -> None:
    """The area under one curve is of two classes; raises UserError."""
    key = "dataset.metric" if federation.metric == "auc" else "metrics"
    if "auc" in reported(cfg, federation) and federation.num_classes != 2:
        raise UserError(f"{key}: auc is for two classes, and dataset={federation.dataset} has {federation.num_classes}; use auc_ovr")


def simulate(
    cfg: DictConfig, federations: Sequence[Federation], device: torch.device, progress: Progress, chunking: Plan | None = None
) -> Outcome:
    """Train and evaluate every seed: as many together as the plan says, and several such programs side by side on a CPU."""
    rounds, trips = resolve_budget(cfg)
    scenario, method = build(cfg.scenario), build(cfg.algorithm)
    federations = federated(method, federations)
    model = network(cfg, federations, device)
    chunking = chunking or chunks(cfg, federations, device)[1]
    keep_freed_memory()
    parts = [federations[start : start + chunking.seeds] for start in range(0, len(federations), chunking.seeds)]

    def job(part: Sequence[Federation]) -> Job[Outcome]:
        def simulate_part(report: Report) -> Outcome:
            sim = simulation(cfg, part, model, build(cfg.algorithm), device, rounds, trips, chunking.replicas, scenario.drops_uploads)
            sim.progress = report
            scenario.run(sim)
            logs, course = (sim.log.read(), sim.losses.read()), sim.cost_history
            histories = [
                history(cfg, federation, points, logs, sim.warmup_rounds, {name: spent[s] for name, spent in course.items()})
                for s, (federation, points) in enumerate(zip(part, sim.points, strict=True))
            ]
            mixing, similarity, portrait = (
                {name: kept.cpu().numpy() for name, kept in found.items()} for found in (sim.mixing, sim.similarity, sim.portrait)
            )
            return Outcome(histories, mixing, similarity, sim.costs, sim.exchanged, portrait)

        return simulate_part

    outcomes = side_by_side([job(part) for part in parts], chunking.programs, chunking.threads, progress)
    return Outcome(
        [history for outcome in outcomes for history in outcome.histories],
        {at: np.concatenate([outcome.mixing[at] for outcome in outcomes]) for at in outcomes[0].mixing},
        {at: np.concatenate([outcome.similarity[at] for outcome in outcomes]) for at in outcomes[0].similarity},
        {name: [value for outcome in outcomes for value in outcome.costs[name]] for name in outcomes[0].costs},
        None if outcomes[0].exchanged is None else np.concatenate([outcome.exchanged for outcome in outcomes]),
        {name: np.concatenate([outcome.portrait[name] for outcome in outcomes]) for name in outcomes[0].portrait},
    )


def history(
    cfg: DictConfig,
    federation: Federation,
    points: list[Point],
    logs: tuple[np.ndarray, np.ndarray],
    prelude: int,
    course: dict[str, np.ndarray],
) -> History:
    """The evaluation points of one seed with all metrics and training losses; ``logs`` hold the scores and the losses."""
    first, *others = ((name, scored_nodes(federation.scored, name)) for name in reported(cfg, federation))
    train_nodes = np.array([client.train.sum() for client in federation.observed])
    return History.of(federation.seed, points, logs[0], first[1], prelude, dict(others), course, logs[1], train_nodes)
