"""FedGraph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.cross_client._halo import Level
from fgl_bench.algorithms.cross_client._sampling import largest
from fgl_bench.algorithms.cross_client.base import CrossClient
from fgl_bench.algorithms.powers import ServerNodes
from fgl_bench.engine.mixing import Mixing, normalize
from fgl_bench.engine.random_numbers import mix, normal, uniform
from fgl_bench.engine.training import Trainer
from fgl_bench.engine.trips import Trips
from fgl_bench.errors import SHARE, Range, at_least, check_ranges
from fgl_bench.utils.seeding import derive_seed


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
        self._rank = min(clients, self.components)
        shape = (clients * self._rank, clients * self.layers.depth)
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
        self._state = principal(trips.trained.unflatten(0, (len(self.setting.seeds), -1)), self._rank).flatten(1)

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


ACTOR, CRITIC = (400, 300), (400, 300)
BATCH, DISCOUNT, SOFT = 32, 0.99, 0.005


class Agents:
    """Actor and critic of every seed, with target networks, replay memory and both Adams.

    The actor returns ``high * sigmoid``; the action enters the critic after its first layer.

    Args:
        seeds: one agent each.
        state, action: sizes of a state and of an action.
        high: largest action.
        noise: standard deviation of the exploration.
        capacity: number of stored transitions.
    """

    def __init__(
        self, seeds: Sequence[int], state: int, action: int, high: float, noise: float, capacity: int,
        dtype: torch.dtype, device: torch.device,
    ):  # fmt: skip
        self.high, self.noise, self.sizes = high, noise, (state, action)
        actor = [(state, ACTOR[0]), (ACTOR[0], ACTOR[1]), (ACTOR[1], action)]
        critic = [(state, CRITIC[0]), (CRITIC[0] + action, CRITIC[1]), (CRITIC[1], 1)]
        self.actor = self._draw(seeds, "actor", actor, dtype, device)
        self.critic = self._draw(seeds, "critic", critic, dtype, device)
        self.slow_actor, self.slow_critic = ([w.detach().clone() for w in net] for net in (self.actor, self.critic))
        self.actor_adam = torch.optim.Adam(self.actor, lr=1e-4)
        self.critic_adam = torch.optim.Adam(self.critic, lr=1e-3, weight_decay=1e-2)
        self.streams = torch.tensor([derive_seed(seed, "agent") for seed in seeds], device=device)
        self.memory = torch.zeros(len(seeds), capacity, 2 * state + action + 1, dtype=dtype, device=device)
        self.steps = self.updates = self.acts = 0

    @staticmethod
    def _draw(seeds: Sequence[int], name: str, shapes: list[tuple[int, int]], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Draw weights ``[S, in, out]`` and biases ``[S, 1, out]`` as in PyTorch's linear layers."""
        rows: list[list[Tensor]] = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(derive_seed(seed, "agent", name))
            each = []
            for wide, narrow in shapes:
                bound = 1 / math.sqrt(wide)
                for shape in ((wide, narrow), (1, narrow)):
                    each.append(torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator))
            rows.append(each)
        return [torch.stack(parts).to(device, dtype).requires_grad_() for parts in zip(*rows, strict=True)]

    def _act(self, net: list[Tensor], state: Tensor) -> Tensor:
        x = torch.relu(torch.baddbmm(net[1], state, net[0]))
        x = torch.relu(torch.baddbmm(net[3], x, net[2]))
        return self.high * torch.sigmoid(torch.baddbmm(net[5], x, net[4]))

    @staticmethod
    def _value(net: list[Tensor], state: Tensor, action: Tensor) -> Tensor:
        x = torch.relu(torch.baddbmm(net[1], state, net[0]))
        x = torch.relu(torch.baddbmm(net[3], torch.cat([x, action], -1), net[2]))
        return torch.baddbmm(net[5], x, net[4])[..., 0]

    @torch.no_grad()
    def act(self, state: Tensor) -> Tensor:
        """Return noisy actions ``[S, action]`` for states ``[S, state]``, clipped to [0, high]."""
        self.acts += 1
        noise = normal(mix(mix(self.streams) + 2 * self.acts), 1, self.sizes[1], state.dtype)[:, 0]
        return (self._act(self.actor, state[:, None])[:, 0] + self.noise * noise).clamp(0, self.high)

    def learn(self, state: Tensor, action: Tensor, reward: Tensor, following: Tensor) -> None:
        """Store one transition of every agent; from the 32nd on, also take one step of critic and actor."""
        self.memory[:, self.steps % self.memory.shape[1]] = torch.cat([state, action, reward[:, None], following], -1)
        self.steps += 1
        if self.steps < BATCH:
            return
        self.updates += 1
        known = min(self.steps, self.memory.shape[1])
        pick = (uniform(mix(mix(self.streams) + 2 * self.updates + 1), 1, BATCH)[:, 0] * known).long().clamp(max=known - 1)
        batch = self.memory.gather(1, pick[..., None].expand(-1, -1, self.memory.shape[2]))
        s, a, r, n = batch.split([self.sizes[0], self.sizes[1], 1, self.sizes[0]], -1)
        with torch.no_grad():
            target = r[..., 0] + DISCOUNT * self._value(self.slow_critic, n, self._act(self.slow_actor, n))
        loss = (self._value(self.critic, s, a) - target).square().mean(1).sum()
        self._down(self.critic_adam, self.critic, loss)
        self._down(self.actor_adam, self.actor, -self._value(self.critic, s, self._act(self.actor, s)).mean(1).sum())
        for slow, fast in zip([*self.slow_actor, *self.slow_critic], [*self.actor, *self.critic], strict=True):
            slow.lerp_(fast.detach(), SOFT)

    @staticmethod
    def _down(adam: torch.optim.Adam, net: list[Tensor], loss: Tensor) -> None:
        for weight, gradient in zip(net, torch.autograd.grad(loss, net), strict=True):
            weight.grad = gradient
        adam.step()
