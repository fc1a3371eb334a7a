"""FedProto."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.local import Alone
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.hooks import TrainedScore
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.trips import LocalStep, Score, Trips
from fgl_bench.errors import Range, UserError, at_least
from fgl_bench.models.base import Backbone


@dataclass
class PrototypeSharing(Alone, TrainedScore):
    """Base of methods in which clients share the mean representation of every class, and no model.

    A prototype ``C_i^c`` is the mean of what client i's trained model has before its last layer, over its training nodes of class c.
    A subclass makes the global prototypes of them; clients add to their cross-entropy ``weight`` times the distance of their
    representations to the global prototypes. A class without a global prototype has no distance.

    No model travels: a client trains the model that it trained last. The received model is that model with the global prototypes that
    the client has just received, so with ``prediction=head`` its score is that of the client's last trained model.

    Resolutions: prototypes are taken after training and without dropout. ``term=nodes`` is the mean square difference of each training
    node's representation to its class's prototype (code of the authors of FedProto and of FedTGP); ``term=prototypes`` is FedProto's
    eq. 7, Euclidean distances of class means, summed over classes; ``term=classes`` is OpenFGL's, the sum over classes of the mean square
    difference of a class's nodes. Both papers predict the class of the nearest prototype, ``prediction=prototypes``; the default is the
    head, since the last layer of a graph network propagates.

    Messages have a row for every class. In their first round clients receive nothing.

    Attributes:
        weight: strength of the distance (lambda).
        term: what is drawn to the prototypes: ``nodes``, ``classes`` or ``prototypes``.
        prediction: by the ``head``, or by the nearest global prototype (``prototypes``).
    """

    tasks: ClassVar[tuple[str, ...]] = ("node", "graph")
    multilabel: ClassVar[bool] = False
    node_batches: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {"weight": at_least(0)}

    weight: float
    term: Literal["nodes", "classes", "prototypes"]
    prediction: Literal["head", "prototypes"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, seeds, classes = setting.batch, len(setting.seeds), setting.num_classes
        self._own = batch.size // seeds
        self.counts = setting.shard.whole(batch.truth(classes).sum(1).unflatten(0, (seeds, -1)))  # [S, C, Y]
        self.prototypes = self.counts.new_zeros(seeds, classes, prototype_width(setting))
        self.known = torch.zeros(seeds, classes, dtype=torch.bool, device=batch.device)

    def _seed(self, batch: Batch) -> Tensor:
        """Return the seed of every replica, ``[k]``, by position."""
        return batch.replicas if batch is self.setting.server else batch.replicas // self._own

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        if not self.weight:
            return None
        seed, truth = self._seed(step.batch), step.batch.truth(self.setting.num_classes)
        return self.weight * TERMS[self.term](step.output.hidden, truth, self.prototypes[seed], self.known[seed])

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return {"prototypes": class_means(trips.output.hidden, trips.batch.truth(self.setting.num_classes))}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        self.update_prototypes(reports["prototypes"], arrived)
        return super().mix(reports, arrived)

    @abstractmethod
    def update_prototypes(self, uploaded: Tensor, arrived: Tensor) -> None:
        """Update the global ``prototypes [S, Y, h]`` and ``known [S, Y]`` in place.

        Args:
            uploaded: ``[S, C, Y, h]``, the clients' last prototypes; 0 for a class that a client does not have.
            arrived: ``[S, C]`` bool, the participants of this round.
        """

    @property
    def predicts_alone(self) -> bool:  # type: ignore[override]  # depends on the key
        return self.prediction == "head"

    def predict(self, model: Backbone, parameters: Parameters, batch: Batch, first: Tensor) -> Tensor:
        return self._answer(model.forward(parameters, batch, first, no_dropout), batch)

    def score_trained(self, score: Score, trips: Trips) -> Tensor:
        return score(self._answer(trips.output, trips.batch), trips.batch)

    def _answer(self, output: Output, batch: Batch) -> Tensor:
        """Return logits ``[k, n, Y]``: the head's, or minus the square distances to the global prototypes as soon as there are any."""
        if self.prediction == "head":
            return output.logits
        seed = self._seed(batch)
        square = squared_distances(output.hidden, self.prototypes[seed])
        known = self.known[seed][:, None]
        near = torch.where(known, -square, -2 * square.amax(-1, keepdim=True) - 1)  # below every known class
        return torch.where(known.any(-1, keepdim=True), near, output.logits)

    def traffic(self) -> Traffic:
        size = self.prototypes[0].numel()
        return Traffic(upload={"prototypes": size}, download={"prototypes": size})

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        up, down, _ = self.traffic().bytes
        first = trips // max(rounds, 1)  # trips of the first round, in which there is nothing to receive
        return [(trips * up, (trips - first) * down)] * len(self.setting.seeds)


@dataclass
class FedProto(PrototypeSharing):
    """Global prototypes are means of the clients' prototypes (Tan et al., AAAI 2022; eq. 3, 6 and 7), see
    :class:`~fgl_bench.algorithms.fedproto.PrototypeSharing`.

    Resolutions: the authors take prototypes from the representations of the last local epoch, here they are taken after it.
    ``average=uniform`` is the authors' code, the mean over the participants that have the class; ``average=samples`` weighs them by
    training nodes of the class, as eq. 6 without its second factor 1/N_c, which would shrink the mean; ``average=openfgl`` weighs all
    participants by their sizes, and one without the class counts with a zero prototype. A class that no participant has keeps its last
    prototype.

    Attributes:
        average: weights of the clients: ``uniform``, ``samples`` or ``openfgl``.
    """

    by_clients: ClassVar[bool] = True
    replayable: ClassVar[bool] = True

    average: Literal["uniform", "samples", "openfgl"]

    def update_prototypes(self, uploaded: Tensor, arrived: Tensor) -> None:
        shares = AVERAGES[self.average](self) * arrived[..., None]
        total = shares.sum(1)
        mean = torch.einsum("scy,scyh->syh", (shares / total.clamp(min=1e-12)[:, None]).to(uploaded.dtype), uploaded)
        self.prototypes.copy_(torch.where((total > 0)[..., None], mean, self.prototypes))
        self.known |= total > 0


def prototype_width(setting: Setting) -> int:
    """Return the width of representations before the last layer; raises UserError if clients' backbones have different ones."""
    model, layout, widths = setting.model, setting.layout, {}
    for row in {layout.of(row): row for row in range(setting.batch.size)}.values():
        batch = setting.batch.select([row])
        parameters = layout.views(torch.zeros(1, layout.size, dtype=batch.dtype, device=batch.device))
        with torch.no_grad():
            widths[model.forward(parameters, batch, model.first(parameters, batch), no_dropout).hidden.shape[-1]] = row
    if len(widths) > 1:
        found = ", ".join(map(str, sorted(widths)))
        raise UserError(f"model: prototypes need one width before the last layer, not {found}; set the backbones' hidden keys alike")
    return next(iter(widths))


def class_means(hidden: Tensor, truth: Tensor) -> Tensor:
    """Return the mean representation of every class, ``[k, Y, h]``, from ``[k, n, h]`` and one-hot ``[k, n, Y]``; 0 for absent classes."""
    return (truth.mT @ hidden) / truth.sum(1).clamp(min=1)[..., None]


def squared_distances(x: Tensor, centers: Tensor) -> Tensor:
    """Return ``|x_a - c_b|^2``, ``[k, n, Y]``, from ``[k, n, h]`` and ``[k, Y, h]``."""
    squares = x.square().sum(-1, keepdim=True) + centers.square().sum(-1)[:, None]
    return (squares - 2 * x @ centers.mT).clamp(min=0)


def _squares(hidden: Tensor, truth: Tensor, centers: Tensor, shares: Tensor) -> Tensor:
    """Return the mean square differences of training nodes to their classes' centers, summed with the ``shares [k, Y]`` of the classes."""
    each = (hidden - truth @ centers).square().mean(-1)
    return (each * (truth * shares[:, None]).sum(-1)).sum(1)


def _of_nodes(hidden: Tensor, truth: Tensor, centers: Tensor, known: Tensor) -> Tensor:
    return _squares(hidden, truth, centers, known / truth.sum((1, 2)).clamp(min=1)[:, None])


def _of_classes(hidden: Tensor, truth: Tensor, centers: Tensor, known: Tensor) -> Tensor:
    return _squares(hidden, truth, centers, known / truth.sum(1).clamp(min=1))


def _of_prototypes(hidden: Tensor, truth: Tensor, centers: Tensor, known: Tensor) -> Tensor:
    present = known & (truth.sum(1) > 0)
    difference = torch.where(present[..., None], class_means(hidden, truth) - centers, 1.0)  # the norm has no gradient at 0
    return (difference.norm(dim=-1) * present).sum(1)


# From representations [k, n, h], one-hot training labels [k, n, Y], global prototypes [k, Y, h] and which are known [k, Y] to [k].
TERMS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "nodes": _of_nodes,
    "classes": _of_classes,
    "prototypes": _of_prototypes,
}
AVERAGES: dict[str, Callable[[FedProto], Tensor]] = {  # weights [S, C, Y]
    "uniform": lambda method: (method.counts > 0).double(),
    "samples": lambda method: method.counts.double(),
    "openfgl": lambda method: method.setting.weights[..., None].expand(method.counts.shape),
}
