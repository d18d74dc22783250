"""Avro schemas as a tree with all names resolved. The Arrow type, the resolution and the parser are made from it.

    parse(text, references)     JSON of a schema, after the schemas whose names it uses → AvroType

  A1  A tree is finite and small: a recursive schema is refused, because it has no Arrow type and its values could nest
      as deep as they are long; so is a schema with more than SIZE_MAX types, because names that use names can stand
      for 2ⁿ fields.
  A2  The items of an array take at least one byte each. Otherwise a few bytes could stand for 2⁶² items.
  A3  The parser gets no logical types: bytes of a decimal are converted when their number is known to be small, and
      times stay integers until Arrow has them.

Logical types that are not listed in LOGICAL, or are not valid, are ignored, as the specification asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from klog.decode.ddl import DEPTH_MAX, array, decimal, mapping, struct
from klog.values import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa

SIZE_MAX = 10_000  # types in a tree
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NO_DEFAULT = object()
LOGICAL = {
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}


@dataclass(frozen=True)
class AvroField:
    """default: its JSON, or NO_DEFAULT."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = NO_DEFAULT


@dataclass(frozen=True)
class AvroType:
    """kind: a primitive, record, enum, array, map, fixed, or union of more than one type that is not null.

    null_at: for a type in a union with null alone, the index of null in it; None for other types. item: of an array or
    a map. logical, precision, scale: of LOGICAL. size, depth: of the tree, in types. least: the minimum of bytes that a
    value takes.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    null_at: int | None = None
    fields: tuple[AvroField, ...] = ()
    branches: tuple[AvroType, ...] = ()
    item: AvroType | None = None
    symbols: tuple[str, ...] = ()
    symbol_default: str | None = None
    length: int = 0
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 1
    depth: int = 1
    least: int = 0

    def __str__(self) -> str:
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "union":
            return f"union of {', '.join(map(str, self.branches))}"
        return self.logical or (f"{self.kind} {self.name}" if self.name else self.kind)


def parse(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the tree of a schema; references: the schemas with the names that it uses, in order. Raises ValueError."""
    names: dict[str, AvroType] = {}
    try:
        for each in references:
            _Parser(names).type(json.loads(each), "", 0)
        return _Parser(names).type(json.loads(text), "", 0)
    except RecursionError:
        raise ValueError(f"the schema is nested more than {DEPTH_MAX} deep") from None
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"not an Avro schema: {type(error).__name__} {error}") from None


def arrow_type(avro: AvroType, where: str = "") -> pa.DataType:
    """Return the Arrow type of the values, all nullable, as Spark's from_avro maps them. Raises ValueError for a schema
    that has none."""
    import pyarrow as pa

    utc = pa.timestamp("us", "UTC")
    of_logical = {
        "date": pa.date32(),
        "timestamp-millis": utc,
        "timestamp-micros": utc,
        "local-timestamp-millis": pa.timestamp("us"),
        "local-timestamp-micros": pa.timestamp("us"),
        "uuid": pa.string(),
    }
    simple = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "fixed": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
    }
    match avro.kind:
        case "record":
            if not avro.fields:
                raise ValueError(f"{where or 'the schema'} is a record without fields, which has no column type")
            return struct((each.name, arrow_type(each.type, f"{where}.{each.name}".strip("."))) for each in avro.fields)
        case "array":
            return array(arrow_type(_item(avro), f"{where}[]"))
        case "map":
            return mapping(pa.string(), arrow_type(_item(avro), f"{where}{{}}"))
        case "union" | "null":
            raise ValueError(
                f"{where or 'the schema'} is a {avro}: only unions of null and one other type have a column type; "
                f"name a schema without it"
            )
    if avro.logical == "decimal":
        return decimal(avro.precision, avro.scale)
    return of_logical[avro.logical] if avro.logical else simple[avro.kind]


def plain(avro: AvroType) -> Any:
    """Return the schema for the parser, as parsed JSON: without logical types (A3), and with each name used once."""
    return _plain(avro, count())


def _plain(avro: AvroType, numbers: Iterable[int]) -> Any:
    if avro.null_at is not None:
        other = _plain(replace(avro, null_at=None), numbers)
        return ["null", other] if avro.null_at == 0 else [other, "null"]
    match avro.kind:
        case "record":
            fields = [{"name": each.name, "type": _plain(each.type, numbers)} for each in avro.fields]
            return {"type": "record", "name": _name(numbers), "fields": fields}
        case "enum":
            return {"type": "enum", "name": _name(numbers), "symbols": list(avro.symbols)}
        case "fixed":
            return {"type": "fixed", "name": _name(numbers), "size": avro.length}
        case "array":
            return {"type": "array", "items": _plain(_item(avro), numbers)}
        case "map":
            return {"type": "map", "values": _plain(_item(avro), numbers)}
        case "union":
            return [_plain(each, numbers) for each in avro.branches]
    return avro.kind


def _name(numbers: Iterable[int]) -> str:
    return f"n{next(iter(numbers))}"


def _item(avro: AvroType) -> AvroType:
    assert avro.item is not None
    return avro.item


class _Parser:
    """Parses one schema text; adds its names to `names`."""

    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names
        self._open: set[str] = set()  # records whose fields are being read

    def type(self, given: Any, space: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise RecursionError
        found = self._type(given, space, depth)
        if found.depth > DEPTH_MAX:
            raise RecursionError
        if found.size > SIZE_MAX:
            raise ValueError(f"the schema has more than {SIZE_MAX} types, counting each use of a name")
        return found

    def _type(self, given: Any, space: str, depth: int) -> AvroType:
        if isinstance(given, str):
            return self._named(given, space)
        if isinstance(given, list):
            return self._union(given, space, depth)
        kind = given["type"]
        if not isinstance(kind, str):  # {"type": {"type": …}}
            return self.type(kind, space, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(given, space, depth)
            case "enum" | "fixed":
                return self._add(given, space, self._enum(given) if kind == "enum" else _fixed(given))
            case "array":
                item = self.type(given["items"], space, depth + 1)
                if item.least == 0:
                    raise ValueError(f"an array of {item}, whose items take no bytes, is not supported")
                return _above([item], kind="array", item=item, least=1)
            case "map":
                item = self.type(given["values"], space, depth + 1)
                return _above([item], kind="map", item=item, least=1)
        found = self._named(kind, space)
        return _logical(found, given) if kind in PRIMITIVES else found

    def _named(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name, least={"null": 0, "float": 4, "double": 8}.get(name, 1))
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._open or (full not in self._names and name in self._open):
            raise ValueError(f"the schema is recursive: {full} contains itself, which no column type can")
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise ValueError(f"type {full!r} is not known")
        return found

    def _union(self, given: list[Any], space: str, depth: int) -> AvroType:
        branches = [self.type(each, space, depth + 1) for each in given]
        if any(each.kind == "union" or each.null_at is not None for each in branches):
            raise ValueError("a union in a union is not Avro")
        nulls = [number for number, each in enumerate(branches) if each.kind == "null"]
        if len(branches) == 2 and len(nulls) == 1:
            return replace(branches[1 - nulls[0]], null_at=nulls[0], least=1)
        return _above(branches, kind="union", branches=tuple(branches), least=1)

    def _record(self, given: Mapping[str, Any], space: str, depth: int) -> AvroType:
        full = _full_name(given, space)
        if full in self._open:
            raise ValueError(f"the schema is recursive: {full} contains itself, which no column type can")
        self._open.add(full)
        inner = full.rpartition(".")[0]
        fields = tuple(
            AvroField(
                str(each["name"]),
                self.type(each["type"], inner, depth + 1),
                _texts(each.get("aliases") or ()),
                each.get("default", NO_DEFAULT),
            )
            for each in given["fields"]
        )
        self._open.remove(full)
        names = [each.name for each in fields]
        if len(set(names)) < len(names):
            raise ValueError(f"record {full} has two fields of one name")
        least = sum(each.type.least for each in fields)
        record = _above([each.type for each in fields], kind="record", fields=fields, least=least)
        return self._add(given, space, record)

    def _enum(self, given: Mapping[str, Any]) -> AvroType:
        default = given.get("default")
        return AvroType("enum", symbols=_texts(given["symbols"]), symbol_default=default, least=1)

    def _add(self, given: Mapping[str, Any], space: str, found: AvroType) -> AvroType:
        full = _full_name(given, space)
        if full in self._names:
            raise ValueError(f"name {full!r} is defined twice")
        aliases = _texts(given.get("aliases") or ())
        found = self._names[full] = replace(_logical(found, given), name=full, aliases=aliases)
        return found


def _above(children: Sequence[AvroType], **more: Any) -> AvroType:
    """Return a type with these children."""
    size, depth = 1 + sum(each.size for each in children), 1 + max((each.depth for each in children), default=0)
    return AvroType(size=size, depth=depth, **more)


def _full_name(given: Mapping[str, Any], space: str) -> str:
    name, own = given["name"], given.get("namespace")
    space = space if own is None else own
    if not isinstance(name, str) or not isinstance(space, str) or not name:
        raise ValueError("a name of the schema is not text")
    return name if "." in name or not space else f"{space}.{name}"


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ValueError(f"{given!r} is not a list of names")
    return tuple(given)


def _fixed(given: Mapping[str, Any]) -> AvroType:
    length = given["size"]
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length < 1 << 31:
        raise ValueError(f"{length!r} is not the size of a fixed")
    return AvroType("fixed", length=length, least=length)


def _logical(found: AvroType, given: Mapping[str, Any]) -> AvroType:
    logical = given.get("logicalType")
    if not isinstance(logical, str) or found.kind not in LOGICAL.get(logical, ()):
        return found
    if logical == "uuid" and found.kind == "fixed" and found.length != 16:
        return found
    if logical != "decimal":
        return replace(found, logical=logical)
    precision, scale = given.get("precision"), given.get("scale", 0)
    if (
        not isinstance(precision, int)
        or not isinstance(scale, int)
        or not 0 <= scale <= precision <= 38
        or not precision
    ):
        return found
    return replace(found, logical=logical, precision=precision, scale=scale)
