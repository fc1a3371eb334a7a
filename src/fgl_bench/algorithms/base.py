"""Base of all federated methods: local objective, reports and uploads."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.records import Setting, Traffic
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.hooks import JointTraining, TrainedScore, check_shape
from fgl_bench.engine.network import Parameters, node_losses
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, check_ranges
from fgl_bench.models.base import Backbone


@dataclass
class Algorithm(ABC):  # noqa: B024 (abstract methods are in the bases of scenarios)
    """Base of all methods; the fields of a subclass are its hyperparameters.

    A method derives from the base of every scenario that supports it, which adds the scenario's hooks:
    :class:`~fgl_bench.algorithms.server_rounds.ServerRounds`, :class:`~fgl_bench.algorithms.semi_async_server.SemiAsyncServer`,
    :class:`~fgl_bench.algorithms.peers.Peers`. Hooks that only a few methods need are in :mod:`fgl_bench.algorithms.powers`.

    One instance serves all S seeds and C clients of a run at once; replica ``s * C + c`` is client c of seed s.

    Class attributes:
        trains: True if clients take gradient steps.
        own_optimizer: description of the method's own client optimizer, if any; a configured optimizer is then refused.
        reset_optimizer: True if the clients' optimizers restart in every trip, regardless of ``opt_state``.
        pairing: choices of other groups that the method was designed for, by group; an error message suggests them.
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
    trains: ClassVar[bool] = True
    reset_optimizer: ClassVar[bool] = False
    own_optimizer: ClassVar[str | None] = None
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
