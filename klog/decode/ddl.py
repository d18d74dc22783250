"""Schemas of decoded values: DDL or JSON as Spark writes them → Arrow types, and back. Needs no Spark.

    schema := field ("," field)*                            id BIGINT, delay DOUBLE, tags ARRAY<STRING>
    field  := name ":"? type ("NOT" "NULL")? ("COMMENT" text)?
    type   := BIGINT | … | DECIMAL(p,s) | ARRAY<type> | MAP<STRING, type> | STRUCT<schema>
    JSON   := {"type":"struct","fields":[{"name":"id","type":"long"}, …]}       DataFrame.schema.json()

Names are bare words or `in backquotes`. Every field is nullable, as in Spark's from_json: NOT NULL is parsed and has
no effect.
Arrow types are those to which Spark converts its own: timestamps in µs, the items of a list named `element`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

DEPTH_MAX = 50
_TOKENS = re.compile(r"""\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(\w+)|([<>(),:]))""")
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_EXAMPLE = "'id BIGINT, delay DOUBLE, tags ARRAY<STRING>'"


def parse(text: str) -> pa.DataType:
    """Return the Arrow struct of a schema, in DDL or as the JSON of a Spark schema. Raises ValueError."""
    try:
        if not text.lstrip().startswith("{"):
            return _Parser(text).whole()
        given = json.loads(text)
        if not isinstance(given, dict) or given.get("type") != "struct":
            raise ValueError('JSON of a Spark schema begins with {"type":"struct","fields":[')
        return _from_json(given, 0)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{error}; expected like {_EXAMPLE}, or the JSON of a Spark schema") from None


def ddl(kind: pa.DataType) -> str:
    """Return the DDL of an Arrow type. Raises ValueError for one that Spark's schemas do not have."""
    import pyarrow as pa

    for name, known in _simple().items():
        if kind.equals(known):
            return name
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl(kind.key_type)},{ddl(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(field.name)}:{ddl(field.type)}' for field in kind)}>"
    raise ValueError(f"Arrow type {kind} has no DDL")


def struct(fields: Iterable[tuple[str, pa.DataType]]) -> pa.DataType:
    """Return a struct of nullable fields. Raises ValueError without fields, or for a name given twice."""
    import pyarrow as pa

    listed = list(fields)
    names = [name for name, _ in listed]
    if not names:
        raise ValueError("a struct needs a field")
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"field {name!r} is named twice")
    return pa.struct(listed)


def array(item: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.list_(pa.field("element", item))


def mapping(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if not pa.types.is_string(key):
        raise ValueError(f"the keys of a map are STRING, not {ddl(key).upper()}")
    return pa.map_(key, item)


def decimal(precision: int, scale: int) -> pa.DataType:
    import pyarrow as pa

    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise ValueError(f"DECIMAL({precision},{scale}) is not between DECIMAL(1,0) and DECIMAL(38,38)")
    return pa.decimal128(precision, scale)


def _simple() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


def _named(word: str) -> pa.DataType:
    name = word.lower()
    found = _simple().get(_ALIASES.get(name, name))
    if found is None:
        raise ValueError(f"unknown type {word!r}; known: {', '.join(_simple())}, decimal, array, map, struct")
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _Parser:
    """Parses one DDL text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []  # (kind, text): kinds are name, text, word, symbol
        at = 0
        while at < len(text.rstrip()):
            match = _TOKENS.match(text, at)
            if match is None or match.lastindex is None:
                raise ValueError(f"{text[at : at + 20].strip()!r} is not understood at character {at}")
            self._tokens.append((("name", "text", "word", "symbol")[match.lastindex - 1], match[match.lastindex]))
            at = match.end()
        self._at = 0
        self._depth = 0

    def whole(self) -> pa.DataType:
        if [text.lower() for _, text in self._tokens[:2]] == ["struct", "<"]:
            found = self._type()
        else:
            found = struct(self._list(self._field))
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at][1]!r} is left over after the schema")
        return found

    def _list(self, item: Callable[[], Any]) -> list[Any]:
        found = [item()]
        while self._skip(","):
            found.append(item())
        return found

    def _field(self) -> tuple[str, pa.DataType]:
        kind, text = self._next("a field's name")
        if kind not in ("name", "word"):
            raise ValueError(f"{text!r} is not a field's name")
        name = text[1:-1].replace("``", "`") if kind == "name" else text
        self._skip(":")
        found = self._type()
        if self._skip("not"):
            self._expect("null")
        if self._skip("comment") and self._next("a text")[0] != "text":
            raise ValueError(f"the COMMENT of field {name!r} is not a text in quotes")
        return name, found

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"types are nested more than {DEPTH_MAX} deep")
        word = self._next("a type")[1]
        match _ALIASES.get(word.lower(), word.lower()):
            case "decimal":
                found = decimal(*(self._numbers() if self._skip("(") else (10, 0)))
            case "array":
                found = array(self._inside(self._type))
            case "map":
                found = mapping(*self._inside(self._pair))
            case "struct":
                found = struct(self._inside(lambda: self._list(self._field)))
            case _:
                found = _named(word)
        self._depth -= 1
        return found

    def _pair(self) -> tuple[pa.DataType, pa.DataType]:
        key = self._type()
        self._expect(",")
        return key, self._type()

    def _inside(self, inner: Callable[[], Any]) -> Any:
        self._expect("<")
        found = inner()
        self._expect(">")
        return found

    def _numbers(self) -> tuple[int, int]:
        precision = self._number()
        scale = self._number() if self._skip(",") else 0
        self._expect(")")
        return precision, scale

    def _number(self) -> int:
        text = self._next("a number")[1]
        if not re.fullmatch("[0-9]{1,3}", text):
            raise ValueError(f"{text!r} is not a number of digits")
        return int(text)

    def _next(self, expected: str) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise ValueError(f"the schema ends where {expected} is expected")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, wanted: str) -> bool:
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("word", "symbol") and text.lower() == wanted:
                self._at += 1
                return True
        return False

    def _expect(self, wanted: str) -> None:
        if not self._skip(wanted):
            seen = repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "the end"
            raise ValueError(f"{wanted.upper()!r} is expected, not {seen}")


def _from_json(given: Any, depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise ValueError(f"types are nested more than {DEPTH_MAX} deep")
    try:
        if isinstance(given, str):
            match = re.fullmatch(r"decimal\(([0-9]{1,3}),([0-9]{1,3})\)", given.replace(" ", ""))
            if match:
                return decimal(int(match[1]), int(match[2]))
            return decimal(10, 0) if given == "decimal" else _named(given)
        match given["type"]:
            case "struct":
                return struct((str(each["name"]), _from_json(each["type"], depth + 1)) for each in given["fields"])
            case "array":
                return array(_from_json(given["elementType"], depth + 1))
            case "map":
                return mapping(_from_json(given["keyType"], depth + 1), _from_json(given["valueType"], depth + 1))
    except (KeyError, TypeError):
        pass
    raise ValueError(f"{json.dumps(given)[:80]} is not a type of a Spark schema")
