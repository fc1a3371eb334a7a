"""The methods whose server takes every upload at once, FedAsync and TWAFL, for the plain event loop with a buffer of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from .buffered import Message, Step, Upload
from .models import Parameters, combine


@dataclass
class FedAsync:
    """Staleness-dependent mixing (Xie, Koyejo & Gupta, OPT 2020).

    Args:
        staleness: a function of the staleness in versions.
        halve_after: uploads after which alpha is halved.
    """

    alpha: float = 0.6
    staleness: object = staticmethod(lambda s: (1 + s) ** -0.5)
    halve_after: float = math.inf
    rho: float = 0.0

    policy = "wait"
    extra_up = extra_down = 1

    def start(self, initial: Parameters, clients: list) -> None:
        self.model = initial
        for client in clients:
            client.train = partial(client.train, proximal=self.rho)

    def begin(self, message: Message, own: Parameters, report: None) -> Parameters:
        return message.payload

    def report(self, client) -> None:
        return None

    def step(self, batch: list[Upload], version: int) -> Step:
        (upload,) = batch
        alpha = self.alpha / 2 if version > self.halve_after else self.alpha
        weight = alpha * self.staleness(version - 1 - upload.base.version)
        self.model = combine([1 - weight, weight], [self.model, upload.parameters])
        return Step({upload.client: Message(self.model, version)}, {}, {}, {})


@dataclass
class TWAFL:
    """Temporally weighted aggregation, layerwise asynchronous update (Chen, Sun & Jin, 2020); the last layer is deep.

    Args:
        per_round: arrivals that make a round.
    """

    base: float = math.e / 2
    loop: int = 15
    exchange_rounds: tuple[int, ...] = (11, 12, 13, 14, 0)
    per_round: int = 1
    normalise: bool = True

    policy = "wait"

    def start(self, initial: Parameters, clients: list) -> None:
        last = f"conv{len(initial) // 2 - 1}."
        self.blocks = {
            "shallow": [name for name in initial if not name.startswith(last)],
            "deep": [name for name in initial if name.startswith(last)],
        }
        self.deep_size = sum(initial[name].numel() for name in self.blocks["deep"])
        self.model = dict(initial)
        self.stored = {block: [dict(initial) for _ in clients] for block in self.blocks}
        self.age_of = {block: [-1] * len(clients) for block in self.blocks}
        self.sizes = [client.num_train for client in clients]
        self.done, self.flag = 0, True

    def flagged(self) -> bool:
        return self.done // self.per_round % self.loop in self.exchange_rounds

    @property
    def extra_up(self) -> int:
        return 0 if self.flagged() else -self.deep_size

    @property
    def extra_down(self) -> int:
        return 0 if self.flag else -self.deep_size

    def begin(self, message: Message, own: Parameters, report: None) -> Parameters:
        return {**own, **message.payload}

    def report(self, client) -> None:
        return None

    def step(self, batch: list[Upload], version: int) -> Step:
        (upload,) = batch
        number, self.flag = self.done // self.per_round, self.flagged()
        sent = ["shallow", "deep"] if self.flag else ["shallow"]
        for block in sent:
            self.stored[block][upload.client] = upload.parameters
            self.age_of[block][upload.client] = number
            weights = [n * self.base ** -(number - stamp) for n, stamp in zip(self.sizes, self.age_of[block], strict=True)]
            total = sum(weights) if self.normalise else sum(self.sizes)
            merged = combine([weight / total for weight in weights], self.stored[block])
            self.model = {**self.model, **{name: merged[name] for name in self.blocks[block]}}
        self.done += 1
        names = [name for block in sent for name in self.blocks[block]]
        return Step({upload.client: Message({name: self.model[name] for name in names}, version)}, {}, {}, {})
