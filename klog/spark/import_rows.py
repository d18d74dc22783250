"""Converts rows that Spark has read to records, as `klog import` does: the functions of klog.importing, in tasks.

    rows      any DataFrame, and Parquet: the row as a JSON object, columns in their order
    cells     CSV, read by Spark as text: the type of each cell is decided by its text, and 007 stays text
    lines     JSON lines, read by Spark as lines: each object byte for byte

A row that cannot be converted raises InvalidRecord with the row: which line of which file it is, only Spark knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from klog.errors import InvalidRecord
from klog.importing.errors import RowError, UnknownColumn
from klog.importing.parquet import batch_rows, to_json, to_key
from klog.importing.rows import json_rows
from klog.importing.values import CellCache, Row, milliseconds, quote
from klog.spark.rows import arrow_schema, struct_of
from klog.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_BOM = "\ufeff"
_SHOWN = 200
Kind = Literal["rows", "cells", "lines"]


@dataclass(frozen=True)
class Converter:
    """How rows become records. names: the columns of the rows; of lines: none. key, value, timestamp: names of columns;
    value=None: the whole row. where: names the source in errors. found_key: called if a line has the key."""

    kind: Kind
    names: Sequence[str]
    key: str | None
    value: str | None
    timestamp: str | None
    where: str
    found_key: Callable[[], object] | None = None

    def convert(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        import pyarrow as pa

        to_records = {"rows": self._rows, "cells": self._cells, "lines": self._lines}[self.kind]
        schema = arrow_schema(self.schema)
        for batch in batches:
            keys: list[bytes | None] = []
            values: list[bytes | None] = []
            times: list[int] = []
            for key, value, ms in to_records(batch):
                keys.append(key)
                values.append(value)
                if ms is not None:
                    times.append(ms * 1000)
            of = {"key": keys, "value": values, "timestamp": times}
            yield pa.RecordBatch.from_arrays([pa.array(of[field.name], field.type) for field in schema], schema=schema)

    @property
    def schema(self) -> StructType:
        """The columns of the records. Without a key there is no column of it: all its rows would be brought together by
        their null."""
        types = {"key": "binary", "value": "binary", "timestamp": "timestamp"}
        missing = [name for name in ("key", "timestamp") if getattr(self, name) is None]
        return struct_of({name: kind for name, kind in types.items() if name not in missing})

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
        batch = _in_utc(batch)
        names = list(self.names)
        try:
            if self.value is None:
                found = batch_rows(
                    batch, names, key=self.key, timestamp=self.timestamp, where=self.where, rows_before=0
                )
                for _, key, whole, ms in found:
                    yield key, whole, ms
                return
            lists = {name: batch.column(names.index(name)).to_pylist() for name in self._named()}
            for row in range(batch.num_rows):
                cells = {name: column[row] for name, column in lists.items()}
                ms = None if self.timestamp is None else self._time(cells[self.timestamp], cells)
                yield to_key(cells[self.key]) if self.key is not None else None, _bytes(cells[self.value]), ms
        except RowError as error:
            shown = {name: _shown(batch.column(at)[error.line - 1]) for at, name in enumerate(names)}
            raise self._invalid(error.reason, shown) from None

    def _named(self) -> list[str]:
        return [name for name in (self.key, self.value, self.timestamp) if name is not None]

    def _time(self, cell: object, row: object) -> int:
        try:
            return milliseconds(cell)
        except ValueError as error:
            raise self._invalid(f"column {self.timestamp!r}: {error}", row) from None

    def _invalid(self, reason: str, row: object) -> InvalidRecord:
        shown = row if isinstance(row, str) else repr(row)
        return InvalidRecord(f"{self.where}: {reason}; in the row {shown[:_SHOWN]}{'...' if shown[_SHOWN:] else ''}")

    # ---- cells -------------------------------------------------------------------------------------------------------

    def _cells(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
        names = list(self.names)
        heads = [("{" if i == 0 else ",") + quote(name) + ":" for i, name in enumerate(names)]
        cell_json = CellCache()
        of = {name: names.index(name) for name in self._named()}
        for cells in zip(*[column.to_pylist() for column in batch.columns], strict=True):
            key = None if self.key is None else cells[of[self.key]]
            ms = None if self.timestamp is None else self._time(cells[of[self.timestamp]], cells)
            if self.value is not None:
                value = _bytes(cells[of[self.value]])
            else:
                parts = [head + cell_json(cell or "") for head, cell in zip(heads, cells, strict=True)]
                value = ("".join(parts) + "}").encode()
            yield key.encode() if key else None, value, ms

    # ---- lines -------------------------------------------------------------------------------------------------------

    def _lines(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
        lines = _Lines(self.where, batch.column(0).to_pylist())
        found: Iterator[Row] = json_rows(lines, key=self.key, timestamp=self.timestamp)  # type: ignore[arg-type]
        try:
            for _, key, text, ms in found:
                if self.value is None:
                    yield key, text, ms
                    continue
                row = json.loads(text)
                if self.value not in row:
                    raise self._invalid(f"the row has no {self.value!r}", lines.last)
                yield key, _bytes(row[self.value]), ms
            if self.key is not None and lines.some and self.found_key is not None:
                self.found_key()
        except UnknownColumn as error:
            if error.column == self.timestamp:
                raise self._invalid(f"the row has no {self.timestamp!r}", lines.last) from None
            # Else no row of this batch has a key. Whether one of the source has it, the driver checks.
        except RowError as error:
            raise self._invalid(error.reason, lines.last) from None


class _Lines:
    """The part of klog.importing.source.Source that json_rows needs."""

    def __init__(self, name: str, lines: Sequence[bytes | None]) -> None:
        self.name = name
        self.last = ""
        self.some = False
        self._lines = lines

    def lines(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self._lines, 1):
            try:
                self.last = (line or b"").decode().removeprefix(_BOM)
            except UnicodeDecodeError as error:
                self.last = repr(line)
                raise RowError(
                    f"byte {error.start + 1} of the line is not UTF-8", path=self.name, line=number
                ) from None
            self.some = self.some or bool(self.last.strip())
            yield number, self.last


def _shown(cell: pa.Scalar) -> str:
    try:
        return str(cell)
    except (ValueError, OverflowError):  # a time outside the calendar
        return f"a {cell.type}"


def _bytes(value: object) -> bytes | None:
    """The value of a record from a cell: text and bytes as they are, null for null, everything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode(errors="surrogatepass") if isinstance(value, str) else to_json(value).encode()


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its times in UTC: Spark gives them the zone of the session."""
    import pyarrow as pa

    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz not in (None, "UTC")
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
