"""Deep deterministic policy gradient (Lillicrap et al., ICLR 2016): S agents in parallel, one transition at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fgl_bench.engine.random_numbers import mix, normal, uniform
from fgl_bench.utils.seeding import derive_seed

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
