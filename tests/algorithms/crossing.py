"""FedAAS and its ablations on small federations with edges between clients."""

from __future__ import annotations

import torch
from omegaconf import OmegaConf

from fgl_bench.algorithms.cross_client.fedaas import FedAAS
from fgl_bench.config.compose import composed
from fgl_bench.config.groups import build
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.engine.random_numbers import mix
from fgl_bench.models.gat import GAT
from tests.small_runs import simulate, synchronous

KEYS = {
    "batches": 4, "fanout": 3, "sampling": "attention", "interval": 4, "fetch": "interval", "between": "history", "adaptive": False,
    "min_interval": 2, "loss_source": "val", "rule": "paper", "link_mbps": 100.0, "link_seconds": 0.05,
    "first_hop": "own",
}  # fmt: skip


def fedaas(**changes):
    return FedAAS(**{**KEYS, **changes})


def gat(**changes):
    keys = {"hidden": [5, 4], "layers": 2, "dropout": 0.0, "version": "v2", "heads": 1, "output_heads": 1, "act": "relu"}
    return GAT(**{**keys, "attn_dropout": 0.0, "head": "linear", **changes})


def run(federations, method, **changes):
    return simulate(federations, method, synchronous(), **{"model": gat(), "rounds": 2, "weight_decay": 0.0, **changes})


def configured(name, **changes):
    """The method of ``conf/algorithm/<name>.yaml`` with its own values, but for the number of batches and ``changes``."""
    return build(OmegaConf.create({**composed([f"algorithm={name}"]).algorithm, "batches": KEYS["batches"], **changes}))


def everything(method, theta):
    """The top convolution of every training node after one fetch of everything, ``[slots, h]``, with the edges it took."""
    halo, layout = method.halo, method.setting.layout
    plan, views, seen = halo.plan(halo.slots, 2), layout.views(theta), {}
    method.moved.open()
    method._draw(lambda _: (views, None), plan, True, mix(method._draws))
    method._fetch(lambda _: (views, None), plan, 0)

    def keep(number, level, sent):
        seen[number] = level, sent
        if number == 0:
            return torch.ones_like(level.loop)
        return method.chosen[0][level.number] & method._known(number, level, sent)

    out = method.layers.forward(plan, views, method._stored, keep, no_dropout)
    return out.flatten(0, 1)[plan.index], plan, seen
