"""Base of methods with message passing between clients during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.cross_client._active_rows import ActiveRowFeatures, ActiveRowsAdam, FirstUse, Products
from fgl_bench.algorithms.cross_client._bipartite import Convolutions, Messages, convolutions
from fgl_bench.algorithms.cross_client._features import Rows
from fgl_bench.algorithms.cross_client._halo import First, Halo, Level, Plan
from fgl_bench.algorithms.cross_client._remote_rows import ComputedRows, Current, RemoteRows
from fgl_bench.algorithms.cross_client._sampling import cut, gumbel, largest
from fgl_bench.algorithms.powers import JointTraining, ServerAnswers
from fgl_bench.data.graph import ClientGraph
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.network import Parameters, node_losses
from fgl_bench.engine.random_numbers import mix, uniform
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.transfer import clock
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, Unsuited, UserError, at_least, between, check_ranges
from fgl_bench.models.base import Backbone
from fgl_bench.optimizers.adam import DEFAULT

# Rows in use are stored separately if at most this share of the pairs of a client and a feature occurs.
TOUCHED_BELOW = 0.8


@dataclass
class CrossClient(RemoteRows, JointTraining, ServerAnswers):
    """FedAvg over mini-batches with message passing across clients (Li et al., SIGMOD 2024, sections 3 and 5).

    A client's training nodes are shuffled every epoch and cut into ``batches``; all clients process batch b at the same time.
    A node receives messages from at most ``fanout`` neighbors. In the first convolution all neighbors are in the same client (raw
    features are never sent); in later convolutions a remote neighbor is a row of the client's store, computed by its owner with its
    local model over its own edges. The store starts with zeros and is never cleared; a row that was never fetched is not a neighbor.
    A *synchronization* happens in the batches b of an epoch with ``b mod interval = 0``: the nodes of all batches until the next
    synchronization draw their neighbors, and clients fetch the remote ones, computed by the models at the start of the batch. Rows
    and draws are then used until the next synchronization. Since every node is visited once per epoch, this fetches nearly the same
    number of rows for any interval. With ``fetch=batch`` only the nodes of the current batch fetch rows, and nodes of other batches
    draw among rows of earlier epochs, for 1/interval of the rows.

    Traffic, via the server: models both ways and, at a synchronization, ids (8 bytes) from the client to the owner and rows back:
    each distinct row is uploaded once, and downloaded once per requesting client.

    Resolutions: batches of equal size (+-1), so every client has the same number; averages weighted by training nodes; Adam
    restarts every round. ``link_mbps`` and ``link_seconds`` only convert bytes to seconds: a round takes as long as the busiest
    client's transfers, and every exchange with the server has one latency each way.

    Attributes:
        batches: mini-batches per epoch.
        fanout: largest number of neighbors of a node per convolution; null takes all.
        sampling: ``uniform``, or by ``attention``: without replacement, proportional to the exponentials of the convolution's own scores.
        interval: batches from one synchronization to the next; 0 disables edges between clients.
        fetch: a synchronization fetches rows for the nodes of all batches until the next (``interval``), or of the current ``batch``.
        between: remote rows between synchronizations: the last ones (``history``), or none (``drop``).
        link_mbps, link_seconds: bandwidth of a client's link, in megabits per second, and its latency.
        first_hop: edges of the first convolution when the server scores and observes a model: those inside clients (``own``), as in
            training, or all (``full``). Later convolutions use all edges.
    """

    tasks: ClassVar[tuple[str, ...]] = ("node",)
    pairing: ClassVar[Mapping[str, str]] = {"split": "iid_server", "model": "gat"}
    reset_optimizer: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "batches": at_least(1), "fanout": at_least(1), "interval": at_least(0), "link_mbps": between(1e-6, 1e12),
        "link_seconds": between(0, 1e9),
    }  # fmt: skip

    batches: int
    fanout: int | None
    sampling: Literal["uniform", "attention"]
    interval: int
    fetch: Literal["interval", "batch"]
    between: Literal["history", "drop"]
    link_mbps: float
    link_seconds: float
    first_hop: Literal["own", "full"]

    def __post_init__(self) -> None:
        check_ranges(self, "algorithm")

    @property
    def scored(self) -> bool:
        """Return True if :meth:`choose` samples edges by scores."""
        return self.sampling == "attention" and self.fanout is not None

    # ---- hooks

    def intervals(self) -> list[int]:
        """Return each seed's batches between synchronizations in the next round; 0: no synchronization."""
        return [self.interval] * len(self.setting.seeds)

    def choose(self, number: int, level: Level, allowed: Tensor, scores: Tensor | None, noise: Tensor) -> Tensor:
        """Return the edges that convolution ``number`` uses, ``[E]`` bool; the caller adds loops.

        Args:
            allowed: ``[E]`` bool, the candidates.
            scores: ``[E]`` attention logits; None for uniform sampling.
            noise: ``[E]`` standard Gumbel draws.
        """
        if self.fanout is None:
            return allowed
        keys = noise if scores is None else scores + noise
        return largest(keys, level.edges.target, self.fanout, allowed)

    # ---- set-up

    def check_choices(self, model: Backbone, split: Split) -> None:
        needs = [] if split.test == "server" else ["split.test=server"]
        try:
            if self.sampling == "attention" and not convolutions(model).attends:
                needs.append("an attention backbone (or algorithm.sampling=uniform)")
        except Unsuited:
            needs.append("a GAT or GraphSAGE backbone" if self.sampling == "uniform" else "an attention backbone")
        if needs:
            raise Unsuited(f"needs {' and '.join(needs)}")

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if setting.server is None:
            raise Unsuited("needs split.test=server")
        if not setting.full_participation:
            raise UserError("participation: methods with edges between clients need participation=1 and scenario.deadline=null")
        batch, device = setting.batch, setting.batch.device
        self.layers: Convolutions = convolutions(setting.model)
        if self.sampling == "attention" and not self.layers.attends:
            raise Unsuited("needs an attention backbone (or algorithm.sampling=uniform)")
        self.halo = Halo(batch.clients, setting.cross_edges, batch.dtype, device, self.layers.parts, self.layers.part)
        self._open()
        self._own = OwnEdges(setting.server, batch.clients, self.layers) if self.first_hop == "own" else None
        self._first_use = FirstUse(self.halo, self.layers.depth)
        self._orders, self._draws = setting.streams("batches").cpu(), mix(setting.streams("neighbours"))
        replica = self.halo.target // self.halo.nodes
        first = np.searchsorted(replica, np.arange(self.halo.size))
        self._number = self.halo.put(np.arange(replica.size) - first[replica])
        # On a CPU the host reads the masks, so steps include only the edges in use. With dropout, draws depend on the full layout.
        self._narrow = device.type == "cpu" and not setting.model.drops
        self.epochs = 0
        self._training = np.concatenate([client.train for client in batch.clients])

    def optimizer(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """Return, on a CPU, an optimizer that skips rows of features that no mini-batch has had, if they are many."""
        layout, full = self.setting.layout, int(self.setting.batch.num_train.min()) >= self.batches
        usual = self.setting.optimizer == DEFAULT and full and not weight_decay
        if not usual or device.type != "cpu" or self.halo.features.dense or len(layout.inputs) != 1:
            return None
        rows, parts = self.halo.occurring(), self.layers.parts
        if rows > TOUCHED_BELOW * count * self.halo.features.width * parts:
            return None
        return ActiveRowsAdam(count, layout, lr, rows, dtype, device, parts)

    @property
    def server_nodes(self) -> Batch:
        """The graphs of the servers; :meth:`prepare` refuses settings without them."""
        assert self.setting.server is not None
        return self.setting.server

    def answer(self, parameters: Parameters) -> Tensor | None:
        return None if self._own is None else self._own(parameters)

    # ---- training

    def train(self, trainer: Trainer, trips: Trips) -> None:
        begin, halo = clock(self.halo.device), self.halo
        self.moved.open()
        # Batches until the next synchronization, for every slot by its seed.
        interval = np.repeat(np.array(self.intervals()), halo.nodes * self.setting.num_clients)[halo.slots]
        for _ in range(trainer.local_epochs):
            number, self._lost = self._cut(), torch.zeros(halo.size, dtype=torch.float64, device=halo.device)
            if isinstance(trainer.optimizer, ActiveRowsAdam):
                trainer.optimizer.order = self._first_use(number)
            for b in range(self.batches):
                self._batch(trainer, trips, number, b, interval)
            self.epochs += 1
        if isinstance(trainer.optimizer, ActiveRowsAdam):
            trainer.optimizer.settle(trips.trained)
        trips.train_loss = self._lost / trips.batch.train.sum(1).clamp(min=1)
        self.seconds += clock(halo.device) - begin

    def _cut(self) -> np.ndarray:
        """Return the mini-batch of ``halo.slots`` in this epoch, with training nodes shuffled and cut evenly; -1 for other nodes."""
        draws = uniform(mix(mix(self._orders) + self.epochs), self.halo.nodes, 1)[..., 0].numpy().ravel()[self.halo.slots]
        return cut(draws, self._training, self.halo.slots // self.halo.nodes, self.setting.batch.num_train, self.batches)

    def _batch(self, trainer: Trainer, trips: Trips, number: np.ndarray, b: int, interval: np.ndarray) -> None:
        seeds, step = self.halo.slots[number == b], self.epochs * self.batches + b
        key = mix(self._draws + step)
        plan = self._exchange(trainer, trips, seeds, number, b, interval, step, key)
        if seeds.size:
            if self._narrow or plan is None:
                plan = self.halo.plan(seeds, self.layers.depth, self._taken if self._narrow else None)
            self._step(trainer, trips, plan, key)

    def _current(self, trainer: Trainer, trips: Trips, plan: Plan) -> tuple[dict[str, Tensor], Products | None]:
        """Return the current models and, if the optimizer stores the rows in use, the products of ``plan``'s input features."""
        if not isinstance(trainer.optimizer, ActiveRowsAdam):
            return trainer.layout.views(trips.trained), None
        active, name = ActiveRowFeatures.of(plan.first.features, trainer.optimizer, trips.trained), trainer.optimizer.name
        views = trainer.optimizer.views()
        return views, Products(active.multiply(views[name]), active.sizes)

    def _exchange(
        self, trainer: Trainer, trips: Trips, seeds: np.ndarray, number: np.ndarray, b: int, interval: np.ndarray, step: int, key: Tensor
    ) -> Plan | None:
        """Draw the neighbors of all due nodes and fetch their rows; returns the plan of the batch's ``seeds``, if any."""
        slots, every = self.halo.slots, np.maximum(interval, 1)
        now = (interval > 0) & (b % every == 0)
        ahead = self.between == "history" and self.fetch == "interval"
        due = now & (number >= b) & (number < (b + every if ahead else b + 1))
        here, rest = number == b, (interval > 0) & ~now
        # (nodes that draw, with remote neighbors, fetch these neighbors)
        draws = [(due, True, True), (here & (interval == 0), False, False)]
        if not ahead:
            draws.append((here & rest, self.between == "history", False))
        draws = [draw for draw in draws if draw[0].any()]
        current = partial(self._current, trainer, trips)
        batch: Plan | None = None
        for mask, remote, fetch in draws:
            draw = self.halo.plan(slots[mask], self.layers.depth)
            batch = draw if np.array_equal(draw.slots, seeds) else batch
            rows = self._draw(current, draw, remote, key)
            if fetch:
                self._fetch(current, draw, step, rows)
        first = np.searchsorted(slots, np.arange(len(self.setting.seeds)) * self.setting.num_clients * self.halo.nodes)
        self.moved.syncs[-1] += now[first]
        return batch

    @torch.no_grad()
    def _draw(self, current: Current, plan: Plan, remote: bool, key: Tensor) -> ComputedRows | None:
        """Choose edges of every convolution except the first and store them; returns the rows behind the scores."""

        def chosen(number: int, level: Level, scores: Tensor | None) -> Tensor:
            allowed = ~level.loop if remote else ~(level.loop | level.remote)
            edges = self.choose(number, level, allowed, scores, self._noise(level, number, key))
            self.chosen[number - 1][level.number] = edges | level.loop
            return edges

        def keep(number: int, level: Level, sent: Messages) -> Tensor:
            if number == 0:
                return torch.ones_like(level.loop)
            edges = chosen(number, level, sent.attention.mean(0))
            return edges & (~level.remote | (self.stamp[number - 1][level.entry] >= 0)) | level.loop

        if not self.scored or not plan.levels:
            for number, level in enumerate(plan.levels, 1):
                chosen(number, level, None)
            return None
        (views, features), last = current(plan), len(plan.levels)
        hidden = self.layers.activate(self.layers.forward(plan, views, self._stored, keep, no_dropout, features, last - 1))
        scores = self.layers.scores(last, views, hidden, self.store[last - 1], self.stamp[last - 1], plan.levels[-1])
        chosen(last, plan.levels[-1], scores.mean(0))
        # With a third convolution, these rows use drawn edges only, but an owner computes rows with all of its edges.
        return (plan.first.slots, hidden) if self.layers.depth == 2 else None

    def _noise(self, level: Level, number: int, key: Tensor) -> Tensor:
        """Return noise ``[E]``, a function of the step's ``key [k]``, the convolution and the edge."""
        return gumbel(mix(key + number)[level.edges.target // level.shape[1]], self._number[level.number], self.store[0].dtype)

    def _step(self, trainer: Trainer, trips: Trips, plan: Plan, key: Tensor) -> None:
        optimizer = trainer.optimizer if isinstance(trainer.optimizer, ActiveRowsAdam) else None
        active = None if optimizer is None else ActiveRowFeatures.of(plan.first.features, optimizer, trips.trained)
        views = trainer.layout.views(trips.trained) if optimizer is None else optimizer.views()
        parameters, features = {name: view.detach().requires_grad_() for name, view in views.items()}, None
        if optimizer is not None and active is not None:  # the gradient stops at the products, and the optimizer continues
            parameters[optimizer.name].requires_grad_(False)
            features = Products(active.multiply(parameters[optimizer.name]).requires_grad_(), active.sizes)

        def keep(number: int, level: Level, sent: Messages) -> Tensor:
            if number == 0:
                scores = sent.attention.detach().mean(0) if self.scored else None
                return self.choose(0, level, ~level.loop, scores, self._noise(level, 0, key)) | level.loop
            return self.chosen[number - 1][level.number] & self._known(number, level, sent)

        model = self.setting.model
        dropout = Dropout(model.dropout, key ^ 1) if model.drops else no_dropout
        logits = self.layers.head(parameters, self.layers.forward(plan, parameters, self._stored, keep, dropout, features))
        k, r = plan.valid.shape
        each = node_losses(logits.flatten(0, 1), plan.labels.flatten(0, 1)).view(k, r) * plan.valid
        sums = each.sum(1)
        self._lost += sums.detach()
        loss = (sums / plan.valid.sum(1).clamp(min=1)).sum()
        # Without neighbors in the first convolution, its attention is not used.
        wanted = {name: value for name, value in parameters.items() if value.requires_grad}
        wanted |= {} if features is None else {"products": features.all}
        raw = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        gradients = {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(wanted.items(), raw, strict=True)}
        with torch.no_grad():
            if optimizer is not None and active is not None:
                optimizer.step(gradients, active, gradients.pop("products"))
                return
            flat = trainer.layout.collect(gradients)
            counts = np.bincount(plan.slots // self.halo.nodes, minlength=self.halo.size)
            able = None if counts.all() else np.flatnonzero(counts).tolist()
            trainer.optimizer.step(trips.trained, flat, trips.rows, able)


@dataclass(frozen=True)
class ServerFeatures:
    """The servers' input features, as :meth:`Convolutions.first` multiplies them.

    Attributes:
        alone: ``[S, ra]`` the nodes without neighbors in the first convolution.
        sources: ``[S, c]`` the sources of the other nodes; None without sources.
        rest: features of the sources for the parts of the weight that nodes without neighbors do not need.
    """

    server: Batch
    part: int
    parts: int
    alone: Tensor
    sources: Tensor | None
    rest: Rows | None

    @classmethod
    def of(cls, server: Batch, halo: Halo, first: First) -> ServerFeatures:
        rest = [(first.sources, part) for part in range(halo.parts) if part != halo.part]
        some = first.level is not None
        return cls(
            server,
            halo.part,
            halo.parts,
            halo.table(first.alone),
            halo.table(first.sources) if some else None,
            halo.features.rows(rest, halo.parts) if some and rest else None,
        )

    def products(self, weight: Tensor) -> Sequence[Tensor]:
        """Multiply nodes without neighbors with their part of ``weight [S, F, parts * h]``, and sources of the others with all parts."""
        whole = (self.server.features @ weight.chunk(self.parts, -1)[self.part].contiguous()).flatten(0, 1)
        alone = whole[self.alone]
        if self.sources is None:
            return [alone]
        others = [] if self.rest is None else list(self.rest.products(weight))
        return [alone, *others[: self.part], whole[self.sources], *others[self.part :]]


class OwnEdges:
    """The servers' models on validation and test nodes: the first convolution over edges inside clients, the others over all edges.

    A server's node is in no client and has no neighbors in the first convolution; a client's node has those observed by the client.
    Evaluation then has the same inputs of the first convolution as training.
    """

    def __init__(self, server: Batch, clients: Sequence[ClientGraph], layers: Convolutions):
        self.layers, self.shape = layers, (server.size, server.nodes)
        each = len(clients) // server.size
        own = [client.nodes[client.edges] + i // each * server.nodes for i, client in enumerate(clients)]
        none = [np.zeros((2, 0), dtype=np.int64)] * server.size
        parts = (layers.parts, layers.part)
        halo = Halo(server.clients, none, server.dtype, server.device, *parts, own=np.concatenate(own, 1))
        asked = np.flatnonzero((server.val | server.test).cpu().numpy())
        self.plan: Plan = halo.plan(asked, layers.depth)
        self.features = ServerFeatures.of(server, halo, self.plan.first)
        self.index, self.slots = halo.put(self.plan.index), halo.put(asked)

    def __call__(self, parameters: Parameters) -> Tensor:
        """Return the logits ``[S, N, Y]`` of the models ``[S, ...]``, 0 for training nodes."""
        out = self.layers.forward(self.plan, parameters, _nothing, _all, no_dropout, self.features)
        logits = self.layers.head(parameters, out).flatten(0, 1).index_select(0, self.index)
        whole = logits.new_zeros(self.shape[0] * self.shape[1], logits.shape[1])
        return whole.index_copy_(0, self.slots, logits).unflatten(0, self.shape)


def _all(number: int, level: Level, sent: Messages) -> Tensor:
    return torch.ones_like(level.loop)


def _nothing(number: int) -> Tensor:
    raise AssertionError("a server has no rows of others")
