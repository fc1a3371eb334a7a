"""Everything that a scenario needs to train some seeds together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm, Setting, replays_reports, replays_steps
from fgl_bench.config.settings import Settings
from fgl_bench.data.federation import Federation, ServerFederation
from fgl_bench.data.graph import LabeledNodes, reducible
from fgl_bench.data.pooling import Pooled
from fgl_bench.engine.aggregators import Aggregator, Mean
from fgl_bench.engine.attacks import Attack, Forgery
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.hooks import check_shape
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.schedules import Constant, Schedule
from fgl_bench.engine.shard import ALONE, Shard
from fgl_bench.engine.training import ServerTrainer, Trainer
from fgl_bench.errors import UserError
from fgl_bench.evaluation.metrics import OF_TWO_CLASSES, scores, scoring
from fgl_bench.models._mixed import Mixed
from fgl_bench.models.base import Backbone
from fgl_bench.optimizers.adam import DEFAULT
from fgl_bench.optimizers.base import Optimizer
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.utils.participation import participants
from fgl_bench.utils.seeding import derive_seed

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def simulation(
    settings: Settings,
    federations: Sequence[Federation],
    model: Backbone,
    algorithm: Algorithm,
    device: torch.device,
    rounds: int,
    trips: int,
    chunk: int | None = None,
    drops_uploads: bool = False,
    optimizer: Optimizer = DEFAULT,
    shard: Shard = ALONE,
    attack: Attack | None = None,
    aggregator: Aggregator | None = None,
    schedule: Schedule | None = None,
) -> Simulation:
    """Everything a scenario needs to run these federations (seeds) together.

    Args:
        chunk: most replicas trained in one program; None means all.
        drops_uploads: the scenario's property of this name.
        optimizer: of the clients.
        shard: the clients that this worker trains; of the others it needs no graphs.
        attack: of the federations' malicious clients; None means none.
        aggregator: of the server; None means the method's own mean.
        schedule: of the clients' learning rate; None means a constant one.
    """
    dtype, seeds = DTYPES[settings.dtype], tuple(federation.seed for federation in federations)
    stacked = partial(Batch, dtype=dtype, device=device, feature_dtype=DTYPES[settings.feature_dtype or settings.dtype])
    clients, held = federations[0].num_clients, [client for f in federations for client in f.observed[shard.own]]
    same = all(f.observed is f.clients for f in federations)
    # Dropout draws a mask by the place of a node: with fewer nodes it would draw another.
    alone = vars(type(algorithm)).get("labeled_only", False) and model.rows_suffice and not model.drops
    reduced = same and alone and reducible(held)
    batch = stacked([LabeledNodes.of(client) for client in held] if reduced else held)
    whole = [client for f in federations for client in f.clients[shard.own]]
    joined = model.normalizes or isinstance(federations[0], Pooled)  # statistics are of training examples, members' scores by position
    evaluation = batch if same else stacked(whole if joined else [client.held_out for client in whole])
    batch.per_federation = evaluation.per_federation = clients if shard.alone else None
    model = algorithm.backbone(model)
    if isinstance(model, Mixed):
        model = model.deal(seeds, clients, shard.own, federations[0].num_features, federations[0].num_classes)
    if settings.batch_nodes is not None and model.needs_neighbors:  # the method's wrapper around the backbone does
        raise UserError(f"batch_nodes={settings.batch_nodes}: the method's own network needs a node's neighbors; use batch_nodes=null")
    layout = model.layout(federations[0].num_features, federations[0].num_classes)
    layout.personal = model.ends(layout) if federations[0].personal_ends else ()
    nodes = [client.num_nodes for client in held] if reduced else batch.num_nodes  # with those that are left out
    sizes = {"train": batch.num_train, "nodes": nodes, "uniform": [1] * len(held)}[settings.agg_weight]
    weights = shard.whole(torch.as_tensor(sizes, dtype=torch.float64, device=device).view(len(seeds), -1))
    server = stacked(servers) if (servers := [f.server for f in federations if isinstance(f, ServerFederation)]) else None
    setting = Setting(
        seeds=seeds,
        num_clients=clients,
        num_classes=federations[0].num_classes,
        model=model,
        layout=layout,
        batch=batch,
        weights=weights,
        local_epochs=settings.local_epochs,
        lr=settings.lr,
        optimizer=optimizer,
        full_participation=settings.participation == 1 and not drops_uploads,
        cross_edges=tuple(f.cross_edges for f in federations),
        server=server,
        shard=shard,
        replay=settings.cuda_graphs,
    )
    check_labels(algorithm, federations[0])
    algorithm.prepare(setting)
    initial = algorithm.initialize(initial_models(model, layout, seeds, batch.size // len(seeds), dtype).to(device))
    check_shape("initialize()", initial, {"B": batch.size, "P": layout.size}, "B P")
    members = len(federations[0].scored)
    trainer = (Trainer if server is None else partial(ServerTrainer, server, weights, members))(
        algorithm,
        model,
        layout,
        batch,
        evaluation,
        scoring(scores(reported(settings, federations[0])), federations, device),
        setting.streams("training"),
        local_epochs=settings.local_epochs,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        reset_optimizer=settings.opt_state == "reset",
        chunk=chunk,
        batch_nodes=settings.batch_nodes,
        clip_gradient=settings.clip_gradient,
        optimizer=optimizer.start,
        replay=settings.cuda_graphs and replays_steps(algorithm),
        replay_reports=settings.cuda_graphs and replays_reports(algorithm),
    )
    pooled = members != clients
    return Simulation(
        algorithm,
        setting,
        trainer,
        initial,
        rounds,
        trips,
        settings.eval_every or members,
        settings.participation,
        mixing_at=() if pooled else tuple(settings.mixing_at),
        stands_for=participants(settings.participation, members) if pooled else 1,
        metrics=len(reported(settings, federations[0])),
        validation_nodes=sum(shard.world.gather(trainer.validation_nodes)),
        forge=forgery(attack, federations, setting) if attack is not None and not pooled else None,
        aggregator=None if isinstance(aggregator, Mean) else aggregator,
        virtual_time=math.inf if settings.virtual_time is None else settings.virtual_time,
        rate=None if schedule is None or isinstance(schedule, Constant) else partial(schedule.factor, rounds=rounds),
        score_trained=federations[0].score_trained if isinstance(federations[0], ServerFederation) else None,
    )


def forgery(attack: Attack, federations: Sequence[Federation], setting: Setting) -> Forgery | None:
    """Return what replaces the models of malicious clients; None if they upload what they trained."""
    malicious = np.array([np.isin(np.arange(f.num_clients), f.malicious) for f in federations])
    return Forgery(attack, malicious, setting.streams("attack"), setting.shard) if attack.forges and malicious.any() else None


def initial_models(model: Backbone, layout: ParameterLayout, seeds: Sequence[int], clients: int, dtype: torch.dtype) -> Tensor:
    """The initial models ``[B, P]``, common to all clients of a seed that have the same backbone."""
    rows = []
    for s, seed in enumerate(seeds):
        make = partial(torch.Generator().manual_seed, derive_seed(seed, "initial"))
        rows.append(model.initial(layout, make, range(s * clients, (s + 1) * clients)).to(dtype))
    return torch.cat(rows)


def reported(settings: Settings, federation: Federation) -> list[str]:
    """The dataset's metric, which models are selected by, those of ``metrics``, and the loss of a server's model on its nodes."""
    loss = ["loss"] if isinstance(federation, ServerFederation) else []
    return list(dict.fromkeys([federation.metric, *settings.metrics, *loss]))


def check_scores(settings: Settings, federation: Federation) -> None:
    """Raise UserError for a ranking of two classes on a dataset that does not have two classes."""
    found = [name for name in reported(settings, federation) if name in OF_TWO_CLASSES]
    if found and federation.num_classes != 2:
        key = "dataset.metric" if found[0] == federation.metric else "metrics"
        raise UserError(f"{key}: {found[0]} is for two classes, and dataset={federation.dataset} has {federation.num_classes}; use auc_ovr")


def check_labels(algorithm: Algorithm, federation: Federation) -> None:
    """Raise UserError unless the method is defined for the dataset's labels."""
    if federation.clients[0].labels.ndim > 1 and not algorithm.multilabel:
        name = type(algorithm).__name__.lower()
        raise UserError(f"algorithm={name}: needs one class a node; dataset={federation.dataset} has several labels a node")
