"""Base of all federated methods (local objective, reports and uploads), and the bases of the scenarios' methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.records import Exchange, Meeting, Message, Server, Setting, Traffic, Upload
from fgl_bench.data.splits.base import Split
from fgl_bench.engine import Int
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.hooks import JointTraining, TrainedScore, check_shape
from fgl_bench.engine.mixing import Mixing, checked, messages, self_loops
from fgl_bench.engine.network import Parameters, node_losses
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, UserError, check_ranges
from fgl_bench.models.base import Backbone


@dataclass
class Algorithm(ABC):  # noqa: B024 (abstract methods are in the bases of scenarios)
    """Base of all methods; the fields of a subclass are its hyperparameters.

    A method derives from the base of every scenario that supports it, which adds the scenario's hooks: :class:`ServerRounds`,
    :class:`SemiAsyncServer`, :class:`Peers`. Hooks that only a few methods need are in :mod:`fgl_bench.algorithms.powers`.

    One instance serves all S seeds and C clients of a run at once; replica ``s * C + c`` is client c of seed s.

    Class attributes:
        trains: True if clients take gradient steps.
        predicts_alone: False if predictions depend on more than the model's parameters, which are all that is saved of a run.
        own_optimizer: description of the method's own client optimizer, if any; a configured optimizer is then refused.
        reset_optimizer: True if the clients' optimizers restart in every trip, regardless of ``opt_state``.
        pairing: choices of other groups that the method was designed for, by group; an error message suggests them.
        tasks: names of the tasks that the method is defined for; ``("node",)`` if it reads the labels of nodes or propagates predictions.
        multilabel: True if nodes may have several labels; False if the method reads labels as classes or logits as a distribution.
        node_batches: True if the local objective is defined on a subset of a client's training nodes (``batch_nodes``).
        ranges: allowed values of its keys, in addition to those of its bases; checked before data are read.
        uses_validation: True if the method reads labels of validation nodes, e.g. to tune the server. No method may read labels of
            test nodes.
        by_clients: True if several workers can share the clients of a seed. Training hooks, :meth:`upload`, ``refine`` and ``exchange``
            then get only the clients of this worker (``setting.shard``); ``mix`` gets the reports of all clients. Not inherited, since
            a subclass may need other clients too.
        labeled_only: True if the method reads predictions for labeled nodes only. Rows of other nodes are then skipped if the backbone
            precomputes features and draws no dropout. Not inherited.
        own_reports: names of reports that the server only averages (``setting.shard.mean``) or that stay with the client; a worker has
            these reports for its own clients only.
        unsent: names of reports that are not uploaded: they stay with the client, or the server can compute them from the uploaded
            model. :meth:`traffic` covers all others.
        replayable: True if CUDA graphs can replay local steps and :meth:`report` although the method overrides their hooks. The hooks
            must do the same in every trip, on tensors with fixed addresses, without reading ``received`` models or synchronizing with
            the host. Not inherited, and not needed by a method without such hooks.
        frozen: names of the parameters that stay as initialized; a property if they depend on the model (read after :meth:`prepare`).
            They get no gradient and no weight decay, a ``Mixing`` leaves them out, and the base's :meth:`traffic` does not count them.
            A semi-asynchronous server leaves them out by ``upload_blocks`` and ``Message.blocks``.
        rebuilt: names of attributes that checkpoints leave out: caches, and attributes set by :meth:`prepare` that never change.
    """

    pairing: ClassVar[Mapping[str, str]] = {}
    tasks: ClassVar[tuple[str, ...]] = ("node", "graph", "link")
    trains: ClassVar[bool] = True
    reset_optimizer: ClassVar[bool] = False
    own_optimizer: ClassVar[str | None] = None
    predicts_alone: ClassVar[bool] = True
    node_batches: ClassVar[bool] = True
    multilabel: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {}
    uses_validation: ClassVar[bool] = False
    by_clients: ClassVar[bool] = False
    labeled_only: ClassVar[bool] = False
    own_reports: ClassVar[tuple[str, ...]] = ()
    unsent: ClassVar[tuple[str, ...]] = ()
    replayable: ClassVar[bool] = False
    frozen: ClassVar[tuple[str, ...]] = ()
    rebuilt: ClassVar[tuple[str, ...]] = ()

    def check_choices(self, model: Backbone, split: Split) -> None:
        """Raise :class:`~fgl_bench.errors.Unsuited` if the method cannot run on this model or split; called before data are read."""
        self.backbone(model)

    def backbone(self, model: Backbone) -> Backbone:
        """Return the network that clients train: ``model``, or a wrapper if the method has additional parameters."""
        return model

    def prepare(self, setting: Setting) -> None:
        """Allocate the method's state; called once before round 0."""
        check_ranges(self, "algorithm")
        self.setting = setting

    def initialize(self, initial: Tensor) -> Tensor:
        """Return the clients' initial models ``[B, P]``, given the common initial model of every seed."""
        return initial

    def optimizer(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """Return the clients' optimizer for ``count`` rows of ``size``, like ``StackedAdam``; None means the configured one.

        A method that ignores ``setting.optimizer`` sets ``own_optimizer``.
        """
        return None

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        """Return terms ``[k]`` added to the replicas' cross-entropy at every local step."""
        return None

    def local_loss(self, step: LocalStep) -> Tensor:
        """Return the sum of the k replicas' local objectives, whose gradients are independent.

        Each is the mean cross-entropy over the client's training nodes plus :meth:`local_penalty`.
        """
        train, penalty = step.batch.training_nodes, self.local_penalty(step)
        logits = step.output.logits.flatten(0, 1).index_select(0, train.index)
        step.losses = node_losses(logits, train.labels)
        loss = torch.dot(step.losses, train.weights)
        if penalty is None:
            return loss
        check_shape("local_penalty()", penalty, {"k": len(step.rows)}, "k")
        return loss + penalty.sum()

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        """Return the gradient ``[k, P]`` for the optimizer; may modify its argument.

        The optimizer adds weight decay afterwards, so a parameter whose gradient is set to zero here still shrinks. To fix parameters,
        name them in :attr:`frozen`.
        """
        return gradient

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        """Return a client's logits ``[k, n, Y]``; ``first`` is ``model.first(parameters, batch)``."""
        return model.forward(parameters, batch, first, no_dropout).logits

    def report(self, trips: Trips) -> dict[str, Tensor]:
        """Return tensors to upload with the models, ``[k, ...]`` by name; called as soon as the trips of a chunk are finished."""
        return {}

    def upload(self, rows: Sequence[int], received: Tensor, trained: Tensor) -> Tensor:
        """Return the vectors ``[k, P]`` that clients upload and the server (or a peer) aggregates.

        The base uploads the trained models without a copy. A client's row must not depend on the other rows.

        Args:
            rows: replica numbers (seed * C + client) of the clients that trained; k is 1 for a semi-asynchronous server.
            received, trained: ``[k, P]``, their models before and after training; read only.
        """
        return trained

    def traffic(self) -> Traffic:
        """Return the sizes of all messages. The base sends the model both ways, without :attr:`frozen` parameters."""
        layout = self.setting.layout
        model = {"model": layout.count - sum(layout.numel(name) for name in self.frozen)}
        return Traffic(upload=model, download=model)


def replays_steps(method: Algorithm) -> bool:
    """Return True if CUDA graphs can replay local steps: no hook of a step is overridden, or the method is ``replayable``."""
    called = ("backbone", "optimizer", "local_penalty", "local_loss", "correct_gradient", "predict")
    plain = all(getattr(type(method), name) is getattr(Algorithm, name) for name in called)
    return method.trains and (plain or _replayable(method)) and not isinstance(method, JointTraining)


def replays_reports(method: Algorithm) -> bool:
    """Return True if CUDA graphs can replay the scores of trained models and the reports after a trip's last step."""
    plain = type(method).report is Algorithm.report and not isinstance(method, TrainedScore)
    return replays_steps(method) and (plain or _replayable(method))


def _replayable(method: Algorithm) -> bool:
    return vars(type(method)).get("replayable", False)


class ServerRounds(Algorithm):
    """A method under ``scenario=sync``: every round the participants train and upload, and the server aggregates.

    Attributes:
        bytes_before: ``[S, 2]``, bytes that all clients of a seed upload and download before the first round; set by :meth:`prepare`.
    """

    bytes_before: Int[np.ndarray, "S 2"] | None = None

    @abstractmethod
    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """Return the mixing of the round's uploads into the next received models.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
            arrived: ``[S, C]`` bool, the participants of this round.
        """

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        """Return the models that clients receive, ``[S, C, P]``: a server step after aggregation, by default none.

        Args:
            previous: ``[S, C, P]``, the models received before this round.
            received: ``[S, C, P]``, the aggregated models.
            uploaded: ``[S, C, P]``, each client's last upload: the trained models, unless :meth:`upload` is overridden.
            arrived: ``[S, C]`` bool, the participants of this round. Clients of a seed without participants keep ``previous``.
        """
        return received

    @property
    def refines(self) -> bool:
        """Return True if :meth:`refine` is overridden, so that ``previous`` must be stored."""
        return type(self).refine is not ServerRounds.refine

    def warmup_rounds(self) -> int:
        """Return the number of initial rounds without aggregation; best-validation selection ignores their points."""
        return 0

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        """Return bytes uploaded and downloaded per seed after ``rounds`` rounds.

        The base counts :meth:`traffic` once per trip, and :attr:`bytes_before` from the first round on.
        """
        up, down, _ = self.traffic().bytes
        seeds = len(self.setting.seeds)
        before = [(0, 0)] * seeds if self.bytes_before is None or not rounds else self.bytes_before.tolist()
        return [(trips * up + sent, trips * down + obtained) for sent, obtained in before]


class SemiAsyncServer(Algorithm):
    """A method under ``scenario=semi_async``: clients train at their own pace, and the server steps once enough uploads have arrived.

    Class attributes:
        keeps_uploads: True if the server stores every client's last upload, in ``server.uploads``.
        reads_staleness: True if the method reads the staleness of uploads from the scenario instead of tracking it.
    """

    keeps_uploads: ClassVar[bool] = False
    reads_staleness: ClassVar[bool] = True

    @abstractmethod
    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        """Take one server step: process the buffered arrivals (already in ``server.uploads`` and ``server.reports``), return messages."""

    def begin(self, message: Message, trained: Tensor, reports: dict[str, float]) -> Tensor:
        """Return the model ``[P]`` that the next trip starts from; the base overwrites the received parameters.

        A message with all parameters is mixed with the client's own model, see :meth:`message_share`. A method that only chooses the
        weight overrides :meth:`message_share`, and the models of all trips are then mixed at once.

        Args:
            trained: ``[P]``, the client's last trained model.
            reports: the client's last scalar reports, by name.
        """
        if message.blocks is None:
            share = self.message_share(message, reports)
            return message.model if share == 1 else share * message.model + (1 - share) * trained
        return self.setting.layout.overwrite(trained.clone(), message.model, message.blocks)

    def message_share(self, message: Message, reports: dict[str, float]) -> float:
        """Return the weight of a message's model in the next trip's initial model, 1 by default; the rest is the last trained model.

        Args:
            reports: the client's last scalar reports, by name.
        """
        return 1.0

    def buffer_size(self) -> int:
        """Return the arrivals per server step: the ``buffer`` key, or a quarter of the clients (5 of 20) if it is null.

        Raises:
            UserError: fewer than one, or more than the number of clients (the server would never step).
        """
        clients, size = self.setting.num_clients, getattr(self, "buffer", None)
        size = max(1, round(clients / 4)) if size is None else size
        if not 1 <= size <= clients:
            raise UserError(f"algorithm.buffer={size} does not fit num_clients={clients}; allowed: 1 to {clients}")
        return size

    @property
    def waits(self) -> bool:
        """Return True if an uploader with an empty inbox waits for the next server step, instead of downloading the model at once."""
        return True

    @property
    def merges_before_upload(self) -> bool:
        """Return True if a pending push is merged into the trained model before upload, not at the start of the next trip."""
        return False

    def upload_blocks(self, server: Server) -> tuple[str, ...] | None:
        """Return the names of the parameters in the current upload; None means all."""
        return None


class Peers(Algorithm):
    """A method under ``scenario=decentralized``: every round all clients train, then exchange along a directed graph."""

    def topology(self) -> tuple[str, int | None]:
        """Return the default communication graph (a name in ``engine.topologies``) and its degree."""
        return "complete", None

    @abstractmethod
    def exchange(self, meeting: Meeting) -> Exchange:
        """Exchange messages after a round's training, and return the next models."""


class MixingPeers(Peers):
    """Peers that average whole models by one matrix, regardless of the communication graph."""

    @abstractmethod
    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """Return the mixing of uploads into the next models; arguments as for :meth:`ServerRounds.mix`, with uploads of all clients."""

    def exchange(self, meeting: Meeting) -> Exchange:
        arrived = torch.ones_like(self.setting.weights, dtype=torch.bool)
        mixing = checked(self.mix(meeting.reports, arrived), arrived).without(self.frozen, self.setting.layout)
        matrix = mixing.matrix()
        models = mixing.apply(meeting.uploaded, meeting.received, self.setting.layout, meeting.trained, self.setting.shard)
        return Exchange(models, matrix, messages((matrix > 0) & ~self_loops(matrix), self.traffic().bytes[0]))
