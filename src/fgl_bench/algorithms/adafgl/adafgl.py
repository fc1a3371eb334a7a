"""AdaFGL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.adafgl._propagation_heads import Heads, Network, Options
from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Staging
from fgl_bench.algorithms.records import Stage
from fgl_bench.algorithms.topology import propagate
from fgl_bench.engine.batch import Batch, gcn_operator
from fgl_bench.engine.mixing import Mixing, alone
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import SHARE, Range, UserError, at_least
from fgl_bench.utils.seeding import derive_seed, generator


@dataclass
class AdaFGL(FedAvg, Staging):
    """FedAvg, then personal propagation without federation (Li et al., ICDE 2024; its code and OpenFGL's).

    After ``federated_rounds`` rounds of FedAvg, client i fixes its received model and its predictions P, and trains its own heads
    (:mod:`~fgl_bench.algorithms.adafgl._propagation_heads`) for the remaining rounds, ``local_epochs`` steps each. In these rounds
    M is the identity and nothing is communicated. With X_k = S^k X, S the normalization of
    ``a A + (1 - a) 1[similarity > 0.999]``, and Xs = [X_0 .. X_hops], their loss is

    ``CE(Z_h) + mean (Z_h - P)^2 + CE(Z_1) + CE(Z_2) + CE(Z_3)``

    and the prediction is ``w (softmax Z_h + softmax P) / 2 + (1 - w) mean_k softmax Z_k``. The homophily w is the accuracy of label
    propagation from a random half of the training nodes to the other half (0.5 if that is empty).

    The best point is selected from both stages, as in OpenFGL; the point after the last federated round scores the received model.
    Resolutions: OpenFGL's a, beta and number of rounds; the personal stage starts from the last model, as in OpenFGL (the official code:
    from the model that is best on validation nodes); w is a weight (``fusion=hard``: the official code's switch at 0.9); a second softmax
    of P before its cosines and in the prediction, as in both codes (``softmaxes=single``: no second softmax); Z_3's attention compares
    softmax H of different nodes, as in both codes (``attention=raw``: H, and a node with itself too); P is downloaded with the model
    once more at the start of the personal stage; initial layers and shared slopes as in both codes.

    Attributes:
        federated_rounds: R1; later rounds are personal.
        label_steps, label_alpha: steps of the label propagation for w, and weight of its start.
        hops: K of Xs.
        blend: a, weight of the graph against the similarity of predictions.
        beta: weight of that similarity in Z_3's attention, against the cosine of its representations.
        width, head_dropout: hidden width and dropout of the heads.
        softmaxes: ``double`` or ``single``, of P before its cosines and in the prediction.
        attention: ``softmax`` or ``raw``, the inputs of Z_3's attention.
        fusion: ``soft`` or ``hard``.
        max_nodes: most nodes per client; its n x n propagation is dense during setup, or always if features outnumber nodes.
    """

    multilabel: ClassVar[bool] = False
    node_batches: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "federated_rounds": at_least(0), "label_steps": at_least(0), "hops": at_least(0), "width": at_least(1), "label_alpha": SHARE,
        "blend": SHARE, "beta": SHARE, "head_dropout": SHARE, "max_nodes": at_least(1),
    }  # fmt: skip

    federated_rounds: int
    label_steps: int
    label_alpha: float
    hops: int
    blend: float
    beta: float
    width: int
    head_dropout: float
    softmaxes: Literal["double", "single"]
    attention: Literal["softmax", "raw"]
    fusion: Literal["soft", "hard"]
    max_nodes: int

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if setting.batch.nodes > self.max_nodes:
            raise UserError(
                f"algorithm=adafgl needs dense {setting.batch.nodes} x {setting.batch.nodes} matrices, above algorithm.max_nodes="
                f"{self.max_nodes}; take more clients or raise it"
            )
        self.personal = False

    def stage(self, number: int, received: Tensor) -> Stage | None:
        if self.personal or number < self.federated_rounds:
            return None
        setting, self.personal = self.setting, True
        batch = setting.batch
        network = Network(setting.model, setting.layout, received.clone())
        options = Options(self.hops, self.blend, self.beta, self.width, self.softmaxes, self.attention, self.fusion)
        self.heads = heads = Heads(network, self.confidence(), options, self.head_dropout)
        layout = heads.layout(batch.features.shape[2], setting.num_classes)
        rows = []
        for seed in setting.seeds:
            draw = torch.Generator().manual_seed(derive_seed(seed, "adafgl", "heads"))
            rows.append(layout.pack(heads.init_parameters(layout, draw)).expand(setting.num_clients, -1))
        return Stage(heads, layout, torch.cat(rows).to(batch.device, batch.dtype).contiguous())

    def confidence(self) -> Tensor:
        """Return w, ``[B]``: the homophily estimated by label propagation among the training nodes."""
        setting, batch = self.setting, self.setting.batch
        source = np.zeros(batch.train.shape, dtype=bool)
        for row, client in enumerate(batch.clients):
            train = np.flatnonzero(client.train)
            draw = generator(setting.seeds[row // setting.num_clients], "adafgl", row % setting.num_clients)
            source[row, draw.permutation(train)[: train.size // 2]] = True
        known = torch.from_numpy(source).to(batch.device)
        return propagated_accuracy(batch, known, setting.num_classes, self.label_steps, self.label_alpha)

    def local_loss(self, step: LocalStep) -> Tensor:
        if not self.personal:
            return super().local_loss(step)
        batch, train = step.batch, step.batch.training_nodes
        outputs = step.output.hidden.unflatten(2, (4, -1))
        logits = outputs.flatten(0, 1).index_select(0, train.index).flatten(0, 1)
        each = F.cross_entropy(logits, train.labels.repeat_interleave(4), reduction="none").view(-1, 4).sum(1)
        away = (outputs[:, :, 0] - self.heads.knowledge(batch).prediction).square().mean(2) * batch.valid
        return torch.dot(each, train.weights) + (away.sum(1) / batch.valid.sum(1)).sum()

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return alone(arrived) if self.personal else super().mix(reports, arrived)

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        federated = min(rounds, self.federated_rounds) * (trips // max(rounds, 1))
        last = self.setting.num_clients if rounds > self.federated_rounds > 0 else 0
        up, down, _ = self.traffic().bytes
        return [(federated * up, (federated + last) * down)] * len(self.setting.seeds)


def propagated_accuracy(batch: Batch, source: Tensor, classes: int, steps: int, alpha: float) -> Tensor:
    """Return the accuracy ``[k]`` of label propagation from the nodes ``source [k, n]`` on the other training nodes.

    ``Y <- (1 - alpha) S Y + alpha Y_0``, starting from the truth at sources and 1/Y elsewhere; the truth is added to the sources
    after every step.
    """
    truth = F.one_hot(batch.labels, classes).to(batch.dtype)
    start = torch.where(source[..., None], truth, 1 / classes)
    predicted = propagate(start, batch, gcn_operator, steps, alpha, inject=truth * source[..., None]).argmax(-1)
    held = batch.train & ~source
    count = held.sum(1)
    right = ((predicted == batch.labels) & held).sum(1).to(batch.dtype)
    return torch.where((count > 0) & source.any(1), right / count.clamp(min=1), 0.5)
