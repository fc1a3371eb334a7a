"""FedGraph: fan-outs from an agent, what the agent sees and learns."""

from __future__ import annotations

import torch
from sklearn.decomposition import PCA

from fgl_bench.algorithms.cross_client.fedgraph import BATCH, Agents, FedGraph, principal
from tests.algorithms.comparing import TIGHT
from tests.algorithms.crossing import everything, fedaas, run
from tests.algorithms.test_fedcross import SHARED
from tests.reference.cross_client import small_served


def fedgraph(**changes):
    keys = {**SHARED, "fanout": None, "sampling": "uniform", "interval": 1, "most": 6, "noise": 0.1, "target": 0.9, "cost_weight": 0.0}
    return FedGraph(**{**keys, "components": 16, **changes})


def test_every_client_and_convolution_keeps_its_own_fanout():
    method = fedgraph()
    recorded = run([small_served(drop=0.0)], method, rounds=1)
    method.fanouts = torch.tensor([[9, 1], [9, 2], [9, 3], [9, 4]])
    _, plan, seen = everything(method, recorded.sim.initial)
    level = seen[1][0]
    chosen = method.chosen[0][level.number] & ~level.loop
    near, drawn = (torch.bincount(level.edges.target[mask], minlength=plan.valid.numel()) for mask in (~level.loop, chosen))
    limit = torch.tensor([1, 2, 3, 4]).repeat_interleave(level.shape[1])
    assert torch.equal(drawn, torch.minimum(near, limit))


def test_a_constant_action_is_uniform_sampling():
    federation, method = small_served(), fedgraph()
    rest = fedaas(sampling="uniform", interval=1)
    run([federation], method, rounds=0)
    constant = fedgraph()
    inner = constant.prepare

    def prepare(setting):
        inner(setting)
        constant.agents.act = lambda state: torch.full((1, 8), 3.2, dtype=state.dtype)

    constant.prepare = prepare
    one, other = (run([federation], m, rounds=1).trips for m in (constant, rest))
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a[-1][1], b[-1][1])


def test_fanouts_are_within_bounds_and_follow_the_agent():
    method = fedgraph(noise=5.0)
    run([small_served(seed) for seed in (0, 1)], method, rounds=3)
    assert method.fanouts.shape == (8, 2) and int(method.fanouts.min()) >= 1 and int(method.fanouts.max()) <= 6
    assert method.agents.acts == 3 and method.agents.steps == 2


def test_the_state_is_the_principal_components():
    models = torch.randn(2, 7, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = principal(models, 3)
    for one, each in zip(models, found, strict=True):
        expected = torch.from_numpy(PCA(3, svd_solver="full").fit_transform(one.numpy()))
        torch.testing.assert_close(each.abs(), expected.abs(), rtol=1e-7, atol=1e-7)
        assert (each.gather(0, each.abs().argmax(0, keepdim=True)) > 0).all()
    assert not principal(models[:1, :1].expand(1, 4, 40), 2).any()


def agents(seeds=(0, 1), **changes):
    keys = {"state": 2, "action": 1, "high": 10.0, "noise": 1.0, "capacity": 500, "dtype": torch.float64, "device": "cpu"}
    return Agents(seeds, **{**keys, **changes})


def test_agents_begin_to_learn_when_a_batch_is_there_and_find_the_better_action():
    """A bandit whose reward falls with the distance of the action from 8."""
    learner, state = agents(seeds=(0,)), torch.ones(1, 2, dtype=torch.float64)
    first = learner._act(learner.actor, state[:, None]).item()
    before = [w.clone() for w in learner.actor]
    for step in range(200):
        action = learner.act(state)
        learner.learn(state, action, -(action[:, 0] - 8).abs() / 10, state)
        if step == BATCH - 2:
            assert all(torch.equal(a, b) for a, b in zip(before, learner.actor, strict=True))
    assert learner.updates == 200 - BATCH + 1
    played = learner._act(learner.actor, state[:, None]).item()
    assert abs(played - 8) < 0.7 * abs(first - 8)


def test_an_agent_alone_is_the_agent_among_others():
    both, one, state = agents((3, 4)), agents((4,)), torch.ones(2, 2, dtype=torch.float64)
    for _ in range(BATCH + 5):
        actions = both.act(state), one.act(state[:1])
        torch.testing.assert_close(actions[0][1:], actions[1], **TIGHT)
        for learner, action, count in ((both, actions[0], 2), (one, actions[1], 1)):
            learner.learn(state[:count], action, -action[:, 0], state[:count])
