"""``summary.json`` of a finished run."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from fgl_bench.config.settings import Settings
from fgl_bench.data.federation import Federation
from fgl_bench.engine.privacy import DP
from fgl_bench.evaluation.history import History, Outcome
from fgl_bench.evaluation.summary import MODELS, divergence, other_scores, spread, test_scores, trips_to_target, unscored
from fgl_bench.models._mixed import Mixed
from fgl_bench.results.choose import BEFORE, GROUPS
from fgl_bench.results.provenance import code_state, versions
from fgl_bench.results.store import PRESENTATION, SCHEMA_VERSION, config_hash
from fgl_bench.results.thinned import label_counts
from fgl_bench.runner.reporter import node_counts
from fgl_bench.runner.spec import RunSpec
from fgl_bench.runner.unseen import unseen_summary
from fgl_bench.scenarios.base import Rounds
from fgl_bench.utils.participation import participants


class Facts(NamedTuple):
    """Facts of the federations.

    Attributes:
        metric: the name of the scores.
        partition_hash, untrained: of every seed: hash of the partition, and number of clients without a training node.
        malicious: of every seed, the numbers of malicious clients.
        weights: of every seed, nodes of the clients ``[C]``; None unless ``eval_weight=nodes`` weighs scores by them.
        graph, label_counts: of the first seed.
    """

    metric: str
    partition_hash: list[str]
    untrained: list[int]
    malicious: list[list[int]]
    weights: list[np.ndarray] | None
    graph: dict[str, int]
    label_counts: list[list[int]] | None

    @classmethod
    def of(cls, settings: Settings, federations: Sequence[Federation]) -> Facts:
        first = federations[0]
        graph = {
            "nodes": sum(c.num_nodes for c in first.clients),
            "edges": sum(c.edges.shape[1] for c in first.clients) // 2,
            "cross_edges": first.cross_edges.shape[1] // 2,
            "features": first.num_features,
            "classes": first.num_classes,
        }
        counts = label_counts([client.labels for client in first.clients], first.num_classes)
        untrained = [sum(not client.train.any() for client in federation.observed) for federation in federations]
        hashes = [federation.partition_hash for federation in federations]
        malicious = [list(federation.malicious) for federation in federations]
        return cls(first.metric, hashes, untrained, malicious, node_counts(settings, federations), graph, counts)

    @classmethod
    def joined(cls, parts: Sequence[Facts]) -> Facts:
        """The facts of all seeds from those of some of them each, in order."""
        first = parts[0]
        return first._replace(
            partition_hash=[each for part in parts for each in part.partition_hash],
            untrained=[each for part in parts for each in part.untrained],
            malicious=[each for part in parts for each in part.malicious],
            weights=None if first.weights is None else [each for part in parts for each in part.weights or ()],
        )


def summarize(
    spec: RunSpec,
    what: dict[str, Any],
    facts: Facts,
    outcome: Outcome,
    devices: Sequence[torch.device],
    seconds: dict[str, float],
    workers: dict[str, int],
) -> dict:
    """``summary.json``; its keys are stable, other programs read them."""
    model = spec.model
    backbones = [model.dealt(seed, spec.settings.num_clients) for seed in spec.settings.seeds] if isinstance(model, Mixed) else []
    chosen = {key: spec.names[group.replace(".", "/")] for group, key in GROUPS.items()}
    histories, weights, names, settings = outcome.histories, facts.weights, spec.names, spec.settings
    # Processors with other vector units round differently.
    processor = f"CPU {platform.machine()} ({torch.backends.cpu.get_cpu_capability()}), {torch.get_num_threads()} thread(s)"
    hardware = ", ".join(map(torch.cuda.get_device_name, devices)) if devices[0].type == "cuda" else processor
    return {
        "schema_version": SCHEMA_VERSION,
        "algorithm": names["algorithm"],
        "task": names["task"],
        "dataset": names["dataset"],
        "split": names["split"],
        "num_clients": spec.num_clients,
        "model": names["model"],
        **({"backbones": backbones} if backbones else {}),
        "optimizer": names["optimizer"],
        "scenario": names["scenario"],
        "sparsity": names["scenario/sparsity"],
        **{key: name for key, name in chosen.items() if name != BEFORE.get(key)},
        "seeds": list(settings.seeds),
        "metric": facts.metric,
        "selection": "best validation score of the whole federation, earliest of equals",
        "test": {model: test_scores(histories, model, weights) for model in MODELS},
        "unscored_clients": unscored(histories),
        "untrained_clients": facts.untrained,
        **({"malicious_clients": facts.malicious} if any(facts.malicious) else {}),
        "diverged": divergence(histories),
        **({"metrics": other_scores(histories, weights)} if histories[0].others else {}),
        "client_trips": {
            "total": int(np.mean([h.trips[-1] for h in histories])),
            "to_target": {f"{target:g}": trips_to_target(histories, target, spec.trips, weights) for target in settings.targets},
        },
        **({"warmup_rounds": histories[0].warmup_rounds} if histories[0].warmup_rounds else {}),
        "bytes": moved(histories),
        **({"costs": {name: spread(each) | {"per_seed": each} for name, each in outcome.costs.items()}} if outcome.costs else {}),
        **({"privacy_spent": privacy_spent(spec, spec.privacy, histories)} if isinstance(spec.privacy, DP) else {}),
        **({"rounds_trained": [int(h.version[-1]) for h in histories]} if settings.patience or settings.virtual_time else {}),
        **({"unseen": unseen_summary(outcome.unseen, settings.finetune_epochs)} if outcome.unseen else {}),
        "virtual_time": float(np.mean([h.time[-1] for h in histories])),
        "staleness": staleness(histories),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "device": hardware,
        **workers,
        "versions": versions(),
        "code": code_state(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "overrides": [text for text in spec.overrides if root(text) not in PRESENTATION],
        "config_hash": config_hash(what),
        "config": what,
        "partition_hash": facts.partition_hash,
        "graph": facts.graph,
        "label_counts": facts.label_counts,
    }  # fmt: skip


def privacy_spent(spec: RunSpec, privacy: DP, histories: Sequence[History]) -> dict[str, float | None]:
    """The guarantee for the client that took part most often; an epsilon of None guarantees nothing."""
    clients, most = histories[0].sizes.shape[0], 0
    count = participants(spec.settings.participation, clients)
    for history in histories:
        rounds = range(int(history.version[-1]))
        most = max(most, sum(cast(Rounds, spec.scenario).draw([history.seed], number, count, clients)[0] for number in rounds).max())
    return {"epsilon": privacy.epsilon(int(most)), "delta": privacy.delta, "participations": int(most)}


def root(override: str) -> str:
    """The top-level key that an override is about."""
    return re.split(r"[./=]", override.lstrip("+~"), maxsplit=1)[0]


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
