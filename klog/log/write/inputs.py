"""The records given to an append: whether an encoder takes them, and whether they are all in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.arguments import has_items
from klog.log.read.reader import LogReader
from klog.record import Lists, Record, Records, Rows, is_arrow


def prepared(records: Records) -> tuple[Records, bool]:
    """The records for an encoder, and whether all are in memory, so that they are appended atomically."""
    whole = is_whole(records)
    if not whole:
        check_records(records)
    if isinstance(records, LogReader):
        records = iter(records)  # in its Arrow form header keys are text
    return records, whole


def check_records(records: object) -> None:
    """Raise TypeError, with a hint, for an object that is not an iterable of records."""
    if isinstance(records, Record):
        raise TypeError("records is an iterable: put a single klog.Record into a list, [record]")
    if is_arrow(records):
        return
    if isinstance(records, Mapping) or not has_items(records):
        raise TypeError(
            f"records is an iterable of klog.Record or tuples, not {type(records).__name__}; put a single value into a "
            "list, [(None, value)]"
        )


def is_whole(records: object) -> bool:
    """Are all records in memory, so that they are appended atomically? A table may be a stream, and counts as one."""
    return isinstance(records, Sequence | Lists | Rows) or hasattr(records, "__arrow_c_array__")
