"""Protobuf messages as a tree of columns: a descriptor → the Arrow type, and functions that read its values in
messages.

    int32, sint32, sfixed32 → int32     uint32, fixed32 → uint32     (the same with 64)
    float, double, bool, string, bytes  → the same      enum → string, the name; an unknown number as digits
    message → struct      repeated → list      map<K, V> → map      a field of a oneof → null unless it is set
    google.protobuf.Timestamp → timestamp[us, UTC], cut to µs; its wrappers (Int64Value, …) → the type inside, nullable

  P1  A tree is finite and small, as those of Avro (avro_types.py, A1): a message that contains itself is refused.
  P2  A message without fields has no column: its field is left out.

A field with presence (optional, oneof, a message, proto2) is null if it is not set; others have their default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from klog.decode.columns import Column, Leaf, List, Map, Struct
from klog.decode.ddl import DEPTH_MAX

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

SIZE_MAX = 10_000  # fields in a tree
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def message_column(message: Descriptor) -> Column:
    """Return the column of a message. Raises ValueError, with the field, for one that has no type."""
    column = _Builder().message(message, (), "")
    if column is None:
        raise ValueError(f"message {message.full_name} has no fields, so it has no column type")
    return column


class _Builder:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, message: Descriptor, above: tuple[str, ...], where: str) -> Column | None:
        """Return the column of a message; None if it has no fields. above: the messages that contain it. Raises
        ValueError."""
        import pyarrow as pa

        if message.full_name in above or len(above) >= DEPTH_MAX:
            raise ValueError(
                f"{where or 'the message'} is recursive: {message.full_name} contains itself, which no column type can"
            )
        names: list[tuple[str, pa.DataType]] = []
        children: list[tuple[Callable[[Any], Any], Column]] = []
        for field, column in self._columns(message, (*above, message.full_name), where):
            names.append((field.name, column.type))
            children.append((_getter(field), column))
        return Struct(pa.struct(names), children) if children else None

    def _columns(
        self, message: Descriptor, above: tuple[str, ...], where: str
    ) -> Iterator[tuple[FieldDescriptor, Column]]:
        for field in message.fields:
            self._fields += 1
            if self._fields > SIZE_MAX:
                raise ValueError(f"the message has more than {SIZE_MAX} fields, counting each use of a message")
            column = self._field(field, above, f"{where}.{field.name}".strip("."))
            if column is not None:
                yield field, column

    def _field(self, field: FieldDescriptor, above: tuple[str, ...], where: str) -> Column | None:
        import pyarrow as pa

        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key = self._one(inner.fields_by_name["key"], above, where)
            value = self._one(inner.fields_by_name["value"], above, where)
            return Map(pa.map_(key.type, value.type), value) if key is not None and value is not None else None
        column = self._one(field, above, where)
        if column is None or not field.is_repeated:
            return column
        return List(pa.list_(pa.field("element", column.type)), column)

    def _one(self, field: FieldDescriptor, above: tuple[str, ...], where: str) -> Column | None:
        """Return the column of one value of a field; None for a message without fields."""
        import pyarrow as pa

        if field.message_type is not None:
            name = field.message_type.full_name
            if name == _TIMESTAMP:
                return Leaf(pa.timestamp("us", "UTC"), _microseconds, source=pa.int64())
            if name in _WRAPPERS:
                value = field.message_type.fields_by_name["value"]
                return Leaf(_scalar(value), attrgetter("value"))
            return self.message(field.message_type, above, where)
        if field.enum_type is not None:
            values = reversed(field.enum_type.values)  # the first name of a number counts, the others are aliases
            return Leaf(pa.string(), _name_of({value.number: value.name for value in values}))
        return Leaf(_scalar(field))


def _scalar(field: FieldDescriptor) -> pa.DataType:
    import pyarrow as pa

    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.uint32(),
        field.CPPTYPE_UINT64: pa.uint64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
    }[field.cpp_type]


def _getter(field: FieldDescriptor) -> Callable[[Any], Any]:
    name = field.name
    if not field.has_presence:
        return attrgetter(name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _name_of(names: dict[int, str]) -> Callable[[int], str]:
    return lambda number: names.get(number) or str(number)


def _microseconds(timestamp: Any) -> int:
    microseconds: int = timestamp.seconds * 1_000_000 + timestamp.nanos // 1000
    return microseconds
