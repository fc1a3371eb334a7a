"""Base of the methods whose messages cross from client to client while they train."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.cross_client._bipartite import Convolutions, Messages, convolutions
from fgl_bench.algorithms.cross_client._halo import Halo, Level, Plan
from fgl_bench.algorithms.cross_client._remote_rows import RemoteRows
from fgl_bench.algorithms.cross_client._sampling import gumbel, largest
from fgl_bench.algorithms.cross_client._touched import TouchedAdam, TouchedFeatures
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.dropout import Dropout, mix, no_dropout
from fgl_bench.engine.losses import node_losses
from fgl_bench.engine.noise import uniform
from fgl_bench.engine.sparse import SparseRows
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, Unsuited, UserError, above, at_least, check_ranges
from fgl_bench.models.base import Backbone

# Share of the pairs of a client and a feature that occur up to which it pays to hold the touched ones apart.
TOUCHED_BELOW = 0.8


@dataclass
class CrossClient(RemoteRows):
    """FedAvg over mini-batches whose message passing takes in other clients' nodes (Li et al., SIGMOD 2024, sections 3 and 5).

    A client's training nodes are shuffled every epoch and cut into ``batches``; all clients process batch b at the same time.
    A node takes messages from at most ``fanout`` neighbours. The first convolution has neighbours of the same client only
    (features never cross); in the others a remote neighbour is a row of the client's store, a copy of what the owner computed
    with its local model over its own edges. The store begins with zeros and is never erased; a row that was never fetched is not
    a neighbour. At a *synchronisation*, which happens in the batches b of an epoch with ``b mod interval = 0``, the nodes of
    the batches until the next one draw their neighbours and the clients fetch the remote ones, all computed from the models as
    they are at the start of the batch; until then the rows and the draws are used as they are. As every node is visited once an
    epoch, this fetches nearly as many rows at any interval; with ``fetch=batch`` only the nodes of the batch at hand fetch theirs,
    and those of the others draw among what earlier epochs have left in the store, which costs 1/interval of the rows.

    What travels, via the server: models both ways and, at a synchronisation, ids (8 bytes) from the client to the owner, and
    rows back: up once a distinct row, down once a row and client that asked.

    Resolutions: batches of equal size (+-1), so that every client has the same number; the server weighs by training nodes; Adam
    begins afresh every round. ``link_mbps`` and ``link_seconds`` only turn bytes into seconds: a round lasts as long as the busiest
    client's transfers, and every exchange with the server has one latency each way.

    Attributes:
        batches: mini-batches of an epoch.
        fanout: most neighbours of a node in every convolution; null takes all.
        sampling: ``uniform``, or by ``attention``: without replacement, in proportion to the exponentials of the convolution's own scores.
        interval: batches from one synchronisation to the next; 0: there is none, edges between clients are not used.
        fetch: for which nodes a synchronisation fetches rows: those of all batches until the next (``interval``), or the ``batch``.
        between: what is used of other clients between synchronisations: ``history``, or nothing (``drop``).
        link_mbps, link_seconds: bandwidth of a client's link, in megabits a second, and its latency.
    """

    pairing: ClassVar[Mapping[str, str]] = {"split": "iid_server", "model": "gat"}
    begins_afresh: ClassVar[bool] = True
    lock_step: ClassVar[bool] = True
    node_batches: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "batches": at_least(1), "fanout": at_least(1), "interval": at_least(0), "link_mbps": above(0), "link_seconds": at_least(0),
    }  # fmt: skip

    batches: int
    fanout: int | None
    sampling: Literal["uniform", "attention"]
    interval: int
    fetch: Literal["interval", "batch"]
    between: Literal["history", "drop"]
    link_mbps: float
    link_seconds: float

    def __post_init__(self) -> None:
        check_ranges(self, "algorithm")

    @property
    def scored(self) -> bool:
        """Whether edges get scores, by which :meth:`choose` draws."""
        return self.sampling == "attention" and self.fanout is not None

    # ---- what a method may choose

    def intervals(self) -> list[int]:
        """Every seed's batches between synchronisations in the coming round; 0: none."""
        return [self.interval] * len(self.setting.seeds)

    def choose(self, number: int, level: Level, allowed: Tensor, scores: Tensor | None, noise: Tensor) -> Tensor:
        """Which edges of convolution ``number`` take part, ``[E]`` bool; loops are added by the caller.

        Args:
            allowed: ``[E]`` bool, the edges that may be chosen.
            scores: ``[E]`` attention logits; None where sampling is uniform.
            noise: ``[E]`` standard Gumbel draws.
        """
        if self.fanout is None:
            return allowed
        keys = noise if scores is None else scores + noise
        # What must not be chosen forms groups of its own.
        return allowed & largest(keys, level.edges.target * 2 + ~allowed, self.fanout)

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
        self.halo = Halo(batch.clients, setting.cross_edges, batch.dtype, device)
        self._open()
        self._orders, self._draws = setting.streams("batches").cpu(), setting.streams("neighbours")
        replica = self.halo.target // self.halo.nodes
        first = np.searchsorted(replica, np.arange(self.halo.size))
        self._number = self.halo.put(np.arange(replica.size) - first[replica])
        # On a CPU the numbers are at hand, and steps are laid out over the edges that they use. Dropout draws by place in the layout.
        self._narrow = device.type == "cpu" and not setting.model.drops
        self.epochs = 0
        self._training = np.concatenate([client.train for client in batch.clients])

    def optimiser(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """On a CPU, one that leaves alone the rows of features that no mini-batch has had, if there are enough of them."""
        layout, batches = self.setting.layout, int(self.setting.batch.num_train.min()) >= self.batches
        if device.type != "cpu" or self.halo.dense or weight_decay or not batches or len(layout.inputs) != 1:
            return None
        rows = self.halo.occurring()
        if rows > TOUCHED_BELOW * count * self.halo.width:
            return None
        return TouchedAdam(count, layout, lr, rows, dtype, device)

    # ---- training

    def train(self, trainer: Trainer, trips: Trips) -> None:
        begin, halo = time.perf_counter(), self.halo
        self.moved.open()
        # By slot of its seed: how far it is to the next synchronisation.
        interval = np.repeat(np.array(self.intervals()), halo.nodes * self.setting.num_clients)[halo.slots]
        for _ in range(trainer.local_epochs):
            number, self._lost = self._cut(), torch.zeros(halo.size, dtype=torch.float64, device=halo.device)
            for b in range(self.batches):
                self._batch(trainer, trips, number, b, interval)
            self.epochs += 1
        self._current(trainer, trips)
        trips.train_loss = self._lost / trips.batch.train.sum(1).clamp(min=1)
        self.seconds += time.perf_counter() - begin

    def _cut(self) -> np.ndarray:
        """The mini-batch of each of ``halo.slots`` in this epoch, training nodes shuffled and cut evenly; -1 for other nodes."""
        halo, sizes = self.halo, self.setting.batch.num_train
        draws = uniform(mix(mix(self._orders) + self.epochs), halo.nodes, 1)[..., 0].numpy().ravel()[halo.slots]
        replica = halo.slots // halo.nodes
        order = np.lexsort((draws, ~self._training, replica))
        first = np.searchsorted(replica, np.arange(halo.size))
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.arange(order.size) - first[replica[order]]
        return np.where(self._training, rank * self.batches // np.maximum(sizes, 1)[replica], -1)

    def _batch(self, trainer: Trainer, trips: Trips, number: np.ndarray, b: int, interval: np.ndarray) -> None:
        seeds = self.halo.slots[number == b]
        plan = self.halo.plan(seeds, self.layers.depth) if seeds.size else None
        step = self.epochs * self.batches + b
        self._exchange(trainer, trips, plan, number, b, interval, step)
        if plan is not None:
            self._step(trainer, trips, self.halo.plan(seeds, self.layers.depth, self._taken) if self._narrow else plan, step)

    def _taken(self, number: int, edges: np.ndarray) -> np.ndarray:
        """Which edges convolution ``number`` uses, read on the host."""
        known = (self.halo.kind[edges] < 2) | (self.stamp[number - 1].numpy()[self.halo.entry[edges]] >= 0)
        return (self.halo.kind[edges] == 0) | (self.chosen[number - 1].numpy()[edges] & known)

    def _current(self, trainer: Trainer, trips: Trips) -> dict[str, Tensor]:
        """The models as they are."""
        if isinstance(trainer.adam, TouchedAdam):
            trainer.adam.settle(trips.trained)
        return trainer.layout.views(trips.trained)

    def _exchange(
        self, trainer: Trainer, trips: Trips, plan: Plan | None, number: np.ndarray, b: int, interval: np.ndarray, step: int
    ) -> None:
        """Draw the neighbours of all nodes that are due, fetch what they need."""
        slots, every = self.halo.slots, np.maximum(interval, 1)
        now = (interval > 0) & (b % every == 0)
        ahead = self.between == "history" and self.fetch == "interval"
        due = now & (number >= b) & (number < (b + every if ahead else b + 1))
        here, rest = number == b, (interval > 0) & ~now
        # Nodes that draw; with remote neighbours, which are fetched.
        draws = [(due, True, True), (here & (interval == 0), False, False)]
        if not ahead:
            draws.append((here & rest, self.between == "history", False))
        draws = [draw for draw in draws if draw[0].any()]
        views = self._current(trainer, trips) if draws and (self.scored or any(fetch for *_, fetch in draws)) else {}
        for mask, remote, fetch in draws:
            wanted = slots[mask]
            draw = plan if plan is not None and np.array_equal(wanted, plan.slots) else self.halo.plan(wanted, self.layers.depth)
            self._draw(views, draw, remote, step)
            if fetch:
                self._fetch(views, draw, step)
        first = np.searchsorted(slots, np.arange(len(self.setting.seeds)) * self.setting.num_clients * self.halo.nodes)
        self.moved.syncs[-1] += now[first]

    @torch.no_grad()
    def _draw(self, views: dict[str, Tensor], plan: Plan, remote: bool, step: int) -> None:
        """Choose among the edges of every convolution but the first and keep the choice."""

        def keep(number: int, level: Level, sent: Messages | None) -> Tensor:
            if number == 0:
                return torch.ones_like(level.loop)
            allowed = ~level.loop if remote else ~(level.loop | level.remote)
            scores = sent.scores.mean(0) if self.scored else None
            kept = self.choose(number, level, allowed, scores, self._noise(level, number, step))
            self.chosen[number - 1][level.number] = kept | level.loop
            return kept & (~level.remote | (self.stamp[number - 1][level.entry] >= 0)) | level.loop

        if self.scored:
            self.layers.forward(plan, views, self._stored, keep, no_dropout)
        else:
            for number, level in enumerate(plan.levels[1:], 1):
                keep(number, level, None)

    def _noise(self, level: Level, number: int, step: int) -> Tensor:
        """``[E]``, a function of the seed, the client, the step, the convolution and the edge."""
        key = mix(mix(mix(self._draws) + step) + number)[level.edges.target // level.shape[1]]
        return gumbel(key, self._number[level.number], self.store[0].dtype)

    def _step(self, trainer: Trainer, trips: Trips, plan: Plan, step: int) -> None:
        apart = trainer.adam if isinstance(trainer.adam, TouchedAdam) else None
        features = plan.features if apart is None else self._touch(apart, trips.trained, plan)
        views = trainer.layout.views(trips.trained) if apart is None else apart.views()
        parameters = {name: view.detach().requires_grad_() for name, view in views.items()}

        def keep(number: int, level: Level, sent: Messages) -> Tensor:
            if number == 0:
                scores = sent.scores.detach().mean(0) if self.scored else None
                return self.choose(0, level, ~level.loop, scores, self._noise(level, 0, step)) | level.loop
            return self.chosen[number - 1][level.number] & self._known(number, level, sent)

        model = self.setting.model
        dropout = Dropout(model.dropout, mix(mix(self._draws) + step) ^ 1) if model.drops else no_dropout
        logits = self.layers.head(parameters, self.layers.forward(plan, parameters, self._stored, keep, dropout, features))
        k, r = plan.valid.shape
        each = node_losses(logits.flatten(0, 1), plan.labels.flatten(0, 1)).view(k, r) * plan.valid
        sums = each.sum(1)
        self._lost += sums.detach()
        loss = (sums / plan.valid.sum(1).clamp(min=1)).sum()
        gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
        with torch.no_grad():
            if apart is not None:
                apart.step(gradients)
                return
            flat = trainer.layout.collect(gradients)
            counts = np.bincount(plan.slots // self.halo.nodes, minlength=self.halo.size)
            able = None if counts.all() else np.flatnonzero(counts).tolist()
            trainer.adam.step(trips.trained, flat, trips.rows, able)

    def _touch(self, adam: TouchedAdam, trained: Tensor, plan: Plan) -> TouchedFeatures:
        """The input features of ``plan`` over the rows that ``adam`` holds apart, where it has got theirs."""
        (row, column, value), (k, _, c) = self.halo.entries(plan.sources), plan.levels[0].shape
        place = adam.take(trained, row // c, column)
        return TouchedFeatures(SparseRows(row, place, value, (1, k * c, adam.touched), self.halo.dtype, self.halo.device), (k, c))
