"""Reads the rows of an input as (line, key, value, timestamp).

value      the row as one JSON object in UTF-8, columns in file order
key        the key column's text in UTF-8; None if the cell is empty, null or absent
timestamp  the timestamp column in milliseconds; None if no column was named

    CSV, TSV     header line first; cells typed by klog.importing.values; quotes as in RFC 4180, checked strictly
    JSON lines   one object a line, kept byte for byte without surrounding whitespace; empty lines are skipped
    Parquet      see klog.importing.parquet

`line` is where the row begins. An invalid row raises RowError, a named column that the file does not have
UnknownColumn.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import NoReturn

from klog.importing.errors import RowError, UnknownColumn, named_once
from klog.importing.source import LINE_BYTES_MAX, Source
from klog.importing.values import CellCache, Decimals, Row, milliseconds, nested_json, quote


def rows(source: Source, form: str, *, key: str | None = None, timestamp: str | None = None) -> Iterator[Row]:
    """Yield all rows of the source, from its start."""
    if form == "parquet":
        from klog.importing.parquet import parquet_rows

        return parquet_rows(source, key=key, timestamp=timestamp)
    if form == "jsonl":
        return json_rows(source, key=key, timestamp=timestamp)
    return csv_rows(source, key=key, timestamp=timestamp, delimiter="\t" if form == "tsv" else ",")


def csv_rows(source: Source, *, key: str | None, timestamp: str | None, delimiter: str = ",") -> Iterator[Row]:
    reader = csv.reader(_texts(source), delimiter=delimiter, strict=True)
    before = csv.field_size_limit(LINE_BYTES_MAX)  # a setting of the whole process: restored at the end
    line = 1
    try:
        names: list[str] | None = None
        for cells in reader:
            if not cells:  # an empty line
                line = reader.line_num + 1
                continue
            if names is None:
                names = named_once(cells, source.name, line)
                width = len(names)
                heads = [("{" if i == 0 else ",") + quote(name) + ":" for i, name in enumerate(names)]
                key_at = _column(source, names, key, line)
                timestamp_at = _column(source, names, timestamp, line)
                to_json = CellCache()
                line = reader.line_num + 1
                continue
            if len(cells) != width:
                raise RowError(f"{len(cells)} cells, but the header has {width} columns", path=source.name, line=line)
            ms = None if timestamp_at is None else _time(source, line, names[timestamp_at], cells[timestamp_at])
            name = None if key_at is None else cells[key_at]
            value = "".join([head + to_json(cell) for head, cell in zip(heads, cells, strict=True)]) + "}"
            yield line, name.encode() if name else None, value.encode(), ms
            line = reader.line_num + 1
        if names is None and (key or timestamp):
            raise UnknownColumn(source.name, key or timestamp or "", [])
    except csv.Error as error:
        raise RowError(f"invalid CSV: {error} (in the row that begins here)", path=source.name, line=line) from error
    finally:
        csv.field_size_limit(before)


def json_rows(source: Source, *, key: str | None, timestamp: str | None) -> Iterator[Row]:
    seen: dict[str, None] = {}
    parse_float = None if key is None else Decimals  # two keys must not become the same double
    decode = json.JSONDecoder(parse_constant=_no_json, parse_float=parse_float).decode
    missing = {name for name in (key, timestamp) if name is not None}
    first = 1
    for line, text in source.lines():
        text = text.strip()
        if not text:
            continue
        try:
            row = decode(text)
        except (ValueError, RecursionError) as error:
            raise RowError(f"invalid JSON: {error}{_hint(text)}", path=source.name, line=line) from error
        if not isinstance(row, dict):
            raise RowError(f"a JSON {_kind(row)}, expected an object{_hint(text)}", path=source.name, line=line)
        if missing:
            if not seen and timestamp in missing and timestamp not in row:
                raise UnknownColumn(source.name, timestamp, row, line=line)
            first = line if not seen else first
            seen.update(dict.fromkeys(row))
            missing.difference_update(row)
        ms = None
        if timestamp is not None:
            if timestamp not in row:
                raise RowError(f"the row has no {timestamp!r}", path=source.name, line=line)
            ms = _time(source, line, timestamp, row[timestamp])
        try:
            found = None if key is None else _key(row.get(key))
        except RecursionError as error:
            raise RowError(f"column {key!r} is nested too deeply for a key", path=source.name, line=line) from error
        yield line, found, text.encode(), ms
    for name in (key, timestamp):
        if name in missing and name is not None:
            raise UnknownColumn(source.name, name, seen, line=first)


def _texts(source: Source) -> Iterator[str]:
    for _, text in source.lines():
        yield text


def _column(source: Source, names: list[str], name: str | None, line: int) -> int | None:
    if name is None:
        return None
    if name not in names:
        raise UnknownColumn(source.name, name, names, line=line)
    return names.index(name)


def _time(source: Source, line: int, name: str, value: object) -> int:
    try:
        return milliseconds(value)
    except ValueError as error:
        raise RowError(f"column {name!r}: {error}", path=source.name, line=line) from None


def _key(value: object) -> bytes | None:
    """Return the key of a typed row: text as it is, None for null, everything else as JSON."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return nested_json(value, _leaf).encode(errors="surrogatepass")


def _leaf(value: object) -> str:
    return value.text if isinstance(value, Decimals) else json.dumps(value, ensure_ascii=False)


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _hint(text: str) -> str:
    """Return a hint for a common mistake: a file that is one JSON array."""
    return "; write one object a line (jq -c '.[]' FILE does it)" if text.startswith("[") else ""


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}[type(value)]
