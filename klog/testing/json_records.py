"""Records in JSON, in both directions: the fields of `klog cat --json`.

    {"key": "a", "value": "text", "timestamp": 1700000000000, "headers": [{"key": "h", "value": "1"}]}

Bytes that are not UTF-8 are `key_b64`, `value_b64`, in base64. `partition` is that of the record.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.inspect.record_fields import record_fields

if TYPE_CHECKING:
    from klog.record import Record

_FIELDS = {"key", "key_b64", "value", "value_b64", "timestamp", "headers", "partition"}
_HEADER_FIELDS = {"key", "value", "value_b64"}


def to_fields(record: Record) -> dict[str, Any]:
    """A record as an object of JSON."""
    return {"partition": record.partition, **record_fields(record)}


def from_fields(fields: object) -> tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]:
    """A record to append, (key, value, timestamp, headers). Raises ValueError, TypeError."""
    found = _object("a record", fields, _FIELDS)
    timestamp = found.get("timestamp")
    headers = found.get("headers") or []
    if not isinstance(headers, list):
        raise arguments.wrong_type("headers", headers, 'a list of {"key": ..., "value": ...}')
    return (
        _bytes("key", found),
        _bytes("value", found),
        None if timestamp is None else arguments.whole("timestamp", timestamp),
        [_header(each) for each in headers],
    )


def partition_in(fields: object) -> int | None:
    """The partition of a record to append; None without one. Raises ValueError, TypeError."""
    partition = _object("a record", fields, _FIELDS).get("partition")
    return None if partition is None else arguments.whole("partition", partition, 0)


def _header(fields: object) -> tuple[str, bytes | None]:
    found = _object("a header", fields, _HEADER_FIELDS)
    return arguments.text("key", found.get("key")), _bytes("value", found)


def _object(what: str, fields: object, known: set[str]) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise arguments.wrong_type(what, fields, "an object of JSON")
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise ValueError(f"{what} with {', '.join(unknown)}: its fields are {', '.join(sorted(known))}")
    return fields


def _bytes(name: str, fields: dict[str, Any]) -> bytes | None:
    text, coded = fields.get(name), fields.get(f"{name}_b64")
    if coded is not None:
        if text is not None:
            raise ValueError(f"{name} and {name}_b64: one of the two")
        return base64.b64decode(arguments.text(f"{name}_b64", coded), validate=True)
    if text is None:
        return None
    if not isinstance(text, str):
        raise arguments.wrong_type(name, text, "text, or null,")
    return text.encode()
