"""encode_key, encode_value: the bytes of a record of one of Kafka's internal topics, from its fields."""

from __future__ import annotations

from typing import Any, Final

from klog.internal_topics import (
    cluster_metadata,
    consumer_offsets,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from klog.internal_topics.tables import FramedType, KeyedType

_KINDS: Final[dict[str, KeyedType | FramedType]] = {
    kind.name: kind
    for module in (consumer_offsets, transaction_state, share_group_state, cluster_metadata, remote_log_metadata)
    for kind in module.TYPES.values()
}


def encode_key(kind: str, /, **fields: Any) -> bytes:
    """Return the key of a record.

    kind, fields: `type` and `key` as decode() gives them; an id may be a uuid.UUID, and a field that is left out has
    Kafka's default. Raises ValueError and TypeError, which name the field.
    """
    found = _kind(kind)
    if isinstance(found, FramedType):
        raise ValueError(f"kind={kind!r}: its records have no key")
    return found.key(fields)


def encode_value(kind: str, version: int, /, **fields: Any) -> bytes:
    """Return the value of a record in a version.

    kind, fields: `type` and `value` as decode() gives them; an id may be a uuid.UUID, and a field that is left out has
    Kafka's default. Raises ValueError and TypeError, which name the field; UnsupportedVersion, which is a ValueError,
    for a version that is unknown, or lacks a field whose value is not its default.
    """
    if kind == "group_metadata":
        fields = consumer_offsets.with_members_encoded(fields)
    return _kind(kind).value(version, fields)


def _kind(kind: str) -> KeyedType | FramedType:
    try:
        return _KINDS[kind]
    except (KeyError, TypeError):
        raise ValueError(f"kind={kind!r}: no such kind of record; there are {', '.join(sorted(_KINDS))}") from None
