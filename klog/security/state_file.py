"""A file of the security package in the first log.dir: JSON with a version and a checksum, for its owner only.

    {"version": 1, ..., "crc32c": N}

Kafka ignores it. It is replaced as a whole, and synced before a change counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from klog.disk import Files, read_private
from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned

VERSION = 1
_REASON_MAX = 200
T = TypeVar("T")


class StateFile:
    """One file. Its owner's lock is held for save()."""

    def __init__(self, directory: str, name: str, files: Files) -> None:
        self.path = os.path.join(directory, name)
        self._files = files

    def load(self, take: Callable[[Mapping[str, Any]], T], empty: T) -> T:
        """Return what `take` makes of the document; `empty` if there is no file. Raises CorruptCheckpoint if it is not
        a valid document or `take` refuses it; NewerFormat; PermissionError if others may read it."""
        data = read_private(self.path)
        if data is None:
            return empty
        try:
            document = versioned.parse(data, self.path, VERSION)
        except versioned.MALFORMED as error:
            raise self._corrupt(str(error)[:_REASON_MAX]) from None
        try:
            return take(document)
        except Malformed as error:
            raise self._corrupt(str(error)) from None
        except versioned.MALFORMED:  # its text may have a key in it
            raise self._corrupt("a field is missing or has another type") from None

    def _corrupt(self, reason: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"not a file that klog wrote: {reason}; restore a copy of it, or move it away to start without it",
            path=self.path,
        )

    def save(self, document: Mapping[str, Any]) -> None:
        """Replace the file, durably. Raises OSError; then the old content is still there."""
        data = versioned.encode({"version": VERSION, **document}, indent=1)
        self._files.replace(self.path, data, private=True)


class Malformed(ValueError):
    """A document has a wrong value. The text says where, without the value: it may be a key."""
