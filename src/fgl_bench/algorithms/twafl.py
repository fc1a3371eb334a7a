"""TWAFL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal

import numpy as np

from fgl_bench.algorithms.base import SemiAsyncServer, Setting
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.engine.transfer import put
from fgl_bench.errors import Range, Unsuited, UserError, at_least


@dataclass
class TWAFL(SemiAsyncServer):
    """Temporally weighted aggregation with layerwise asynchronous update (Chen, Sun & Jin, IEEE TNNLS 31(10), 2020).

    The server stores every client's last upload, with the rounds at which its shallow and deep parameters arrived. At round r
    client k has weight ``n_k a^-(r - g_k)`` in the average of the shallow parameters. Deep parameters are sent, and averaged by
    their own ages, only in rounds whose number modulo ``loop`` is in ``exchange_rounds``; otherwise clients keep their own.

    Resolutions: one round per arrival, determined when the client uploads; weights normalized (the sum in the paper is not);
    all stored copies are averaged, starting from the initial model with age -1; a = e/2; the last 5 of 15 rounds exchange deep
    layers. The deep layer of a GCN is the last one, which has few parameters, so little traffic is saved.

    Weights fall by 1/a per arrival, so the average covers about four clients unless ages are counted in cycles. With ages by
    arrival and equally fast clients, a client's rounds repeat with C modulo ``loop``; with C = 15 most clients never
    upload their deep layers. Use ``age_unit=cycle`` then.

    Attributes:
        base: a.
        loop, exchange_rounds: the period, and its rounds in which deep parameters are sent.
        deep_layers: number of last layers that are deep.
        age_unit: a round is an ``arrival``, or a ``cycle`` of C arrivals.
        normalise: scale weights to sum to one.
    """

    pairing: ClassVar[Mapping[str, str]] = {"model": "gcn"}
    keeps_uploads: ClassVar[bool] = True
    reads_staleness: ClassVar[bool] = False
    ranges: ClassVar[dict[str, Range]] = {
        "base": at_least(1), "loop": at_least(1), "exchange_rounds": at_least(0), "deep_layers": at_least(0),
    }  # fmt: skip

    base: float
    loop: int
    exchange_rounds: list[int]
    deep_layers: int
    age_unit: Literal["arrival", "cycle"]
    normalise: bool

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        if self.loop < 1 or any(not 0 <= r < self.loop for r in self.exchange_rounds):
            message = f"algorithm.exchange_rounds={list(self.exchange_rounds)} does not fit algorithm.loop={self.loop}"
            raise UserError(f"{message}; allowed: rounds from 0 to loop - 1")
        layers = setting.model.chain(setting.layout)
        if not 0 <= self.deep_layers < len(layers):
            raise Unsuited(f"needs a backbone with more layers than algorithm.deep_layers={self.deep_layers}; this one has {len(layers)}")
        shallow = len(layers) - self.deep_layers
        self._shallow, self._deep = (tuple(chain.from_iterable(part)) for part in (layers[:shallow], layers[shallow:]))

    def buffer_size(self) -> int:
        return 1

    def round_number(self, version: int) -> int:
        """Return r for an arrival at server version ``version``."""
        return version // {"arrival": 1, "cycle": self.setting.num_clients}[self.age_unit]

    def exchanges(self, number: int) -> bool:
        """Return True if deep parameters are sent in round r."""
        return number % self.loop in self.exchange_rounds

    def upload_blocks(self, server: Server) -> tuple[str, ...] | None:
        return None if self.exchanges(self.round_number(server.version)) else self._shallow

    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        (upload,) = arrivals
        number = self.round_number(server.version - 1)
        full = self.exchanges(number)
        layout, model = self.setting.layout, server.model.clone()
        for name, parameters in (("shallow", self._shallow), ("deep", self._deep)):
            stamps = server.memory.setdefault(name, np.full(self.setting.num_clients, -1))
            if name == "deep" and not full:
                continue
            stamps[upload.client] = number
            weights = self.weights(server.weights, stamps, number)
            share = put(weights, model.device, model.dtype)
            for parameter in parameters:
                stored = layout.view(server.uploads, parameter).flatten(1)
                layout.view(model[None], parameter)[0].copy_((share @ stored).view(layout.shapes[parameter]))
        server.model = model
        return [Message(upload.client, model, blocks=None if full else self._shallow)]

    def weights(self, sizes: np.ndarray, stamps: np.ndarray, number: int) -> np.ndarray:
        """Return the stored copies' weights ``[C]`` in round r, given sizes n_k and the rounds of their arrival."""
        sizes = sizes if sizes.sum() > 0 else np.ones_like(sizes)
        # Powers relative to the newest copy avoid overflow and a zero sum.
        newest = stamps[sizes > 0].max() if self.normalise else number
        weights = sizes * np.power(self.base, (stamps - newest).astype(float), where=sizes > 0, out=np.zeros_like(sizes))
        return weights / (weights.sum() if self.normalise else sizes.sum())
