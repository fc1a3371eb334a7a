"""FedGraph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.cross_client._ddpg import Agents
from fgl_bench.algorithms.cross_client._plan import Level
from fgl_bench.algorithms.cross_client._sampling import largest
from fgl_bench.algorithms.cross_client.base import CrossClient
from fgl_bench.algorithms.powers import ServerNodes
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import SHARE, Range, at_least, check_ranges


@dataclass
class FedGraph(CrossClient, ServerNodes):
    """Fan-outs per client and convolution by reinforcement learning (Chen et al., TPDS 33(8), 2022).

    Clients exchange embeddings of at most the chosen number of random neighbors before every batch. An agent at the server (DDPG, as in
    the authors' code) observes the clients' trained models, reduced to ``components`` principal components each. Its action is the
    C x L fan-outs of the next round, from 1 to ``most``; its reward is ``64^(acc - target) - 1 - cost_weight * (mean fan-out / most)``
    with the global model's validation accuracy (the code's, on test nodes, leaks). Models are averaged without weights.

    Resolutions: one agent per federation, not two networks per client as in FedAAS; no episodes before the run, so 50 rounds
    give few updates; before the first round all models are equal and the state is zero. The signs of the components are chosen so
    that the largest coordinate is positive.

    Attributes:
        most: largest fan-out.
        noise: standard deviation of the exploration, as a share of ``most``.
        target: accuracy at which the reward is zero.
        cost_weight: kappa.
        components: largest number of principal components of the state.
    """

    ranges: ClassVar[dict[str, Range]] = {
        "most": at_least(1), "noise": at_least(0), "target": SHARE, "cost_weight": at_least(0), "components": at_least(1),
    }  # fmt: skip
    uses_validation: ClassVar[bool] = True  # the agent's reward

    most: int
    noise: float
    target: float
    cost_weight: float
    components: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "algorithm")

    @property
    def scored(self) -> bool:
        return self.sampling == "attention"

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        seeds, clients = len(setting.seeds), setting.num_clients
        self._kept = min(clients, self.components)
        shape = (clients * self._kept, clients * self.layers.depth)
        dtype, device = setting.batch.dtype, setting.batch.device
        self.agents = Agents(setting.seeds, *shape, float(self.most), self.noise * self.most, 10_000, dtype, device)
        self._state = torch.zeros(seeds, shape[0], dtype=dtype, device=device)
        self._last: tuple[Tensor, Tensor] | None = None

    def observe(self, logits: Tensor) -> None:
        """Learn from the reward of the last round's action."""
        if self._last is None:
            return
        server, (state, action) = self.server_nodes, self._last
        answer = logits.argmax(-1)
        several = server.labels.ndim == 3
        correct = server.labels.gather(-1, answer[..., None])[..., 0] > 0 if several else server.labels == answer
        accuracy = ((correct & server.val).sum(1) / server.val.sum(1).clamp(min=1)).to(state.dtype)
        reward = 64 ** (accuracy - self.target) - 1 - self.cost_weight * action.mean(1) / self.most
        self.agents.learn(state, action, reward, self._state)

    def train(self, trainer: Trainer, trips: Trips) -> None:
        action = self.agents.act(self._state)
        self._last = (self._state, action)
        self.fanouts = action.round().clamp(min=1).long().view(-1, self.layers.depth)
        super().train(trainer, trips)
        self._state = principal(trips.trained.unflatten(0, (len(self.setting.seeds), -1)), self._kept).flatten(1)

    def choose(self, number: int, level: Level, allowed: Tensor, scores: Tensor | None, noise: Tensor) -> Tensor:
        limit = self.fanouts[:, number][level.edges.target // level.shape[1]]
        return largest(noise if scores is None else scores + noise, level.edges.target, limit, allowed)

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        return Mixing(normalize(arrived.double())[:, None])

    def traffic(self) -> Traffic:
        base = super().traffic()
        return Traffic(base.upload, {**base.download, "fanouts": self.layers.depth})


def principal(models: Tensor, count: int) -> Tensor:
    """Return coordinates ``[S, C, count]`` of C models ``[S, C, P]`` in their first principal components; 0 for a diverged seed."""
    centred = models - models.mean(1, keepdim=True)
    products = (centred @ centred.mT).double()
    values, vectors = torch.linalg.eigh(torch.where(products.isfinite().all((1, 2))[:, None, None], products, 0.0))
    scores = (vectors * values.clamp(min=0).sqrt()[:, None]).flip(-1)[..., :count]
    largest_ = scores.gather(1, scores.abs().argmax(1, keepdim=True))
    return (scores * torch.where(largest_ < 0, -1.0, 1.0)).to(models.dtype)
