"""One run: prepare the federations, simulate every seed, write the run directory."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from fgl_bench.algorithms.base import Algorithm, Setting
from fgl_bench.config import build, label, resolve_budget
from fgl_bench.data.federation import Federation, build_federations
from fgl_bench.data.served import Served
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.memory import Need, Plan, available_bytes, keep_freed_memory, plan, seed_bytes
from fgl_bench.engine.served import ServedTrainer
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.workers import side_by_side
from fgl_bench.errors import UserError
from fgl_bench.evaluation.history import History, Point
from fgl_bench.evaluation.members import scoring
from fgl_bench.evaluation.metrics import scored_nodes, scores
from fgl_bench.evaluation.summary import MODELS, other_scores, spread, test_scores, trips_to_target, unscored
from fgl_bench.models.base import Backbone
from fgl_bench.reporting.console import show
from fgl_bench.reporting.pictures import label_counts
from fgl_bench.reporting.progress import RunProgress
from fgl_bench.reporting.store import (
    SCHEMA_VERSION,
    Untrusted,
    code_state,
    config_hash,
    history_rows,
    identity,
    read_summary,
    run_folder,
    versions,
    write_run,
)
from fgl_bench.scenarios.base import participants
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.seeding import derive_seed

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass
class Outcome:
    """What simulating all seeds gave: histories in the order of the seeds, mixing and similarity matrices ``[S, C, C]`` by trip count.

    Besides, for methods that say so: costs by name, for every seed, and bytes between clients ``[S, C, C]``.
    """

    histories: list[History]
    mixing: dict[int, np.ndarray]
    similarity: dict[int, np.ndarray]
    costs: dict[str, list[float]] = field(default_factory=dict)
    exchanged: np.ndarray | None = None


def run(cfg: DictConfig) -> Path:
    """Run what ``cfg`` (validated) describes, unless it is complete already; print the table; return the run directory."""
    rounds, trips = resolve_budget(cfg)
    what = identity(cfg, rounds, trips)
    names = {group: label(cfg, group) for group in ("dataset", "split", "scenario", "algorithm", "model", "scenario/sparsity")}
    digest = config_hash(what)
    folder = run_folder(
        Path(cfg.results_dir), names["dataset"], names["split"], cfg.num_clients, names["scenario"], names["algorithm"], digest
    )
    earlier = stored(folder)
    if earlier is not None and not cfg.overwrite:
        show(earlier, folder, again=True)
        return folder

    device = pick_device(cfg.device)
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    begin = time.perf_counter()
    federations = prepare(cfg)
    prepared = time.perf_counter()
    title = f"{names['algorithm']} on {names['dataset']}/{names['split']}"
    with RunProgress(title, trips * len(cfg.seeds), cfg.progress) as progress:
        outcome = simulate(cfg, federations, device, progress)
    trained = time.perf_counter()

    weights = None if cfg.eval_weight == "test" else [np.array([c.num_nodes for c in f.clients]) for f in federations]
    seconds = {"prepare": prepared - begin, "train": trained - prepared, "total": trained - begin}
    summary = summarise(cfg, names, what, digest, federations, outcome, weights, device, {k: round(v, 3) for k, v in seconds.items()})
    write_run(
        folder,
        OmegaConf.to_yaml(cfg, resolve=True),
        summary,
        history_rows(outcome.histories, weights),
        {f"trips_{at}": matrix for at, matrix in outcome.mixing.items()}
        | {f"similarity_{at}": matrix for at, matrix in outcome.similarity.items()}
        | ({} if outcome.exchanged is None else {"exchanged_bytes": outcome.exchanged}),
    )
    show(summary, folder, again=False)
    return folder


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


def reported(cfg: DictConfig, federation: Federation) -> list[str]:
    """The dataset's metric, which models are selected by, and those of ``metrics``."""
    return [federation.metric, *(name for name in cfg.metrics if name != federation.metric)]


def history(cfg: DictConfig, federation: Federation, points: list[Point], log: np.ndarray, prelude: int) -> History:
    """The evaluation points of one seed with all metrics."""
    first, *others = ((name, scored_nodes(federation.scored, name)) for name in reported(cfg, federation))
    return History.of(federation.seed, points, log, first[1], prelude, dict(others))


def budget(cfg: DictConfig, device: torch.device) -> int:
    """Bytes that programs may take."""
    return int(cfg.memory_budget_gb * 1e9) if cfg.memory_budget_gb else available_bytes(device)


def network(cfg: DictConfig, federations: Sequence[Federation], device: torch.device) -> Backbone:
    """The configured backbone, settled for these federations and the budget of memory."""
    rounds, _ = resolve_budget(cfg)

    def fits(model: Backbone) -> bool:
        return needed(cfg, federations, device, model).program(1, 1) <= budget(cfg, device)

    first, steps = federations[0], rounds * cfg.local_epochs
    return build(cfg.model).settle(first.observed, first.num_classes, device, steps, cfg.batch_nodes, fits)


def needed(cfg: DictConfig, federations: Sequence[Federation], device: torch.device, model: Backbone) -> Need:
    """The memory that one seed needs with this backbone."""
    method: Algorithm = build(cfg.algorithm)
    model, first = method.backbone(model), federations[0]
    layout, widths = model.layout(first.num_features, first.num_classes), model.activations(first.num_features, first.num_classes)
    stacks, copies = build(cfg.scenario).keeps(cfg.participation, method)
    stacks += method.stacks + (2 if method.trains else 0)  # Adam's two moments
    itemsize, operators = DTYPES[cfg.dtype].itemsize, model.operators + method.operators
    return seed_bytes(federations, layout, widths, stacks, itemsize, device, operators, copies, model.copies())


def chunks(cfg: DictConfig, federations: Sequence[Federation], device: torch.device) -> tuple[Need, Plan]:
    """The memory that one seed needs, and how many seeds and clients to train together."""
    model = network(cfg, federations, device)
    need, first = needed(cfg, federations, device, model), federations[0]
    model = build(cfg.algorithm).backbone(model)
    layout, widths = model.layout(first.num_features, first.num_classes), model.activations(first.num_features, first.num_classes)
    return need, plan(federations, layout, widths, need, device, budget(cfg, device), cfg.seeds_per_chunk)


def simulate(
    cfg: DictConfig, federations: Sequence[Federation], device: torch.device, progress: RunProgress, chunking: Plan | None = None
) -> Outcome:
    """Train and evaluate every seed: as many together as the plan says, and several such programs side by side on a CPU."""
    rounds, trips = resolve_budget(cfg)
    scenario, method = build(cfg.scenario), build(cfg.algorithm)
    federations = [method.federate(federation) for federation in federations]
    model = network(cfg, federations, device)
    chunking = chunking or chunks(cfg, federations, device)[1]
    keep_freed_memory()
    parts = [federations[start : start + chunking.seeds] for start in range(0, len(federations), chunking.seeds)]

    def job(number: int) -> Callable[[], Outcome]:
        def simulate_part() -> Outcome:
            part = parts[number]
            sim = simulation(cfg, part, model, build(cfg.algorithm), device, rounds, trips, chunking.replicas, scenario.drops_uploads)
            sim.progress = partial(progress, number)
            scenario.run(sim)
            log = sim.log.read()
            histories = [
                history(cfg, federation, points, log, sim.algorithm.prelude()) for federation, points in zip(part, sim.points, strict=True)
            ]
            kept = ({at: matrix.cpu().numpy() for at, matrix in found.items()} for found in (sim.mixing, sim.similarity))
            return Outcome(histories, *kept, sim.algorithm.costs(), sim.algorithm.exchanged())

        return simulate_part

    outcomes = side_by_side([job(number) for number in range(len(parts))], chunking.programs, chunking.threads, progress.cancel)
    return Outcome(
        [history for outcome in outcomes for history in outcome.histories],
        {at: np.concatenate([outcome.mixing[at] for outcome in outcomes]) for at in outcomes[0].mixing},
        {at: np.concatenate([outcome.similarity[at] for outcome in outcomes]) for at in outcomes[0].similarity},
        {name: [value for outcome in outcomes for value in outcome.costs[name]] for name in outcomes[0].costs},
        None if outcomes[0].exchanged is None else np.concatenate([outcome.exchanged for outcome in outcomes]),
    )


def simulation(
    cfg: DictConfig,
    federations: Sequence[Federation],
    model: Backbone,
    algorithm: Algorithm,
    device: torch.device,
    rounds: int,
    trips: int,
    chunk: int | None = None,
    drops_uploads: bool = False,
) -> Simulation:
    """Everything a scenario needs to run these federations (seeds) together.

    Args:
        chunk: most replicas trained in one program; None means all.
        drops_uploads: the scenario's property of this name.
    """
    dtype, seeds = DTYPES[cfg.dtype], tuple(federation.seed for federation in federations)
    clients = federations[0].num_clients
    batch = Batch([client for f in federations for client in f.observed], dtype, device)
    same = all(f.observed is f.clients for f in federations)
    evaluation = batch if same else Batch([client for f in federations for client in f.clients], dtype, device)
    batch.per_federation = evaluation.per_federation = clients
    model = algorithm.backbone(model)
    if cfg.batch_nodes is not None and model.needs_neighbours:  # what the method has put around the backbone does
        raise UserError(f"batch_nodes={cfg.batch_nodes}: the method's own network needs a node's neighbours; use batch_nodes=null")
    layout = model.layout(federations[0].num_features, federations[0].num_classes)
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(derive_seed(seed, "initial"))
        rows.append(layout.pack(model.initialise(layout, generator)).expand(clients, -1))
    initial = torch.cat(rows).to(device, dtype).contiguous()
    sizes = batch.num_train if cfg.agg_weight == "train" else batch.num_nodes
    weights = torch.as_tensor(sizes, dtype=torch.float64, device=device).view(len(seeds), clients)
    full = cfg.participation == 1 and not drops_uploads
    server = Batch([f.server for f in federations], dtype, device) if isinstance(federations[0], Served) else None
    setting = Setting(
        seeds,
        clients,
        federations[0].num_classes,
        model,
        layout,
        batch,
        weights,
        cfg.local_epochs,
        cfg.lr,
        full,
        tuple(f.cross_edges for f in federations),
        server,
    )
    check_labels(algorithm, federations[0])
    algorithm.prepare(setting)
    initial = algorithm.initialise(initial)
    streams = [derive_seed(seed, "training", client) for seed in seeds for client in range(clients)]
    trainer = (Trainer if server is None else partial(ServedTrainer, server, weights))(
        algorithm,
        model,
        layout,
        batch,
        evaluation,
        scoring(scores(reported(cfg, federations[0])), federations, device),
        torch.tensor(streams, dtype=torch.int64, device=device),
        local_epochs=cfg.local_epochs,
        lr=cfg.lr,
        weight_decay=cfg.weight_decay,
        reset_optimiser=cfg.opt_state == "reset",
        chunk=chunk,
        batch_nodes=cfg.batch_nodes,
    )
    members = len(federations[0].scored)
    pooled = members != clients
    return Simulation(
        algorithm,
        setting,
        trainer,
        initial,
        rounds,
        trips,
        cfg.eval_every or members,
        cfg.participation,
        mixing_at=() if pooled else tuple(cfg.mixing_at),
        stands_for=participants(cfg.participation, members) if pooled else 1,
        metrics=len(reported(cfg, federations[0])),
    )


def check_labels(algorithm: Algorithm, federation: Federation) -> None:
    """Whether the method is defined for the dataset's labels; raises UserError."""
    if federation.clients[0].labels.ndim > 1 and not algorithm.multilabel:
        name = type(algorithm).__name__.lower()
        raise UserError(f"algorithm={name}: needs one class a node; dataset={federation.dataset} has several labels a node")


def summarise(
    cfg: DictConfig,
    names: dict[str, str],
    what: dict,
    digest: str,
    federations: Sequence[Federation],
    outcome: Outcome,
    weights: Sequence[np.ndarray] | None,
    device: torch.device,
    seconds: dict[str, float],
) -> dict:
    """``summary.json``; its keys are stable, other programs read them."""
    histories = outcome.histories
    _, budget = resolve_budget(cfg)
    processor = f"CPU {platform.machine()}, {torch.get_num_threads()} thread(s)"
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else processor
    return {
        "schema_version": SCHEMA_VERSION,
        "algorithm": names["algorithm"],
        "dataset": names["dataset"],
        "split": names["split"],
        "num_clients": cfg.num_clients,
        "model": names["model"],
        "scenario": names["scenario"],
        "sparsity": names["scenario/sparsity"],
        "seeds": list(cfg.seeds),
        "metric": federations[0].metric,
        "selection": "best validation score of the whole federation, earliest of equals",
        "test": {model: test_scores(histories, model, weights) for model in MODELS},
        "unscored_clients": unscored(histories),
        **({"metrics": other_scores(histories, weights)} if histories[0].others else {}),
        "client_trips": {
            "total": int(histories[0].trips[-1]),
            "to_target": {f"{target:g}": trips_to_target(histories, target, budget, weights) for target in cfg.targets},
        },
        "bytes": moved(histories),
        **({"costs": {name: spread(each) | {"per_seed": each} for name, each in outcome.costs.items()}} if outcome.costs else {}),
        "virtual_time": float(np.mean([h.time[-1] for h in histories])),
        "staleness": staleness(histories),
        "seconds": seconds,
        "device": hardware,
        "versions": versions(),
        "code": code_state(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "config_hash": digest,
        "config": what,
        "partition_hash": [f.partition_hash for f in federations],
        "graph": {
            "nodes": sum(c.num_nodes for c in federations[0].clients),
            "edges": sum(c.edges.shape[1] for c in federations[0].clients) // 2,
            "cross_edges": federations[0].cross_edges.shape[1] // 2,
            "features": federations[0].num_features,
            "classes": federations[0].num_classes,
        },
        "label_counts": label_counts([client.labels for client in federations[0].clients], federations[0].num_classes),
    }  # fmt: skip


def moved(histories: Sequence[History]) -> dict[str, int]:
    """Bytes sent up and down per seed; without a server also those that the busiest client has sent and received."""
    names = ("upload", "download") if histories[0].busiest is None else ("upload", "download", "busiest")
    return {name: int(np.mean([getattr(h, name)[-1] for h in histories])) for name in names}


def staleness(histories: Sequence[History]) -> dict[str, float] | None:
    """Mean over evaluation points and largest staleness of processed uploads; None where every upload is fresh by construction."""
    if all(np.isnan(h.staleness).all() for h in histories):
        return None
    return {
        "mean": float(np.mean([np.nanmean(h.staleness[:, 0]) for h in histories])),
        "max": float(max(np.nanmax(h.staleness[:, 1]) for h in histories)),
    }
