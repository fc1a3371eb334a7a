"""AdaFGL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Staging
from fgl_bench.algorithms.records import Stage
from fgl_bench.algorithms.topology import propagate
from fgl_bench.engine.batch import Batch, adjacency, gcn_operator
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.linear import linear, prelu
from fgl_bench.engine.mixing import Mixing, alone
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.engine.trips import LocalStep
from fgl_bench.errors import SHARE, Range, UserError, at_least
from fgl_bench.models.base import Backbone
from fgl_bench.utils.seeding import derive_seed, generator


@dataclass
class AdaFGL(FedAvg, Staging):
    """FedAvg, then personal propagation without federation (Li et al., ICDE 2024; its code and OpenFGL's).

    After ``federated_rounds`` rounds of FedAvg, client i fixes its received model and its predictions P, and trains its own heads
    (:class:`Heads`) for the remaining rounds, ``local_epochs`` steps each. In these rounds
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

    tasks: ClassVar[tuple[str, ...]] = ("node",)
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
        squared_error = (outputs[:, :, 0] - self.heads.knowledge(batch).prediction).square().mean(2) * batch.valid
        return torch.dot(each, train.weights) + (squared_error.sum(1) / batch.valid.sum(1)).sum()

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


# Pairs in a tile: a few tiles fit in a CPU's second-level cache; a GPU needs few launches.
TILE = {"cpu": 2**17, "cuda": 2**25}


def attend(unit: Tensor, values: Tensor, similar: Tensor | None, beta: float, count: Tensor, itself: bool = True) -> tuple[Tensor, Tensor]:
    """Return ``max(R, 0) values`` and ``min(R, 0) values``, differentiable in ``unit`` and ``values``.

    With ``R0 = beta B + (1 - beta) U U^T`` and m its mean over all pairs of a client's nodes: ``R = (R0 - m) / (max R0 - m)`` where R0 is
    above m and ``-R0 / m`` elsewhere (0 where the denominator is below 1e-6), plus I. Tiles of R are computed on use, and again
    in backward. Mean and maximum have gradients too (for a tie only one of the largest pairs).

    Args:
        unit: U, ``[k, n, d]``, rows of length one or zero; zero in padding.
        values: ``[k, n, h]``, zero in padding.
        similar: B, ``[k, n, n]`` bool, symmetric, False in padding; None where beta is 0.
        count: ``[k]`` real nodes.
        itself: include a node's similarity to itself in R0; else its diagonal is zero. The mean is over n x n entries in both cases.

    Returns:
        Two ``[k, n, h]``; rows of padding have no meaning.
    """
    assert similar is not None or not beta
    return _Attend.apply(unit, values, similar if beta else None, beta, count, itself)


def tiles(clients: int, nodes: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield clients and rows of every tile: several whole clients, or some rows of one client."""
    whole, rows = max(1, most // max(nodes * nodes, 1)), max(1, min(nodes, most // max(nodes, 1)))
    for client in range(0, clients, whole):
        for row in range(0, nodes, rows):
            yield slice(client, client + whole), slice(row, min(row + rows, nodes))


class Tiles:
    """Passes over R with PyTorch operations, some rows at a time.

    Since R is symmetric, a tile of rows is also a tile of columns, and narrow products from that side are several times faster.
    """

    def __init__(self, unit: Tensor, similar: Tensor | None, beta: float, itself: bool):
        self.unit, self.similar, self.beta, self.itself = unit, similar, beta, itself
        self.tiles = list(tiles(unit.shape[0], unit.shape[1], TILE.get(unit.device.type, 2**25)))

    def raw(self, clients: slice, rows: slice) -> Tensor:
        left, right = self.unit[clients, rows], self.unit[clients].mT
        if self.similar is None:
            products = torch.bmm(left, right)
        else:
            products = torch.baddbmm(self.similar[clients, rows].to(left.dtype), left, right, beta=self.beta, alpha=1 - self.beta)
        if not self.itself:
            products[:, :, rows].diagonal(dim1=1, dim2=2).zero_()
        return products

    def scaled(self, raw: Tensor, clients: slice, rows: slice, scales: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return 1 where R0 is above its mean (else 0), the factor of R0, and R."""
        mean, above, below = (each[clients, None, None] for each in scales)
        # Comparisons as floats: on a CPU a selection by booleans takes as long as ten of these operations.
        high = torch.gt(raw, mean, out=torch.empty_like(raw))
        slope = (high * (above + below)).sub_(below)
        attention = (raw * slope).addcmul_(high, mean * above, value=-1)
        attention[:, :, rows].diagonal(dim1=1, dim2=2).add_(1)
        return high, slope, attention

    def largest(self) -> Tensor:
        """Return the largest R0 of every node, ``[k, n]``."""
        out = self.unit.new_empty(self.unit.shape[:2])
        for clients, rows in self.tiles:
            out[clients, rows] = self.raw(clients, rows).amax(2)
        return out

    def sums(self, values: Tensor, scales: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the result of :func:`attend`, given the mean of R0 and its scales above and below, ``[k]`` each."""
        above, below = (values.new_zeros(values.mT.shape) for _ in range(2))  # not zeros_like, which keeps the transposed strides
        for clients, rows in self.tiles:
            _, _, attention = self.scaled(self.raw(clients, rows), clients, rows, scales)
            here = values[clients, rows].mT
            above[clients].baddbmm_(here, attention.clamp(min=0))
            below[clients].baddbmm_(here, attention.clamp_(max=0))
        return above.mT.contiguous(), below.mT.contiguous()

    def gradients(self, values: Tensor, scales: tuple[Tensor, ...], to_above: Tensor, to_below: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of the unit rows (up to mean, maximum and a factor ``1 - beta``) and of the values.

        Also return ``[k, 3]``: with G the gradient of R, the sums of G R0 over all pairs and over pairs above the mean, and of G over
        the latter.
        """
        to_unit, to_values = (each.new_zeros(each.mT.shape) for each in (self.unit, values))
        sums = values.new_zeros(3, len(values))
        # The gradients of R_uv and R_vu in one product.
        up, down = (torch.cat([to, values], 2) for to in (to_above, to_below))
        turned = [torch.cat([values, to], 2).mT for to in (to_above, to_below)]
        for clients, rows in self.tiles:
            raw = self.raw(clients, rows)
            high, slope, attention = self.scaled(raw, clients, rows, scales)
            positive = torch.gt(attention, 0, out=torch.empty_like(attention))
            through = [torch.bmm(left[clients, rows], right[clients]) for left, right in zip((down, up), turned[::-1], strict=True)]
            gradient = torch.lerp(through[0], through[1], positive)
            to_values[clients].baddbmm_(to_above[clients, rows].mT, attention.clamp(min=0))
            to_values[clients].baddbmm_(to_below[clients, rows].mT, attention.clamp_(max=0))
            sums[0, clients] += raw.mul_(gradient).sum((1, 2)) / 2
            sums[1, clients] += raw.mul_(high).sum((1, 2)) / 2
            sums[2, clients] += high.mul_(gradient).sum((1, 2)) / 2
            gradient.mul_(slope)
            if not self.itself:
                gradient[:, :, rows].diagonal(dim1=1, dim2=2).zero_()
            to_unit[clients].baddbmm_(self.unit[clients, rows].mT, gradient)
        return to_unit.mT.contiguous(), to_values.mT.contiguous(), sums.mT


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unit: Tensor, values: Tensor, similar: Tensor | None, beta: float, count: Tensor, itself: bool
    ) -> tuple[Tensor, Tensor]:
        pairs = Tiles(unit, similar, beta, itself)
        largest = pairs.largest()
        each = count.to(unit.dtype).square().clamp(min=1)
        total = unit.sum(1).square().sum(1)
        if not itself:
            total = total - unit.square().sum((1, 2))
        mean = (1 - beta) * total / each
        if similar is not None:
            mean = mean + beta * similar.sum((1, 2), dtype=mean.dtype) / each
        scales = (mean, _reciprocal(largest.amax(1) - mean), _reciprocal(mean))
        ctx.save_for_backward(unit, values, similar, each, largest, *scales)
        ctx.beta, ctx.itself = beta, itself
        return pairs.sums(values, scales)

    @staticmethod
    def backward(ctx: Any, to_above: Tensor, to_below: Tensor) -> tuple[Tensor | None, ...]:
        unit, values, similar, each, largest, *scales = ctx.saved_tensors
        (mean, above, below), share = scales, 1 - ctx.beta
        pairs = Tiles(unit, similar, ctx.beta, ctx.itself)
        to_unit, to_values, sums = pairs.gradients(values, tuple(scales), to_above, to_below)
        all_raw, high_raw, high_sum = sums.unbind(1)
        # R's scales are 1 / (max - m) above the mean and 1 / m below it.
        to_largest = -above.square() * (high_raw - mean * high_sum)
        to_mean = -above * high_sum - to_largest + below.square() * (all_raw - high_raw)
        summed = unit.sum(1, keepdim=True)
        to_unit += (2 * to_mean / each)[:, None, None] * (summed if ctx.itself else summed - unit)
        everyone, row = torch.arange(len(unit), device=unit.device), largest.argmax(1)
        one = unit[everyone, row]
        reached = share * torch.bmm(unit, one[:, :, None])[..., 0]
        if ctx.beta:
            reached = reached + ctx.beta * similar[everyone, row].to(reached.dtype)
        if not ctx.itself:
            reached.scatter_(1, row[:, None], 0)  # indexing would copy the zero from the host and synchronize a GPU
        column = reached.argmax(1)
        if not ctx.itself:  # the maximum may be the diagonal's zero
            to_largest = to_largest * (column != row)
        to_unit.index_put_((everyone, row), to_largest[:, None] * unit[everyone, column], accumulate=True)
        to_unit.index_put_((everyone, column), to_largest[:, None] * one, accumulate=True)
        return to_unit.mul_(share), to_values, None, None, None, None


def _reciprocal(x: Tensor) -> Tensor:
    defined = x.abs() > 1e-6
    return torch.where(defined, 1 / torch.where(defined, x, 1.0), 0.0)


SIMILAR = 0.999  # two nodes are joined if the cosine of their predictions is higher
HOMOPHILOUS = 0.9  # least homophily for which the hard switch takes the homophilous head
HEADS = ("homo", "raw", "smooth", "message")
SMOOTHED_BELOW = 2.0  # above 1, since the other way also multiplies sparse features by many columns
DEPTH = {"homo": 1, "raw": 2, "smooth": 2, "message": 2}  # linear layers after the first
SLOPES = {"homo": "homo.slope", "raw": "hetero.slope", "smooth": "hetero.slope", "message": "message.slope"}
GAIN = 2**0.5  # of a ReLU


class Network(NamedTuple):
    """A trained network for predictions only: ``models [B, P]``."""

    model: Backbone
    layout: ParameterLayout
    models: Tensor


class Options(NamedTuple):
    """As in :class:`AdaFGL`."""

    hops: int
    blend: float
    beta: float
    width: int
    softmaxes: Literal["double", "single"]
    attention: Literal["softmax", "raw"]
    fusion: Literal["soft", "hard"]


class Knowledge(NamedTuple):
    """Quantities that clients compute from their graphs before they train heads.

    Attributes:
        prediction: P, ``[k, n, Y]``, probabilities.
        softened: P or its softmax, ``[k, n, Y]``, for the cosines and the answer.
        similar: B, ``[k, n, n]`` bool: pairs of different nodes with similar predictions; None if its weight is 0.
        operator: S, ``[k, n, n]``; None if ``smoothed`` is used.
        smoothed: Xs, ``[k, n, (hops + 1) F]``, for graphs with more nodes than features.
        confidence: w, ``[k, 1, 1]``.
    """

    prediction: Tensor
    softened: Tensor
    similar: Tensor | None
    operator: Tensor | None
    smoothed: Tensor | None
    confidence: Tensor


class Heads(Backbone):
    """The personal heads, the only trained parameters.

    ``Z_h`` is an MLP of two layers on Xs, ``Z_1`` and ``Z_2`` are MLPs of three layers on X and Xs, all with PReLU and dropout (Z_1 and
    Z_2 share a slope). H is another MLP of three layers on Xs; ``R = beta B + (1 - beta) cos(softmax H)`` with a diagonal of zeros, m its
    mean over all pairs of the client, scaled to ``(R - m) / (max R - m)`` above m and ``-R / m`` below, plus I: ``Z_3 = [softmax(PReLU(R)
    H) - softmax(PReLU(-R) H) + H] / 2``, with the slope of H. With ``attention=raw`` the cosines are of H, including the diagonal.

    The first layers of all heads are concatenated in one input weight. If clients have fewer nodes than features, Xs is never
    computed: ``Xs W = sum_k S^k (X W_k)`` takes narrow products with S. Otherwise Xs is computed once, and S is dropped.

    :class:`Output` holds the four Z side by side as ``hidden`` and the logarithm of the prediction as ``logits``.

    Args:
        network: the network with predictions P.
        confidence: w, ``[B]``.
    """

    dropout: float

    def __init__(self, network: Network, confidence: Tensor, options: Options, dropout: float):
        self.network, self.confidence, self.options, self.dropout = network, confidence, options, dropout
        self._known: WeakKeyDictionary[Batch, Knowledge] = WeakKeyDictionary()

    def layout(self, num_features: int, num_classes: int) -> ParameterLayout:
        return head_layout(self.options.hops, self.options.width, num_features, num_classes)

    def init_parameters(self, layout: ParameterLayout, generator: torch.Generator) -> dict[str, Tensor]:
        """Return Xavier-uniform layers with the gain of a ReLU and their own fan-in, zero biases and slopes 0.25, as in both codes."""
        (features, _), h, copies = layout.shapes["input.weight"], self.options.width, self.options.hops + 1
        initial = {}
        for name, shape in layout.shapes.items():
            if name == "input.weight":
                raw, *others = (GAIN * glorot((rows, h), generator) for rows in (features, *[copies * features] * 3))
                columns = torch.stack(others, 1).unflatten(0, (copies, features))  # hop, feature, head, unit
                initial[name] = torch.cat([raw, columns.transpose(0, 1).flatten(1)], 1)
            elif len(shape) > 1:
                initial[name] = GAIN * glorot(shape, generator)
            else:
                initial[name] = torch.full(shape, 0.25 if name.endswith("slope") else 0.0, dtype=torch.float64)
        return initial

    @torch.no_grad()
    def knowledge(self, batch: Batch) -> Knowledge:
        """Return the knowledge of ``batch``, computed once per batch."""
        if batch not in self._known:
            model, layout, models = self.network
            parameters, options = layout.views(models[batch.replicas]), self.options
            prediction = torch.softmax(model.forward(parameters, batch, model.first(parameters, batch), no_dropout).logits, -1)
            softened = torch.softmax(prediction, -1) if options.softmaxes == "double" else prediction
            similar = similar_pairs(softened, batch.valid)
            itself = torch.eye(batch.nodes, dtype=batch.dtype, device=batch.device)
            joined = batch.operator(adjacency).multiply(itself.expand(batch.size, -1, -1).contiguous())
            matrix = joined.mul_(options.blend).add_(similar, alpha=1 - options.blend).add_(itself)
            scale = matrix.sum(-1).rsqrt()
            whole, smooth = matrix.mul_(scale[..., None]).mul_(scale[:, None]), smooths(options.hops, batch.nodes, batch.features.shape[2])
            operator, smoothed = (None, self.smooth(batch, whole)) if smooth else (whole, None)
            known = prediction, softened, similar if options.beta else None, operator, smoothed
            self._known[batch] = Knowledge(*known, self.confidence[batch.replicas][:, None, None])
        return self._known[batch]

    def smooth(self, batch: Batch, operator: Tensor) -> Tensor:
        """Return Xs, ``[k, n, (hops + 1) F]``."""
        itself = torch.eye(batch.features.shape[2], dtype=batch.dtype, device=batch.device)
        powers = [batch.features @ itself.expand(batch.size, -1, -1).contiguous()]
        for _ in range(self.options.hops):
            powers.append(torch.bmm(operator, powers[-1]))
        return torch.cat(powers, 2)

    def first(self, parameters: Parameters, batch: Batch) -> Tensor:
        """Return the first layers of all heads, ``[k, n, 4h]``, in the order raw, homo, smooth, message."""
        known, weight, h = self.knowledge(batch), parameters["input.weight"], self.options.width
        if known.smoothed is not None:
            stacked = weight[..., h:].unflatten(2, (-1, 3 * h)).transpose(1, 2).flatten(1, 2)
            raw, smooth = batch.features @ weight[..., :h].contiguous(), torch.bmm(known.smoothed, stacked)
            return torch.cat([raw, smooth], 2) + parameters["input.bias"][:, None]
        product = batch.features @ weight
        operator, powers = known.operator, product[..., h:].unflatten(2, (-1, 3 * h)).unbind(2)
        assert operator is not None
        smooth = powers[-1]
        for power in reversed(powers[:-1]):
            smooth = torch.baddbmm(power, operator, smooth)
        return torch.cat([product[..., :h], smooth], 2) + parameters["input.bias"][:, None]

    def forward(self, parameters: Parameters, batch: Batch, first: Tensor, dropout: Callable[[Tensor], Tensor]) -> Output:
        known, starts = self.knowledge(batch), dict(zip(("raw", "homo", "smooth", "message"), first.chunk(4, -1), strict=True))
        z = {name: self._layers(parameters, name, starts[name], dropout) for name in HEADS}
        slope = parameters[SLOPES["message"]][:, None]
        raw, real = self.options.attention == "raw", batch.valid[..., None]
        message = z["message"] * real
        compared = message if raw else torch.softmax(message, -1) * real
        unit, count = F.normalize(compared, dim=-1, eps=1e-12), batch.valid.sum(1)
        above, below = attend(unit, message, known.similar, self.options.beta, count, itself=raw)
        positive, negative = torch.softmax(above + slope * below, -1), torch.softmax(-below - slope * above, -1)
        z["message"] = (positive - negative + z["message"]) / 2

        homophilous = (torch.softmax(z["homo"], -1) + known.softened) / 2
        others = sum(torch.softmax(z[name], -1) for name in HEADS[1:]) / 3
        weight = FUSIONS[self.options.fusion](known.confidence)
        answer = weight * homophilous + (1 - weight) * others
        return Output(torch.cat([z[name] for name in HEADS], -1), answer.clamp(min=1e-12).log())

    def _layers(self, parameters: Parameters, name: str, out: Tensor, dropout: Callable[[Tensor], Tensor]) -> Tensor:
        for i in range(DEPTH[name]):
            hidden = dropout(prelu(out, parameters[SLOPES[name]]))
            out = linear(hidden, parameters[f"{name}{i}.weight"]) + parameters[f"{name}{i}.bias"][:, None]
        return out


def head_layout(hops: int, width: int, num_features: int, num_classes: int) -> ParameterLayout:
    """Return the layout of :class:`Heads`: all first layers (raw; homo, smooth and message for every hop), then each head's own."""
    shapes: dict[str, tuple[int, ...]] = {"input.weight": (num_features, (1 + 3 * (hops + 1)) * width), "input.bias": (4 * width,)}
    for name in HEADS:
        for i in range(DEPTH[name]):
            narrow = num_classes if i == DEPTH[name] - 1 else width
            shapes |= {f"{name}{i}.weight": (width, narrow), f"{name}{i}.bias": (narrow,)}
    return ParameterLayout({**shapes, **dict.fromkeys(SLOPES.values(), (1,))}, inputs=("input.weight",))


def smooths(hops: int, nodes: int, features: int) -> bool:
    """Return True if Xs has fewer columns than :data:`SMOOTHED_BELOW` times the nodes read by products with S over all hops."""
    return (hops + 1) * features <= SMOOTHED_BELOW * hops * nodes


def similar_pairs(rows: Tensor, valid: Tensor) -> Tensor:
    """Return ``cosine > 0.999`` for pairs of different real nodes, ``[k, n, d]`` to ``[k, n, n]`` bool."""
    unit = F.normalize(rows, dim=-1, eps=1e-12)
    joined = (torch.bmm(unit, unit.mT) > SIMILAR) & valid[:, :, None] & valid[:, None]
    joined.diagonal(dim1=1, dim2=2).fill_(False)
    return joined


FUSIONS = {"soft": lambda confidence: confidence, "hard": lambda confidence: (confidence >= HOMOPHILOUS).to(confidence.dtype)}
