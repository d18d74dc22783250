"""The text formats of an export. Each writes to a binary file and yields the number of records written so far.

CSV         key and value as text; one that is not UTF-8 is in key_b64 or value_b64 instead, in base64. A value that
            was decoded to a struct is one column for each field, value.NAME. Times are ISO text, headers JSON. A null
            is an empty cell, an empty text is "".
JSON lines  the objects of `klog cat --jsonl`; with formats, key and value are what was decoded
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.exporting.plain import cell, plain
from klog.inspect.record_fields import record_fields
from klog.log import LogReader
from klog.shown import iso, to_json

if TYPE_CHECKING:
    import pyarrow

    from klog.exporting.columns import Columns

LINES = 1000
_SPECIAL = re.compile('[",\r\n]').search
JSON_FIELDS = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch"),
    *("producer_id", "producer_epoch", "sequence", "is_transactional", "is_control", "control_type"),
)


def write_json_lines(
    file: Any, topic: str, readers: dict[int, LogReader], names: Sequence[str], decoded: Sequence[str]
) -> Iterator[int]:
    """Write one JSON object for each record, with the fields `names`. decoded: which of key and value have a format."""
    wanted, records, lines = {*names}, 0, []
    if "control_type" in wanted:
        wanted |= {"coordinator_epoch", "control"}
    for partition, reader in readers.items():
        rows: Any = reader.decoded() if decoded else ((record, None, None) for record in reader)
        for record, key, value in rows:
            fields = {"topic": topic, "partition": partition, **record_fields(record)}
            for name, found in (("key", key), ("value", value)):
                if name in decoded:
                    fields.pop(f"{name}_b64", None)
                    fields[name] = plain(found)
            lines.append(to_json({name: each for name, each in fields.items() if name.removesuffix("_b64") in wanted}))
            if len(lines) == LINES:
                file.write(("\n".join(lines) + "\n").encode())
                records, lines = records + len(lines), []
                yield records
    if lines:
        file.write(("\n".join(lines) + "\n").encode())
        yield records + len(lines)


def write_csv(file: Any, columns: Columns) -> Iterator[int]:
    """Write a header, and a line for each record."""
    header = [name for field in columns.schema for name in _names(field)]
    file.write(_lines([map(_quoted, header)]))
    records = 0
    for batch in columns.batches():
        cells = [
            each for field, column in zip(columns.schema, batch.columns, strict=True) for each in _cells(field, column)
        ]
        if len(cells) == 1:  # an empty line is not a row
            cells = [[each or '""' for each in cells[0]]]
        file.write(_lines(zip(*cells, strict=True)))
        records += batch.num_rows
        yield records


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    return "".join([",".join(row) + "\n" for row in rows]).encode()


def _quoted(text: str | None) -> str:
    """Return a cell. The module csv distinguishes null from empty text, and quotes a carriage return, only in later
    Pythons."""
    if text is None:
        return ""
    return text if text and not _SPECIAL(text) else '"' + text.replace('"', '""') + '"'


def _names(field: pyarrow.Field) -> list[str]:
    import pyarrow

    if pyarrow.types.is_struct(field.type):
        return [f"{field.name}.{inner.name}" for inner in field.type]
    return [field.name, f"{field.name}_b64"] if pyarrow.types.is_binary(field.type) else [field.name]


def _cells(field: pyarrow.Field, column: pyarrow.Array) -> Iterator[list[str]]:
    """Yield the columns of CSV that a column becomes, as lists of cells."""
    import pyarrow

    if field.name == "timestamp":
        yield ["" if ms is None else iso(ms) for ms in column.cast(pyarrow.int64()).to_pylist()]
        return
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError) as error:
        raise KlogError(f"column {field.name} cannot be written as text: {error}; export to Parquet or Arrow") from None
    if pyarrow.types.is_struct(field.type):
        for inner in field.type:
            yield ["" if row is None else _quoted(cell(row[inner.name])) for row in found]
    elif pyarrow.types.is_binary(field.type):
        texts = [_text(each) for each in found]
        yield list(map(_quoted, texts))
        yield [
            base64.b64encode(each).decode() if text is None and each is not None else ""
            for text, each in zip(texts, found, strict=True)
        ]
    elif field.name == "headers":
        yield [
            _quoted(to_json([{"key": each["key"], **_header(each["value"])} for each in headers])) if headers else ""
            for headers in found
        ]
    else:
        yield [_quoted(cell(each)) for each in found]


def _text(data: bytes | None) -> str | None:
    """Return bytes as text; None for bytes that are not UTF-8, and for null."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _header(value: bytes | None) -> dict[str, str | None]:
    text = _text(value)
    return {"value": text} if text is not None or value is None else {"value_b64": base64.b64encode(value).decode()}
