"""What a semi-asynchronous server adds to a method: steps over a buffer of uploads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.errors import UserError


class SemiAsyncServer(Algorithm):
    """A method under ``scenario=semi_async``: clients train at their own pace, the server steps when enough uploads have arrived.

    Class attributes:
        keeps_uploads: whether the server keeps every client's last upload, in ``server.uploads``.
        reads_staleness: whether it reads the age of an upload from the scenario, and keeps no dates of its own.
    """

    keeps_uploads: ClassVar[bool] = False
    reads_staleness: ClassVar[bool] = True

    @abstractmethod
    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        """One server step: process the buffered arrivals (already in ``server.uploads`` and ``server.reports``) and answer."""

    def begin(self, message: Message, trained: Tensor, reports: dict[str, float]) -> Tensor:
        """The model ``[P]`` that the next trip starts from; the base overwrites the parameters that were received.

        Where a message has all of them, it is mixed with the client's own model: see :meth:`message_share`. A method that only decides
        on the weight overrides that, and the models of all trips are then mixed at once.

        Args:
            trained: ``[P]``, the model that the client trained last.
            reports: its own last scalar reports, by name.
        """
        if message.blocks is None:
            share = self.message_share(message, reports)
            return message.model if share == 1 else share * message.model + (1 - share) * trained
        return self.setting.layout.overwrite(trained.clone(), message.model, message.blocks)

    def message_share(self, message: Message, reports: dict[str, float]) -> float:
        """The weight of a message's model in what the next trip starts from, 1 by default; the rest is what the client trained last.

        Args:
            reports: the client's own last scalar reports, by name.
        """
        return 1.0

    def buffer_size(self) -> int:
        """Arrivals per server step: the method's ``buffer`` key, or a quarter of the clients (5 at 20) where that is null.

        Raises:
            UserError: fewer than one, or more than there are clients (the server would wait for ever).
        """
        clients, size = self.setting.num_clients, getattr(self, "buffer", None)
        size = max(1, round(clients / 4)) if size is None else size
        if not 1 <= size <= clients:
            raise UserError(f"algorithm.buffer={size} does not fit num_clients={clients}; allowed: 1 to {clients}")
        return size

    @property
    def waits(self) -> bool:
        """Whether an uploader with an empty inbox waits for the server's next step (else it downloads the global model at once)."""
        return True

    @property
    def merges_before_upload(self) -> bool:
        """Whether a waiting push is merged into the trained model before it is uploaded, rather than when the next trip begins."""
        return False

    def upload_blocks(self, server: Server) -> tuple[str, ...] | None:
        """Names of the parameters that the upload arriving now carries; None means all."""
        return None
