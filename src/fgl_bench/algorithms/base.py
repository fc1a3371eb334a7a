"""What a federated method is in every scenario: what it adds to the local objective, and what clients report and upload."""

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
class Algorithm(ABC):  # noqa: B024 (what is abstract is in the bases of scenarios)
    """What every method has; a subclass's fields are its hyper-parameters.

    A method derives from the base of every scenario that it is defined under, which adds that scenario's hooks:
    :class:`~fgl_bench.algorithms.server_rounds.ServerRounds`, :class:`~fgl_bench.algorithms.semi_async_server.SemiAsyncServer`,
    :class:`~fgl_bench.algorithms.peers.Peers`. What only a few methods do is in :mod:`fgl_bench.algorithms.powers`.

    One instance serves all S seeds and C clients of a run at once; replica ``s * C + c`` is client c of seed s.

    Class attributes:
        trains: whether clients take gradient steps at all.
        own_optimizer: what the clients' optimizer is where the method has one of its own, in words; others than the default are refused.
        reset_optimizer: whether the clients' optimizers begin afresh in every trip, whatever ``opt_state`` says.
        pairing: choices of other groups that the method was made for, by group; a refusal offers the command with them.
        multilabel: whether nodes may have several labels; not where the method reads labels as classes or logits as a distribution.
        node_batches: whether the local objective makes sense on a part of a client's training nodes (``batch_nodes``).
        ranges: what numbers its keys may have, beside those of its bases; checked before anything is read.
        uses_validation: whether the method may read labels of validation nodes, as a server that tunes itself on them does. No method
            may read labels of test nodes.
        by_clients: whether several workers can share the clients of a seed. Hooks of the training then have those of this worker at
            hand (``setting.shard``), and so have :meth:`upload`, ``refine`` and ``exchange``; ``mix`` has the reports of all. It is not
            inherited, since a method that does more may need more.
        labeled_only: whether the method reads predictions for nodes with a label only, so that the others need no rows where the backbone's
            features of a node are made beforehand and no dropout is drawn. It is not inherited either.
        own_reports: names of reports that the server does nothing with but to average them (``setting.shard.mean``), or that stay with the
            client: of these a worker has those of its own clients only.
        unsent: names of reports that are not uploaded besides the model: what stays with the client, or what the server can work out
            from the model that it gets. :meth:`traffic` covers all others.
        replayable: whether CUDA graphs can replay local steps and :meth:`report` although the method adds something to them: they do the
            same in every trip, to tensors that keep their addresses, read no ``received`` models and let the host wait for nothing. It is
            not inherited either. A method that overrides none of the hooks of a step needs no word.
        frozen: names of the parameters that stay as they were initialized; a property where they depend on the model (read after
            :meth:`prepare`). They get no gradient and no weight decay, a ``Mixing`` leaves them out, and :meth:`traffic` of the base does
            not count them. A semi-asynchronous server leaves them out by ``upload_blocks`` and ``Message.blocks``.
        rebuilt: names of attributes that a checkpoint leaves out: what :meth:`prepare` makes and nothing changes, or a cache.
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
        """Raise :class:`~fgl_bench.errors.Unsuited` where the method cannot run on this model or split; no data are read before."""
        self.backbone(model)

    def backbone(self, model: Backbone) -> Backbone:
        """The network that clients train: ``model``, or one around it, for a method with parameters besides the backbone's."""
        return model

    def prepare(self, setting: Setting) -> None:
        """Called once before round 0; allocates the method's own state."""
        check_ranges(self, "algorithm")
        self.setting = setting

    def initialize(self, initial: Tensor) -> Tensor:
        """The models ``[B, P]`` that clients begin with, from the common initial model of every seed."""
        return initial

    def optimizer(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """The clients' optimizer, for ``count`` rows of ``size``, with the interface of ``StackedAdam``; None means the chosen one.

        A method that does not take ``setting.optimizer`` says so in ``own_optimizer``.
        """
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
        """The gradient ``[k, P]`` that the optimizer sees; may change its argument.

        The optimizer adds weight decay afterwards: a parameter whose gradient is set to zero here still shrinks. To keep parameters as they
        are, name them in :attr:`frozen`.
        """
        return gradient

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        """Logits ``[k, n, Y]`` that a client answers with; ``first`` is ``model.first(parameters, batch)``."""
        return model.forward(parameters, batch, first, no_dropout).logits

    def report(self, trips: Trips) -> dict[str, Tensor]:
        """What clients upload besides their models, ``[k, ...]`` by name; called as soon as the trips of a chunk are finished."""
        return {}

    def upload(self, rows: Sequence[int], received: Tensor, trained: Tensor) -> Tensor:
        """What clients upload in the place of their models, and the server (or a peer) aggregates, ``[k, P]``.

        The base uploads the trained models, which costs nothing. A client's row must not depend on the other rows.

        Args:
            rows: replica numbers (seed * C + client) of clients that have trained; k is 1 for a semi-asynchronous server.
            received, trained: ``[k, P]``, their models before and after training; not to be changed.
        """
        return trained

    def traffic(self) -> Traffic:
        """Everything that travels. The base sends the model both ways, without parameters that are :attr:`frozen`."""
        layout = self.setting.layout
        model = {"model": layout.count - sum(layout.numel(name) for name in self.frozen)}
        return Traffic(upload=model, download=model)


def replays_steps(method: Algorithm) -> bool:
    """Whether CUDA graphs can replay local steps: no hook that a step calls is overridden, or the method says that it can."""
    called = ("backbone", "optimizer", "local_penalty", "local_loss", "correct_gradient", "predict")
    plain = all(getattr(type(method), name) is getattr(Algorithm, name) for name in called)
    return method.trains and (plain or _replayable(method)) and not isinstance(method, JointTraining)


def replays_reports(method: Algorithm) -> bool:
    """Whether CUDA graphs can replay what follows a trip's last step: scores of the trained models, and reports."""
    plain = type(method).report is Algorithm.report and not isinstance(method, TrainedScore)
    return replays_steps(method) and (plain or _replayable(method))


def _replayable(method: Algorithm) -> bool:
    return vars(type(method)).get("replayable", False)
