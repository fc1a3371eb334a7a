"""FedSSA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fgl_bench.algorithms._vgae import LabelAware, UndirectedEdges, posterior_of, reconstruction, scalar
from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.local import Alone
from fgl_bench.algorithms.powers import Comparing, FinalState
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.random_numbers import mix, normal, step_key, uniform
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, Unsuited, above, at_least, check_ranges
from fgl_bench.models.base import Backbone, Spectral
from fgl_bench.utils.seeding import derive_seed


@dataclass
class FedSSA(Alone, Comparing, FinalState):
    """Semantic and structural alignment without averaging of parameters (Yu et al., arXiv 2601.21589).

    Client i's loss is ``CE + ELBO + SEM + STR`` (eq. 41); its model is never averaged.

    * ELBO, negative: a VGAE with the backbone as trunk, labels of training nodes appended to the features, inner products as decoder.
    * SEM ``= sum_c KL(N(mu_i^c, Sigma_i^c) || N(mu*, Sigma*))``: the Gaussian of the client's class c against that of its cluster (eq. 7).
      The server draws a point of every client's Gaussian, runs k-means per class over the clients with the class (eq. 4), and
      matches the first two moments of every cluster's mixture, weighted by training nodes of the class (eq. 6).
    * STR ``= |a_i - a*|^2 + l1 |a_i|_1 + l2 |a_i|^2``: the filter's coefficients compared to their mean over a cluster of clients (eqs.
      14 to 16). A client reports its spectral energy ``E_i [F, J]``, mean over nodes of ``a_j B_j X`` (eqs. 9, 10); the server clusters the
      column spaces with k-means on the projectors ``Q Q^T``, whose distance is sqrt(2) times the chordal one (eqs. 11 to 13); spaces of
      different dimensions are never equal.

    Targets are computed after a round's training and are constant in the next round; the first round has neither SEM nor alignment.

    Resolutions (the paper's text has lost its formulas): everything in the specification; classifier and encoder share
    the trunk, since otherwise SEM could not affect predictions (``encoder=detached``: the ELBO trains only parameters that the classifier
    does not use, as in FedIIH's code; SEM still reaches the trunk); A is decoded, from all edges and the same number of non-edges, and
    ``KL(q || N(0, I)) / n`` is added, weighted as by VGAE's authors; the constant -log p(y) is left out; diagonal covariances; only
    participants of a round are clustered and get targets. Without both components (``semantic=false structural=false``) clients
    train CE + ELBO; without the ELBO too, the method is exactly ``local``.

    Attributes:
        semantic, structural: the components.
        node_clusters, structural_clusters: largest number of clusters of clients per class, and of filters.
        latent: width of the latent variables.
        encoder: ``shared``, or ``detached``: the ELBO has no gradient to the trunk and the filter.
        elbo_weight, semantic_weight, structural_weight: 1 in the paper.
        l1, l2: weights of the elastic net.
        points: points to cluster per class: ``drawn`` from every Gaussian, or its ``mean``.
        edges: largest number of a client's edges decoded per step; if there are more, this number is drawn.
        floor: smallest variance inside SEM.
        cap: largest divergence of a class; a larger one has no gradient.
        attempts, iterations: number of k-means runs (the best is used), and steps per run.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"model": "unifilter"}
    replayable: ClassVar[bool] = True
    rebuilt: ClassVar[tuple[str, ...]] = ("_renew",)
    multilabel: ClassVar[bool] = False
    node_batches: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "node_clusters": at_least(1), "structural_clusters": at_least(1), "latent": at_least(1), "elbo_weight": at_least(0),
        "semantic_weight": at_least(0), "structural_weight": at_least(0), "l1": at_least(0), "l2": at_least(0), "edges": at_least(1),
        "floor": above(0), "cap": above(0), "attempts": at_least(1), "iterations": at_least(1),
    }  # fmt: skip

    semantic: bool
    structural: bool
    node_clusters: int
    structural_clusters: int
    latent: int
    encoder: Literal["shared", "detached"]
    elbo_weight: float
    semantic_weight: float
    structural_weight: float
    l1: float
    l2: float
    points: Literal["drawn", "mean"]
    edges: int
    floor: float
    cap: float
    attempts: int
    iterations: int

    def __post_init__(self) -> None:
        check_ranges(self, "algorithm")

    @property
    def encodes(self) -> bool:
        """Return True if clients have an autoencoder."""
        return self.semantic or self.elbo_weight > 0

    def backbone(self, model: Backbone) -> Backbone:
        if self.structural and not (isinstance(model, Spectral) and model.scalar):
            raise Unsuited(
                "needs a spectral backbone with scalar coefficients (unifilter, bernnet, chebnet with model.form=filter), "
                "or algorithm.structural=false"
            )
        return LabelAware(model, self.latent) if self.encodes else model

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        batch, classes = setting.batch, setting.num_classes
        seeds, clients = len(setting.seeds), setting.num_clients
        self._streams = setting.streams("fedssa")
        self._server = torch.tensor([derive_seed(seed, "fedssa server") for seed in setting.seeds], device=batch.device)
        self._trips = torch.zeros(batch.size, dtype=torch.int64, device=batch.device)
        chosen = torch.nn.functional.one_hot(batch.labels, classes) * batch.train[..., None]
        self._counts = chosen.sum(1)  # [B, Y]
        self._shares = (chosen / self._counts[:, None].clamp(min=1)).mT.to(batch.dtype)
        self._round = torch.zeros((), dtype=torch.int64, device=batch.device)
        self._sent: list[Tensor] = []
        self._renew = setting.replayed(self._new_targets)
        zeros = self._shares.new_zeros
        if isinstance(setting.model, LabelAware):
            setting.model.attach(batch, classes)
            self._links = UndirectedEdges.of(batch)
            size = (batch.size, classes, self.latent)
            self._gaussians, self._aligned = Gaussian(zeros(size), self._shares.new_ones(size)), zeros(size[:2])
        if self.structural:
            self._responses = self._spectral.mean_responses(batch)
            self._coefficients = zeros(batch.size, self._responses.shape[1])
            self._guided = zeros(batch.size)
        self._owned = (self._counts > 0).sum(1).view(seeds, clients)

    @property
    def _trunk(self) -> Backbone:
        model = self.setting.model
        return model.inner if isinstance(model, LabelAware) else model

    @property
    def _spectral(self) -> Spectral:
        trunk = self._trunk
        assert isinstance(trunk, Spectral)  # backbone() refuses others
        return trunk

    # ---- clients

    def local_penalty(self, step: LocalStep) -> Tensor | None:
        rows = slice(None) if step.batch.size == self.setting.batch.size else step.batch.replicas
        terms: list[Tensor] = []
        if self.encodes:
            detached = self.encoder == "detached"
            posterior = posterior_of(step.output, detached=detached and not self.semantic)
            if self.elbo_weight:
                decoded = posterior_of(step.output, detached=True) if detached and self.semantic else posterior
                terms.append(self.elbo_weight * self.elbo(*decoded, step, rows))
            if self.semantic:
                own = class_gaussians(*posterior, self._shares[rows])
                terms.append(self.semantic_weight * self.semantic_loss(own, rows))
        if self.structural:
            terms.append(self.structural_weight * self.structural_loss(self._spectral.weights(step.parameters), rows))
        return sum(terms[1:], terms[0]) if terms else None

    def elbo(self, mean: Tensor, log_variance: Tensor, step: LocalStep, rows: Tensor | slice) -> Tensor:
        """Return the negative evidence lower bound ``[k]``."""
        valid = step.batch.valid.to(mean.dtype)
        nodes = valid.sum(1).clamp(min=1)
        prior = (divergence_from_standard(mean, log_variance) * valid).sum(1) / nodes
        key = step_key(self._streams[rows], self._trips[rows], step.epoch)
        z = mean + (0.5 * log_variance).exp() * normal(key, mean.shape[1], self.latent, mean.dtype)
        links = self._links if isinstance(rows, slice) else self._links.select(rows)
        return reconstruction(z, links, self.edges, mix(key + 1)) + prior / nodes

    def semantic_loss(self, own: Gaussian, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return SEM ``[k]``, over classes of both the client and a target."""
        floored = [Gaussian(g.mean, g.variance.clamp(min=self.floor)) for g in (own, Gaussian(*(part[rows] for part in self._gaussians)))]
        return (divergence(*floored).clamp(max=self.cap) * self._aligned[rows]).sum(1)

    def structural_loss(self, weights: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return STR ``[k]``."""
        distance = ((weights - self._coefficients[rows]) ** 2).sum(1) * self._guided[rows]
        return distance + self.l1 * weights.abs().sum(1) + self.l2 * (weights**2).sum(1)

    def report(self, trips: Trips) -> dict[str, Tensor]:
        rows, reports = trips.batch.replicas, dict[str, Tensor]()
        self._trips[rows] += 1
        if self.semantic:
            with torch.no_grad():
                reports |= class_gaussians(*posterior_of(trips.output), self._shares[rows])._asdict()
        if self.structural:
            weights = self._spectral.weights(trips.layout.views(trips.trained))
            reports |= {"coefficients": weights.clone(), "energy": weights[..., None] * self._responses[rows]}
        return reports

    @torch.no_grad()
    def final_state(self, trips: Iterable[Trips]) -> dict[str, Tensor]:
        """Return final class means ``[B, Y, d]`` with their numbers of training nodes, and coefficients ``[B, J]``.

        If filters are aligned, also return the targets of the coefficients.
        """
        means, weights = [], []
        for ended in trips:
            if self.encodes:
                means.append(class_gaussians(*posterior_of(ended.output), self._shares[ended.batch.replicas]).mean)
            if scalar(self._trunk):
                weights.append(self._spectral.weights(ended.layout.views(ended.trained)).clone())
        state = {"class_means": torch.cat(means), "class_counts": self._counts} if means else {}
        state |= {"coefficients": torch.cat(weights)} if weights else {}
        return state | ({"targets": self._coefficients} if self.structural else {})

    # ---- server

    def similarity(self, reports: dict[str, Tensor]) -> Tensor | None:
        """Return the mean squared cosine of the principal angles between two clients' spectral energies."""
        if not self.structural:
            return None
        inner = overlaps(orthonormal(reports["energy"].double().mT))
        rank = inner.diagonal(dim1=-2, dim2=-1)
        least = torch.minimum(rank[..., None], rank[..., None, :])
        return 1 - chordal_distances(inner) ** 2 / least.clamp(min=1)

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        if reports:
            self._renew(arrived=arrived, **reports)
        self._sent.append(torch.stack([arrived.sum(1), (arrived * self._owned).sum(1)], 1))
        return super().mix(reports, arrived)

    def _new_targets(self, arrived: Tensor, **reports: Tensor) -> None:
        """Cluster every class's Gaussians and the filters, and set new targets of the participants."""
        keys = step_key(self._server, self._round, torch.arange(3, device=self._server.device)[:, None])  # for points, and for both k-means
        each = Gaussian(*(reports[name].double().transpose(1, 2) for name in Gaussian._fields)) if self.semantic else None  # [S, Y, C, d]
        classes = [] if each is None else [self._points(each, arrived, keys[0])]
        filters = [self._projectors(reports["energy"], arrived)] if self.structural else []
        gram, there, weights = (torch.cat(parts, 1) for parts in zip(*classes, *filters, strict=True))
        fellows = same_cluster(kmeans(gram, there, self._draws(keys), self.iterations))
        weights = normalize(weights[:, :, None].expand_as(fellows), fellows)
        if each is not None:
            self._align(matched(weights[:, : self.setting.num_classes], each), there[:, : self.setting.num_classes])
        if self.structural:
            self._guide(weights[:, -1] @ reports["coefficients"].double(), arrived)
        self._round += 1

    def _points(self, each: Gaussian, arrived: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inner products of the points per class ``[S, Y, C, C]``, a mask of clients with the class, and weights ``[S, Y, C]``."""
        points, (seeds, classes, clients, width) = each.mean, each.mean.shape
        counts = self._counts.view(seeds, clients, classes).mT
        if self.points == "drawn":
            noise = normal(key, clients * classes, width, points.dtype)
            points = points + each.variance.sqrt() * noise.view(seeds, clients, classes, width).transpose(1, 2)
        return points @ points.mT, (counts > 0) & arrived[:, None], counts.double()

    def _projectors(self, energy: Tensor, arrived: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same for the projectors on ``energy [S, C, J, F]``, as one class with equal weights."""
        inner = overlaps(orthonormal(energy.double().mT))
        return inner[:, None], arrived[:, None], torch.ones_like(inner[:, :1])

    def _align(self, targets: Gaussian, there: Tensor) -> None:
        """Set ``targets [S, Y, C, d]`` of the classes in ``there [S, Y, C]``."""
        seeds, classes, clients = there.shape
        new = there.mT[..., None]
        for old, target in zip(self._gaussians, targets, strict=True):
            known = old.view(seeds, clients, classes, -1)
            known.copy_(torch.where(new, target.transpose(1, 2).to(old.dtype), known))
        self._aligned.masked_fill_(new.flatten(0, 1)[..., 0], 1.0)

    def _guide(self, targets: Tensor, arrived: Tensor) -> None:
        """Set ``targets [S, C, J]`` of the participants' filters."""
        known = self._coefficients.view(targets.shape)
        known.copy_(torch.where(arrived[..., None], targets.to(known.dtype), known))
        self._guided.masked_fill_(arrived.flatten(), 1.0)

    def _draws(self, keys: Tensor) -> Tensor:
        """Return draws ``[S, sets, attempts, clusters]`` for this round's k-means; infinite beyond a set's number of clusters."""
        sets = [(1, self.setting.num_classes, self.node_clusters)] if self.semantic else []
        sets += [(2, 1, self.structural_clusters)] if self.structural else []
        most, padded = max(clusters for *_, clusters in sets), []
        for purpose, count, clusters in sets:
            draws = uniform(keys[purpose], count * self.attempts, clusters).unflatten(1, (count, self.attempts))
            padded.append(torch.nn.functional.pad(draws, (0, most - clusters), value=torch.inf) if clusters < most else draws)
        return torch.cat(padded, 1)

    # ---- traffic

    def message(self, classes: int) -> Traffic:
        """Return the scalars per trip of a client with training nodes of ``classes`` classes."""
        up, down = {}, {}
        if self.semantic:
            up["class Gaussians"], down["cluster Gaussians"] = classes * (2 * self.latent + 1), classes * 2 * self.latent
        if self.structural:
            _, orders, features = self._responses.shape
            up |= {"coefficients": orders, "spectral energy": orders * features}
            down["coefficients"] = orders
        return Traffic(up, down)

    def traffic(self) -> Traffic:
        """Return the traffic of a client with every class; :meth:`bytes_after` counts each client's classes."""
        return self.message(self.setting.num_classes)

    def bytes_after(self, rounds: int, trips: int) -> list[tuple[int, int]]:
        none, one = self.message(0).bytes, self.message(1).bytes
        sent = sum(self._sent[:rounds], torch.zeros(len(self.setting.seeds), 2, dtype=torch.int64, device=self._server.device)).tolist()
        return [tuple(clients * none[i] + classes * (one[i] - none[i]) for i in (0, 1)) for clients, classes in sent]


class Gaussian(NamedTuple):
    """Attributes: mean, variance ``[..., d]``."""

    mean: Tensor
    variance: Tensor


def divergence(one: Gaussian, other: Gaussian) -> Tensor:
    """Return ``KL(one || other)``, summed over the d dimensions."""
    ratio = one.variance / other.variance
    return 0.5 * (ratio - 1 - torch.log(ratio) + (other.mean - one.mean) ** 2 / other.variance).sum(-1)


def divergence_from_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return ``KL(N(mean, variance) || N(0, I))``, summed over the d dimensions."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)


def class_gaussians(mean: Tensor, log_variance: Tensor, shares: Tensor) -> Gaussian:
    """Return one Gaussian per class from its posteriors: the mean of means, and the mean variance plus the variance of means.

    Args:
        mean, log_variance: ``[k, n, d]``, posteriors of all nodes.
        shares: ``[k, Y, n]``, weights of the nodes per class, with sum one (zero for an absent class).

    Returns:
        ``[k, Y, d]``; zero for an absent class.
    """
    center = shares @ mean
    centered = mean - (shares > 0).to(mean.dtype).mT @ center
    return Gaussian(center, shares @ (log_variance.exp() + centered**2))


def matched(weights: Tensor, each: Gaussian) -> Gaussian:
    """Return the Gaussians with the first two moments of mixtures (diagonal of the covariance).

    Args:
        weights: ``[..., m, C]``, the weights of m mixtures of C components; rows sum to one, or to zero.
        each: the components, ``[..., C, d]``.

    Returns:
        ``[..., m, d]``.
    """
    mean = weights @ each.mean
    squares = (each.mean[..., None, :, :] - mean[..., None, :]) ** 2
    return Gaussian(mean, weights @ each.variance + (weights[..., None] * squares).sum(-2))


def kmeans(gram: Tensor, there: Tensor, draws: Tensor, iterations: int) -> Tensor:
    """Return the best of R k-means clusterings of every set of C points.

    Centers are initialized by k-means++ (Arthur & Vassilvitskii, SODA 2007). Only inner products are used, so points may be in any
    inner product space, e.g. projectors on the Grassmann manifold. There are fewer than K clusters if there are fewer distinct
    points; a cluster that loses its last point stays empty. The result is a pure function of the arguments.

    Args:
        gram: ``[..., C, C]`` inner products.
        there: ``[..., C]`` bool, the points to cluster.
        draws: ``[..., R, K]`` from [0, 1), for the initial centers of R attempts at K clusters; infinite for fewer clusters.
        iterations: assignments after the first.

    Returns:
        ``[..., C, K]`` bool, the cluster of every point; no cluster for points outside ``there``.
    """
    gram = gram[..., None, :, :]
    there = there[..., None, :]
    square = gram.diagonal(dim1=-2, dim2=-1)
    distances = (square[..., None] + square[..., None, :] - 2 * gram).clamp(min=0)
    numbers = torch.where(there[..., None], torch.arange(draws.shape[-1], device=draws.device), -1)
    start = _plus_plus(distances, square.abs().amax(-1, keepdim=True), there, draws)
    member = _nearest(start, numbers)
    gram = gram.expand(*start.shape[:-1], -1).contiguous()  # otherwise every product would copy it
    for _ in range(iterations):
        size = member.sum(-2, dtype=gram.dtype)
        mean = member / size[..., None, :].clamp(min=1)
        cross = gram @ mean
        within = (mean * cross).sum(-2).masked_fill_(size == 0, torch.inf)
        distance = torch.sub(square[..., None], cross, alpha=2).add_(within[..., None, :])
        member = _nearest(distance, numbers)
    size = member.sum(-2, dtype=gram.dtype)
    mean = member / size[..., None, :].clamp(min=1)
    inertia = (square * there).sum(-1) - (member * (gram @ mean)).sum((-2, -1))
    best = inertia.argmin(-1)[..., None, None, None].expand(*inertia.shape[:-1], 1, *member.shape[-2:])
    return member.gather(-3, best).squeeze(-3)


def _plus_plus(distances: Tensor, scale: Tensor, there: Tensor, draws: Tensor) -> Tensor:
    """Return squared distances ``[..., R, C, K]`` to the initial centers; infinite if no distinct point is left."""
    chance = there.expand(*draws.shape[:-1], there.shape[-1]).to(distances.dtype)
    nearest, chosen, least = torch.full_like(chance, torch.inf), [], 1e-12 * scale
    for draw in draws.unbind(-1):
        total = chance.cumsum(-1)
        further = total > draw[..., None] * total[..., -1:]
        pick = further.to(torch.uint8).argmax(-1)
        index = pick[..., None, None].expand(*pick.shape, distances.shape[-1], 1)
        distance = distances.expand(*pick.shape, *distances.shape[-2:]).gather(-1, index)[..., 0]
        distance = torch.where(further[..., -1:], distance, torch.inf)
        chosen.append(distance)
        nearest = torch.minimum(nearest, distance)
        # A point equal to a center up to rounding cannot be another center.
        chance = torch.where(there & (nearest > least) & (nearest < torch.inf), nearest, 0.0)
    return torch.stack(chosen, -1)


def _nearest(distance: Tensor, numbers: Tensor) -> Tensor:
    """Return every point's nearest center, the first of equals, ``[..., C, K]`` bool.

    Args:
        numbers: ``[..., C, K]``, numbers of the centers, 0 to K - 1; all -1 for points outside ``there``.
    """
    return distance.argmin(-1, keepdim=True) == numbers


def same_cluster(member: Tensor) -> Tensor:
    """Return True for pairs of points in the same cluster, ``[..., C, K]`` to ``[..., C, C]`` bool."""
    member = member.double()
    return (member @ member.mT) > 0


def orthonormal(matrix: Tensor, tolerance: float = 1e-5) -> Tensor:
    """Return an orthonormal basis of every matrix's column space, ``[..., F, J]`` to the same shape, with zero columns beyond the rank.

    Gram-Schmidt with column pivoting and reorthogonalization, which reveals the rank: remaining columns shorter than ``tolerance``
    times the longest column are treated as rounding errors.
    """
    rest = matrix.clone()
    least = tolerance * rest.norm(dim=-2).amax(-1, keepdim=True)
    basis = torch.zeros_like(matrix)
    for j in range(min(matrix.shape[-2:])):
        size, pick = rest.norm(dim=-2).max(-1, keepdim=True)
        column = rest.gather(-1, pick[..., None, :].expand(*rest.shape[:-1], 1))[..., 0]
        column = column - (basis @ (basis.mT @ column[..., None]))[..., 0]
        column = torch.where(size > least, column / column.norm(dim=-1, keepdim=True).clamp(min=1e-300), 0.0)
        basis[..., j] = column
        rest = rest - column[..., None] * (column[..., None, :] @ rest)
    return basis


def overlaps(bases: Tensor) -> Tensor:
    """Return ``|Q_i^T Q_j|_F^2`` of all pairs, ``[..., C, F, J]`` to ``[..., C, C]``: the inner products of the projectors Q Q^T."""
    *lead, count, _, width = bases.shape
    rows = bases.mT.flatten(-3, -2)
    return (rows @ rows.mT).square().view(*lead, count, width, count, width).sum((-3, -1))


def chordal_distances(inner: Tensor) -> Tensor:
    """Return chordal distances ``[..., C, C]`` from :func:`overlaps`: the root of the sum of squared sines of principal angles.

    For spaces of different dimensions, the smaller one determines the number of angles.
    """
    rank = inner.diagonal(dim1=-2, dim2=-1)
    return (torch.minimum(rank[..., None], rank[..., None, :]) - inner).clamp(min=0).sqrt()
