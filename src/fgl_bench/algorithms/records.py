"""Records passed between methods and scenarios."""

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
    """Properties of a run, fixed before round 0.

    Attributes:
        seeds: the S repetitions trained in parallel.
        num_clients: C.
        model, layout: the result of :meth:`Algorithm.backbone` for the configured model, and its parameters.
        batch: the observed graphs of all B = S * C replicas.
        cross_edges: the edges between clients of every seed, ``[2, K]`` global ids.
        server: the graphs of the S seeds' servers (``split.test=server``), else None.
        lr, optimizer: learning rate and optimizer of the clients.
        shard: the clients of every seed that this worker trains, all by default. If several workers share them, each trains c clients:
            ``batch`` has the graphs of S * c replicas; num_clients and weights count all C.
        replay: True if the run replays CUDA graphs.
        weights: ``[S, C]`` float64, the clients' sizes n_i in averages (training nodes by default, see ``agg_weight``).
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
        """Wrap ``function`` of tensors given by name in a :class:`~fgl_bench.engine.replay.Replay` if the run replays CUDA graphs.

        The object of a bound method is referenced weakly, so it may store the result.
        """
        if isinstance(function, MethodType):
            function = partial(function.__func__, proxy(function.__self__))
        return Replay(function, self.batch.device) if self.replay else function

    @property
    def replicas(self) -> list[tuple[int, int]]:
        """Return seed and client number of every replica of the batch."""
        return [(seed, client) for seed in self.seeds for client in range(self.num_clients)[self.shard.own]]

    def streams(self, name: str) -> Tensor:
        """Return a random stream per replica for the draws called ``name``, ``[B]`` int64."""
        return torch.tensor([derive_seed(seed, name, client) for seed, client in self.replicas], device=self.batch.device)


class Traffic(NamedTuple):
    """Numbers of scalars (4 bytes each) per upload, download and unsolicited push, by name."""

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
        payload: ``[P]``, the result of :meth:`Algorithm.upload`.
        base_version: server version at the start of the trip.
        staleness: server steps since that version.
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
        model: ``[P]``, the global model (for methods that have one).
        version: number of server steps done, the one in progress included.
        uploads: ``[C, P]``, the last processed upload of every client; empty unless the method ``keeps_uploads``.
        known: ``[C]`` host bool, the clients that have uploaded.
        base_version: ``[C]`` host int, the version that each client's last upload started from.
        reports: the clients' last processed reports, by name, host ``[C, ...]``.
        weights: ``[C]`` host float64 sizes n_i.
        memory: other state of a method, host arrays by name.
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
    """A message from a semi-asynchronous server to one client.

    Attributes:
        model: ``[P]``.
        confidence: the sender cluster's confidence if the message is an unsolicited push; None in a reply.
        blocks: names of the parameters that are sent; None means all.
    """

    client: int
    model: Tensor
    confidence: float | None = None
    blocks: tuple[str, ...] | None = None


class Meeting(NamedTuple):
    """State of a decentralized round after training, before the exchange.

    Attributes:
        number, rounds: the current round, from 0, and the number of rounds.
        graph: function from time to ``[S, C, C]`` bool, True if client i (row) receives from j (never from itself), without failed
            links. A method with one exchange per round uses ``graph(number)``.
        received, trained: ``[S, C, P]``, the models before and after training; read only.
        uploaded: ``[S, C, P]``, the result of :meth:`Algorithm.upload`, by default the trained models; read only.
        reports: ``[S, C, ...]`` by name, the last report of every client.
        losses: function from models ``[S, C, P]`` to the clients' losses ``[S, C]`` on their own training nodes.
        moments: states of the optimizers, ``[S, C, P]`` each; may be modified.
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
        models: ``[S, C, P]``, the models that clients train next; a new tensor.
        matrix: ``[S, C, C]``, the row-stochastic mixing matrix (the mean, if parameters have different matrices).
        sent: ``[S, C, C]`` int64, bytes that client j sent to client i (row).
    """

    models: Tensor
    matrix: Tensor
    sent: Tensor


class Stage(NamedTuple):
    """A new network in the middle of a run.

    Attributes:
        model, layout: the network to train from now on, with new optimizers.
        models: ``[B, P']``, the clients' initial models.
    """

    model: Backbone
    layout: ParameterLayout
    models: Tensor
