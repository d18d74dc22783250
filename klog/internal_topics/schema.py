"""Reads Kafka's generated messages: schemas as text, and one function that walks over bytes by such a schema.

    schema  := field*
    field   := name ":" type ["@" versions] ["#" tag]        versions := N | N "-" M | N "+"; without it: all
    type    := int8 | int16 | uint16 | int32 | int64 | float64 | bool | uuid | string | bytes
             | "[" type "]"        array
             | "{" field* "}"      struct
             | "?{" field* "}"     struct after an int8: negative if it is null

    bytes of a struct := field* [tags]     tags := count:uvarint (tag:uvarint size:uvarint byte*)*
    string, bytes, array: a length before it, int16 for string and int32 for the others; -1: null
    in a flexible version: an unsigned varint of the length + 1 instead, and each struct ends with tags

Numbers are big-endian. A tagged field that is absent is left out of the result, and so is one of an unknown tag. A null
is accepted everywhere. Each entry of an array has at least a byte, so the result is at most a multiple of the bytes.
Text that is not UTF-8 has backslash escapes. Kafka: MessageDataGenerator, ByteBufferAccessor.
"""

from __future__ import annotations

import re
import struct
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Any, Final

VERSION_MAX: Final = 32767
_TOKEN: Final = re.compile(r"\s*(\w+|\?\{|[:@#{}\[\]+-])")
_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}
_VARINT_BYTES_MAX: Final = 5
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct, in the versions since to until. tag: of a tagged field."""

    name: str
    type: Type
    since: int
    until: int
    tag: int | None


@dataclass(frozen=True, slots=True)
class Array:
    """Entries of one type."""

    of: Type


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order. optional: a byte before it tells whether it is null."""

    fields: tuple[Field, ...]
    optional: bool = False


Type = str | Array | Struct


@dataclass(frozen=True, slots=True)
class Message:
    """A struct with versions 0 to `latest`, flexible from the version `flexible` on."""

    struct: Struct
    latest: int
    flexible: int


def message(text: str, *, latest: int = 0, flexible: int = 0) -> Message:
    """Return the message that a schema describes."""
    return Message(Struct(_parse_fields(_tokens(text))), latest, flexible)


def _tokens(text: str) -> list[str]:
    """Return the tokens in reverse, so that pop() takes the next."""
    return _TOKEN.findall(text)[::-1]


def _parse_fields(tokens: list[str]) -> tuple[Field, ...]:
    found = []
    while tokens and tokens[-1] != "}":
        name, _ = tokens.pop(), tokens.pop()
        kind, since, until, tag = _parse_type(tokens), 0, VERSION_MAX, None
        if tokens and tokens[-1] == "@":
            tokens.pop()
            since = until = int(tokens.pop())
            if tokens and tokens[-1] == "+":
                tokens.pop()
                until = VERSION_MAX
            elif tokens and tokens[-1] == "-":
                tokens.pop()
                until = int(tokens.pop())
        if tokens and tokens[-1] == "#":
            tokens.pop()
            tag = int(tokens.pop())
        found.append(Field(name, kind, since, until, tag))
    return tuple(found)


def _parse_type(tokens: list[str]) -> Type:
    token = tokens.pop()
    if token == "[":
        array = Array(_parse_type(tokens))
        tokens.pop()
        return array
    if token in ("{", "?{"):
        found = Struct(_parse_fields(tokens), token == "?{")
        tokens.pop()
        return found
    return token


class Cursor:
    """Takes bytes one after the other. Raises ValueError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that were not taken yet."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if not 0 <= size <= self.left:
            raise ValueError(f"{size} bytes expected at byte {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, kind: str) -> Any:
        """Return a number or bool of a fixed size."""
        form = _NUMBERS[kind]
        return form.unpack(self.take(form.size))[0]

    def uvarint(self) -> int:
        """Return an unsigned varint of 32 bits."""
        found = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return found
        raise ValueError(f"a varint of more than {_VARINT_BYTES_MAX} bytes before byte {self._at}")

    def length(self, flexible: bool, kind: str) -> int:
        """Return the length before a string, bytes or an array; -1: null."""
        found: int = self.uvarint() - 1 if flexible else self.number(kind)
        if not -1 <= found <= self.left:
            raise ValueError(f"{found} bytes or entries expected at byte {self._at} of {len(self._data)}")
        return found


def read(cursor: Cursor, what: Message, version: int) -> Fields:
    """Return the fields of a message by name: ints, floats, bools, str, bytes, lists and dicts; ids of topics and
    directories in Kafka's 22 characters. Raises ValueError for invalid bytes."""
    return _Walk(cursor, version, version >= what.flexible).fields(what.struct)


@dataclass(slots=True)
class _Walk:
    cursor: Cursor
    version: int
    flexible: bool

    def fields(self, kind: Struct) -> Fields:
        found: Fields = {}
        tagged = {}
        for field in kind.fields:
            if field.since <= self.version <= field.until:
                if field.tag is None:
                    found[field.name] = self.value(field.type)
                else:
                    tagged[field.tag] = field
        if self.flexible:
            for _ in range(self.cursor.uvarint()):
                tag, part = self.cursor.uvarint(), self.cursor.take(self.cursor.uvarint())
                if tag in tagged:
                    walk = _Walk(Cursor(part), self.version, True)
                    found[tagged[tag].name] = walk.value(tagged[tag].type)
        return found

    def value(self, kind: Type) -> Any:
        cursor = self.cursor
        if isinstance(kind, Struct):
            return None if kind.optional and cursor.number("int8") < 0 else self.fields(kind)
        if isinstance(kind, Array):
            count = cursor.length(self.flexible, "int32")
            return None if count < 0 else [self.value(kind.of) for _ in range(count)]
        if kind in _NUMBERS:
            return cursor.number(kind)
        if kind == "uuid":
            return encode_id(uuid.UUID(bytes=cursor.take(16)))
        size = cursor.length(self.flexible, "int16" if kind == "string" else "int32")
        if size < 0:
            return None
        data = cursor.take(size)
        return data if kind == "bytes" else data.decode(errors="backslashreplace")


def encode_id(value: uuid.UUID) -> str:
    """Return an id in Kafka's 22 characters."""
    return urlsafe_b64encode(value.bytes)[:22].decode()
