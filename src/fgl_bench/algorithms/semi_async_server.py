"""Base of methods with a semi-asynchronous server: server steps over a buffer of uploads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.records import Message, Server, Upload
from fgl_bench.errors import UserError


class SemiAsyncServer(Algorithm):
    """A method under ``scenario=semi_async``: clients train at their own pace, and the server steps once enough uploads have arrived.

    Class attributes:
        keeps_uploads: True if the server stores every client's last upload, in ``server.uploads``.
        reads_staleness: True if the method reads the staleness of uploads from the scenario instead of tracking it.
    """

    keeps_uploads: ClassVar[bool] = False
    reads_staleness: ClassVar[bool] = True

    @abstractmethod
    def serve(self, server: Server, arrivals: Sequence[Upload]) -> list[Message]:
        """Take one server step: process the buffered arrivals (already in ``server.uploads`` and ``server.reports``), return messages."""

    def begin(self, message: Message, trained: Tensor, reports: dict[str, float]) -> Tensor:
        """Return the model ``[P]`` that the next trip starts from; the base overwrites the received parameters.

        A message with all parameters is mixed with the client's own model, see :meth:`message_share`. A method that only chooses the
        weight overrides :meth:`message_share`, and the models of all trips are then mixed at once.

        Args:
            trained: ``[P]``, the client's last trained model.
            reports: the client's last scalar reports, by name.
        """
        if message.blocks is None:
            share = self.message_share(message, reports)
            return message.model if share == 1 else share * message.model + (1 - share) * trained
        return self.setting.layout.overwrite(trained.clone(), message.model, message.blocks)

    def message_share(self, message: Message, reports: dict[str, float]) -> float:
        """Return the weight of a message's model in the next trip's initial model, 1 by default; the rest is the last trained model.

        Args:
            reports: the client's last scalar reports, by name.
        """
        return 1.0

    def buffer_size(self) -> int:
        """Return the arrivals per server step: the ``buffer`` key, or a quarter of the clients (5 of 20) if it is null.

        Raises:
            UserError: fewer than one, or more than the number of clients (the server would never step).
        """
        clients, size = self.setting.num_clients, getattr(self, "buffer", None)
        size = max(1, round(clients / 4)) if size is None else size
        if not 1 <= size <= clients:
            raise UserError(f"algorithm.buffer={size} does not fit num_clients={clients}; allowed: 1 to {clients}")
        return size

    @property
    def waits(self) -> bool:
        """Return True if an uploader with an empty inbox waits for the next server step, instead of downloading the model at once."""
        return True

    @property
    def merges_before_upload(self) -> bool:
        """Return True if a pending push is merged into the trained model before upload, not at the start of the next trip."""
        return False

    def upload_blocks(self, server: Server) -> tuple[str, ...] | None:
        """Return the names of the parameters in the current upload; None means all."""
        return None
