"""The interface of all decoders: from an Arrow array of bytes to a typed one, and from that to Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 8192
SLICE_BYTES = 4 << 20


class Decoder(Protocol):
    @property
    def type(self) -> pa.DataType:
        """The type of the decoded values."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the decoded values, null where one is null or bad, and {index of a bad one: why}."""

    def objects(self, decoded: pa.Array) -> list[Any]:
        """Return what decode() returned as Python objects: structs and maps as dict, null as None. Raises ValueError or
        OverflowError for a time outside Python's calendar."""
        found: list[Any] = decoded.to_pylist(maps_as_pydicts="lossy")
        return found


def slices(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a batch in slices of at most ROWS rows and about SLICE_BYTES of these columns, because decoded values may
    be many times as large as their bytes."""
    size = sum(batch.column(name).nbytes for name in names)
    rows = max(1, min(ROWS, batch.num_rows * SLICE_BYTES // max(size, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
