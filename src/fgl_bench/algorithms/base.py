"""What a federated method is: what it adds to the local objective, what clients report, how reports become a mixing matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.records import Exchange, Meeting, Message, Server, Setting, Stage, Traffic, Upload
from fgl_bench.data.graph import Federation
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.answers import check_shape
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.gossip import itself, messages
from fgl_bench.engine.losses import node_losses
from fgl_bench.engine.mixing import Mixing, checked
from fgl_bench.engine.network import Parameters
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.trips import LocalStep, Score, Trips
from fgl_bench.errors import Range, UserError, check_ranges
from fgl_bench.models.base import Backbone


@dataclass
class Algorithm:
    """FedAvg-shaped base of every method; a subclass's fields are its hyper-parameters.

    One instance serves all S seeds and C clients of a run at once; replica ``s * C + c`` is client c of seed s.

    Class attributes:
        scenarios: names of the scenarios (modules of ``fgl_bench.scenarios``) that the method is defined under.
        trains: whether clients take gradient steps at all.
        remembers: whether a semi-asynchronous server keeps every client's last upload.
        begins_afresh: whether the clients' optimisers begin afresh in every trip, whatever ``opt_state`` says.
        lock_step: whether clients exchange while they train: all train in one program, by :meth:`train`.
        pairing: choices of other groups that the method was made for, by group; a refusal offers the command with them.
        multilabel: whether nodes may have several labels; not where the method reads labels as classes or logits as a distribution.
        node_batches: whether the local objective makes sense on a part of a client's training nodes (``batch_nodes``).
        ranges: what numbers its keys may have, beside those of its bases; checked before anything is read.
        uses_validation: whether the method may read labels of validation nodes, as a server that tunes itself on them does. No method
            may read labels of test nodes.
        unsent: names of reports that are not uploaded besides the model: what stays with the client, or what the server can work out
            from the model that it gets. :meth:`traffic` covers all others.
    """

    scenarios: ClassVar[tuple[str, ...]] = ("sync",)
    pairing: ClassVar[Mapping[str, str]] = {}
    trains: ClassVar[bool] = True
    remembers: ClassVar[bool] = False
    begins_afresh: ClassVar[bool] = False
    node_batches: ClassVar[bool] = True
    lock_step: ClassVar[bool] = False
    multilabel: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {}
    uses_validation: ClassVar[bool] = False
    unsent: ClassVar[tuple[str, ...]] = ()

    # ---- every scenario

    @property
    def plain_steps(self) -> bool:
        """Whether a local step depends on the models, graphs, masks and moments alone: where no method that it calls is overridden."""
        called = ("backbone", "optimiser", "local_penalty", "local_loss", "correct_gradient", "predict")
        return self.trains and not self.lock_step and all(getattr(type(self), name) is getattr(Algorithm, name) for name in called)

    @property
    def refines(self) -> bool:
        """Whether the server takes a step of its own after aggregation, see :meth:`refine`."""
        return type(self).refine is not Algorithm.refine

    def check_choices(self, model: Backbone, split: Split) -> None:
        """Raise :class:`~fgl_bench.errors.Unsuited` where the method cannot run on this model or split; no data are read before."""
        self.backbone(model)

    def federate(self, federation: Federation) -> Federation:
        """The federation that is batched and trained; another one than the given where clients do not stay apart."""
        return federation

    def backbone(self, model: Backbone) -> Backbone:
        """The network that clients train: ``model``, or one around it, for a method with parameters besides the backbone's."""
        return model

    def prepare(self, setting: Setting) -> None:
        """Called once before round 0; allocates the method's own state."""
        check_ranges(self, "algorithm")
        self.setting = setting

    def initialise(self, initial: Tensor) -> Tensor:
        """The models ``[B, P]`` that clients begin with, from the common initial model of every seed."""
        return initial

    def optimiser(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """The clients' optimiser, for ``count`` rows of ``size``, with the interface of ``engine.adam.Adam``; None means Adam."""
        return None

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        """Terms ``[k]`` added to the replicas' cross-entropy at every local step."""
        return None

    def local_loss(self, step: LocalStep) -> Tensor:
        """The local objectives summed over the k replicas, whose gradients are independent.

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
        """The gradient ``[k, P]`` that the optimiser sees; may change its argument."""
        return gradient

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        """Logits ``[k, n, Y]`` that a client answers with; ``first`` is ``model.first(parameters, batch)``."""
        return model.forward(parameters, batch, first, no_dropout).logits

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        """Scores ``[k, 2]`` of the trained models, from the forward pass that :meth:`report` uses too."""
        return score(trips.output.logits, trips.batch)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        """What clients upload besides their models, ``[k, ...]`` by name."""
        return {}

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        """How alike the server takes the clients to be, for plots; None where it does not compare them.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.

        Returns:
            ``[S, C, C]``.
        """
        return None

    def traffic(self) -> Traffic:
        """Everything that travels. The base sends the model both ways."""
        model = {"model": self.setting.layout.count}
        return Traffic(upload=model, download=model)

    def train(self, trainer: Trainer, trips: Trips) -> None:
        """The local training of all clients together, for a method in ``lock_step``: changes ``trips.trained`` in place.

        May set ``trips.train_loss``.
        """
        raise NotImplementedError  # abstract

    def observe(self, logits: Tensor) -> None:
        """What the servers' models ``[S, N, Y]`` answer before every round, where the servers hold nodes (``split.test=server``)."""

    def costs(self) -> dict[str, list[float]]:
        """What a finished run has cost besides bytes, by name, for every seed."""
        return {}

    def course(self) -> dict[str, np.ndarray]:
        """Those of :meth:`costs` that are known round by round: what each seed has spent after every round, ``[S, rounds]``."""
        return {}

    def exchanged(self) -> np.ndarray | None:
        """Bytes ``[S, C, C]`` that client i (row) was sent by client j in a finished run; None where only models and a server's are."""
        return None

    # ---- synchronous rounds

    def portrait(self, trips: Iterable[Trips]) -> dict[str, Tensor]:
        """What a finished run keeps of its clients for plots, ``[B, ...]`` by name; little, for every run keeps it.

        Args:
            trips: chunk by chunk all replicas, with the models that they trained last; costs nothing until it is gone through.
        """
        return {}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        """How the round's uploads become the next received models.

        Args:
            reports: ``[S, C, ...]`` by name, the last report of every client.
            arrived: ``[S, C]`` bool, the clients that took part in this round.
        """
        raise NotImplementedError  # abstract

    def refine(self, previous: Tensor, received: Tensor, trained: Tensor, arrived: Tensor) -> Tensor:
        """The server's own step after aggregation: what clients will receive, ``[S, C, P]``; the base takes the aggregated models.

        Args:
            previous: ``[S, C, P]``, what clients had received before this round.
            received: ``[S, C, P]``, the aggregated models.
            trained: ``[S, C, P]``, the models that clients trained last.
            arrived: ``[S, C]`` bool, the clients that took part in this round. Where nobody of a seed has, its clients keep ``previous``.
        """
        return received

    def prelude(self) -> int:
        """Rounds at the start in which models are not aggregated; best-validation selection leaves their points out."""
        return 0

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        """What every seed's clients have uploaded and downloaded after so many rounds; the base counts :meth:`traffic` once a trip."""
        up, down, _ = self.traffic().bytes
        return [(trips * up, trips * down)] * len(self.setting.seeds)

    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch] | None:
        """Called before round ``number``: the graphs that all clients train and are evaluated on from then on; None keeps both."""
        return None

    def stage(self, number: int, received: Tensor) -> Stage | None:
        """Called before round ``number`` with what clients received last, ``[B, P]``: another network from then on; None keeps it.

        Models are scored with the network that they belong to: what was received last with the one before, the same round's trained
        models with the new one. Rounds, trips and the selection of the best point go on as they were.
        """
        return None

    # ---- decentralised rounds

    def topology(self) -> tuple[str, int | None]:
        """The communication graph (a name in ``engine.topologies``) and its degree, where the scenario leaves them to the method."""
        return "complete", None

    def exchange(self, meeting: Meeting) -> Exchange:
        """What clients send each other after a round's training and make of it; the base applies :meth:`mix` to whole models."""
        everybody = torch.ones(meeting.trained.shape[:2], dtype=torch.bool, device=meeting.trained.device)
        mixing = checked(self.mix(meeting.reports, everybody), everybody)
        matrix = mixing.matrix()
        models = mixing.apply(meeting.trained, meeting.received, self.setting.layout)
        return Exchange(models, matrix, messages((matrix > 0) & ~itself(matrix), self.traffic().bytes[0]))

    # ---- semi-asynchronous server steps

    def buffer_size(self) -> int:
        """Arrivals per server step: the method's ``buffer`` key, or a quarter of the clients (5 at 20) where that is null.

        Raises:
            UserError: fewer than one, or more than there are clients (the server would wait for ever).
        """
        clients, size = self.setting.num_clients, getattr(self, "buffer", None)
        size = max(1, round(clients / 4)) if size is None else size
        if not 1 <= size <= clients:
            raise UserError(f"algorithm.buffer={size} does not fit num_clients={clients}; allowed: 1 to {clients}")
        return size

    @property
    def waits(self) -> bool:
        """Whether an uploader with an empty inbox waits for the server's next step (else it downloads the global model at once)."""
        return True

    @property
    def merges_before_upload(self) -> bool:
        """Whether a waiting push is merged into the trained model before it is uploaded, rather than when the next trip begins."""
        return False

    def upload_blocks(self, server: Server) -> tuple[str, ...] | None:
        """Names of the parameters that the upload arriving now carries; None means all."""
        return None

    def payload(self, received: Tensor, trained: Tensor) -> Tensor:
        """What one client uploads, ``[P]``, as a copy; the base uploads its model."""
        return trained.clone()

    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        """One server step: process the buffered arrivals (already in ``server.uploads`` and ``server.reports``) and answer."""
        raise NotImplementedError  # abstract

    def begin(self, message: Message, trained: Tensor, reports: dict[str, float]) -> Tensor:
        """The model ``[P]`` that the next trip starts from; the base overwrites the parameters that were received.

        Args:
            trained: ``[P]``, the model that the client trained last.
            reports: its own last scalar reports, by name.
        """
        if message.blocks is None:
            return message.model
        return self.setting.layout.overwrite(trained.clone(), message.model, message.blocks)
