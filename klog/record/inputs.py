"""The types in which records may be given to append and encode: for type checkers only, nothing at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

    from klog.record._record import Record
    from klog.record._rows import Rows
    from klog.record.lists import Lists


class ArrowArray(Protocol):
    """One array of the Arrow C interface, such as a pyarrow.RecordBatch."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Return schema and array as capsules."""


class ArrowStream(Protocol):
    """A stream of arrays, such as a frame of pyarrow, polars, duckdb or pandas."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream as a capsule."""


Headers: TypeAlias = "Iterable[tuple[str, Buffer | None]]"
RecordLike: TypeAlias = (
    "Record"
    " | tuple[Buffer | None, Buffer | None]"
    " | tuple[Buffer | None, Buffer | None, int | None]"
    " | tuple[Buffer | None, Buffer | None, int | None, Headers | None]"
)
Records: TypeAlias = "Iterable[RecordLike] | Lists | Rows | ArrowArray | ArrowStream"
