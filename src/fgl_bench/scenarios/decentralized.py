"""Rounds without a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Peers
from fgl_bench.algorithms.records import Exchange, Meeting
from fgl_bench.engine.hooks import check_kind, check_shape
from fgl_bench.engine.topologies import RANDOM, TOPOLOGIES, WITH_DEGREE, Links
from fgl_bench.engine.transfer import put
from fgl_bench.errors import SHARE, Range, UserError, at_least, one_of, require
from fgl_bench.scenarios.base import Rounds, Trained
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.states import Transferred
from fgl_bench.utils.seeding import generator


@dataclass
class Decentralized(Rounds):
    """In every round each client trains, exchanges messages along a directed graph, and mixes the received models.

    The graph depends on (seed, time) only, so it is the same for all methods. A method that chooses its partners
    (``adaptive``) chooses among the graph's links, by default all. A round ends with its slowest trip.

    Attributes:
        topology: the graph; ``auto`` takes the method's own.
        dynamic: draw a random graph in every round rather than once.
        degree: neighbors k of the graphs that have a degree; null takes the method's own, or else 30 % of the clients.
        edge_chance: probability of an edge of ``erdos_renyi``.
        link_failure: probability that a pair of clients cannot communicate in a round, in both directions.
    """

    name: ClassVar[str] = "decentralized"
    contract: ClassVar[type] = Peers
    ranges: ClassVar[dict[str, Range]] = {"degree": at_least(1), "edge_chance": SHARE, "link_failure": SHARE}

    topology: Literal[
        "auto", "isolated", "ring", "directed_ring", "complete", "random_k_in", "random_k_out", "random_matching", "hypercube",
        "random_regular", "erdos_renyi", "static_exponential", "one_peer_exponential", "k_peer_exponential",
    ]  # fmt: skip
    dynamic: bool
    degree: int | None
    edge_chance: float
    link_failure: float

    def run(self, sim: Simulation) -> None:
        """As :meth:`Rounds.run`.

        Raises:
            UserError: not all clients take part, or the topology cannot have the degree.
        """
        if sim.participation != 1:
            raise UserError(f"participation={sim.participation} needs a server; allowed with scenario=decentralized: 1")
        self.check_degree(sim)
        super().run(sim)

    def check_degree(self, sim: Simulation) -> None:
        """A degree that is asked for must fit the topology and the number of clients; raises UserError."""
        name, most = self.links(sim)[0], sim.setting.num_clients - 1
        if self.degree is None:
            return
        if name not in WITH_DEGREE:
            raise UserError(f"scenario.degree={self.degree}: topology {name} has no degree; allowed: null, or one of {one_of(WITH_DEGREE)}")
        require(self.degree <= most, "scenario.degree", self.degree, f"an integer from 1 to {most}, the number of other clients")

    def trip_bytes(self, sim: Simulation, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of a round: the method's upload to every neighbor that the first round's graph gives, and what these send."""
        adjacency = self.adjacency(sim, seed, 0) & ~np.eye(sim.setting.num_clients, dtype=bool)
        up = sim.algorithm.traffic().bytes[0]
        return up * adjacency.sum(0), up * adjacency.sum(1)

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        setting, trainer, trained, method = sim.setting, sim.trainer, done.trained, cast(Peers, sim.algorithm)

        def graph(time: int) -> Tensor:
            return put(np.stack([self.adjacency(sim, seed, time) for seed in setting.seeds]), trained.device)

        def losses(models: Tensor) -> Tensor:
            return trainer.losses(models.flatten(0, 1)).view(len(setting.seeds), -1)

        moments = tuple(state.view_as(trained) for state in trainer.optimizer.moments) if sim.algorithm.trains else ()
        exchange = method.exchange(
            Meeting(done.number, sim.rounds, graph, done.received, trained, done.uploaded, done.reports, losses, moments)
        )
        check_kind("exchange()", exchange, Exchange, "an Exchange")
        sizes = dict(zip("SCP", trained.shape, strict=True))
        check_shape("exchange().models", exchange.models, sizes, "S C P")
        for name in ("matrix", "sent"):
            check_shape(f"exchange().{name}", getattr(exchange, name), {**sizes, "C": setting.num_clients}, "S C C")
        sim.sent.append(torch.stack([exchange.sent.sum(1), exchange.sent.sum(2)], -1))
        return exchange.models, lambda: exchange.matrix

    def adjacency(self, sim: Simulation, seed: int, time: int) -> np.ndarray:
        """The clients from which each client can receive at this time, ``[C, C]`` bool."""
        clients, (name, degree) = sim.setting.num_clients, self.links(sim)
        moment = time if self.dynamic or name not in RANDOM else 0
        try:
            adjacency = TOPOLOGIES[name](Links(clients, moment, generator(seed, "topology", moment), degree, self.edge_chance))
        except ValueError as error:
            raise UserError(f"scenario.degree={degree}: {error}") from error
        if self.link_failure:
            down = np.triu(generator(seed, "links", time).random((clients, clients)) < self.link_failure, 1)
            adjacency = adjacency & ~(down | down.T)
        return adjacency

    def links(self, sim: Simulation) -> tuple[str, int]:
        """The topology and its degree: the scenario's, or the method's where the scenario sets none."""
        clients, method = sim.setting.num_clients, cast(Peers, sim.algorithm)
        name, degree = method.topology()
        name = name if self.topology == "auto" else self.topology
        return name, self.degree or degree or max(1, min(-(-3 * clients // 10), clients - 1))

    def transferred(self, sim: Simulation, rounds: Sequence[int], count: int) -> list[list[Transferred]]:
        total = torch.stack([torch.zeros_like(sim.sent[0]), *sim.sent]).cumsum(0)[list(rounds)].cpu().numpy()  # [T, S, C, 2]
        return [
            [Transferred(int(each[:, 0].sum()), int(each[:, 1].sum()), int(each.sum(1).max())) for each in total[:, s]]
            for s in range(total.shape[1])
        ]
