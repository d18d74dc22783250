"""The option `view`: tables about a log instead of its records. Names, columns and options of each; pure.

V1  A view has the columns of COLUMNS, all nullable. `columns` and .schema() choose some, in any order; only these are
    worked out.
V2  An option that has no meaning for a view is refused by name, as in options.py (O1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klog.spark import rows
from klog.spark.format_options import FORMATS
from klog.spark.options import WHICH_OFFSETS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RECORDS = "records"
_WHERE = {"topic": "string", "partition": "int"}
_EPOCHS = "array<struct<epoch:int,startOffset:bigint>>"

# View → column → type. −1 is Kafka's "none" for ids, epochs and sequences; an unknown time is null.
COLUMNS: dict[str, dict[str, str]] = {
    "batches": {
        **_WHERE,
        "segment": "string",
        "position": "bigint",
        "sizeInBytes": "int",
        "baseOffset": "bigint",
        "lastOffset": "bigint",
        "recordCount": "int",
        "baseTimestamp": "timestamp",
        "maxTimestamp": "timestamp",
        "timestampType": "int",
        "codec": "string",
        "leaderEpoch": "int",
        "producerId": "bigint",
        "producerEpoch": "smallint",
        "baseSequence": "int",
        "isTransactional": "boolean",
        "isControl": "boolean",
    },
    "segments": {
        **_WHERE,
        "segment": "string",
        "baseOffset": "bigint",
        "nextOffset": "bigint",
        "sizeInBytes": "bigint",
        "indexSizeInBytes": "bigint",
        "firstTimestamp": "timestamp",
        "maxTimestamp": "timestamp",
        "modified": "timestamp",
        "isActive": "boolean",
        "isClean": "boolean",
    },
    "partitions": {
        **_WHERE,
        "path": "string",
        "topicId": "string",
        "logStartOffset": "bigint",
        "highWatermark": "bigint",
        "lastStableOffset": "bigint",
        "logEndOffset": "bigint",
        "firstDirtyOffset": "bigint",
        "segmentCount": "int",
        "sizeInBytes": "bigint",
        "leaderEpochs": _EPOCHS,
    },
    "producers": {
        **_WHERE,
        "producerId": "bigint",
        "producerEpoch": "smallint",
        "lastSequence": "int",
        "lastOffset": "bigint",
        "lastTimestamp": "timestamp",
        "coordinatorEpoch": "int",
        "currentTxnFirstOffset": "bigint",
    },
    "transactions": {
        **_WHERE,
        "state": "string",
        "producerId": "bigint",
        "producerEpoch": "smallint",
        "firstOffset": "bigint",
        "lastOffset": "bigint",
        "lastStableOffset": "bigint",
        "lastTimestamp": "timestamp",
        "blocksLastStableOffset": "boolean",
    },
    "consumerOffsets": {
        "groupId": "string",
        **_WHERE,
        "offset": "bigint",
        "leaderEpoch": "int",
        "metadata": "string",
        "commitTimestamp": "timestamp",
        "expireTimestamp": "timestamp",
        "highWatermark": "bigint",
        "lag": "bigint",
    },
}
_NAMES = (RECORDS, *COLUMNS)
_NO_TIERS = "remoteSegments"

# Options of reads of records, that would not change a view. An offset or time bounds batches only.
_OF_RECORDS = (
    "includeHeaders",
    "metadataColumns",
    "isolationLevel",
    "onCorrupt",
    "failOnDataLoss",
    "verifyCrc",
    "pushdown",
    *FORMATS,
    "maxRecordsPerPartition",
    "metrics",
)
_OF_RANGES = (
    *WHICH_OFFSETS,
    "upTo",
    "minPartitions",
    "targetSplitBytes",
)


def take(raw: Mapping[str, str]) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Return (view, its columns to show, the other options). For records the columns are left in the options.

    Raises ValueError, with the option's name and the next step.
    """
    given = {key.lower(): value for key, value in raw.items()}
    view = _view(given.pop("view", RECORDS))
    if view == RECORDS:
        return view, (), given
    for name in (*_OF_RECORDS, *(() if view == "batches" else _OF_RANGES)):
        if name.lower() in given:
            raise ValueError(f"option '{name}' has no meaning with view={view}; leave it out")
    if given.get("kafka.isolation.level", "").strip().lower() == "read_committed":
        raise ValueError(f"option 'kafka.isolation.level' has no meaning with view={view}; leave it out")
    return view, _columns(given.pop("columns", None), view), given


def _view(value: str) -> str:
    for name in _NAMES:
        if value.strip().lower() == name.lower():
            return name
    if value.strip().lower() == _NO_TIERS.lower():
        raise ValueError(
            f"option 'view' = '{_NO_TIERS}' is not supported by this version of klog: it has no remote tiers; "
            f"use one of {', '.join(_NAMES)}"
        )
    raise ValueError(f"option 'view' must be one of {', '.join(_NAMES)}, not {value!r}")


def _columns(value: str | None, view: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in COLUMNS[view]}
    if value is None:
        return tuple(known.values())
    named = [part.strip() for part in value.split(",") if part.strip()]
    there = f"view={view} has: {', '.join(COLUMNS[view])}"
    for name in named:
        if name.lower() not in known:
            raise ValueError(f"option 'columns' names {name!r}, which is unknown; {there}")
    if not named:
        raise ValueError(f"option 'columns' = {value!r} names no column; {there}")
    return tuple(dict.fromkeys(known[name.lower()] for name in named))


def full_schema(view: str) -> StructType:
    """Return all columns of a view."""
    return rows.struct_of(COLUMNS[view])


def check_schema(view: str, schema: StructType) -> None:
    """Raise ValueError for a column that the view does not have, or has with another type, or that may be null."""
    rows.check_columns(schema, full_schema(view), f"view={view}")
