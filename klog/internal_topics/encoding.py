"""encode_key, encode_value: the bytes of a record of one of Kafka's internal topics, from its fields."""

from __future__ import annotations

import struct
import uuid
from base64 import urlsafe_b64decode
from functools import cache
from typing import Any, Final

from klog.arguments import whole
from klog.internal_topics import (
    cluster_metadata,
    consumer_offsets,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from klog.internal_topics.schema import _NUMBERS, Array, Fields, Message, Struct, Type, encode_id
from klog.internal_topics.tables import FramedType, KeyedType, check_version

_TAG_DEFAULTS: Final[dict[str, Any]] = {
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "next_producer_epoch": -1,
    "validated_topology_epoch": -1,
    "delivery_complete_count": -1,
    **dict.fromkeys(
        (
            "leader",
            "fenced",
            "leader_recovery_state",
            "in_controlled_shutdown",
            "replicas",
            "isr",
            "removing_replicas",
            "adding_replicas",
            "eligible_leader_replicas",
            "last_known_elr",
            "directories",
            "log_dirs",
            "cordoned_log_dirs",
            "name",
            "reason",
        )
    ),
}
_NONE: Final[tuple[Any, ...]] = (None, 0, [], (), "", uuid.UUID(int=0), encode_id(uuid.UUID(int=0)))


def encode_key(kind: str, /, **fields: Any) -> bytes:
    """Return the key of a record. kind, fields: as decode() gives them. Raises ValueError, TypeError."""
    number, found = _kind(kind)
    if isinstance(found, FramedType):
        raise ValueError(f"kind={kind!r}: its records have no key")
    return struct.pack(">h", number) + _bytes(found._key, 0, kind, fields)


def encode_value(kind: str, version: int, /, **fields: Any) -> bytes:
    """Return the value of a record in a version. kind, fields: as decode() gives them, or ids as uuid.UUID.

    Raises ValueError, TypeError.
    """
    number, found = _kind(kind)
    form = found.value if isinstance(found, FramedType) else found._value
    check_version(kind, whole("version", version), form.latest)
    if kind == "group_metadata":
        fields = _with_member_bytes(fields)
    data = _bytes(form, version, kind, fields)
    return (bytes((1, number, version)) if isinstance(found, FramedType) else struct.pack(">h", version)) + data


def _with_member_bytes(fields: Fields) -> Fields:
    members = []
    for member in fields.get("members") or ():
        made = dict(member)
        for name, form in (
            ("subscription", consumer_offsets.SUBSCRIPTION),
            ("assignment", consumer_offsets.ASSIGNMENT),
        ):
            data = made.get(name)
            if isinstance(data, dict):
                version = data["version"]
                rest = {each: value for each, value in data.items() if each != "version"}
                made[name] = struct.pack(">h", version) + _bytes(form, min(version, form.latest), "member", rest)
        members.append(made)
    return {**fields, "members": members}


@cache
def _kind(kind: str) -> tuple[int, KeyedType | FramedType]:
    tables: list[dict[int, KeyedType] | dict[int, FramedType]] = [
        consumer_offsets.TYPES,
        transaction_state.TYPES,
        share_group_state.TYPES,
        cluster_metadata.TYPES,
        remote_log_metadata.TYPES,
    ]
    for types in tables:
        for number, found in types.items():
            if found.name == kind:
                return number, found
    raise ValueError(f"kind={kind!r}: no such kind of record")


def _bytes(form: Message, version: int, kind: str, fields: Fields) -> bytes:
    out = bytearray()
    try:
        _struct(out, form.struct, version, version >= form.flexible, fields)
    except KeyError as error:
        raise TypeError(f"{kind} version {version}: the field {error} is missing") from None
    except struct.error as error:
        raise ValueError(f"{kind} version {version}: {error}") from None
    return bytes(out)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _struct(out: bytearray, form: Struct, version: int, flexible: bool, fields: Fields) -> None:
    tags = []
    unknown = fields.keys() - {field.name for field in form.fields}
    if unknown:
        raise TypeError(f"no field {', '.join(unknown)}; there are {', '.join(each.name for each in form.fields)}")
    for field in form.fields:
        if not field.since <= version <= field.until:
            continue
        if field.tag is None:
            _value(out, field.type, version, flexible, fields[field.name])
        elif fields.get(field.name) not in (
            (_TAG_DEFAULTS[field.name], None) if field.name in _TAG_DEFAULTS else _NONE
        ):
            part = bytearray()
            _value(part, field.type, version, flexible, fields[field.name])
            tags.append((field.tag, _uvarint(field.tag) + _uvarint(len(part)) + bytes(part)))
    if flexible:
        out += _uvarint(len(tags)) + b"".join(part for _, part in sorted(tags))


def _value(out: bytearray, form: Type, version: int, flexible: bool, value: Any) -> None:
    if isinstance(form, Struct):
        if form.optional:
            out += b"\xff" if value is None else b"\1"
        if value is not None:
            _struct(out, form, version, flexible, value)
    elif isinstance(form, Array):
        _length(out, flexible, ">i", value)
        for each in value or ():
            _value(out, form.of, version, flexible, each)
    elif form in _NUMBERS:
        out += _NUMBERS[form].pack(value)
    elif form == "uuid":
        out += value.bytes if isinstance(value, uuid.UUID) else urlsafe_b64decode(f"{value}==")
    else:
        data = value.encode() if isinstance(value, str) else value
        _length(out, flexible, ">h" if form == "string" else ">i", data)
        out += data or b""


def _length(out: bytearray, flexible: bool, classic: str, value: Any) -> None:
    length = -1 if value is None else len(value)
    out += _uvarint(length + 1) if flexible else struct.pack(classic, length)
