"""Names of partition directories, with and without a suffix.

    live     <topic>-<partition>
    delete   <topic>-<partition>.<32 hex>-delete       to be removed after file.delete.delay.ms
    future   <topic>-<partition>.<32 hex>-future       the copy that a move between directories makes
    stray    <topic>-<partition>.<32 hex>-stray        not of this cluster; for an operator to check

A name has at most 255 characters. A longer topic is truncated; partition.metadata then identifies it. Kafka:
UnifiedLog.parseTopicPartitionName, logDeleteDirName, logFutureDirName, logStrayDirName.
"""

from __future__ import annotations

import re
import uuid

from klog.values import NamedTuple

DELETE, FUTURE, STRAY = "delete", "future", "stray"
REMOTE_INDEX_CACHE = "remote-log-index-cache"  # Kafka keeps indexes of tiered segments there
NAME_MAX = 255
TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LIVE = re.compile(rf"({TOPIC.pattern})-(0|[1-9][0-9]{{0,9}})")
_KLOGS = re.compile(r"(.+)-(\d{1,10})\.([0-9a-f]{32})-(delete|future|stray)")


class SuffixedName(NamedTuple):
    """The parts of a suffixed name. topic: maybe truncated."""

    topic: str
    partition: int
    suffix: str


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a live partition directory's name; None for any other name, suffixed ones included."""
    match = _LIVE.fullmatch(name)
    if match is None:
        return None
    topic, partition = match[1], int(match[2])
    return (topic, partition) if partition < 2**31 and topic not in (".", "..") else None


def is_partition(topic: str, partition: int) -> bool:
    """Can a topic have this name, and a partition of it this number?"""
    return 0 <= partition < 2**31 and TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def parse_suffixed_name(name: str) -> SuffixedName | None:
    """The parts of the name of a -delete, -future or -stray directory; None for any other name."""
    match = _KLOGS.fullmatch(name)
    return None if match is None else SuffixedName(match[1], int(match[2]), match[4])


def suffixed_name(topic: str, partition: int, suffix: str) -> str:
    """A unique name with a suffix for a partition directory."""
    end = f"-{partition}.{uuid.uuid4().hex}-{suffix}"
    return topic[: NAME_MAX - len(end)] + end
