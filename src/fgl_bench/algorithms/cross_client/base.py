"""Base of the methods whose messages cross from client to client while they train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting
from fgl_bench.algorithms.cross_client._bipartite import Convolutions, Messages, convolutions
from fgl_bench.algorithms.cross_client._first_hop import OwnEdges
from fgl_bench.algorithms.cross_client._first_use import FirstUse
from fgl_bench.algorithms.cross_client._halo import Halo
from fgl_bench.algorithms.cross_client._plan import Level, Plan
from fgl_bench.algorithms.cross_client._remote_rows import Current, MadeRows, RemoteRows
from fgl_bench.algorithms.cross_client._sampling import cut, gumbel, largest
from fgl_bench.algorithms.cross_client._touched import Made, TouchedAdam, TouchedFeatures
from fgl_bench.algorithms.powers import JointTraining, ServerAnswers
from fgl_bench.data.splits.base import Split
from fgl_bench.engine.dropout import Dropout, no_dropout
from fgl_bench.engine.network import Parameters, node_losses
from fgl_bench.engine.random_numbers import mix, uniform
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.transfer import clock
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import Range, Unsuited, UserError, at_least, between, check_ranges
from fgl_bench.models.base import Backbone
from fgl_bench.optimizers.adam import DEFAULT

# Share of the pairs of a client and a feature that occur up to which it pays to hold the touched ones apart.
TOUCHED_BELOW = 0.8


@dataclass
class CrossClient(RemoteRows, JointTraining, ServerAnswers):
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
        first_hop: which edges the first convolution takes when the server scores and observes a model: those inside clients (``own``),
            which it was trained with, or all (``full``). The other convolutions take all.
    """

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
        self._own = OwnEdges(setting, self.layers) if self.first_hop == "own" else None
        self._first_use = FirstUse(self.halo, self.layers.depth)
        self._orders, self._draws = setting.streams("batches").cpu(), mix(setting.streams("neighbours"))
        replica = self.halo.target // self.halo.nodes
        first = np.searchsorted(replica, np.arange(self.halo.size))
        self._number = self.halo.put(np.arange(replica.size) - first[replica])
        # On a CPU the numbers are at hand, and steps are laid out over the edges that they use. Dropout draws by place in the layout.
        self._narrow = device.type == "cpu" and not setting.model.drops
        self.epochs = 0
        self._training = np.concatenate([client.train for client in batch.clients])

    def optimizer(self, count: int, size: int, lr: float, weight_decay: float, dtype: torch.dtype, device: torch.device) -> Any:
        """On a CPU, one that leaves alone the rows of features that no mini-batch has had, if there are enough of them."""
        layout, full = self.setting.layout, int(self.setting.batch.num_train.min()) >= self.batches
        usual = self.setting.optimizer == DEFAULT and full and not weight_decay
        if not usual or device.type != "cpu" or self.halo.features.dense or len(layout.inputs) != 1:
            return None
        rows, parts = self.halo.occurring(), self.layers.parts
        if rows > TOUCHED_BELOW * count * self.halo.features.width * parts:
            return None
        return TouchedAdam(count, layout, lr, rows, dtype, device, parts)

    def answer(self, parameters: Parameters) -> Tensor | None:
        return None if self._own is None else self._own(parameters)

    # ---- training

    def train(self, trainer: Trainer, trips: Trips) -> None:
        begin, halo = clock(self.halo.device), self.halo
        self.moved.open()
        # By slot of its seed: how far it is to the next synchronisation.
        interval = np.repeat(np.array(self.intervals()), halo.nodes * self.setting.num_clients)[halo.slots]
        for _ in range(trainer.local_epochs):
            number, self._lost = self._cut(), torch.zeros(halo.size, dtype=torch.float64, device=halo.device)
            if isinstance(trainer.optimizer, TouchedAdam):
                trainer.optimizer.order = self._first_use(number)
            for b in range(self.batches):
                self._batch(trainer, trips, number, b, interval)
            self.epochs += 1
        if isinstance(trainer.optimizer, TouchedAdam):
            trainer.optimizer.settle(trips.trained)
        trips.train_loss = self._lost / trips.batch.train.sum(1).clamp(min=1)
        self.seconds += clock(halo.device) - begin

    def _cut(self) -> np.ndarray:
        """The mini-batch of each of ``halo.slots`` in this epoch, training nodes shuffled and cut evenly; -1 for other nodes."""
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

    def _current(self, trainer: Trainer, trips: Trips, plan: Plan) -> tuple[dict[str, Tensor], Made | None]:
        """The models as they are, and the products of ``plan``'s input features where the optimizer holds the rows that they take."""
        if not isinstance(trainer.optimizer, TouchedAdam):
            return trainer.layout.views(trips.trained), None
        touched, name = TouchedFeatures.of(plan.first.features, trainer.optimizer, trips.trained), trainer.optimizer.name
        views = trainer.optimizer.views()
        return views, Made(touched.multiply(views[name]), touched.sizes)

    def _exchange(
        self, trainer: Trainer, trips: Trips, seeds: np.ndarray, number: np.ndarray, b: int, interval: np.ndarray, step: int, key: Tensor
    ) -> Plan | None:
        """Draw the neighbours of all nodes that are due, fetch what they need; returns the plan of the batch's ``seeds``, if any."""
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
        current = partial(self._current, trainer, trips)
        batch: Plan | None = None
        for mask, remote, fetch in draws:
            draw = self.halo.plan(slots[mask], self.layers.depth)
            batch = draw if np.array_equal(draw.slots, seeds) else batch
            made = self._draw(current, draw, remote, key)
            if fetch:
                self._fetch(current, draw, step, made)
        first = np.searchsorted(slots, np.arange(len(self.setting.seeds)) * self.setting.num_clients * self.halo.nodes)
        self.moved.syncs[-1] += now[first]
        return batch

    @torch.no_grad()
    def _draw(self, current: Current, plan: Plan, remote: bool, key: Tensor) -> MadeRows | None:
        """Choose among the edges of every convolution but the first and keep the choice; returns the rows that scores were made of."""

        def chosen(number: int, level: Level, scores: Tensor | None) -> Tensor:
            allowed = ~level.loop if remote else ~(level.loop | level.remote)
            kept = self.choose(number, level, allowed, scores, self._noise(level, number, key))
            self.chosen[number - 1][level.number] = kept | level.loop
            return kept

        def keep(number: int, level: Level, sent: Messages) -> Tensor:
            if number == 0:
                return torch.ones_like(level.loop)
            kept = chosen(number, level, sent.scores.mean(0))
            return kept & (~level.remote | (self.stamp[number - 1][level.entry] >= 0)) | level.loop

        if not self.scored or not plan.levels:
            for number, level in enumerate(plan.levels, 1):
                chosen(number, level, None)
            return None
        (views, features), last = current(plan), len(plan.levels)
        hidden = self.layers.activate(self.layers.forward(plan, views, self._stored, keep, no_dropout, features, last - 1))
        scores = self.layers.scores(last, views, hidden, self.store[last - 1], self.stamp[last - 1], plan.levels[-1])
        chosen(last, plan.levels[-1], scores.mean(0))
        # Before a third convolution, rows are those of the edges drawn; an owner answers with all of its edges.
        return (plan.first.slots, hidden) if self.layers.depth == 2 else None

    def _noise(self, level: Level, number: int, key: Tensor) -> Tensor:
        """``[E]``, a function of the step's ``key [k]``, the convolution and the edge."""
        return gumbel(mix(key + number)[level.edges.target // level.shape[1]], self._number[level.number], self.store[0].dtype)

    def _step(self, trainer: Trainer, trips: Trips, plan: Plan, key: Tensor) -> None:
        apart = trainer.optimizer if isinstance(trainer.optimizer, TouchedAdam) else None
        touched = None if apart is None else TouchedFeatures.of(plan.first.features, apart, trips.trained)
        views = trainer.layout.views(trips.trained) if apart is None else apart.views()
        parameters, features = {name: view.detach().requires_grad_() for name, view in views.items()}, None
        if touched is not None:  # the gradient stops at the products: the optimizer goes on from there
            parameters[apart.name].requires_grad_(False)
            features = Made(touched.multiply(parameters[apart.name]).requires_grad_(), touched.sizes)

        def keep(number: int, level: Level, sent: Messages) -> Tensor:
            if number == 0:
                scores = sent.scores.detach().mean(0) if self.scored else None
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
        # Where no node has a neighbour in the first convolution, its attention is not used.
        wanted = {name: value for name, value in parameters.items() if value.requires_grad}
        wanted |= {} if features is None else {"products": features.all}
        found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        gradients = {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(wanted.items(), found, strict=True)}
        with torch.no_grad():
            if touched is not None:
                apart.step(gradients, touched, gradients.pop("products"))
                return
            flat = trainer.layout.collect(gradients)
            counts = np.bincount(plan.slots // self.halo.nodes, minlength=self.halo.size)
            able = None if counts.all() else np.flatnonzero(counts).tolist()
            trainer.optimizer.step(trips.trained, flat, trips.rows, able)
