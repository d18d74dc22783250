"""Values framed as the clients of a schema registry write them.

    value := 0:u8 schema_id:i32 body                        big-endian; body: Avro, by the schema with this id

  F1  A body is read by the writer's schema to its last byte: a body that is too short or too long is a bad value.
  F2  No registry is asked: all schemas are given. An id that is not among them is a bad value.
  F3  Hostile bytes cost no more time and memory than their length: see A1, A2 of avro_types.py.

fastavro parses (in C), without its schema resolution: that compares the two schemas for each value, and does not notice
that a field which the reader does not have is incomplete. avro_columns.py resolves whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from klog import extras
from klog.decode.avro_columns import columns
from klog.decode.avro_types import arrow_type, parse, plain
from klog.decode.columns import Column, build
from klog.decode.decoder import Decoder
from klog.decode.registry import Schema, Schemas

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER = 5
_Reader = tuple[Callable[[bytes], Any], Column]


class ConfluentAvroDecoder(Decoder):
    """binary → the type of the reader: its schema, or an Arrow struct to which every writer's schema must resolve.

    Raises ImportError without fastavro, and ValueError for a reader's schema without a column type.
    """

    def __init__(self, schemas: Schemas, reader: Schema | pa.DataType) -> None:
        try:
            import fastavro  # noqa: F401
        except ImportError as error:
            raise extras.missing("decoding Avro", "fastavro", "avro", error) from error
        self._schemas = schemas
        self._given = reader
        self.reader = parse(reader.text, reader.references) if isinstance(reader, Schema) else None
        self._type = reader if self.reader is None else arrow_type(self.reader)
        self._readers: dict[int, _Reader | str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfluentAvroDecoder, (self._schemas, self._given)

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the values, null where one is bad, and {index of a bad value: why}."""
        bad: dict[int, str] = {}
        found: dict[int, tuple[list[int], list[Any]]] = {}  # schema id → (indexes, what was parsed)
        nulls: list[int] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                if value is not None:
                    number, item = self._parsed(value)
                    indexes, items = found.setdefault(number, ([], []))
                    indexes.append(index)
                    items.append(item)
                    continue
            except ValueError as error:
                bad[index] = str(error)
            nulls.append(index)
        return self._gathered(found, nulls, bad), bad

    def _gathered(
        self, found: Mapping[int, tuple[Sequence[int], Sequence[Any]]], nulls: Sequence[int], bad: dict[int, str]
    ) -> pa.Array:
        """Return the array of the values of all schemas, in order of their indexes; adds to `bad`."""
        import pyarrow as pa

        parts, order = [pa.nulls(len(nulls), self.type)], list(nulls)
        for number, (indexes, items) in found.items():
            _, column = self._reader_of(number)
            part, unfit = build(column, items)
            bad.update({indexes[at]: f"schema {number}: {why}" for at, why in unfit.items()})
            parts.append(part)
            order += indexes
        whole = pa.concat_arrays(parts)
        if order == list(range(len(order))):
            return whole
        positions = [0] * len(order)
        for position, index in enumerate(order):
            positions[index] = position
        return whole.take(pa.array(positions, pa.int64()))

    def _parsed(self, value: bytes) -> tuple[int, Any]:
        """Return the schema's id and the parsed body. Raises ValueError for a bad value."""
        if len(value) < _HEADER or value[0] != 0:
            raise ValueError(
                "it does not begin with the byte 0 and a schema id of four bytes, as Confluent's format does"
            )
        number = int.from_bytes(value[1:_HEADER], signed=True)
        read, _ = self._reader_of(number)
        try:
            return number, read(value)
        except MemoryError:
            raise
        except Exception as error:  # invalid bytes make fastavro raise many kinds
            why = f"{type(error).__name__} {error}".strip()
            raise ValueError(f"its body is not a value of schema {number}, or is cut: {why}") from None

    def _reader_of(self, number: int) -> _Reader:
        """Return the parser and the column of values with a schema id. Raises ValueError if they cannot be read."""
        found = self._readers.get(number)
        if found is None:
            schema = self._schemas.of(number)  # ids that are not known are not kept: there may be 2³² of them
            try:
                found = self._compiled(schema)
            except ValueError as error:
                found = f"schema {number}: {error}"
            self._readers[number] = found
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _compiled(self, schema: Schema) -> _Reader:
        writer = parse(schema.text, schema.references)
        return _body_reader(plain(writer)), columns(writer, self.type, self.reader)


def _body_reader(schema: Any) -> Callable[[bytes], Any]:
    from fastavro import parse_schema, schemaless_reader

    # A record takes no bytes of its own; with it the schema may be of any type.
    whole = {
        "type": "record",
        "name": "body",
        "fields": [{"name": "value", "type": schema}],
    }
    try:
        parsed = _guarded(parse_schema(whole))
    except Exception as error:  # of fastavro's own classes
        raise ValueError(f"not an Avro schema: {type(error).__name__} {error}") from None

    def read(value: bytes) -> Any:
        stream = BytesIO(value)
        stream.seek(_HEADER)
        found = schemaless_reader(stream, parsed, None)["value"]
        if left := len(value) - stream.tell():
            raise ValueError(f"{left} bytes are left over")
        return found

    return read


def _guarded(schema: Any) -> Any:
    """Return the parsed schema with dictionaries for lists of symbols and branches: in a list a negative index from a
    value would count from the end."""
    if isinstance(schema, list):
        return {"type": "union", **dict(enumerate(map(_guarded, schema)))}
    if not isinstance(schema, dict):
        return schema
    changed = {
        key: _guarded(schema[key]) for key in ("items", "values", "type") if isinstance(schema.get(key), dict | list)
    }
    if "symbols" in schema:
        changed["symbols"] = dict(enumerate(schema["symbols"]))
    if "fields" in schema:
        changed["fields"] = [_guarded(field) for field in schema["fields"]]
    return {**schema, **changed}
