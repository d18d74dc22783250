"""The directory of an open log: its path, what its segments share, and its owner.

owner: writes the checkpoints of the log.dir and holds its locks. That is a log.dir of the manager, or the locks of one
Log.open. A log that is opened to be read, or marked for deletion, has none.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

from klog.disk import Claim
from klog.log.directory import checkpoint
from klog.log.options import Options
from klog.log.state._fields import DirectoryFields
from klog.log.state._log_core import LogCore
from klog.segment import SegmentDir, names


class Owner(Protocol):
    """What a log calls about its checkpoints and locks."""

    def lower(self, log: LogCore, recovery_point: int, log_start_offset: int) -> None:
        """Lower the checkpoints of a log that is about to be truncated."""

    def store_starts(self, logs: Iterable[LogCore]) -> None:
        """Store the log starts of its logs durably now, instead of later. Raises OSError."""

    def lower_positions(self, log: LogCore, log_end: int, truncated: bool) -> None:
        """Lower the positions of named readers to the end of a log that is about to be, or was, shortened. truncated:
        not by a crash, so that readers may be open. Raises OSError."""

    def flush_soon(self, log: LogCore) -> bool:
        """Flush the log soon by another thread. False: there is none, so the append flushes."""

    def check_place(self) -> None:
        """Raise OSError if another directory has the path of the log.dir by now: its lock is not held."""

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is inside a write of a checkpoint."""

    def failed(self, log: LogCore, reason: str) -> None:
        """The log's disk has failed."""

    def release(self, log: LogCore, clean: bool) -> None:
        """The log is closed. clean: its next load needs no recovery."""

    def end_release(self) -> None:
        """Finish a release() or forget() that was interrupted, if it unlocks; doing so twice is allowed."""

    def forget(self, log: LogCore) -> None:
        """The log is deleted."""


class PartitionDir(DirectoryFields):
    """The sole writer of these fields. Changed under the log's lock.

    segment_dir: shared by the segments, made by the load. keeps_metadata: False once the log is marked for deletion.
    on_flush: called with the log when its recovery point has risen.
    """

    __slots__ = ("_deleted", "claim", "keeps_metadata", "on_flush", "owner", "path")

    def __init__(self, path: str, claim: Claim | None) -> None:
        self.path = path
        self.claim = claim
        self.segment_dir = None
        self.keeps_metadata = True
        self.owner: Owner | None = None
        self.on_flush: Callable[[LogCore], None] | None = None
        self._deleted: SegmentDir | None = None

    def loaded(self, segment_dir: SegmentDir | None) -> None:
        """Use what the load has made."""
        self.segment_dir = segment_dir

    def belong_to(self, owner: Owner | None, on_flush: Callable[[LogCore], None] | None = None) -> None:
        """Set the owner, which writes the checkpoints from here on; None: there is none."""
        self.owner, self.on_flush = owner, on_flush
        if self.segment_dir is not None:
            self.segment_dir.belong_to(None if owner is None else owner.check_place)

    def check_place(self) -> None:
        """Before a change of files: see Owner."""
        if self.owner is not None:
            self.owner.check_place()

    def deleted_dir(self, options: Options) -> SegmentDir:
        """The SegmentDir of segments that are marked for deletion."""
        if self._deleted is None:
            self._deleted = SegmentDir(
                self.path, options.config, options.files, options.handles, writable=True, beside=self.segment_dir
            )
            self._deleted.suffix = names.DELETED
        return self._deleted

    def topic_id(self, options: Options) -> uuid.UUID | None:
        """The topic's id from partition.metadata, None if there is none."""
        if not self.keeps_metadata:
            return None
        return checkpoint.read_topic_id(self.path) or options.topic_id

    def rename(self, target: str, options: Options) -> None:
        """Rename the directory. A reader that opens one of its files meanwhile waits."""
        segment_dir = self.segment_dir
        with segment_dir.opening if segment_dir is not None else contextlib.nullcontext():
            options.files.rename(self.path, target)
            self.path = target
            self.deleted_dir(options).move_to(target)
            if segment_dir is not None:
                segment_dir.move_to(target)

    def keep_no_metadata(self) -> None:
        """The log is marked for deletion: it keeps no topic id."""
        self.keeps_metadata = False

    def release_claim(self) -> None:
        """Let another Log of this process write the directory."""
        if self.claim is not None:
            self.claim.release()
