"""The interface of a cache of decompressed records: the readers of records query it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Payloads(Protocol):
    """Decompressed records of the batches of one file. position, size and crc are those of the batch. Any thread."""

    def find(self, position: int, size: int, crc: int) -> Buffer | None:
        """Return the records kept for the batch, or None."""

    def keep(self, position: int, size: int, crc: int, plain: Buffer) -> None:
        """Keep the batch's records."""
