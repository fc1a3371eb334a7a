"""AdaFGL's personal stage: one head for homophilous and three for heterophilous graphs, on the client's own propagation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.adafgl._opposed import attend
from fgl_bench.engine.batch import Batch, adjacency
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.layout import ParameterLayout, glorot
from fgl_bench.engine.linear import linear, prelu
from fgl_bench.engine.network import Output, Parameters
from fgl_bench.models.base import Backbone

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
    """As in :class:`~fgl_bench.algorithms.adafgl.adafgl.AdaFGL`."""

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
            whole, made = matrix.mul_(scale[..., None]).mul_(scale[:, None]), smooths(options.hops, batch.nodes, batch.features.shape[2])
            operator, smoothed = (None, self.smooth(batch, whole)) if made else (whole, None)
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
        towards, away = torch.softmax(above + slope * below, -1), torch.softmax(-below - slope * above, -1)
        z["message"] = (towards - away + z["message"]) / 2

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
