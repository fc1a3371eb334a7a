"""Which seeds and clients each of several workers trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fgl_bench.data.federation import Federation
from fgl_bench.data.graph import ClientGraph, Features
from fgl_bench.engine.shard import Shard
from fgl_bench.errors import UserError
from fgl_bench.runner.spec import RunSpec
from fgl_bench.scenarios.base import Rounds
from fgl_bench.utils.world import World


@dataclass(frozen=True)
class Share:
    """The share of one worker.

    Attributes:
        seeds: that it trains.
        shard: its clients of each; those who train the others are ``shard.world``.
    """

    seeds: tuple[int, ...]
    shard: Shard

    @property
    def reports(self) -> bool:
        """Return True if this worker reports the outcome of its seeds; all workers that share a seed have it."""
        return self.shard.world.rank == 0


def share_of(spec: RunSpec, workers: World) -> Share:
    """This worker's share: a part of the seeds or, if there are more workers than seeds, a part of the clients of one seed.

    Every worker calls it.

    Raises:
        UserError: the run cannot be shared by this number of workers.
    """
    settings = spec.settings
    seeds, size = settings.seeds, workers.size
    count = {"auto": min(size, len(seeds)), "seeds": size, "clients": 1}[settings.shard]
    teams = [part.tolist() for part in np.array_split(np.arange(size), count)]
    workers.first(lambda: check(spec, size, max(map(len, teams))))
    number = next(number for number, ranks in enumerate(teams) if workers.rank in ranks)
    own = np.array_split(np.asarray(seeds), count)[number]
    return Share(tuple(own.tolist()), Shard(settings.num_clients, workers.team(teams)))


def check(spec: RunSpec, size: int, team: int) -> None:
    """Raise UserError unless ``size`` workers can share the run, ``team`` of them sharing the clients of a seed."""
    settings, names, seeds = spec.settings, spec.names, len(spec.settings.seeds)
    if settings.shard == "seeds" and size > seeds:
        raise UserError(f"shard=seeds: {size} workers for {seeds} seed(s); start {seeds} at most, or use shard=clients")
    if team == 1:
        return
    way = f"use shard=seeds and at most {seeds} worker(s), the number of seeds"
    if not isinstance(spec.scenario, Rounds):
        raise UserError(f"scenario={names['scenario']}: workers cannot share the clients of a seed; {way}")
    if not vars(type(spec.algorithm)).get("by_clients", False):
        raise UserError(f"algorithm={names['algorithm']}: workers cannot share the clients of a seed; {way}")
    if spec.split.test == "server":
        raise UserError(f"split.test=server: workers cannot share the clients of a seed; {way}")
    if team > settings.num_clients:
        raise UserError(f"num_clients={settings.num_clients}: {team} workers would share the clients of a seed; start fewer")


def narrowed(federation: Federation, shard: Shard) -> Federation:
    """``federation`` without the features and edges of other workers' clients; labels and masks stay, for sizes and scores."""
    if shard.alone:
        return federation

    def part(clients: Sequence[ClientGraph]) -> tuple[ClientGraph, ...]:
        own = set(range(len(clients))[shard.own])
        return tuple(_narrowed_client(client) if i in own else _bare(client) for i, client in enumerate(clients))

    return _with(federation, part)


def own_part(federation: Federation, shard: Shard) -> Federation:
    """A federation of this worker's clients alone, for plans based on sizes."""
    if shard.alone:
        return federation
    return _with(federation, lambda clients: tuple(clients[shard.own]))


def _with(federation: Federation, part: Callable[[Sequence[ClientGraph]], tuple[ClientGraph, ...]]) -> Federation:
    clients = part(federation.clients)
    same = federation.observed is federation.clients
    return replace(federation, clients=clients, observed=clients if same else part(federation.observed))


def _bare(client: ClientGraph) -> ClientGraph:
    width = client.features.shape[1]
    features: Features = sp.csr_matrix((0, width)) if sp.issparse(client.features) else np.empty((0, width), client.features.dtype)
    return replace(client, features=features, edges=np.empty((2, 0), dtype=np.int64))


def _narrowed_client(client: ClientGraph) -> ClientGraph:
    """With features in memory of their own: a view would keep those of all clients alive."""
    features = client.features
    if sp.issparse(features) or isinstance(features, np.memmap):
        return client
    return replace(client, features=np.array(features))
