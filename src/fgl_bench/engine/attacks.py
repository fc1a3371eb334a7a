"""Malicious clients: they train on poisoned labels, or upload other models than they trained."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.engine import Bool, Float, Int
from fgl_bench.engine.random_numbers import normal, step_key
from fgl_bench.engine.shard import Shard
from fgl_bench.engine.transfer import put
from fgl_bench.errors import Range, UserError, at_least, between
from fgl_bench.utils.seeding import generator


class Uploads(NamedTuple):
    """The models of k clients that finished training at the same time.

    Attributes:
        received, trained: ``[k, P]``, before and after training.
        honest: ``[k]`` bool.
        seed: ``[k]``, the number of the seed, from 0 to ``seeds - 1``.
        key: ``[k]``, keys of random draws.
        clients: C.
        shard: the clients of this worker; the other workers call at the same time.
    """

    received: Float[Tensor, "k P"]
    trained: Float[Tensor, "k P"]
    honest: Bool[Tensor, " k"]
    seed: Int[Tensor, " k"]
    seeds: int
    key: Int[Tensor, " k"]
    clients: int
    shard: Shard

    def honest_mean(self, models: Float[Tensor, "k P"]) -> Float[Tensor, "k P"]:
        """Return the mean of the honest clients' ``models`` with the same seed; a client's own model where the seed has no honest one."""
        own = self.seed[self.honest]
        total = models.new_zeros(self.seeds, models.shape[1]).index_add_(0, own, models[self.honest])
        count = models.new_zeros(self.seeds).index_add_(0, own, models.new_ones(len(own)))
        world = self.shard.world
        total, count = world.sum_(total), world.sum_(count)
        return torch.where((count > 0)[self.seed, None], (total / count.clamp(min=1)[:, None])[self.seed], models)


@dataclass
class Attack(ABC):  # noqa: B024 (an attack overrides one of two methods)
    """``round(fraction * C)`` malicious clients, drawn once per seed. Their validation and test nodes count in no score.

    Attributes:
        fraction: share of the clients that are malicious.

    Class attributes:
        forges: True if malicious clients upload other models than they trained (:meth:`forge`).
        colludes: True if they know what other clients upload in the same round.
    """

    forges: ClassVar[bool] = True
    colludes: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {"fraction": Range(0, 1, below=True)}

    fraction: float

    def malicious(self, seed: int, clients: int) -> Bool[np.ndarray, " C"]:
        """Return the malicious clients of a seed, ``[C]`` bool."""
        drawn = generator(seed, "attack").choice(clients, round(self.fraction * clients), replace=False)
        return np.isin(np.arange(clients), drawn)

    def compromise(self, federation: Federation) -> Federation:
        """Return the federation with malicious clients; the same one without any.

        Raises:
            UserError: no honest client has a validation or a test node.
        """
        malicious = self.malicious(federation.seed, federation.num_clients)
        if not malicious.any():
            return federation

        def part(clients: tuple[ClientGraph, ...]) -> tuple[ClientGraph, ...]:
            poisoned = (
                self.poison(client, federation.num_classes) if bad else client for client, bad in zip(clients, malicious, strict=True)
            )
            return tuple(unscored(client) if bad else client for client, bad in zip(poisoned, malicious, strict=True))

        clients = part(federation.clients)
        observed = clients if federation.observed is federation.clients else part(federation.observed)
        federation = replace(federation, clients=clients, observed=observed, malicious=tuple(np.flatnonzero(malicious).tolist()))
        if not all(any(getattr(client, mask).any() for client in federation.scored) for mask in ("val", "test")):
            raise UserError(f"scenario.attack.fraction={self.fraction}: no honest client has a validation and a test node; lower it")
        return federation

    def poison(self, client: ClientGraph, classes: int) -> ClientGraph:
        """Return the data that a malicious client trains on."""
        return client

    def forge(self, uploads: Uploads) -> Float[Tensor, "k P"]:
        """Return the models that malicious clients upload; rows of honest ones are not read."""
        return uploads.trained


def unscored(client: ClientGraph) -> ClientGraph:
    """Return the client without validation and test nodes."""
    return replace(client, val=np.zeros_like(client.val), test=np.zeros_like(client.test))


@dataclass
class NoAttack(Attack):
    """All clients are honest."""

    forges: ClassVar[bool] = False

    fraction: float = 0.0


@dataclass
class LabelFlip(Attack):
    """Malicious clients train on labels ``Y - 1 - y`` (Fang et al., USENIX Security 2020), and upload what they trained."""

    forges: ClassVar[bool] = False

    def poison(self, client: ClientGraph, classes: int) -> ClientGraph:
        if client.labels.ndim > 1:
            raise UserError("scenario/attack=label_flip: needs one class per node, and this dataset has several labels per node")
        return replace(client, labels=np.where(client.train, classes - 1 - client.labels, client.labels))


@dataclass
class SignFlip(Attack):
    """Malicious clients upload ``received - scale * (trained - received)`` (Li et al., AAAI 2019).

    With ``scale=-1`` they upload what they trained: a reference without an attack whose scores are of the same clients.
    """

    ranges: ClassVar[dict[str, Range]] = {"scale": at_least(-1)}

    scale: float

    def forge(self, uploads: Uploads) -> Float[Tensor, "k P"]:
        return uploads.received - self.scale * (uploads.trained - uploads.received)


@dataclass
class Gaussian(Attack):
    """Malicious clients add Gaussian noise to the model that they received, and upload that."""

    ranges: ClassVar[dict[str, Range]] = {"std": at_least(0)}

    std: float

    def forge(self, uploads: Uploads) -> Float[Tensor, "k P"]:
        forged, malicious = uploads.received.clone(), ~uploads.honest
        forged[malicious] += self.std * normal(uploads.key[malicious], 1, forged.shape[1], forged.dtype)[:, 0]
        return forged


@dataclass
class ALIE(Attack):
    """Malicious clients upload ``mean - z * std`` of the honest models, per parameter (Baruch et al., NeurIPS 2019, algorithm 3).

    They know the honest models of the round, as is usual in comparisons of robust aggregators; in a round without any they upload what they
    trained. (The paper's attackers estimate mean and standard deviation from the models that they trained themselves.)

    Attributes:
        z: None takes the largest z for which the attackers expect a majority around their model, given C clients and m attackers:
            the normal quantile of ``(C - m - s) / (C - m)`` with ``s = floor(C / 2 + 1) - m``, but at least 0.
    """

    colludes: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"fraction": between(0, 0.5), "z": at_least(0)}

    z: float | None

    def forge(self, uploads: Uploads) -> Float[Tensor, "k P"]:
        mean = uploads.honest_mean(uploads.trained)
        std = uploads.honest_mean((uploads.trained - mean).square()).sqrt()
        return mean - (largest_z(uploads.clients, self.fraction) if self.z is None else self.z) * std


def largest_z(clients: int, fraction: float) -> float:
    """Return the z of :class:`ALIE` for ``round(fraction * clients)`` attackers."""
    attackers = round(fraction * clients)
    supporters = max(clients // 2 + 1 - attackers, 1)
    return NormalDist().inv_cdf(max((clients - attackers - supporters) / (clients - attackers), 0.5))


class Forgery:
    """Replaces the models of malicious clients before they are uploaded.

    Args:
        malicious: ``[S, C]`` host bool.
        streams: ``[B]``, the random streams of this worker's replicas.
        shard: the clients of this worker.
    """

    def __init__(self, attack: Attack, malicious: Bool[np.ndarray, "S C"], streams: Tensor, shard: Shard):
        self.attack, self.streams, self.shard = attack, streams, shard
        self.shape, own = malicious.shape, shard.of(malicious)
        self.honest, self.seed = ~own.ravel(), np.repeat(np.arange(len(own)), own.shape[1])

    def __call__(self, rows: tuple[int, ...], received: Float[Tensor, "k P"], trained: Float[Tensor, "k P"], time: int) -> Tensor:
        """Return ``trained`` with the forged models of the malicious clients among ``rows``.

        Args:
            rows: replica numbers.
            time: number of the round or trip.
        """
        index = put(rows, trained.device, torch.int64)
        honest, seed = (put(values[list(rows)], trained.device) for values in (self.honest, self.seed))
        key = step_key(self.streams[index], torch.full_like(index, time), 0)
        uploads = Uploads(received, trained, honest, seed, self.shape[0], key, self.shape[1], self.shard)
        return torch.where(honest[:, None], trained, self.attack.forge(uploads))
