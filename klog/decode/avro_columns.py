"""Avro schema resolution, writer → reader, as a tree of columns: values that were parsed by the writer's schema become
columns of the reader's types.

The parser reads each value by the writer's schema alone, so that it checks every byte; a field that the reader does not
have is dropped here. The rules are those of the specification: fields match by name or alias, a missing one takes its
default, names of records, enums and fixed must agree, int → long → float → double and string ↔ bytes are promoted. All
columns are nullable, so a null for a reader that allows none is null.

The reader may also be an Arrow type alone (from DDL): fields match by name, a missing one is null, and times are
converted from the writer's unit.
"""

from __future__ import annotations

import decimal
import json
import uuid
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from klog.decode.avro_types import NO_DEFAULT, AvroField, AvroType
from klog.decode.columns import UNFIT, Column, Leaf, List, Map, Struct
from klog.decode.ddl import ddl

if TYPE_CHECKING:
    import pyarrow as pa

_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
_INTS = {"int": 32, "long": 64}
_DECIMAL_MAX = 10**38
_EXACT = decimal.Context(prec=77)


def columns(writer: AvroType, kind: pa.DataType, reader: AvroType | None, where: str = "") -> Column:
    """Return the column of type `kind` for values of the writer's schema. Raises ValueError with the field for schemas
    that do not resolve.

    reader: the schema that `kind` is the Arrow type of; None if the type is all that is known.
    """
    import pyarrow as pa

    if reader is not None:
        _check(writer, reader, where)
    types = pa.types
    if writer.kind == "null":
        return Leaf(kind)
    if types.is_struct(kind) and writer.kind == "record":
        return _struct(writer, kind, reader, where)
    if types.is_list(kind) and writer.kind == "array":
        return List(kind, columns(_item(writer), kind.value_type, reader and _item(reader), f"{where}[]"))
    if types.is_map(kind) and writer.kind == "map":
        return Map(kind, columns(_item(writer), kind.item_type, reader and _item(reader), f"{where}{{}}"))
    found = None
    if not types.is_nested(kind):
        found = _time(writer, kind, reader) if types.is_temporal(kind) else _leaf(writer, kind, reader)
    if found is None:
        raise ValueError(
            f"{where or 'the value'} is {writer} in the writer's schema, which does not become {ddl(kind)}"
        )
    return found


def _item(avro: AvroType) -> AvroType:
    assert avro.item is not None
    return avro.item


def _check(writer: AvroType, reader: AvroType, where: str) -> None:
    """Raise ValueError unless the types match. Their children are not compared."""
    agree = writer.kind == reader.kind or (writer.kind, reader.kind) in _PROMOTIONS
    if writer.kind == "null":
        agree = reader.null_at is not None
    if not agree:
        raise ValueError(
            f"{where or 'the value'} is {writer} in the writer's schema and {reader} in the reader's, which do not "
            f"match"
        )
    if writer.kind in ("record", "enum", "fixed") and not _same_name(writer, reader):
        raise ValueError(
            f"{where or 'the value'} is {writer} in the writer's schema and {reader} in the reader's: give the "
            f"reader's the alias {writer.name!r}"
        )
    if writer.kind == "fixed" and writer.length != reader.length:
        raise ValueError(
            f"{where or 'the value'} has {writer.length} bytes in the writer's schema, not {reader.length}"
        )
    if "decimal" in (writer.logical, reader.logical) and (writer.logical is None or str(writer) != str(reader)):
        raise ValueError(f"{where or 'the value'} is {writer} in the writer's schema and {reader} in the reader's")


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    short = writer.name.rpartition(".")[2]
    return short == reader.name.rpartition(".")[2] or not {writer.name, short}.isdisjoint(reader.aliases)


# ---- records ---------------------------------------------------------------------------------------------------------


def _struct(writer: AvroType, kind: pa.DataType, reader: AvroType | None, where: str) -> Column:
    children: list[tuple[Callable[[Any], Any], Column]] = []
    taken = {each.name: each for each in writer.fields}
    for number, field in enumerate(kind):
        wanted = reader.fields[number] if reader is not None else None
        names = (field.name, *(wanted.aliases if wanted is not None else ()))
        found = next((taken[name] for name in names if name in taken), None)
        path = f"{where}.{field.name}".strip(".")
        if found is not None:
            inner = columns(found.type, field.type, wanted.type if wanted is not None else None, path)
            children.append((itemgetter(found.name), inner))
        elif wanted is None:
            children.append((_constant(None), Leaf(field.type)))
        else:
            children.append(_default(wanted, field.type, path))
    return Struct(kind, children)


def _default(wanted: AvroField, kind: pa.DataType, where: str) -> tuple[Callable[[Any], Any], Column]:
    """Return the source and the column of a field that the writer does not have: its default. Raises ValueError."""
    if wanted.default is NO_DEFAULT:
        raise ValueError(f"{where} is not in the writer's schema, and has no default in the reader's")
    column = columns(wanted.type, kind, wanted.type, where)
    try:
        value = _default_value(wanted.type, wanted.default)
        column.array([value])
    except UNFIT as error:
        raise ValueError(f"the default of {where} does not have its type: {error}") from None
    return _constant(value), column


def _check_default(avro: AvroType, default: Any) -> None:
    expected = {"bytes": str, "fixed": str, "array": list, "map": dict, "record": dict}.get(avro.kind)
    if default is None or default is NO_DEFAULT or not isinstance(default, expected or (bool, int, float, str)):
        raise ValueError(f"{json.dumps(default)[:80] if default is not NO_DEFAULT else 'nothing'} is not a {avro}")


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _default_value(avro: AvroType, default: Any) -> Any:
    """Return a default as the parser would have read it."""
    if default is None and avro.null_at is not None:
        return None
    _check_default(avro, default)
    match avro.kind:
        case "bytes" | "fixed":
            return default.encode("latin-1")
        case "array":
            return [_default_value(_item(avro), each) for each in default]
        case "map":
            return {str(key): _default_value(_item(avro), each) for key, each in default.items()}
        case "record":
            return {each.name: _default_value(each.type, default.get(each.name, each.default)) for each in avro.fields}
    return default


# ---- leaves ----------------------------------------------------------------------------------------------------------


def _time(writer: AvroType, kind: pa.DataType, reader: AvroType | None) -> Column | None:
    """Return the column of dates and times, which the parser returns as integers; None if they do not match."""
    import pyarrow as pa

    # Integers without a logical type have the unit of the reader's.
    logical = writer.logical or (reader.logical if reader is not None else None)
    if logical is None or writer.kind not in _INTS:
        return None
    if pa.types.is_date(kind):
        return Leaf(kind, source=pa.int32()) if logical == "date" else None
    if logical == "date" or logical.startswith("local-") == (kind.tz is not None):
        return None
    return Leaf(kind, source=pa.timestamp("ms" if logical.endswith("millis") else "us", kind.tz))


def _leaf(writer: AvroType, kind: pa.DataType, reader: AvroType | None) -> Column | None:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return Leaf(kind, _decimal_of(writer.scale)) if writer.logical == "decimal" else None
    if writer.kind in _INTS and (kind in (pa.int32(), pa.int64()) and kind.bit_width >= _INTS[writer.kind]):
        return Leaf(kind, source=pa.int32() if writer.kind == "int" else None)
    if writer.kind in _INTS and pa.types.is_floating(kind):
        return Leaf(kind, _float_of(_INTS[writer.kind]))
    if pa.types.is_string(kind):
        text: dict[str, Callable[[Any], Any] | None] = {"string": None, "bytes": bytes.decode, "enum": None}
        if writer.kind == "enum" and reader is not None:
            return Leaf(kind, _symbol_of(reader))
        if writer.kind == "fixed" and writer.logical == "uuid":
            return Leaf(kind, _uuid_of)
        return Leaf(kind, text[writer.kind]) if writer.kind in text else None
    if pa.types.is_binary(kind):
        data: dict[str, Callable[[Any], Any] | None] = {"bytes": None, "fixed": None, "string": str.encode}
        return Leaf(kind, data[writer.kind]) if writer.kind in data else None
    same = {"boolean": (pa.bool_(),), "float": (pa.float32(), pa.float64()), "double": (pa.float64(),)}
    return Leaf(kind) if kind in same.get(writer.kind, ()) else None


def _decimal_of(scale: int) -> Callable[[bytes], decimal.Decimal]:
    def convert(data: bytes) -> decimal.Decimal:
        unscaled = int.from_bytes(data, signed=True)
        # The time to convert an int to decimal digits grows with the square of its length.
        if not data or abs(unscaled) >= _DECIMAL_MAX:
            raise ValueError(f"{len(data)} bytes are not a decimal of at most 38 digits")
        return decimal.Decimal(unscaled).scaleb(-scale, _EXACT)

    return convert


def _float_of(bits: int) -> Callable[[int], float]:
    high = 1 << bits - 1

    def convert(number: int) -> float:
        if not -high <= number < high:
            raise ValueError(f"{number} has more than {bits} bits")
        return float(number)

    return convert


def _symbol_of(reader: AvroType) -> Callable[[str], str]:
    known, default = frozenset(reader.symbols), reader.symbol_default

    def convert(symbol: str) -> str:
        if symbol in known:
            return symbol
        if default is None:
            raise ValueError(f"the reader's enum {reader.name} has no symbol {symbol!r} and no default")
        return default

    return convert


def _uuid_of(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))
