"""Rows of a Parquet file, read by pyarrow (extra [arrow]). Types that JSON does not have:

timestamp, date, time   ISO text with at most microseconds, followed by the offset from UTC if there is a zone
decimal                 a number with unchanged digits
binary                  text if it is UTF-8, else base64
NaN, infinite           null
duration                seconds as a number
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from klog import extras
from klog.errors import KlogError
from klog.importing.errors import RowError, UnknownColumn, named_once
from klog.importing.source import Source
from klog.importing.values import Row, milliseconds, nested_json, quote

BATCH_ROWS = 4096


def parquet_rows(source: Source, *, key: str | None, timestamp: str | None) -> Iterator[Row]:
    """Yield rows; see klog.importing.rows. `line` counts rows from 1."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise KlogError(str(extras.missing(f"{source.name}: Parquet", "pyarrow", "arrow", error))) from error
    stream = source.open()
    line = 0
    try:
        file = pyarrow.parquet.ParquetFile(stream)
        names = named_once([str(name) for name in file.schema_arrow.names], source.name, 1)
        for name in (key, timestamp):
            if name is not None and name not in names:
                raise UnknownColumn(source.name, name, names)
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield from batch_rows(batch, names, key=key, timestamp=timestamp, where=source.name, rows_before=line)
            line += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise RowError(f"invalid Parquet: {' '.join(str(error).split())}", path=source.name, line=line + 1) from error


def batch_rows(
    batch: Any, names: list[str], *, key: str | None, timestamp: str | None, where: str, rows_before: int
) -> Iterator[Row]:
    """Yield the rows of one Arrow batch. where, rows_before: for RowError."""
    import pyarrow

    heads = [("{" if i == 0 else ",") + quote(name) + ":" for i, name in enumerate(names)]
    lists = [
        _values(_microseconds(pyarrow, column), name, where, rows_before)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    texts = [[to_json(value) for value in column] for column in lists]
    keys = lists[names.index(key)] if key is not None else [None] * batch.num_rows
    times = lists[names.index(timestamp)] if timestamp is not None else None
    for i, cells in enumerate(zip(*texts, strict=True)):
        line = rows_before + i + 1
        ms = None
        if times is not None:
            try:
                ms = milliseconds(times[i])
            except ValueError as error:
                raise RowError(f"column {timestamp!r}: {error}", path=where, line=line) from None
        value = "".join([head + cell for head, cell in zip(heads, cells, strict=True)]) + "}"
        yield line, to_key(keys[i]), value.encode(errors="surrogatepass"), ms


def _values(column: Any, name: str, where: str, rows_before: int) -> list[Any]:
    """Return a column's cells as Python objects. RowError names the row of a cell that cannot be converted."""
    try:
        return list(column.to_pylist())
    except (UnicodeDecodeError, OverflowError, ValueError):
        for i, cell in enumerate(column):
            try:
                cell.as_py()
            except UnicodeDecodeError as error:
                what = f"byte {error.start + 1}, 0x{error.object[error.start]:02x}, is not UTF-8"
            except (OverflowError, ValueError) as error:
                what = f"a {column.type} outside the calendar ({error})"
            else:
                continue
            raise RowError(f"column {name!r}: {what}", path=where, line=rows_before + i + 1) from None
        raise


def _microseconds(pyarrow: Any, column: Any) -> Any:
    """Truncate nanoseconds to microseconds: Python objects with nanoseconds would need pandas."""
    kind = column.type
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pyarrow.timestamp("us", tz=kind.tz), safe=False)
    if pyarrow.types.is_time64(kind) and kind.unit == "ns":
        return column.cast(pyarrow.time64("us"), safe=False)
    if pyarrow.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pyarrow.duration("us"), safe=False)
    return column


def to_json(value: object) -> str:
    """Return the JSON of one cell."""
    return quote(value) if isinstance(value, str) else nested_json(value, _leaf)


def _leaf(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else "null"
    return quote(_text(value))


def _text(value: object) -> str:
    """Return text, bytes and times as text."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value)


def to_key(value: object) -> bytes | None:
    """Return the key of a cell: text and bytes as they are, None for null and empty, everything else as JSON."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, (date, time)):
        return _text(value).encode()
    return to_json(value).encode(errors="surrogatepass")
