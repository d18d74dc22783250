"""Names in a partition directory: base offsets as 20 digits, and the suffixes of segment files.

    <20 digits>.log .index .timeindex .txnindex .snapshot      live
    <live name>.deleted | .cleaned | .swap                     about to be deleted, or not yet live
    <live name>.tmp                                            written first by Files.replace

Kafka: LogFileUtils, UnifiedLog.
"""

from __future__ import annotations

from klog.segment._names import parse_name

__all__ = ["CLEANED", "DELETED", "EPOCHS", "GAPS", "INDEX", "LOG", "METADATA", "SEGMENT_SUFFIXES",
           "SNAPSHOT", "SWAP", "TEMPORARY", "TIME_INDEX", "TXN_INDEX", "file_name", "file_path", "is_temporary",
           "parse_name"]  # fmt: skip
LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
DELETED, CLEANED, SWAP, TEMPORARY = ".deleted", ".cleaned", ".swap", ".tmp"
EPOCHS = "leader-epoch-checkpoint"
GAPS = "klog-gaps"
METADATA = "partition.metadata"


def file_name(offset: int, suffix: str) -> str:
    """Return `00000000000000000042.log` for (42, ".log")."""
    return f"{offset:020d}{suffix}"


def file_path(directory: str, offset: int, suffix: str) -> str:
    """Return the same with its directory."""
    return f"{directory}/{offset:020d}{suffix}"


def is_temporary(name: str) -> bool:
    """Is it a temporary file of Files.replace, left by a killed process?"""
    live = name.removesuffix(TEMPORARY)
    return live != name and (live in (EPOCHS, GAPS, METADATA) or parse_name(live) is not None)
