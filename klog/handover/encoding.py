"""Writes the records of Kafka's metadata log, as klog.internal_topics reads them.

    value := frame_version:uvarint=1 type:uvarint version:uvarint field* tags

A field without a tag must be given. One with a tag is written if it is given, in the order of the tags. Kafka:
MetadataRecordSerde, ByteBufferAccessor.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klog.internal_topics.cluster_metadata import TYPES
from klog.internal_topics.schema import Array, Struct, Type
from klog.internal_topics.tables import FramedType
from klog.log.directory.checkpoint import decode_uuid

_FRAME_VERSION: Final = 1
_NUMBERS: Final = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "float64": ">d",
    "bool": ">?",
}
_BY_NAME: Final[dict[str, tuple[int, FramedType]]] = {kind.name: (number, kind) for number, kind in TYPES.items()}


class MetadataRecord(NamedTuple):
    """A record of Kafka's metadata log: its type, such as "topic_record", the version, and its fields by name, as
    klog.internal_topics decodes them."""

    type: str
    version: int
    fields: Mapping[str, Any]


def encode_value(record: MetadataRecord) -> bytes:
    """Return the value of a record. Raises ValueError for an unknown type, version or field, and for a missing one."""
    kind, version, fields = record
    if kind not in _BY_NAME:
        raise ValueError(f"type={kind!r} is not a record of the metadata log; known are {', '.join(sorted(_BY_NAME))}")
    number, found = _BY_NAME[kind]
    if not 0 <= version <= found.value.latest:
        raise ValueError(f"version={version} of {kind}, where 0 to {found.value.latest} are known")
    try:
        body = _struct(found.value.struct, fields, version)
    except ValueError as error:
        raise ValueError(f"{kind}: {error}") from None
    return uvarint(_FRAME_VERSION) + uvarint(number) + uvarint(version) + body


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _struct(kind: Struct, fields: Mapping[str, Any], version: int) -> bytes:
    plain, tagged, left = [], {}, set(fields)
    for field in kind.fields:
        if not field.since <= version <= field.until:
            continue
        left.discard(field.name)
        if field.name not in fields:
            if field.tag is None:
                raise ValueError(f"{field.name} is missing")
            continue
        try:
            data = _value(field.type, fields[field.name], version)
        except (ValueError, TypeError, struct.error) as error:
            raise ValueError(f"{field.name}: {error}") from None
        if field.tag is None:
            plain.append(data)
        else:
            tagged[field.tag] = data
    if left:
        raise ValueError(f"no field {', '.join(sorted(left))} in version {version}")
    plain.append(uvarint(len(tagged)))
    plain += [uvarint(tag) + uvarint(len(data)) + data for tag, data in sorted(tagged.items())]
    return b"".join(plain)


def _value(kind: Type, value: Any, version: int) -> bytes:
    if isinstance(kind, Struct):
        return _struct(kind, value, version)
    if isinstance(kind, Array):
        if value is None:
            return uvarint(0)
        return uvarint(len(value) + 1) + b"".join(_value(kind.of, each, version) for each in value)
    if kind in _NUMBERS:
        return struct.pack(_NUMBERS[kind], value)
    if kind == "uuid":
        return _uuid(value).bytes
    if value is None:
        return uvarint(0)
    data = value if kind == "bytes" else value.encode()
    return uvarint(len(data) + 1) + bytes(data)


def _uuid(value: uuid.UUID | str) -> uuid.UUID:
    found = decode_uuid(value) if isinstance(value, str) else value
    if not isinstance(found, uuid.UUID):
        raise ValueError(f"{value!r} is not a uuid.UUID or its 22 characters")
    return found
