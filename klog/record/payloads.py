"""Who keeps what was decompressed: the readers of records ask it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Payloads(Protocol):
    """Plain records of the batches of one file. position, size and crc are those of the batch. Any thread."""

    def find(self, position: int, size: int, crc: int) -> Buffer | None:
        """What was kept for the batch."""

    def keep(self, position: int, size: int, crc: int, plain: Buffer) -> None:
        """These are its records."""
