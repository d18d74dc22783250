"""The fields of a record as values that can be written as JSON.

Bytes are shown as `key`, `value` if they are UTF-8, and as `key_b64`, `value_b64` if not. A record of one of Kafka's
internal topics has `decoded` as well: {"type", "version", "key", "value"}, or `decode_problem`: why it cannot be
decoded.
"""

from __future__ import annotations

import base64
import contextlib
import math
import struct
import uuid
from typing import Any

from klog.errors import CorruptBatch, CorruptData
from klog.internal_topics import decode
from klog.record import Record, TimestampType
from klog.record.kraft import read_kraft
from klog.values import asdict

TIMESTAMP_TYPES = {
    TimestampType.NO_TIMESTAMP: "none",
    TimestampType.CREATE_TIME: "create_time",
    TimestampType.LOG_APPEND_TIME: "log_append_time",
}
Entry = dict[str, Any]


def record_fields(record: Record, topic: str | None = None) -> Entry:
    """Return the fields of a Record; for a transaction marker also its coordinator's epoch.

    topic: that of the record; None: its content is not decoded."""
    entry: Entry = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        **as_text("key", record.key),
        **as_text("value", record.value),
        "headers": [{"key": _printable(name), **as_text("value", value)} for name, value in record.headers],
        "leader_epoch": record.leader_epoch,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "sequence": record.sequence,
        "is_transactional": record.is_transactional,
        "is_control": record.is_control,
        "control_type": record.control_type,
    }
    if record.control_type in ("commit", "abort") and record.value is not None and len(record.value) >= 6:
        entry["coordinator_epoch"] = struct.unpack_from(">i", record.value, 2)[0]
    with contextlib.suppress(CorruptBatch):  # an invalid value is shown as its bytes
        control = read_kraft(record.control_type, record.value)
        if control is not None:
            entry["control"] = {name: _plain(field) for name, field in asdict(control).items()}
    return entry if topic is None else entry | decoded_fields(record, topic)


def decoded_fields(record: Record, topic: str) -> Entry:
    """Return {"decoded": ...} or {"decode_problem": ...}; {} for other topics and for control records."""
    try:
        found = decode(record, topic)
    except CorruptData as error:
        return {"decode_problem": error.reason}
    if found is None:
        return {}
    return {"decoded": _shown({name: getattr(found, name) for name in ("type", "version", "key", "value")})}


def _shown(field: Any) -> Any:
    if isinstance(field, dict):
        shown: Entry = {}
        for name, each in field.items():
            shown |= as_text(name, each) if isinstance(each, bytes) else {name: _shown(each)}
        return shown
    if isinstance(field, float) and not math.isfinite(field):
        return str(field)  # JSON has no such number
    return [_shown(each) for each in field] if isinstance(field, list) else field


def _plain(field: object) -> object:
    """Convert a field for JSON: ids to text, tuples to lists."""
    if isinstance(field, dict):
        return {name: _plain(entry) for name, entry in field.items()}
    if isinstance(field, (tuple, list)):
        return [_plain(entry) for entry in field]
    return str(field) if isinstance(field, uuid.UUID) else field


def as_text(name: str, value: bytes | None) -> Entry:
    """Return {name: text} for UTF-8 (and None), {name_b64: base64} for other bytes."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(value).decode()}


def _printable(name: str) -> str:
    """Return a header key for JSON, which must be UTF-8: undecodable bytes (surrogates) become backslash escapes."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
