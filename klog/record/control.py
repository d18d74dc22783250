"""Control records: written by the log itself among the data, in batches with attribute bit 5.

    key             := version:i16 type:i16 ...                 longer keys are read, a negative version is corruption
    end of txn      := version:i16 coordinator_epoch:i32 ...    the value of abort and commit

Transaction markers are uncompressed, one per batch; KRaft writes several kinds into its metadata log (kraft). An
unknown type is returned as "unknown", as in Kafka's consumers. Kafka: ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import struct
from typing import Final

from klog.errors import CorruptBatch

CONTROL_TYPES: Final = (
    "abort",
    "commit",
    "leader_change",
    "snapshot_header",
    "snapshot_footer",
    "kraft_version",
    "kraft_voters",
)
UNKNOWN: Final = "unknown"

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")


def control_type(key: bytes | None) -> str:
    """Return the name of a control record from its key."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("the key of a control record has fewer than 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"the key of a control record has version {version}")
    return CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else UNKNOWN


def marker_coordinator_epoch(value: bytes | None) -> int:
    """Return the coordinator epoch in the value of an abort or commit marker."""
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch("the value of a transaction marker has fewer than 6 bytes")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"the value of a transaction marker has version {version}")
    return int(epoch)


def control_key(name: str) -> bytes:
    """Return the key of a control record of this type, version 0."""
    return _KEY.pack(0, CONTROL_TYPES.index(name))


def marker(name: str, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of an "abort" or "commit" marker, for `encode(..., is_control=True,
    is_transactional=True)`."""
    if name not in ("abort", "commit"):
        raise ValueError(f"a transaction ends with 'abort' or 'commit', not {name!r}")
    return control_key(name), _MARKER.pack(0, coordinator_epoch)
