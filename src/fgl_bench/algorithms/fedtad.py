"""FedTAD."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch, Limited, Operator, adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.random_numbers import normal, step_key
from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.errors import Range, UserError, above, at_least
from fgl_bench.utils.seeding import derive_seed


@dataclass
class FedTAD(FedAvg):
    """FedAvg repaired by topology-aware data-free distillation (Zhu et al., IJCAI 2024).

    Before training every client reports how reliable its knowledge of each class is, ``phi_i^c``: the mean cosine of its training
    nodes of that class to their neighbors, on features concatenated with return probabilities of a random walk. After every average w
    the server generates pseudo graphs: a generator g maps noise and evenly distributed classes to ``pseudo_nodes`` feature rows,
    each joined with its ``neighbours`` most similar rows. With ``D = sum_ic phi_i^c Div_c(w, theta_i)``, in turn,

    * g takes ``generator_steps`` steps down on ``ce_weight sum_ic phi_i^c CE_c(theta_i) - D + diversity_weight sum_i exp(-spread)``,
      where spread is the mean over node pairs of the noise's mean square times the features' mean absolute difference;
    * w takes ``student_steps`` steps down on D, with the uploaded models theta_i as teachers.

    Resolutions: phi is normalized per class over the participants (not over the classes of a client), 0 if no client has the class;
    return probabilities (paper), not sampled node ids (code); KL (paper), the mean absolute difference of logits (code) with
    ``divergence=l1``; teachers and student without dropout; g and both Adams persist across rounds.

    Attributes:
        outer: turns per round; 0 is FedAvg.
        generator_steps, student_steps: optimizer steps in each turn.
        generator_lr, student_lr, weight_decay: rates of the server's two Adams.
        pseudo_nodes, noise, neighbours: size of the pseudo graph, width of the noise, k of its nearest-neighbor graph.
        walk_length: largest number of steps of the return probabilities.
        ce_weight, diversity_weight: weights of the generator's first and last term.
        divergence: ``kl`` or ``l1``.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    by_clients: ClassVar[bool] = True
    multilabel: ClassVar[bool] = False
    hidden: ClassVar[tuple[int, ...]] = (64, 128, 256)  # the generator's layers, fixed by the authors
    ranges: ClassVar[dict[str, Range]] = {
        "outer": at_least(0), "generator_steps": at_least(0), "student_steps": at_least(0), "generator_lr": above(0),
        "student_lr": above(0), "weight_decay": at_least(0), "pseudo_nodes": at_least(1), "noise": at_least(1), "neighbours": at_least(1),
        "walk_length": at_least(0), "ce_weight": at_least(0), "diversity_weight": at_least(0),
    }  # fmt: skip

    outer: int
    generator_steps: int
    student_steps: int
    generator_lr: float
    student_lr: float
    weight_decay: float
    pseudo_nodes: int
    noise: int
    neighbours: int
    walk_length: int
    ce_weight: float
    diversity_weight: float
    divergence: Literal["kl", "l1"]

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if self.outer < 0 or self.pseudo_nodes < 1 or not 1 <= self.neighbours <= self.pseudo_nodes:
            raise UserError(
                f"algorithm.outer={self.outer}, pseudo_nodes={self.pseudo_nodes}, neighbours={self.neighbours}: allowed are outer >= 0 and "
                "1 <= neighbours <= pseudo_nodes"
            )
        batch, seeds, classes = setting.batch, len(setting.seeds), setting.num_classes
        phi = np.stack([reliability(client, classes, self.walk_length) for client in batch.clients])
        self.reliability = setting.shard.whole(torch.from_numpy(phi).to(batch.device).view(seeds, -1, classes))
        self.streams = torch.tensor([derive_seed(seed, "fedtad") for seed in setting.seeds], device=batch.device)
        self.round = torch.zeros((), dtype=torch.int64, device=batch.device)
        # Even classes, with the remainder in the last one.
        labels = (torch.arange(self.pseudo_nodes) // max(self.pseudo_nodes // classes, 1)).clamp(max=classes - 1)
        self.labels, self.per_node = labels.to(batch.device), (1 / labels.bincount()[labels].to(batch.dtype)).to(batch.device)

        self.generator = generator_layout(self.noise, classes, self.hidden, batch.features.shape[2])
        rows = [self.generator.pack(_initial_generator(self.generator, seed)) for seed in setting.seeds]
        self.generators = torch.stack(rows).to(batch.device, batch.dtype)
        self.generator_adam = StackedAdam(seeds, self.generator.size, self.generator_lr, self.weight_decay, batch.dtype, batch.device)
        self.student_adam = StackedAdam(seeds, setting.layout.size, self.student_lr, self.weight_decay, batch.dtype, batch.device)
        if self.outer:
            # Fails early if the backbone cannot run on a pseudo graph.
            blank = self.generators.new_zeros(seeds, self.pseudo_nodes, batch.features.shape[2])
            self._logits(setting.layout.views(self.generators.new_zeros(seeds, setting.layout.size)), PseudoGraph(blank, 1))

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        # Every client sends its phi once.
        once = 4 * self.setting.num_clients * self.setting.num_classes if rounds else 0
        return [(up + once, down) for up, down in super().bytes_after(rounds, trips)]

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        if not self.outer:
            return received
        weights = self.weights(arrived).to(received.dtype)
        uploads = self.setting.layout.views(self.setting.shard.whole(uploaded).flatten(0, 1))
        student, rows = received[:, 0].clone(), range(len(received))
        for turn in range(self.outer):
            noise = normal(step_key(self.streams, self.round, turn), self.pseudo_nodes, self.noise, received.dtype)
            for _ in range(self.generator_steps):
                self._generator_step(noise, student, uploads, weights, arrived, rows)
            with torch.no_grad():
                graph = PseudoGraph(generate(self.generator.views(self.generators), noise, self.labels), self.neighbours)
                teachers = self._logits(uploads, graph)
            for _ in range(self.student_steps):
                views = {name: view.detach().requires_grad_() for name, view in self.setting.layout.views(student).items()}
                loss = self.disagreement(self._logits(views, graph), teachers, weights)
                gradients = torch.autograd.grad(loss, list(views.values()))
                self.student_adam.step(student, self.setting.layout.collect(dict(zip(views, gradients, strict=True))), rows)
        self.round += 1
        # Without uploads there is nothing to distill.
        student = torch.where(arrived.any(1)[:, None], student, received[:, 0])
        return student[:, None].expand_as(received)

    def weights(self, arrived: Tensor) -> Tensor:
        """Return phi of this round's participants, normalized over clients, ``[S, C, Y]`` float64; 0 if no client has the class."""
        phi = self.reliability * arrived[..., None]
        total = phi.sum(1, keepdim=True)
        return torch.where(total > 1e-12, phi / total.clamp(min=1e-12), 0.0)

    def disagreement(self, student: Tensor, teachers: Tensor, weights: Tensor) -> Tensor:
        """Return ``sum_ic phi_i^c Div_c(w, theta_i)`` over seeds, from logits ``[S, 1, n, Y]`` and ``[S, C, n, Y]``."""
        return (self._spread(weights) * DIVERGENCES[self.divergence](student, teachers)).sum()

    def generator_loss(
        self, noise: Tensor, features: Tensor, student: Tensor, teachers: Tensor, weights: Tensor, arrived: Tensor
    ) -> Tensor:
        """Return the generators' objective, summed over seeds; logits as in :meth:`disagreement`, ``features [S, n, F]``."""
        wrong = F.cross_entropy(teachers.movedim(-1, 1), self.labels.expand(teachers.shape[:-1]), reduction="none")
        diversity = arrived.sum(1) * torch.exp(-spread(noise, features))
        loss = self.ce_weight * (self._spread(weights) * wrong).sum() + self.diversity_weight * diversity.sum()
        return loss - self.disagreement(student, teachers, weights)

    def _spread(self, weights: Tensor) -> Tensor:
        """Distribute each class's weight over its pseudo nodes, ``[S, C, Y]`` to ``[S, C, n]``."""
        return weights[..., self.labels] * self.per_node

    def _logits(self, parameters: dict[str, Tensor], graph: PseudoGraph) -> Tensor:
        """Return logits ``[S, m, n, Y]`` of m models per seed."""
        model, batch = self.setting.model, cast(Batch, graph)  # has all that a backbone may need, and refuses the rest
        return model.forward(parameters, batch, model.first(parameters, batch), no_dropout).logits.unflatten(
            0, (len(self.setting.seeds), -1)
        )

    def _generator_step(
        self, noise: Tensor, student: Tensor, uploads: dict[str, Tensor], weights: Tensor, arrived: Tensor, rows: Sequence[int]
    ) -> None:
        views = {name: view.detach().requires_grad_() for name, view in self.generator.views(self.generators).items()}
        features = generate(views, noise, self.labels)
        graph = PseudoGraph(features, self.neighbours)
        teachers, own = self._logits(uploads, graph), self._logits(self.setting.layout.views(student), graph)
        self.loss = self.generator_loss(noise, features, own, teachers, weights, arrived)
        gradients = torch.autograd.grad(self.loss, list(views.values()))
        self.loss = self.loss.detach()
        self.generator_adam.step(self.generators, self.generator.collect(dict(zip(views, gradients, strict=True))), rows)


# ---- reliability of a client's knowledge


def return_probabilities(client: ClientGraph, length: int) -> np.ndarray:
    """Return ``diag(T^p)`` for p = 1..length with the random walk ``T = A D^-1``, ``[n, length]``.

    ``P = D^-1/2 A D^-1/2`` is similar to T and symmetric, so ``diag(T^(a+b))`` is the row sum of ``P^a * P^b``.
    """
    walk = plain_operator(client)
    powers = [sp.eye(client.num_nodes, format="csr"), walk]
    while len(powers) <= (length + 1) // 2:
        powers.append((powers[-1] @ walk).tocsr())
    columns = [powers[(p + 1) // 2].multiply(powers[p // 2]).sum(1) for p in range(1, length + 1)]
    return np.asarray(np.hstack(columns)) if columns else np.zeros((client.num_nodes, 0))


def reliability(client: ClientGraph, num_classes: int, walk_length: int, block: int = 1 << 15) -> np.ndarray:
    """Return ``phi_c``, the sum over training nodes of class c of ``(1 + sum over neighbors u of cos(u_v, u_u)) / (d_v + 1)``, ``[Y]``."""
    features, returns = sp.csr_matrix(client.features, dtype=np.float64), return_probabilities(client, walk_length)
    described = sp.hstack([features.tocoo(), sp.coo_matrix(returns)]).tocsr()
    norm = np.sqrt(np.asarray(described.multiply(described).sum(1)).ravel())
    unit = (sp.diags(np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)) @ described).tocsr()
    row, column = client.edges
    parts = [slice(i, i + block) for i in range(0, row.size, block)]
    cosine = [np.asarray(unit[row[part]].multiply(unit[column[part]]).sum(1)).ravel() for part in parts]
    near = np.bincount(row, np.concatenate(cosine) if cosine else None, client.num_nodes)
    each = (1 + near) / (np.bincount(row, minlength=client.num_nodes) + 1)
    return np.bincount(client.labels[client.train], each[client.train], num_classes)


# ---- pseudo graphs


def generator_layout(noise: int, classes: int, hidden: tuple[int, ...], features: int) -> ParameterLayout:
    """Return the generator's layout: a class embedding, then an MLP from embedding and noise to features."""
    widths = [classes + noise, *hidden, features]
    shapes: dict[str, tuple[int, ...]] = {"embedding": (classes, classes)}
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
        shapes[f"layer{i}.weight"], shapes[f"layer{i}.bias"] = (wide, narrow), (narrow,)
    return ParameterLayout(shapes)


def _initial_generator(layout: ParameterLayout, seed: int) -> dict[str, Tensor]:
    """Return PyTorch's defaults: normal embeddings, linear layers uniform within 1/sqrt(in)."""
    draw = torch.Generator().manual_seed(derive_seed(seed, "fedtad", "generator"))
    parameters = {}
    for name, shape in layout.shapes.items():
        bound = layout.shapes[name.replace("bias", "weight")][0] ** -0.5
        values = torch.empty(shape, dtype=torch.float64)
        parameters[name] = values.normal_(generator=draw) if name == "embedding" else values.uniform_(-bound, bound, generator=draw)
    return parameters


def generate(parameters: dict[str, Tensor], noise: Tensor, labels: Tensor) -> Tensor:
    """Return features ``[S, n, F]`` from ``noise [S, n, d]`` and ``labels [n]``."""
    hidden, last = torch.cat([parameters["embedding"][:, labels], noise], -1), (len(parameters) - 1) // 2 - 1
    for i in range(last + 1):
        hidden = torch.baddbmm(parameters[f"layer{i}.bias"][:, None], hidden, parameters[f"layer{i}.weight"])
        hidden = hidden if i == last else torch.tanh(hidden)
    return hidden


def _kl(student: Tensor, teachers: Tensor) -> Tensor:
    """Return KL(teacher || student) of every node.

    The gradient is exactly zero if both agree; Adam would amplify rounding errors.
    """
    student, wanted = student.expand_as(teachers), teachers - torch.logsumexp(teachers, -1, keepdim=True)
    return (wanted.exp() * (wanted - student)).sum(-1) + torch.logsumexp(student, -1)


def _l1(student: Tensor, teachers: Tensor) -> Tensor:
    return (student - teachers).abs().mean(-1)


DIVERGENCES = {"kl": _kl, "l1": _l1}


class _Refusing(Limited):
    refusal = "cannot run this backbone on its pseudo graphs, which have no {name}"


class _Shared(_Refusing):
    """One matrix ``[S, r, m]`` per seed, multiplied with all models of the seed."""

    def __init__(self, values: Tensor):
        self.values = values

    def __matmul__(self, x: Tensor) -> Tensor:
        """Multiply with ``[S * models, m, h]``; returns ``[S * models, r, h]``."""
        return _Product.apply(self.values, x.unflatten(0, (len(self.values), -1))).flatten(0, 1)


class _Product(torch.autograd.Function):
    """``[S, r, m]`` times ``[S, models, m, h]``; the gradient of the matrix is accumulated over the models."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(values, x)
        return torch.matmul(values[:, None], x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        values, x = ctx.saved_tensors
        to_values = to_x = None
        if ctx.needs_input_grad[0]:
            to_values = torch.empty_like(values, memory_format=torch.contiguous_format)
            for into, each, other in zip(to_values, gradient, x, strict=True):
                torch.addbmm(into, each, other.mT, beta=0, out=into)
        if ctx.needs_input_grad[1]:
            to_x = torch.matmul(values.mT[:, None], gradient)
        return to_values, to_x


def _symmetric(matrix: Tensor) -> Tensor:
    scale = matrix.sum(-1).rsqrt()
    return scale[..., None] * matrix * scale[..., None, :]


def _mean(matrix: Tensor) -> Tensor:
    return matrix / matrix.sum(-1, keepdim=True)


def _itself(matrix: Tensor) -> Tensor:
    return matrix


def _without_loops(matrix: Tensor) -> Tensor:
    alone = matrix - torch.diag_embed(matrix.diagonal(dim1=1, dim2=2))
    scale = torch.where(alone.any(-1), alone.sum(-1).clamp(min=1).rsqrt(), 0.0)
    return scale[..., None] * alone * scale[..., None, :]


# The sparse operators for a dense 0/1 adjacency with self loops.
DENSE: dict[Operator, Callable[[Tensor], Tensor]] = {
    gcn_operator: _symmetric,
    mean_operator: _mean,
    adjacency: _itself,
    plain_operator: _without_loops,
}


class PseudoGraph(_Refusing):
    """Generated nodes of every seed, as input of a backbone instead of a :class:`~fgl_bench.engine.batch.Batch`.

    Each node is joined with the k rows of highest cosine, including itself. Edges go both ways, and the choice has no gradient.

    Args:
        features: ``[S, n, F]``.
    """

    def __init__(self, features: Tensor, neighbors: int):
        self.features = _Shared(features)
        unit = F.normalize(features.detach(), dim=-1, eps=1e-12)
        chosen = (unit @ unit.mT).topk(neighbors, -1).indices
        matrix = torch.zeros_like(unit[..., :1]).expand(-1, -1, unit.shape[1]).contiguous().scatter_(-1, chosen, 1.0)
        self.adjacency = torch.maximum(matrix, matrix.mT)
        self.adjacency.diagonal(dim1=1, dim2=2).fill_(1.0)
        self.valid = self.reference = torch.ones(1, features.shape[1], dtype=torch.bool, device=features.device)
        self._operators: dict[Operator, _Shared] = {}

    def operator(self, build: Operator) -> _Shared:
        if build not in DENSE:
            self.__getattr__(build.__name__)
        if build not in self._operators:
            self._operators[build] = _Shared(DENSE[build](self.adjacency))
        return self._operators[build]


BLOCK = {"cpu": 1 << 18, "cuda": 1 << 26}  # entries at a time; on a CPU they stay in the cache


def spread(noise: Tensor, features: Tensor) -> Tensor:
    """Return ``mean_ab ms(z_a - z_b) ma(x_a - x_b)`` over all ordered pairs, ``[S]``: ms the mean square, ma the mean absolute value."""
    square = noise.square().sum(-1)
    distances = (square[..., None] + square[..., None, :] - 2 * noise @ noise.mT).clamp(min=0)
    total = _PairwiseDistance.apply(distances / noise.shape[-1], features)
    return total / (features.shape[1] ** 2 * features.shape[2])


class _PairwiseDistance(torch.autograd.Function):
    """``sum_ab c_ab |x_a - x_b|_1`` for every seed, ``[S, n, n]`` symmetric and ``[S, n, F]`` to ``[S]``.

    Never stores n x n x F entries: the gradient ``2 sum_b c_ab sign(x_a - x_b)`` is computed for a few rows a at a time, and the sum,
    homogeneous in x, is the inner product of the gradient with x.
    """

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, x: Tensor) -> Tensor:
        gradient = _signs(coefficients.detach(), x.detach())
        ctx.save_for_backward(gradient)
        return (gradient * x).sum((1, 2))

    @staticmethod
    def backward(ctx: Any, out: Tensor) -> tuple[None, Tensor]:
        (gradient,) = ctx.saved_tensors
        return None, gradient * out[:, None, None]


def _signs(coefficients: Tensor, x: Tensor) -> Tensor:
    """Return ``2 sum_b c_ab sign(x_a - x_b)``, ``[S, n, F]``."""
    out, nodes = torch.empty_like(x), x.shape[1]
    step = min(nodes, max(1, BLOCK.get(x.device.type, 1 << 26) // x.numel()))
    room = x.new_empty(x.shape[0], step, *x.shape[1:])  # fresh memory for every block costs as much as filling it
    for a in range(0, nodes, step):
        block = slice(a, min(a + step, nodes))
        sign = torch.sub(x[:, block, None], x[:, None], out=room[:, : block.stop - a]).sign_()
        out[:, block] = torch.matmul(coefficients[:, block, None], sign)[:, :, 0]
    return out.mul_(2)
