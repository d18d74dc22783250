"""Types of records: how key and value begin with a type or a version. klog.protocol has the schemas of the fields."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

from klog.arguments import whole
from klog.errors import CorruptFrame
from klog.protocol import decode_fields, encode_fields, versions_of
from klog.values import dataclass

Fields = dict[str, Any]

_INT16: Final = struct.Struct(">h")
_FRAME_VERSION: Final = 1
_VARINT_BYTES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record of an internal topic.

    type: its name, such as "offset_commit" or "partition_record". version: of the value; None for a tombstone. key,
    value: fields by name; key is None in topics whose records have none, value is None for a tombstone.
    """

    topic: str
    type: str
    version: int | None
    key: Fields | None
    value: Fields | None


class KeyedType:
    """A type of record whose key begins with the type, and whose value begins with its version, both int16.

    message: the prefix of the names of its messages, before Key and Value; None: from the name of the type.
    """

    __slots__ = ("_head", "_key", "_value", "name", "number")

    def __init__(self, number: int, name: str, message: str | None = None) -> None:
        self.number, self.name, self._head = number, name, _INT16.pack(number)
        message = message or _camel(name)
        self._key, self._value = f"{message}Key", f"{message}Value"

    @property
    def latest(self) -> int:
        """The last version of the value."""
        return versions_of(self._value)[1]

    def read_key(self, key: bytes) -> Fields:
        """Return the fields of the key. Raises ValueError."""
        return _decoded(self._key, 0, key, _INT16.size)[0]

    def read_value(self, value: bytes) -> tuple[int, Fields]:
        """Return version and fields of the value. Raises ValueError."""
        version = _int16(value)
        _check_version(self.name, self._value, version)
        return version, _decoded(self._value, version, value, _INT16.size)[0]

    def key(self, fields: Fields) -> bytes:
        """Return the key. Raises what encode_fields() raises."""
        return encode_fields(self._key, 0, fields, self._head)

    def value(self, version: int, fields: Fields) -> bytes:
        """Return the value. Raises what encode_fields() raises."""
        return encode_fields(self._value, version, fields, _version_head(version))


class FramedType:
    """A type of record whose value begins with a frame: frame version, type and version, unsigned varints."""

    __slots__ = ("_value", "name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self._value = _camel(name)

    @property
    def latest(self) -> int:
        """The last version of the value."""
        return versions_of(self._value)[1]

    def read_value(self, version: int, value: bytes, position: int) -> Fields:
        """Return the fields of the value, which begin at a position. Raises ValueError."""
        _check_version(self.name, self._value, version)
        fields, after = _decoded(self._value, version, value, position)
        if after != len(value):
            raise ValueError(f"{len(value) - after} bytes after the last field of a {self.name}")
        return fields

    def value(self, version: int, fields: Fields) -> bytes:
        """Return the value. Raises what encode_fields() raises."""
        return encode_fields(self._value, version, fields, _frame(self.number, version))


def keyed(names: dict[int, str]) -> dict[int, KeyedType]:
    """Return the types by number, for their names."""
    return {number: KeyedType(number, name) for number, name in names.items()}


def framed(names: dict[int, str]) -> dict[int, FramedType]:
    """Return the types by number, for their names."""
    return {number: FramedType(number, name) for number, name in names.items()}


def decode_keyed(topic: str, types: dict[int, KeyedType], key: bytes | None, value: bytes | None) -> Decoded:
    """Decode a record whose key names its type. Raises ValueError."""
    if key is None:
        raise ValueError("a record without a key")
    number = _int16(key)
    if number not in types:
        raise ValueError(f"unknown record type {number}")
    found = types[number]
    fields = found.read_key(key)
    version, content = (None, None) if value is None else found.read_value(value)
    return Decoded(topic, found.name, version, fields, content)


def decode_framed(topic: str, types: dict[int, FramedType], value: bytes | None) -> Decoded:
    """Decode a record whose value has a frame. Raises ValueError. Kafka: AbstractApiMessageSerde."""
    if value is None:
        raise ValueError("a record without a value")
    frame, position = _uvarint(value, 0)
    if frame != _FRAME_VERSION:
        raise ValueError(f"frame version {frame}, where {_FRAME_VERSION} is known")
    number, position = _uvarint(value, position)
    version, position = _uvarint(value, position)
    if number not in types:
        raise ValueError(f"unknown record type {number}, version {version}")
    found = types[number]
    return Decoded(topic, found.name, version, None, found.read_value(version, value, position))


@cache
def _version_head(version: int) -> bytes:
    return _INT16.pack(whole("version", version, 0, 0x7FFF))


@cache
def _frame(number: int, version: int) -> bytes:
    return bytes((_FRAME_VERSION, number, whole("version", version, 0, 0x7F)))  # varints of a byte each


def _decoded(message: str, version: int, data: bytes, position: int) -> tuple[Fields, int]:
    try:
        return decode_fields(message, version, data, position)
    except CorruptFrame as error:
        raise ValueError(str(error)) from None


def _check_version(name: str, message: str, version: int) -> None:
    low, high = versions_of(message)
    if not low <= version <= high:
        raise ValueError(f"version {version} of {name}, where {low} to {high} are known")


def _int16(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise ValueError(f"{_INT16.size} bytes expected at byte 0 of {len(data)}")
    return int(_INT16.unpack_from(data)[0])


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned varint at a position, and the position after it. Raises ValueError."""
    found = 0
    for index in range(_VARINT_BYTES_MAX):
        if position == len(data):
            raise ValueError(f"1 bytes expected at byte {position} of {len(data)}")
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return found, position
    raise ValueError(f"a varint of more than {_VARINT_BYTES_MAX} bytes before byte {position}")


def _camel(name: str) -> str:
    return name.title().replace("_", "")
