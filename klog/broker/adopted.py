"""Whether a directory may be served: one of a Kafka broker has to be adopted first, and again when that has run.

Kafka keeps the ids and configurations of topics, and the next producer id, in its metadata log. Without them klog would
give out producer ids that Kafka gives out, too, so that a batch would be dropped as a duplicate; and it would delete
records by configurations that have changed. Each start of Kafka appends to that log, so its end shows whether klog has
taken over all of it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from klog.coordinator.transactions.producer_ids import OF_KAFKA, stored
from klog.disk import is_directory, naming_the_next_step
from klog.errors import HandoverRefused

_METADATA_LOG = "__cluster_metadata-0"
_RECORDS = (".log", ".checkpoint")  # segments, snapshots


def is_adopted(paths: Sequence[str]) -> bool:
    """False for a directory with Kafka's metadata log that klog has not taken over, or not since it has grown. Raises
    OSError if that cannot be found out; CorruptCheckpoint, NewerFormat."""
    end = metadata_end(paths)
    if not end:
        return True
    found = stored(paths[0])
    return found.adopted == end if found.adopted else found.next >= OF_KAFKA // 2  # by a klog that did not note it


def metadata_end(paths: Sequence[str]) -> str:
    """The newest segment of Kafka's metadata log, and its size; "" without that log. Raises OSError."""
    for path in filter(_has_metadata, paths):
        home = os.path.join(path, _METADATA_LOG)
        names = os.listdir(home)
        for suffix in _RECORDS:
            newest = max((name for name in names if name.endswith(suffix)), default=None)
            if newest is not None:
                return f"{newest}:{os.path.getsize(os.path.join(home, newest))}"
    return ""


def is_of_kafka(paths: Sequence[str]) -> bool:
    """Is it the directory of a Kafka broker, also one that klog has taken over? Raises OSError."""
    return any(map(_has_metadata, paths))


def check_adopted(paths: Sequence[str]) -> None:
    """Raise HandoverRefused unless is_adopted(). Raises OSError."""
    if not is_adopted(paths):
        path = next(filter(_has_metadata, paths))
        everything = " ".join(map(shlex.quote, paths))  # the topics of all, and the file in the first
        raise HandoverRefused(
            f"{path} is that of a Kafka broker, whose metadata log has the topics' configurations and the next "
            f"producer id; take it over with `klog handover --adopt {everything}`, anew after each run of that broker"
        )


def _has_metadata(path: str) -> bool:
    metadata = os.path.join(path, _METADATA_LOG)
    if not is_directory(metadata):
        return False
    with naming_the_next_step(metadata, reading=True), os.scandir(metadata) as entries:
        return any(map(_has_records, entries))


def _has_records(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(_RECORDS) and entry.stat().st_size > 0
