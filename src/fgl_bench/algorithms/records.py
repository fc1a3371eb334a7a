"""What a method is told of a run and what it answers: records that pass between it and the scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import proxy

import numpy as np
import torch
from torch import Tensor

from fgl_bench.engine.replay import Replay
from fgl_bench.engine.shard import ALONE, Shard
from fgl_bench.utils.seeding import derive_seed

if TYPE_CHECKING:
    from fgl_bench.engine.batch import Batch
    from fgl_bench.engine.layout import ParameterLayout
    from fgl_bench.models.base import Backbone
    from fgl_bench.optimizers.base import Optimizer

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """What a method may know about the run, fixed before round 0.

    Attributes:
        seeds: the S repetitions that are trained together.
        num_clients: C.
        model, layout: what :meth:`Algorithm.backbone` made of the configured model, and its parameters.
        batch: the observed graphs of all B = S * C replicas.
        cross_edges: of every seed, ``[2, K]`` global ids, the edges between clients.
        server: what the servers of the S seeds hold (``split.test=server``), else None.
        lr, optimizer: of the clients' steps.
        shard: which clients of every seed this worker trains. They are all, but where several workers share them: c is their number,
            ``batch`` has the graphs of S * c replicas, and num_clients and weights count all C.
        replay: whether the run replays CUDA graphs.
        weights: ``[S, C]`` float64, the clients' sizes n_i in averages (training nodes; all nodes or 1 with another ``agg_weight``).
    """

    seeds: tuple[int, ...]
    num_clients: int
    num_classes: int
    model: Backbone
    layout: ParameterLayout
    batch: Batch
    weights: Tensor
    local_epochs: int
    lr: float
    optimizer: Optimizer
    full_participation: bool = True
    cross_edges: tuple[np.ndarray, ...] = ()
    server: Batch | None = None
    shard: Shard = ALONE
    replay: bool = False

    def replayed(self, function: Callable[..., T]) -> Callable[..., T]:
        """``function`` of tensors given by name, as a :class:`~fgl_bench.engine.replay.Replay` where the run replays CUDA graphs.

        Of a bound method the object is not kept alive, which may therefore hold what is returned.
        """
        if isinstance(function, MethodType):
            function = partial(function.__func__, proxy(function.__self__))
        return Replay(function, self.batch.device) if self.replay else function

    @property
    def replicas(self) -> list[tuple[int, int]]:
        """The seed and the client's number of every replica of the batch."""
        return [(seed, client) for seed in self.seeds for client in range(self.num_clients)[self.shard.own]]

    def streams(self, name: str) -> Tensor:
        """A random stream of every replica for the draws called ``name``, ``[B]`` int64."""
        return torch.tensor([derive_seed(seed, name, client) for seed, client in self.replicas], device=self.batch.device)


class Traffic(NamedTuple):
    """Scalars (4 bytes each) that travel, by what they are: with one upload, one download, one unsolicited push."""

    upload: dict[str, int]
    download: dict[str, int]
    push: dict[str, int] = {}

    @property
    def bytes(self) -> tuple[int, int, int]:
        upload, download, push = (4 * sum(payload.values()) for payload in self)
        return upload, download, push


class Upload(NamedTuple):
    """One arrival at a semi-asynchronous server.

    Attributes:
        payload: ``[P]``, what :meth:`Algorithm.upload` made of the trip.
        base_version: server version that the trip started from.
        staleness: server steps taken between that version and the one being made.
        reports: the trip's reports, by name, host arrays.
        blocks: names of the parameters that were uploaded (:meth:`SemiAsyncServer.upload_blocks`); None means all.
    """

    client: int
    payload: Tensor
    base_version: int
    staleness: int
    reports: dict[str, np.ndarray]
    blocks: tuple[str, ...] | None = None


@dataclass
class Server:
    """The semi-asynchronous server's memory of one repetition.

    Attributes:
        model: ``[P]``, the global model (for methods that keep one).
        version: number of server steps done, the one in progress included.
        uploads: ``[C, P]``, the last processed upload of every client; empty unless the method ``keeps_uploads``.
        known: ``[C]`` host bool, the clients that have uploaded.
        base_version: ``[C]`` host int, the version that each client's last upload started from.
        reports: the clients' last processed reports, by name, host ``[C, ...]``.
        weights: ``[C]`` host float64 sizes n_i.
        memory: what else a method keeps, host arrays by name.
    """

    model: Tensor
    uploads: Tensor
    known: np.ndarray
    base_version: np.ndarray
    weights: np.ndarray
    reports: dict[str, np.ndarray]
    version: int = 0
    memory: dict[str, np.ndarray] = field(default_factory=dict)


class Message(NamedTuple):
    """What a semi-asynchronous server sends to one client.

    Attributes:
        model: ``[P]``.
        confidence: the sender cluster's confidence if the message was not asked for (a push); None in a reply.
        blocks: names of the parameters that travel; None means all.
    """

    client: int
    model: Tensor
    confidence: float | None = None
    blocks: tuple[str, ...] | None = None


class Meeting(NamedTuple):
    """What is at hand when the clients of a decentralized round have trained and are about to exchange.

    Attributes:
        number, rounds: this round, from 0, and how many there are.
        graph: time to ``[S, C, C]`` bool, whom each client can hear (row i hears j, never itself), failed links left out. A method
            with one exchange a round takes ``graph(number)``.
        received, trained: ``[S, C, P]``, the models before and after training; not to be changed.
        uploaded: ``[S, C, P]``, what :meth:`Algorithm.upload` made of them, the trained models unless it is overridden; likewise.
        reports: ``[S, C, ...]`` by name, the last report of every client.
        losses: models ``[S, C, P]`` to ``[S, C]``, every client's loss on its own training nodes under the model that is in its place.
        moments: what the optimizers keep, ``[S, C, P]`` each; may be changed.
    """

    number: int
    rounds: int
    graph: Callable[[int], Tensor]
    received: Tensor
    trained: Tensor
    uploaded: Tensor
    reports: dict[str, Tensor]
    losses: Callable[[Tensor], Tensor]
    moments: tuple[Tensor, ...]


class Exchange(NamedTuple):
    """The outcome of a decentralized round.

    Attributes:
        models: ``[S, C, P]``, what clients train from next; memory of its own.
        matrix: ``[S, C, C]``, the row-stochastic matrix that was applied (its mean, where parameters have different ones).
        sent: ``[S, C, C]`` int64 bytes that client i (row) was sent by j.
    """

    models: Tensor
    matrix: Tensor
    sent: Tensor


class Stage(NamedTuple):
    """A new network in the middle of a run.

    Attributes:
        model, layout: what clients train from now on, with fresh optimizers.
        models: ``[B, P']``, what each of them begins with.
    """

    model: Backbone
    layout: ParameterLayout
    models: Tensor
