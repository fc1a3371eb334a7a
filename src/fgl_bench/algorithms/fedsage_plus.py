"""FedSage+."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fgl_bench.algorithms._composition import Composed
from fgl_bench.algorithms._neighgen import (
    AugmentedGraph,
    Generated,
    Neighborhoods,
    augmented,
    described,
    generator_layout,
    in_order,
    initial,
    needed,
    seen,
    used_slots,
)
from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.fedavg import FedAvg
from fgl_bench.algorithms.powers import Regraphing
from fgl_bench.data.graph import ClientGraph
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.mixing import Mixing, alone, normalize
from fgl_bench.engine.random_numbers import mix, step_key, uniform
from fgl_bench.engine.stacked_optimizers import StackedAdam
from fgl_bench.engine.transfer import put
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import SHARE, Range, UserError, above, at_least
from fgl_bench.models.graphsage import GraphSAGE
from fgl_bench.utils.seeding import generator

GROUP = 1 << 26  # generated entries per program; more clients run in groups (results do not depend on it)


@dataclass
class FedSagePlus(Composed, Regraphing):
    """FedAvg on graphs augmented with generated neighbors (Zhang et al., NeurIPS 2021).

    Phase 0, ``gen_rounds`` rounds: client i hides a share of its validation nodes with all their edges and, on the remaining graph,
    trains its own generator jointly with its classifier: an encoder z_v, a degree ``n_v = ReLU(w z_v + b)`` and
    P feature vectors from z_v plus noise. With n_v the true number of hidden neighbors of v, m training nodes and
    ``L_f = 1/(m P) sum_v sum_{j <= min(P, floor n_v)} min_{k <= min(P, true n_v)} MSE(generated_vj, target_vk)`` the objective is

    ``1/C [ degree_weight L_d + feature_weight L_f + class_weight L_c + feature_weight sum_{j != i} L_f^{ij} ]``

    where L_d is the smooth L1 error of n_v, L_c the classifier's cross-entropy on the graph augmented by the generator, and L_f^{ij} has
    random neighborhoods of client j as targets. No model is averaged. Then every client augments its whole graph once with
    ``floor n_v`` new neighbors of v, joined by edges in both directions, and the classifiers are averaged uniformly.

    Resolutions: OpenFGL's rounds (generator and classifier trained jointly, inside the common round loop), but generated
    nodes send messages to real ones, as in the official code; the cross-client loss is computed locally,
    with traffic counted as in the paper's gradient protocol: for every other client the generator and the m latent inputs are
    uploaded, and a gradient of the generator is downloaded. A client without edges is not a partner. In phase 0 models are scored on
    the original graphs. One initial generator per seed, as for the classifier, with b = 1: with a negative b (half of all seeds)
    ``n_v`` would stay 0. A ``strategy`` starts with the augmented graphs: phase 0 aggregates nothing, and the strategy's statistics
    of a client's graph include the generated nodes.

    Attributes:
        max_neighbours: P, largest number of neighbors generated per node; 0 disables phase 0 and generated neighbors.
        gen_rounds: rounds of phase 0.
        hide: hidden nodes: ``val`` (OpenFGL) or ``train``; ``auto`` means val, or train in the inductive setting, where training sees
            no other nodes. Hidden training nodes are left out of phase 0's losses.
        hidden_share: share q of these nodes to hide.
        latent, encoder_hidden: widths d_z and h of the encoder, a 2-layer GraphSAGE.
        gen_hidden: hidden widths of the feature generator.
        gen_dropout: dropout in the encoder and before the generator's last layer.
        gen_lr: learning rate of the generators' Adams; null takes that of the clients.
        gen_weight_decay: their L2 penalty.
        degree_weight, feature_weight, class_weight: a, b and c.
        weighting: weights of the average, ``uniform`` or ``samples``.
    """

    pairing: ClassVar[Mapping[str, str]] = {"model": "graphsage"}
    multilabel: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "max_neighbours": at_least(0), "gen_rounds": at_least(0), "hidden_share": SHARE, "latent": at_least(1),
        "encoder_hidden": at_least(1), "gen_hidden": at_least(1), "gen_dropout": SHARE, "gen_lr": above(0),
        "gen_weight_decay": at_least(0), "degree_weight": at_least(0), "feature_weight": at_least(0), "class_weight": at_least(0),
    }  # fmt: skip

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

    def own(self) -> _Weighted:
        return _Weighted(self.weighting)

    def generator(self, num_features: int) -> ParameterLayout:
        """Return the layout of a client's generator."""
        encoder = GraphSAGE(self.encoder_hidden, 2, self.gen_dropout)
        return generator_layout(encoder, num_features, self.latent, self.gen_hidden, self.max_neighbours * num_features)

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if self.hide == "val" and self.max_neighbours and any(client.present is not None for client in setting.batch.clients):
            raise UserError("algorithm.hide=val: in the inductive setting training sees no validation nodes; set algorithm.hide=train")
        batch, clients, self.round, self.augmented = setting.batch, setting.num_clients, 0, False
        self.generating = self.gen_rounds if self.max_neighbours else 0
        self.partners = np.array([client.edges.shape[1] > 0 for client in batch.clients]).reshape(-1, clients)
        self.samples = np.array(batch.num_train).reshape(-1, clients)
        self.encoder = GraphSAGE(self.encoder_hidden, 2, self.gen_dropout)
        self.layout = self.generator(batch.features.shape[2])
        if not self.max_neighbours:
            return
        self.streams = setting.streams("fedsage_plus").cpu()
        self.steps = torch.zeros(batch.size, dtype=torch.int64)
        rows = [initial(self.encoder, self.layout, seed).expand(clients, -1) for seed in setting.seeds]
        self.generators = torch.cat(rows).to(batch.device, batch.dtype).contiguous()
        lr = setting.lr if self.gen_lr is None else self.gen_lr
        self.adam = StackedAdam(batch.size, self.layout.size, lr, self.gen_weight_decay, batch.dtype, batch.device)
        self.neighborhoods = Neighborhoods(batch.clients, clients, np.float32 if batch.dtype == torch.float32 else np.float64)
        inductive = any(client.present is not None for client in batch.clients)
        among = {"auto": "train" if inductive else "val"}.get(self.hide, self.hide)
        hidden = [
            hidden_nodes(client, self.hidden_share, generator(seed, "fedsage_plus", "hidden", i), among)
            for seed, part in zip(setting.seeds, np.split(np.arange(batch.size), len(setting.seeds)), strict=True)
            for i, client in enumerate(batch.clients[row] for row in part)
        ]
        impaired = [impair(client, away, self.max_neighbours) for client, away in zip(batch.clients, hidden, strict=True)]
        self.impaired = Batch([graph for graph, _, _ in impaired], batch.dtype, batch.device, batch.feature_dtype)
        self.impaired.features = batch.features
        self.visible = padded([~away for away in hidden], batch.nodes, False).to(batch.device)
        self.missing = padded([count for _, count, _ in impaired], batch.nodes, 0)
        self.targets = padded([ids for _, _, ids in impaired], batch.nodes, 0).numpy()
        self.in_full, self.in_means = (put(mask, batch.device) for mask in seen(setting.model, self.impaired, self.impaired.train))
        self._parts: dict[tuple[int, ...], Batch] = {tuple(range(batch.size)): self.impaired}

    # ---- rounds

    def warmup_rounds(self) -> int:
        return self.generating

    def regraph(self, number: int, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch] | None:
        self.round = number
        if not self.max_neighbours or self.augmented or number < self.generating:
            return None
        graphs = self._graphs(batch, evaluation)
        self.augmented, self.setting = True, replace(self.setting, batch=graphs[0])
        self.server.prepare(self.setting)
        del self.generators, self.adam, self.impaired, self.neighborhoods, self._parts
        return graphs

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return super().mix(reports, arrived) if self.federated else alone(arrived)

    @property
    def federated(self) -> bool:
        """Return True after phase 0."""
        return self.round >= self.generating

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        return super().correct_gradient(step, gradient) if self.federated else gradient

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return super().report(trips) if self.federated else {}

    def upload(self, rows: Sequence[int], received: Tensor, trained: Tensor) -> Tensor:
        return super().upload(rows, received, trained) if self.federated else trained

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        return super().similarity(reports) if self.federated else None

    def refine(self, previous: Tensor, received: Tensor, uploaded: Tensor, arrived: Tensor) -> Tensor:
        if not self.federated:
            return received
        # Before the first average, clients have personal models and the server has no model.
        first = self.round == self.generating > 0
        return super().refine(received.clone() if first else previous, received, uploaded, arrived)

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        generating, each = min(rounds, self.generating), trips // max(rounds, 1)
        features = sum(self.layout.numel(name) for name in self.layout.shapes if name.startswith("feature"))
        model, totals = super().bytes_after(rounds - generating, trips - generating * each), []
        for samples, partners, (up, down) in zip(self.samples, self.partners, model, strict=True):
            pairs = np.where(samples > 0, partners.sum() - partners, 0)
            sent, returned = (pairs * (features + samples * self.latent)).sum(), (pairs * features).sum()
            # Assumes that clients participate equally often.
            share = 4 * generating * self.setting.local_epochs * each
            totals.append((up + int(share * sent) // len(samples), down + int(share * returned) // len(samples)))
        return totals

    # ---- phase 0

    def local_loss(self, step: LocalStep) -> Tensor:
        """In phase 0, also step the generators, and return a linear function with the gradient of the joint objective."""
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
        terms = [(step.parameters[name] * gradient).sum() for name, gradient in wanted.items()]
        return sum(terms[1:], terms[0])

    def _joint_step(self, rows: tuple[int, ...], classifier: dict[str, Tensor]) -> dict[str, Tensor]:
        """Step the generators of ``rows`` and return the gradients of their classifiers."""
        if rows not in self._parts:
            self._parts[rows] = self.impaired.select(rows)
        batch, index = self._parts[rows], list(rows)
        contiguous = index == list(range(index[0], index[-1] + 1))
        theta = self.generators[index[0] : index[-1] + 1] if contiguous else self.generators[index]  # a view, or a copy
        views = {name: view.detach().requires_grad_() for name, view in self.layout.views(theta).items()}
        loss = self.objective(views, classifier, batch, index)
        gradients = torch.autograd.grad(loss, [*views.values(), *classifier.values()], allow_unused=True, materialize_grads=True)
        flat = self.layout.collect(dict(zip(views, gradients, strict=False)))
        able = None if batch.num_train.all() else [i for i, count in enumerate(batch.num_train) if count > 0]
        self.adam.step(theta, flat, rows, able)
        if not contiguous:
            self.generators[index] = theta
        return dict(zip(classifier, gradients[len(views) :], strict=True))

    def objective(self, generators: dict[str, Tensor], classifier: dict[str, Tensor], batch: Batch, rows: Sequence[int]) -> Tensor:
        """Return the sum of the joint objectives of these replicas; ``batch`` has their impaired graphs."""
        model, device, keys = self.setting.model, batch.device, self._keys(rows)
        degree, hidden = described(self.encoder, generators, batch, keys[0], Dropout(self.gen_dropout, keys[1].to(device)))
        slots = used_slots(degree, self.visible[rows] & batch.valid, self.max_neighbours)
        own, near = (mask[rows][..., None] for mask in (self.in_full, self.in_means))
        whole, others = needed(generators, hidden, slots & own), slots & near & ~own
        graph = AugmentedGraph(batch, slots, whole, needed(generators, hidden, others) if others.any() else None)
        shown = cast(Batch, graph)  # has all that a backbone may need, and refuses the rest
        output = model.forward(classifier, shown, model.first(classifier, shown), Dropout(model.dropout, keys[2].to(device)))

        train, missing = batch.training_nodes, self.missing[rows].flatten().to(device)[batch.training_nodes.index]
        logits = graph.real(output.logits).flatten(0, 1)[train.index]
        classes = torch.dot(F.cross_entropy(logits, train.labels, reduction="none"), train.weights)
        degrees = torch.dot(F.smooth_l1_loss(degree.flatten()[train.index], missing.to(degree.dtype), reduction="none"), train.weights)
        distances = self._feature_loss(whole, slots, batch, rows, keys[3:])
        terms = self.degree_weight * degrees + self.feature_weight * distances + self.class_weight * classes
        return terms / self.setting.num_clients

    def _keys(self, rows: Sequence[int]) -> list[Tensor]:
        """Return independent keys ``[k]`` (host) for the draws of the current step."""
        return [step_key(self.streams[rows], self.steps[rows], axis) for axis in range(5)]

    def _feature_loss(self, drawn: Generated, slots: Tensor, batch: Batch, rows: Sequence[int], keys: list[Tensor]) -> Tensor:
        """Return ``L_f + sum_j L_f^{ij}``, summed over these replicas."""
        n, clients, p = batch.nodes, self.setting.num_clients, self.max_neighbours
        train, missing = padded([client.train for client in batch.clients], n, False).numpy(), self.missing[rows].numpy()
        at, v = np.nonzero(train & (missing > 0) & slots.any(2).cpu().numpy())  # distances of unused slots are not counted
        if not at.size:
            return drawn.features[0].new_zeros(())
        replica = np.asarray(rows)[at]
        valid = np.arange(p) < np.minimum(missing[at, v], p)[:, None]
        # The targets of client i in itself are its hidden neighbors; the others are drawn.
        draws = [uniform(key, n, width).numpy()[at, v] for key, width in zip(keys, (clients, clients * p), strict=True)]
        ids, exists = self.neighborhoods.draw(replica // clients, draws[0], draws[1].reshape(-1, clients, p))
        own = np.arange(clients) == (replica % clients)[:, None]
        ids = np.where(own[..., None], (self.neighborhoods.offsets[replica][:, None] + self.targets[replica, v])[:, None], ids)
        valid = valid[:, None] & (exists | own)[..., None]
        client, node = (torch.from_numpy(x).to(batch.device) for x in (at, v))
        rank = drawn.nodes.argsort(1)[client, node]
        generated = torch.stack([x[client, rank.clamp(max=x.shape[1] - 1)] for x in drawn.features], 1)  # unused slots are masked below
        nearest = self.neighborhoods.nearest(generated, ids, valid)
        used = slots[client, node, : len(drawn.features)]
        weight = torch.from_numpy(1.0 / (batch.num_train[at] * p)).to(batch.device, generated.dtype)
        return torch.dot(torch.where(used[:, None], nearest, 0.0).sum((1, 2)), weight)

    # ---- augmentation

    def _graphs(self, batch: Batch, evaluation: Batch) -> tuple[Batch, Batch]:
        """Return the augmented graphs for training and evaluation."""
        model, same = self.setting.model, batch is evaluation
        if self.strategy is not None or not isinstance(model, GraphSAGE):
            graphs = [self.augment(part)[0] for part in dict.fromkeys((batch, evaluation))]
            return graphs[0], graphs[-1]
        owners = seen(model, batch, batch.train)[0], seen(model, evaluation, evaluation.val | evaluation.test)[0]
        graphs = self.augment(batch, owners) if same else [*self.augment(batch, owners[:1]), *self.augment(evaluation, owners[1:])]
        return graphs[0], graphs[1]

    @torch.no_grad()
    def augment(self, batch: Batch, owners: Sequence[np.ndarray | None] = (None,)) -> list[Batch]:
        """Return the graphs of ``batch`` with generated neighbors of visible nodes, without masks and labels, after the real nodes.

        ``owners`` as in :func:`~fgl_bench.algorithms._neighgen.augmented`.
        """
        features, slots = [], []
        for start in range(0, batch.size, size := max(1, GROUP // (batch.nodes * batch.features.shape[2]))):
            rows = list(range(start, min(start + size, batch.size)))
            part = batch if len(rows) == batch.size else batch.select(rows)
            views = self.layout.views(self.generators[rows])
            degree, hidden = described(self.encoder, views, part, mix(self.streams[rows]), no_dropout)
            used = used_slots(degree, self.visible[rows] & part.valid, self.max_neighbours)
            features.extend(in_order(views, hidden, used))
            slots.append(used.sum(-1).cpu().numpy())
        return augmented(batch, np.concatenate(slots), features, owners)


def hidden_nodes(client: ClientGraph, share: float, draw: np.random.Generator, mask: str = "val") -> np.ndarray:
    """Draw ``round(share |val|)`` of the validation nodes (or nodes of another mask), ``[n]`` bool."""
    hidden, nodes = np.zeros(client.num_nodes, dtype=bool), np.flatnonzero(getattr(client, mask))
    hidden[draw.permutation(nodes)[: round(share * nodes.size)]] = True
    return hidden


def impair(client: ClientGraph, hidden: np.ndarray, most: int) -> tuple[ClientGraph, np.ndarray, np.ndarray]:
    """Return the client without the edges of ``hidden`` nodes, the number of hidden neighbors ``[n]``, and the first ``[n, most]`` of them.

    Hidden nodes stay in the graph, isolated and without a loss, so that ids do not change.
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


def padded(rows: Sequence[np.ndarray], nodes: int, fill: int) -> Tensor:
    """Pad rows of different lengths to one host tensor ``[k, nodes, ...]``."""
    out = np.full((len(rows), nodes, *rows[0].shape[1:]), fill, dtype=rows[0].dtype)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(out)


@dataclass
class _Weighted(FedAvg):
    """Average of the participants, uniform (``uniform``) or by size (``samples``)."""

    weighting: Literal["uniform", "samples"]

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return Mixing(normalize(WEIGHTINGS[self.weighting](self, arrived), arrived)[:, None])


WEIGHTINGS = {"uniform": lambda method, arrived: arrived.double(), "samples": lambda method, arrived: method.setting.weights}
