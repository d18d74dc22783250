"""Whether a directory may be served: one of a Kafka broker has to be adopted first.

Kafka keeps the ids and configurations of topics, and the next producer id, in its metadata log. Without them klog would
give out producer ids that Kafka gives out again later, and a batch would be dropped as a duplicate.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.coordinator.transactions.producer_ids import FILE
from klog.disk import exists, is_directory, naming_the_next_step
from klog.errors import HandoverRefused

_METADATA_LOG = "__cluster_metadata-0"


def is_adopted(paths: Sequence[str]) -> bool:
    """False for a directory with Kafka's metadata log that klog has not taken over. Raises OSError if that cannot be
    found out."""
    return exists(os.path.join(paths[0], FILE)) or not is_of_kafka(paths)


def is_of_kafka(paths: Sequence[str]) -> bool:
    """Is it the directory of a Kafka broker, also one that klog has taken over? Raises OSError."""
    return any(map(_has_metadata, paths))


def check_adopted(paths: Sequence[str]) -> None:
    """Raise HandoverRefused unless is_adopted(). Raises OSError."""
    if not is_adopted(paths):
        path = next(filter(_has_metadata, paths))
        raise HandoverRefused(
            f"{path} is that of a Kafka broker, whose metadata log has the topics' configurations and the next "
            f"producer id; take it over with `klog handover --adopt {path}`"
        )


def _has_metadata(path: str) -> bool:
    metadata = os.path.join(path, _METADATA_LOG)
    if not is_directory(metadata):
        return False
    with naming_the_next_step(metadata, reading=True), os.scandir(metadata) as entries:
        return any(map(_has_records, entries))


def _has_records(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith((".log", ".checkpoint")) and entry.stat().st_size > 0
