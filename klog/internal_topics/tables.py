"""Types of records: a key and a value, each after its type or version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.internal_topics.schema import Cursor, Fields, Message, message, read

_KEYS_ARE_NEVER_FLEXIBLE: Final = 99


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
    """A type of record whose key begins with the type, and whose value begins with its version, both int16."""

    def __init__(self, name: str, key: str, value: Message) -> None:
        self.name = name
        self._key = message(key, flexible=_KEYS_ARE_NEVER_FLEXIBLE)
        self._value = value

    def read_key(self, cursor: Cursor) -> Fields:
        """Return the fields of the key, after its type. Raises ValueError."""
        return read(cursor, self._key, 0)

    def read_value(self, data: bytes) -> tuple[int, Fields]:
        """Return version and fields of the value. Raises ValueError."""
        cursor = Cursor(data)
        version = cursor.number("int16")
        check_version(self.name, version, self._value.latest)
        return version, read(cursor, self._value, version)


def decode_keyed(topic: str, types: dict[int, KeyedType], key: bytes | None, value: bytes | None) -> Decoded:
    """Decode a record whose key names its type. Raises ValueError."""
    if key is None:
        raise ValueError("a record without a key")
    cursor = Cursor(key)
    number = cursor.number("int16")
    if number not in types:
        raise ValueError(f"unknown record type {number}")
    found = types[number]
    fields = found.read_key(cursor)
    version, content = (None, None) if value is None else found.read_value(value)
    return Decoded(topic, found.name, version, fields, content)


@dataclass(frozen=True, slots=True)
class FramedType:
    """A type of record whose value begins with a frame: frame version, type and version, unsigned varints."""

    name: str
    value: Message


def decode_framed(topic: str, types: dict[int, FramedType], value: bytes | None) -> Decoded:
    """Decode a record whose value has a frame. Raises ValueError. Kafka: AbstractApiMessageSerde."""
    if value is None:
        raise ValueError("a record without a value")
    cursor = Cursor(value)
    frame = cursor.uvarint()
    if frame != 1:
        raise ValueError(f"frame version {frame}, where 1 is known")
    number, version = cursor.uvarint(), cursor.uvarint()
    if number not in types:
        raise ValueError(f"unknown record type {number}, version {version}")
    found = types[number]
    check_version(found.name, version, found.value.latest)
    fields = read(cursor, found.value, version)
    if cursor.left:
        raise ValueError(f"{cursor.left} bytes after the last field of a {found.name}")
    return Decoded(topic, found.name, version, None, fields)


def check_version(name: str, version: int, latest: int) -> None:
    """Raise ValueError for an unknown version."""
    if not 0 <= version <= latest:
        raise ValueError(f"version {version} of {name}, where 0 to {latest} are known")
