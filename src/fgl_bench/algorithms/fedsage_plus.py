"""FedSage+."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NoReturn

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms._composition import Composed
from fgl_bench.algorithms.base import Algorithm, Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.adam import Adam
from fgl_bench.engine.batch import Batch, DenseBlocks, Operator, adjacency, gcn_operator, mean_operator, plain_operator
from fgl_bench.engine.dropout import Dropout, mix, no_dropout, step_key
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Mixing, normalise
from fgl_bench.engine.noise import normal, uniform
from fgl_bench.engine.sparse import BlockSparse
from fgl_bench.engine.training import LocalStep, Trips
from fgl_bench.errors import UserError
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.seeding import derive_seed, generator

GROUP = 1 << 26  # generated numbers in one program; more clients than that take turns (results do not depend on it)


@dataclass
class _Weighted(FedAvg):
    """Averaging of the participants, alike (``uniform``) or by size (``samples``)."""

    weighting: Literal["uniform", "samples"]

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return Mixing(normalise(WEIGHTINGS[self.weighting](self, arrived), arrived)[:, None])


@dataclass
class FedSagePlus(Composed):
    """FedAvg on graphs mended with generated neighbours (Zhang et al., NeurIPS 2021).

    Phase 0, ``gen_rounds`` rounds: client i hides a share of its validation nodes with all their edges and trains, on what is
    left and together with its classifier, a generator of its own: an encoder z_v, a degree ``n_v = ReLU(w z_v + b)`` and
    P feature vectors from z_v plus noise. With n_v the true number of hidden neighbours of v, m training nodes and
    ``L_f = 1/(m P) sum_v sum_{j <= min(P, floor n_v)} min_{k <= min(P, true n_v)} MSE(generated_vj, target_vk)`` the objective is

    ``1/C [ degree_weight L_d + feature_weight L_f + class_weight L_c + feature_weight sum_{j != i} L_f^{ij} ]``

    where L_d is the smooth L1 error of n_v, L_c the classifier's cross-entropy on the graph mended by the generator, and L_f^{ij} has
    random neighbourhoods of client j as targets. No model is averaged. Then every client mends its whole graph once,
    ``floor n_v`` new neighbours of v joined by edges in both directions, and the classifiers are averaged uniformly.

    Resolutions: OpenFGL's rounds (generator and classifier trained jointly, inside the common round loop), but generated
    nodes send messages to real ones, as in the official code; the cross-client loss is computed where the data
    are, and its traffic counted as the paper's gradient protocol: for every other client the generator and the m latent
    inputs go up, a gradient of the generator comes down. A client without edges is nobody's partner.
    In phase 0 models are scored on the unmended graphs. One initial generator a seed, as for the classifier, with b = 1: from a
    negative b, half of all seeds, ``n_v`` would be 0 everywhere for ever. A ``strategy`` begins with the mended graphs: in phase 0
    nothing is aggregated, and what it reads of a client's graph includes the generated nodes.

    Attributes:
        max_neighbours: P, most neighbours generated for a node; 0 leaves out phase 0 and the mending.
        gen_rounds: rounds of phase 0.
        hide: which nodes are hidden: of ``val`` (OpenFGL) or of ``train``; ``auto`` is val, and train in the inductive setting, where
            training sees no others. Hidden training nodes are left out of phase 0's losses.
        hidden_share: share q of them that are hidden.
        latent, encoder_hidden: widths d_z and h of the encoder, a 2-layer GraphSAGE.
        gen_hidden: hidden widths of the feature generator.
        gen_dropout: in the encoder and before the generator's last layer.
        gen_lr: learning rate of the generators' Adams; null is that of the clients.
        gen_weight_decay: their L2 penalty.
        degree_weight, feature_weight, class_weight: a, b and c.
        weighting: of the clients in the average: ``uniform`` or ``samples``.
    """

    multilabel: ClassVar[bool] = False

    max_neighbours: int
    gen_rounds: int
    hide: Literal["auto", "val", "train"]
    hidden_share: float
    latent: int
    encoder_hidden: int
    gen_hidden: list[int]
    gen_dropout: float
    gen_lr: float | None
    gen_weight_decay: float
    degree_weight: float
    feature_weight: float
    class_weight: float
    weighting: Literal["uniform", "samples"]

    def own(self) -> Algorithm:
        return _Weighted(self.weighting)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._check()
        batch, clients, self.round, self.mended = setting.batch, setting.num_clients, 0, False
        self.generating = self.gen_rounds if self.max_neighbours else 0
        self.partners = np.array([client.edges.shape[1] > 0 for client in batch.clients]).reshape(-1, clients)
        self.samples = np.array(batch.num_train).reshape(-1, clients)
        self.encoder = GraphSAGE(self.encoder_hidden, 2, self.gen_dropout)
        self.layout = generator_layout(self.encoder, batch.features.shape[2], self.latent, self.gen_hidden, self.max_neighbours)
        if not self.max_neighbours:
            return
        self.streams = torch.tensor([derive_seed(seed, "fedsage_plus", i) for seed in setting.seeds for i in range(clients)])
        self.steps = torch.zeros(batch.size, dtype=torch.int64)
        rows = [_initial(self.encoder, self.layout, seed).expand(clients, -1) for seed in setting.seeds]
        self.generators = torch.cat(rows).to(batch.device, batch.dtype).contiguous()
        lr = setting.lr if self.gen_lr is None else self.gen_lr
        self.adam = Adam(batch.size, self.layout.size, lr, self.gen_weight_decay, batch.dtype, batch.device)
        self.neighbourhoods = Neighbourhoods(batch.clients, clients)
        inductive = any(client.present is not None for client in batch.clients)
        among = {"auto": "train" if inductive else "val"}.get(self.hide, self.hide)
        hidden = [
            hidden_nodes(client, self.hidden_share, generator(seed, "fedsage_plus", "hidden", i), among)
            for seed, part in zip(setting.seeds, np.split(np.arange(batch.size), len(setting.seeds)), strict=True)
            for i, client in enumerate(batch.clients[row] for row in part)
        ]
        impaired = [impair(client, away, self.max_neighbours) for client, away in zip(batch.clients, hidden, strict=True)]
        self.impaired = Batch([graph for graph, _, _ in impaired], batch.dtype, batch.device)
        self.impaired.features = batch.features
        self.kept = _padded([~away for away in hidden], batch.nodes, False).to(batch.device)
        self.missing = _padded([count for _, count, _ in impaired], batch.nodes, 0)
        self.targets = _padded([ids for _, _, ids in impaired], batch.nodes, 0).numpy()
        self._parts: dict[tuple[int, ...], Batch] = {tuple(range(batch.size)): self.impaired}

    def _check(self) -> None:
        if self.hide == "val" and self.max_neighbours and any(client.present is not None for client in self.setting.batch.clients):
            raise UserError("algorithm.hide=val: in the inductive setting training sees no validation nodes; set algorithm.hide=train")
        limits = {"max_neighbours": (0, np.inf), "gen_rounds": (0, np.inf), "hidden_share": (0, 1), "latent": (1, np.inf)}
        for key, (least, most) in {**limits, "encoder_hidden": (1, np.inf), "gen_dropout": (0, 1)}.items():
            value = getattr(self, key)
            if not least <= value <= most:
                raise UserError(
                    f"algorithm.{key}={value}: must be {f'between {least} and {most}' if most < np.inf else f'at least {least}'}"
                )

    # ---- rounds

    def prelude(self) -> int:
        return self.generating

    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch] | None:
        self.round = number
        if not self.max_neighbours or self.mended or number < self.generating:
            return None
        graphs = self.mend(batch)
        graphs = graphs, graphs if evaluation is batch else self.mend(evaluation)
        self.mended, self.setting = True, replace(self.setting, batch=graphs[0])
        self.server.prepare(self.setting)
        del self.generators, self.adam, self.impaired, self.neighbourhoods, self._parts
        return graphs

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        if not self.federated:
            same = torch.eye(arrived.shape[1], dtype=torch.float64, device=arrived.device).expand(len(arrived), -1, -1)
            return Mixing(same, receivers=None if self.setting.full_participation else arrived)
        return super().mix(reports, arrived)

    @property
    def federated(self) -> bool:
        """Whether phase 0 is over."""
        return self.round >= self.generating

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        return super().correct_gradient(step, gradient) if self.federated else gradient

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return super().report(trips) if self.federated else {}

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        return super().similarity(reports) if self.federated else None

    def refine(self, received: Tensor, trained: Tensor, arrived: Tensor) -> Tensor:
        return super().refine(received, trained, arrived) if self.federated else received

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        generating, each = min(rounds, self.generating), trips // max(rounds, 1)
        features = sum(self.layout.numel(name) for name in self.layout.shapes if name.startswith("feature"))
        model, totals = super().bytes_after(rounds - generating, trips - generating * each), []
        for samples, partners, (up, down) in zip(self.samples, self.partners, model, strict=True):
            pairs = np.where(samples > 0, partners.sum() - partners, 0)
            sent, returned = (pairs * (features + samples * self.latent)).sum(), (pairs * features).sum()
            # Clients take part equally often, in expectation.
            share = 4 * generating * self.setting.local_epochs * each
            totals.append((up + int(share * sent) // len(samples), down + int(share * returned) // len(samples)))
        return totals

    # ---- phase 0

    def local_loss(self, step: LocalStep) -> Tensor:
        """In phase 0, moves the generators too, and returns a linear function with the joint objective's gradient."""
        if self.federated:
            return super().local_loss(step)
        per_client = self.impaired.nodes * self.max_neighbours * self.impaired.features.shape[2]
        size, gradients = max(1, GROUP // per_client), []
        for start in range(0, len(step.rows), size):
            positions = slice(start, start + size)
            parameters = {name: view[positions].detach().requires_grad_() for name, view in step.parameters.items()}
            gradients.append(self._joint_step(step.rows[positions], parameters))
        self.steps[list(step.rows)] += 1
        wanted = {name: torch.cat([part[name] for part in gradients]) for name in step.parameters}
        return sum((step.parameters[name] * gradient).sum() for name, gradient in wanted.items())

    def _joint_step(self, rows: tuple[int, ...], classifier: dict[str, Tensor]) -> dict[str, Tensor]:
        """Step the generators of ``rows``; the gradients of their classifiers."""
        if rows not in self._parts:
            self._parts[rows] = self.impaired.select(rows)
        batch, index = self._parts[rows], list(rows)
        whole = len(rows) == len(self.generators)
        theta = self.generators if whole else self.generators[index]
        views = {name: view.detach().requires_grad_() for name, view in self.layout.views(theta).items()}
        loss = self.objective(views, classifier, batch, index)
        gradients = torch.autograd.grad(loss, [*views.values(), *classifier.values()], allow_unused=True, materialize_grads=True)
        flat = self.layout.collect(dict(zip(views, gradients, strict=False)))
        able = None if batch.num_train.all() else [i for i, count in enumerate(batch.num_train) if count > 0]
        self.adam.step(theta, flat, rows, able)
        if not whole:
            self.generators[index] = theta
        return dict(zip(classifier, gradients[len(views) :], strict=True))

    def objective(self, generators: dict[str, Tensor], classifier: dict[str, Tensor], batch: Batch, rows: Sequence[int]) -> Tensor:
        """The joint objectives of these replicas, summed; ``batch`` holds their impaired graphs."""
        model, device, keys = self.setting.model, batch.device, self._keys(rows)
        degree, features = self.generate(generators, batch, keys[0], Dropout(self.gen_dropout, keys[1].to(device)))
        slots = self.slots(degree, self.kept[rows])
        graph = MendedGraph(batch, features, slots)
        output = model.forward(classifier, graph, model.first(classifier, graph), Dropout(model.dropout, keys[2].to(device)))

        nodes, missing = batch.training_nodes, self.missing[rows].flatten().to(device)[batch.training_nodes.index]
        logits = graph.real(output.logits).flatten(0, 1)[nodes.index]
        classes = torch.dot(F.cross_entropy(logits, nodes.labels, reduction="none"), nodes.weights)
        degrees = torch.dot(F.smooth_l1_loss(degree.flatten()[nodes.index], missing.to(degree.dtype), reduction="none"), nodes.weights)
        near = self._feature_loss(features, slots, batch, rows, keys[3:])
        terms = self.degree_weight * degrees + self.feature_weight * near + self.class_weight * classes
        return terms / self.setting.num_clients

    def _keys(self, rows: Sequence[int]) -> list[Tensor]:
        """Independent keys ``[k]`` (host) for the draws of the step in progress."""
        return [step_key(self.streams[rows], self.steps[rows], axis) for axis in range(5)]

    def generate(self, views: dict[str, Tensor], batch: Batch, noise: Tensor, dropout: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Degrees ``[k, n]`` and features ``[k, n, P, F]`` of the neighbours of every node; ``noise [k]`` is a key."""
        latent = self.encoder.forward(views, batch, self.encoder.first(views, batch), dropout).logits
        degree = torch.relu(torch.baddbmm(views["degree.bias"][:, None], latent, views["degree.weight"]))[..., 0]
        hidden = latent + normal(noise.to(batch.device), batch.nodes, self.latent, batch.dtype)
        last = len(self.gen_hidden)
        for i in range(last + 1):
            hidden = torch.baddbmm(views[f"feature{i}.bias"][:, None], hidden, views[f"feature{i}.weight"])
            hidden = torch.tanh(hidden) if i == last else torch.relu(hidden)
            hidden = dropout(hidden) if i == last - 1 else hidden
        return degree, hidden.unflatten(-1, (self.max_neighbours, -1))

    def slots(self, degree: Tensor, kept: Tensor) -> Tensor:
        """``[k, n, P]`` bool: the generated neighbours that are used, the first floor(degree) of every kept node."""
        return (torch.arange(self.max_neighbours, device=degree.device) < degree.detach().floor()[..., None]) & kept[..., None]

    def _feature_loss(self, features: Tensor, slots: Tensor, batch: Batch, rows: Sequence[int], keys: list[Tensor]) -> Tensor:
        """``L_f + sum_j L_f^{ij}`` of these replicas, summed."""
        n, clients, p = batch.nodes, self.setting.num_clients, self.max_neighbours
        train = _padded([client.train for client in batch.clients], n, False).numpy()
        missing = self.missing[rows].numpy()
        at, v = np.nonzero(train & (missing > 0))
        if not at.size:
            return features.new_zeros(())
        replica = np.asarray(rows)[at]
        valid = np.arange(p) < np.minimum(missing[at, v], p)[:, None]
        # Set i of client i is its own hidden neighbours, the others are drawn.
        draws = [uniform(key, n, width).numpy()[at, v] for key, width in zip(keys, (clients, clients * p), strict=True)]
        ids, exists = self.neighbourhoods.draw(replica // clients, draws[0], draws[1].reshape(-1, clients, p))
        own = np.arange(clients) == (replica % clients)[:, None]
        ids = np.where(own[..., None], (self.neighbourhoods.offsets[replica][:, None] + self.targets[replica, v])[:, None], ids)
        valid = valid[:, None] & (exists | own)[..., None]
        flat = torch.from_numpy(at * n + v).to(batch.device)
        nearest = self.neighbourhoods.nearest(features.flatten(0, 1)[flat], ids, valid)
        used = slots.flatten(0, 1)[flat]
        weight = torch.from_numpy(1.0 / (batch.num_train[at] * p)).to(batch.device, features.dtype)
        return torch.dot(torch.where(used[:, None], nearest, 0.0).sum((1, 2)), weight)

    # ---- mending

    @torch.no_grad()
    def mend(self, batch: Batch) -> Batch:
        """The graphs of ``batch`` with the generated neighbours of their kept nodes, after the real nodes; no masks, no labels."""
        per_client = batch.nodes * self.max_neighbours * batch.features.shape[2]
        size, made, slots = max(1, GROUP // per_client), [], []
        for start in range(0, batch.size, size):
            rows = list(range(start, min(start + size, batch.size)))
            part = batch if len(rows) == batch.size else batch.select(rows)
            key = mix(self.streams[rows])
            degree, features = self.generate(self.layout.views(self.generators[rows]), part, key, no_dropout)
            used = self.slots(degree, self.kept[rows])
            made.extend(block[mask] for block, mask in zip(features, used, strict=True))
            slots.append(used.sum(-1).cpu().numpy())
        return mended(batch, np.concatenate(slots), made)


WEIGHTINGS = {"uniform": lambda method, arrived: arrived.double(), "samples": lambda method, arrived: method.setting.weights}


def _padded(rows: Sequence[np.ndarray], nodes: int, fill: int) -> Tensor:
    out = np.full((len(rows), nodes, *rows[0].shape[1:]), fill, dtype=rows[0].dtype)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(out)


# ---- what is hidden, and what others look like


def hidden_nodes(client: ClientGraph, share: float, draw: np.random.Generator, mask: str = "val") -> np.ndarray:
    """``[n]`` bool: ``round(share |val|)`` of the validation nodes (or of those of another mask)."""
    hidden, nodes = np.zeros(client.num_nodes, dtype=bool), np.flatnonzero(getattr(client, mask))
    hidden[draw.permutation(nodes)[: round(share * nodes.size)]] = True
    return hidden


def impair(client: ClientGraph, hidden: np.ndarray, most: int) -> tuple[ClientGraph, np.ndarray, np.ndarray]:
    """The client without the edges of ``hidden`` nodes; ``[n]`` hidden neighbours of every kept node; ``[n, most]`` the first of them.

    Hidden nodes keep their place, cut off and out of the loss, so that ids stay.
    """
    row, column = client.edges
    stays, lost = ~hidden[row] & ~hidden[column], ~hidden[row] & hidden[column]
    order = np.lexsort((column[lost], row[lost]))
    source, target = row[lost][order], column[lost][order]
    count = np.bincount(source, minlength=client.num_nodes)
    rank = np.arange(source.size) - (np.cumsum(count) - count)[source]
    first = np.zeros((client.num_nodes, most), dtype=np.int64)
    first[source[rank < most], rank[rank < most]] = target[rank < most]
    return replace(client, edges=np.ascontiguousarray(client.edges[:, stays]), train=client.train & ~hidden), count, first


class Neighbourhoods:
    """The features and neighbours of all nodes of all replicas, on the host, as targets of generated features.

    Attributes:
        offsets: ``[B]``, where each replica's nodes start.
    """

    def __init__(self, clients: Sequence[ClientGraph], per_seed: int):
        self.per_seed = per_seed
        sizes = np.array([client.num_nodes for client in clients])
        self.offsets = np.cumsum(sizes) - sizes
        self.features = sp.vstack([sp.csr_matrix(client.features, dtype=np.float64) for client in clients]).tocsr()
        edges = np.concatenate([client.edges + offset for client, offset in zip(clients, self.offsets, strict=True)], 1)
        edges = edges[:, np.lexsort((edges[1], edges[0]))]
        self.columns = np.append(edges[1], 0)
        self.degree = np.bincount(edges[0], minlength=sizes.sum())
        self.start = np.cumsum(self.degree) - self.degree
        self.joined = np.append(np.flatnonzero(self.degree), 0)
        owner = np.repeat(np.arange(sizes.size), sizes)
        self.count = np.bincount(owner[self.degree > 0], minlength=sizes.size)
        self.first = np.cumsum(self.count) - self.count

    def draw(self, seeds: np.ndarray, node: np.ndarray, neighbour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Random neighbourhoods in every client of the seed, with replacement.

        Args:
            seeds: ``[T]``.
            node, neighbour: uniform draws ``[T, C]`` and ``[T, C, P]``.

        Returns:
            node ids ``[T, C, P]``, and ``[T, C]`` bool, whether the client has a neighbourhood at all.
        """
        replicas = seeds[:, None] * self.per_seed + np.arange(self.per_seed)
        exists = self.count[replicas] > 0
        chosen = self.joined[np.where(exists, self.first[replicas] + (node * self.count[replicas]).astype(np.int64), 0)]
        return self.columns[self.start[chosen][..., None] + (neighbour * self.degree[chosen][..., None]).astype(np.int64)], exists

    def nearest(self, generated: Tensor, ids: np.ndarray, valid: np.ndarray) -> Tensor:
        """``[T, C, P]``: each generated row's mean squared distance to the nearest valid target; 0 where there is none.

        Args:
            generated: ``[T, P, F]``.
            ids, valid: ``[T, C, K]`` targets.
        """
        t, p, width = generated.shape
        targets = self.features[ids.ravel()]
        square = np.asarray(targets.multiply(targets).sum(1)).reshape(ids.shape)
        # Each target is a sparse row that meets the generated rows of its own node only.
        shift = np.repeat(np.arange(t).repeat(ids[0].size) * width, np.diff(targets.indptr))
        block = sp.csr_matrix((targets.data, targets.indices + shift, targets.indptr), shape=(ids.size, t * width))
        product = BlockSparse.stack([block], ids.size, t * width, generated.dtype, generated.device)
        dots = (product @ generated.mT.reshape(1, t * width, p)).view(*ids.shape, p)
        square, valid = (torch.from_numpy(x).to(generated.device) for x in (square, valid))
        distance = (generated.square().sum(-1)[:, None, None] - 2 * dots + square[..., None].to(dots.dtype)) / width
        distance = torch.where(valid[..., None], distance, torch.inf).min(2).values
        return torch.where(valid.any(2)[..., None], distance, 0.0)


# ---- the generators


def generator_layout(encoder: GraphSAGE, features: int, latent: int, hidden: Sequence[int], most: int) -> ParameterLayout:
    """Encoder, degree head and feature head."""
    shapes = dict(encoder.layout(features, latent).shapes)
    shapes["degree.weight"], shapes["degree.bias"] = (latent, 1), (1,)
    widths = [latent, *hidden, most * features]
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:], strict=False)):
        shapes[f"feature{i}.weight"], shapes[f"feature{i}.bias"] = (wide, narrow), (narrow,)
    return ParameterLayout(shapes, inputs=("conv0.weight",))


def _initial(encoder: GraphSAGE, layout: ParameterLayout, seed: int) -> Tensor:
    """One row ``[P]``: matrices and biases uniform within 1/sqrt(in), but for the degree's bias of 1."""
    parameters = encoder.initialise(layout, torch.Generator().manual_seed(derive_seed(seed, "fedsage_plus", "generator")))
    # From a negative bias the ReLU would be dead in every node, and nothing would ever be learnt.
    parameters["degree.bias"].fill_(1.0)
    return layout.pack(parameters)


# ---- mended graphs


class _Interleaved:
    """Every real node's features and those of its P places, ``[k, n, P, F]``, in turn."""

    def __init__(self, real: BlockSparse | DenseBlocks, generated: Tensor):
        self.real, self.generated = real, generated

    def __matmul__(self, weight: Tensor) -> Tensor:
        made = torch.bmm(self.generated.flatten(1, 2), weight).unflatten(1, self.generated.shape[1:3])
        return torch.cat([(self.real @ weight)[:, :, None], made], 2).flatten(1, 2)


class _Limited:
    """What has not all that a model may ask of a batch or of an operator."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UserError(f"algorithm=fedsage_plus cannot train this model on graphs being mended, which have no {name}; try model=graphsage")


class MendedGraph(_Limited):
    """Impaired graphs with generated neighbours that still move, for a backbone in place of a Batch; differentiable in the features.

    Nodes: every real one followed by its P places, ``n (1 + P)`` in all (so that the draws of a dropout do not depend on
    padding); a place is joined with its node, in both directions, where ``slots`` says so.

    Args:
        features: ``[k, n, P, F]``.
        slots: ``[k, n, P]`` bool.
    """

    def __init__(self, batch: Batch, features: Tensor, slots: Tensor):
        self.batch, self.slots = batch, slots.to(features.dtype)
        self.features = _Interleaved(batch.features, features)
        degree = (batch.degree + self.slots.sum(-1))[..., None]
        self.degree = torch.cat([degree, self.slots], 2).flatten(1, 2)
        self.valid = torch.cat([batch.valid[..., None], slots], 2).flatten(1, 2)

    def real(self, x: Tensor) -> Tensor:
        """The real nodes' rows, ``[k, n (1 + P), h]`` to ``[k, n, h]``."""
        return x.unflatten(1, (self.batch.nodes, -1))[:, :, 0]

    def neighbours(self, x: Tensor) -> Tensor:
        """The sum over the neighbours, ``[k, n (1 + P), h]`` to the same."""
        slots, made, real = self.slots[..., None], x.unflatten(1, (self.batch.nodes, -1))[:, :, 1:], self.real(x)
        near = self.batch.operator(adjacency) @ real + (made * slots).sum(2)
        return torch.cat([near[:, :, None], real[:, :, None] * slots], 2).flatten(1, 2)

    def operator(self, build: Operator) -> _Operator:
        if build not in OPERATORS:
            self.__getattr__(build.__name__)
        return _Operator(self, OPERATORS[build])


@dataclass
class _Operator(_Limited):
    graph: MendedGraph
    apply: Callable[[MendedGraph, Tensor], Tensor]

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.apply(self.graph, x)


def _mean(graph: MendedGraph, x: Tensor) -> Tensor:
    return graph.neighbours(x) / graph.degree.clamp(min=1)[..., None]


def _symmetric(graph: MendedGraph, x: Tensor) -> Tensor:
    scale = (graph.degree + 1).rsqrt()[..., None]
    return scale * (graph.neighbours(scale * x) + scale * x)


def _without_loops(graph: MendedGraph, x: Tensor) -> Tensor:
    scale = torch.where(graph.degree > 0, graph.degree.clamp(min=1).rsqrt(), 0.0)[..., None]
    return scale * graph.neighbours(scale * x)


OPERATORS = {mean_operator: _mean, gcn_operator: _symmetric, plain_operator: _without_loops, adjacency: MendedGraph.neighbours}


class MendedFeatures:
    """Input features of mended graphs: the real nodes' as they were, the generated ones' dense.

    Args:
        real: ``[k, n, F]``, zero in generated nodes.
        generated: ``[k, g + 1, F]``, the last row zero.
        place: ``[k, n]`` row of ``generated`` for every node, g for real ones.
    """

    def __init__(self, real: BlockSparse | DenseBlocks, generated: Tensor, place: Tensor):
        self.real, self.generated, self.place, self.shape = real, generated, place, real.shape

    def select(self, rows: Sequence[int]) -> MendedFeatures:
        index = torch.as_tensor(rows, device=self.place.device)
        return MendedFeatures(self.real.select(rows), self.generated[index], self.place[index])

    def __matmul__(self, weight: Tensor) -> Tensor:
        made = torch.bmm(self.generated, weight)
        return self.real @ weight + made.gather(1, self.place[..., None].expand(-1, -1, made.shape[2]))


def mended(batch: Batch, slots: np.ndarray, generated: Sequence[Tensor]) -> Batch:
    """``batch`` with ``slots[i, v]`` new neighbours of node v of replica i, whose features are ``generated[i]`` in order of v."""
    clients = [_extended(client, count[: client.num_nodes]) for client, count in zip(batch.clients, slots, strict=True)]
    most = max(len(rows) for rows in generated)
    if not most:
        return batch
    result = Batch(clients, batch.dtype, batch.device)
    dense = torch.zeros(batch.size, most + 1, batch.features.shape[2], dtype=batch.dtype, device=batch.device)
    place = np.full((batch.size, result.nodes), most)
    for i, (rows, client) in enumerate(zip(generated, batch.clients, strict=True)):
        dense[i, : len(rows)] = rows
        place[i, client.num_nodes : client.num_nodes + len(rows)] = np.arange(len(rows))
    result.features = MendedFeatures(result.features, dense, torch.from_numpy(place).to(batch.device))
    return result


def _extended(client: ClientGraph, count: np.ndarray) -> ClientGraph:
    """``client`` with ``count[v]`` featureless neighbours of node v after its own nodes; they have no label and no mask."""
    real = np.repeat(np.arange(client.num_nodes), count)
    made = client.num_nodes + np.arange(real.size)
    edges = np.concatenate([client.edges, np.stack([real, made]), np.stack([made, real])], 1)
    if sp.issparse(client.features):
        features = client.features.tocsr(copy=True)
        features.resize(client.num_nodes + real.size, features.shape[1])
    else:
        features = np.concatenate([client.features, np.zeros((real.size, client.features.shape[1]), client.features.dtype)])
    masks = {name: np.append(getattr(client, name), np.zeros(real.size, dtype=bool)) for name in ("train", "val", "test")}
    return ClientGraph(
        nodes=np.append(client.nodes, np.full(real.size, -1)),
        features=features,
        edges=np.ascontiguousarray(edges[:, np.lexsort((edges[1], edges[0]))]),
        labels=np.append(client.labels, np.full(real.size, -1)),
        present=None if client.present is None else np.append(client.present, np.ones(real.size, dtype=bool)),
        **masks,
    )
