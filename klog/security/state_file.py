"""A file of the security package in the first log.dir: JSON with a version and a checksum, for its owner only.

    {"version": 1, ..., "crc32c": N}

Kafka ignores it. It is replaced as a whole, and synced before a change counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from klog.disk import Files, read_private, replace_private
from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned

VERSION = 1
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
            return take(versioned.parse(data, self.path, VERSION))
        except versioned.MALFORMED as error:
            raise CorruptCheckpoint(
                f"not a file that klog wrote ({type(error).__name__} of {_where(error)}); restore it from a copy, or move "
                "it away to start without its content",
                path=self.path,
            ) from None

    def save(self, document: Mapping[str, Any]) -> None:
        """Replace the file, durably. Raises OSError; then the old content is still there."""
        replace_private(self._files, self.path, versioned.encode({"version": VERSION, **document}, indent=1))


def _where(error: BaseException) -> str:
    """What was wrong, without the text of the file, which holds keys."""
    return error.reason if isinstance(error, Malformed) else "its content"


class Malformed(ValueError):
    """A document that has a wrong value. reason: what, and where, without the value itself."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
