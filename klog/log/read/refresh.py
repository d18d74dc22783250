"""How a read-only log follows a writer in another process, and notices undone appends and truncations.

  R1  a reader accepts whole batches that continue at its log end, after it verified the checksum of the last of them
  R2  before it reads on, a reader compares its last batch with the file: a writer that undoes a failed append, or
      truncates, changes the file there. Then the reader loads the log again. Its header has offset, leader epoch and
      checksum: as Kafka's replicas do, the reader takes logs with the same batch there for the same below it
  R3  bytes are returned only after a second look that equals the first: what was read was in the log
  R4  if a closed segment is another file or has another size, or one in the middle is missing, a cleaner has replaced
      it: the reader loads again. Until it notices, it reads the files that it has open, which are complete, and opens
      no others in their place (segment S4)

  R5  each call of a reader first looks whether the last segment or the directory has changed, by two stat(2) calls, and
      follows the writer if so. A snapshot does not, and its log end stays. The checkpoints of the log.dir are looked at
      with every change, and after 100 ms
  R6  a snapshot ends when the writer truncates below its log end: R2 for the last batch below that. A cleaner leaves
      this batch, perhaps with fewer records, or no batch with its offsets. Then the snapshot loads again
  R7  a reader that was opened during a commit of staged files ends at the commit's base offset, and follows nothing,
      until the commit is applied: each call looks
  R8  if the directory has gone, reads raise UnknownTopicOrPartition: no writer changes the files that the reader has
      open. If there is a directory again, the reader goes on with that; but no read has records of two topics

Reader and writer share no lock. So a reader may see the first batches of an append that the writer has not finished,
and that it undoes if its disk fails: a record counts as stored when append() has returned. A reader does not revoke
records that it has returned; a reader whose position is beyond the new log end gets OffsetOutOfRange.

Under the log's lock. steady.py uses this for R3.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import uuid
from collections.abc import Mapping

from klog.disk import FileState, Watched, exists, file_state, is_directory
from klog.errors import CorruptBatch, CorruptCheckpoint, NewerFormat, UnknownTopicOrPartition
from klog.log.directory import checkpoint
from klog.log.load.inputs import inputs_of, new_segment
from klog.log.load.loader import Loaded, load_read_only, settled_listing
from klog.log.read.divergence import is_left_of
from klog.log.state._log_core import LogCore
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.record import BATCH_HEADER
from klog.segment import Header, HeaderIterator, Segment, find_offset, names
from klog.values import NamedTuple

_VALID_MS = 100  # the checkpoints of the log.dir change beside the files of a log
_FINGERPRINT_BYTES = BATCH_HEADER  # a header of magic 2, or an older header and more bytes: both include the checksum


class TailFingerprint(NamedTuple):
    """The end of a reader's log: the file, the position of its last batch (-1: none), and that batch's header. size:
    what the file has at least; None: the size of the segment."""

    segment: Segment
    inode: int
    position: int
    header: bytes
    size: int | None = None


def tail_fingerprint(segment: Segment, position: int) -> TailFingerprint:
    """The fingerprint of the last segment, whose last batch is at this position."""
    inode, _ = segment.file.opened_as
    header = bytes(segment.file.read(position, _FINGERPRINT_BYTES)) if position >= 0 else b""
    return TailFingerprint(segment, inode, position, header)


def refresh(log: LogCore) -> None:
    """Follow the writer in another process. A writable log is always up to date."""
    log.health.check_open()  # a directory that had gone may be there again
    if log.follower is not None and not _stays(log):
        with log.lock:
            log.health.check_open()
            log.follower.refresh_locked(log)


class Follower:
    """What a read-only log knows of the writer's files: when the directory last changed, the end of the last segment,
    the checkpoints. The sole writer of these fields. is_gone: the last look has found no directory (R8).
    lives: how often the topic was created again."""

    __slots__ = (
        "_busy",
        "_checkpoints",
        "_epoch",
        "_epochs",
        "_last",
        "_tail",
        "_topic_id",
        "is_gone",
        "lives",
        "watched",
    )

    def __init__(self) -> None:
        self._tail: TailFingerprint | None = None
        self._last: Header | None = None  # of a snapshot: its last batch
        self._checkpoints: dict[str, FileState | None] = {}
        self._epochs: FileState | None = None  # leader-epoch-checkpoint as it was read last
        self._epoch = -1  # the newest of the batches since the load
        self._busy = False
        self._topic_id: uuid.UUID | None = None  # in partition.metadata, before the load
        self.is_gone = False
        self.lives = 0
        self.watched = Watched()

    def gone(self, log: LogCore) -> UnknownTopicOrPartition:
        """The error for a log whose directory has gone (R8)."""
        return gone(log)

    def begin(self, log: LogCore) -> None:
        """Look at the files, before they are loaded."""
        self._topic_id = checkpoint.read_topic_id(log.path)  # that of the options may be of an earlier topic
        self.stat(log)
        self._epochs_changed(log)

    def stat(self, log: LogCore) -> None:
        """Look at the files, before they are read."""
        last = log.segments[-1].path if log.segments else log.directory.path
        self.watched.stat(last, log.directory.path, _VALID_MS)

    def loaded(self, log: LogCore, loaded: Loaded) -> None:
        """Note the end of what a load has found."""
        self._tail, self._epoch = None, -1
        if loaded.segments:
            last = loaded.segments[-1]
            self._tail = tail_fingerprint(last, loaded.last_at)
            self.watched.use(last.path, last.size)
            if log.options.held_by is None:  # else each call looks at the manifest (R7)
                self.watched.accept()
        if _stays(log) and log.segments:
            self._hold_end(log, loaded)

    def _hold_end(self, log: LogCore, loaded: Loaded) -> None:
        """R6: the tail of a snapshot is its last batch. What follows it may be truncated."""
        segment, end = log.segments[-1], log.log_end_offset
        begin, last = 0, None
        with contextlib.suppress(CorruptBatch):
            if segment is loaded.segments[-1] and segment.next_offset <= end:
                begin = max(loaded.last_at, 0)
            elif segment.size and (located := segment.locate(end - 1)) is not None and located.base_offset < end:
                begin = located.position
        for header in HeaderIterator(segment.file, begin, segment.size):
            if header.base_offset >= end:
                break
            last = header
        at, size = (-1, 0) if last is None else (last.position, last.position + last.size)
        self._tail = tail_fingerprint(segment, at)._replace(size=size)
        self._last = last or self._last

    def distrust(self) -> None:
        """Look at the directory again, whatever its stamp: older kernels update that in steps of milliseconds."""
        self.watched.forget()

    def renew(self) -> None:
        """Reset in a forked child, where no thread is inside a refresh."""
        self._busy = False
        self.watched.forget()

    def follow(self, log: LogCore) -> None:
        """R5: follow the writer, whose files may have changed."""
        with log.lock:
            if log.closed:
                return  # meanwhile
            if log.options.held_by is None and self.watched.extend(_VALID_MS):
                self._follow_checkpoints(log)
            else:
                self.refresh_locked(log)

    def refresh_locked(self, log: LogCore) -> bool:
        """Follow the writer. False: files were removed meanwhile, so the result may be incomplete."""
        if self._busy:  # in a signal handler that interrupts another call of this thread
            return True
        self._busy = True
        try:
            return self._refresh(log)
        finally:
            self._busy = False

    def _refresh(self, log: LogCore) -> bool:
        before = log.segments[-1:]
        self.stat(log)
        self._follow_checkpoints(log)
        try:
            self._follow_commits(log)
            if not self.stands():
                stays = _stays(log)
                if stays and not self._tail_was_deleted(log) and not self._tail_was_cleaned(log):
                    log.health.fail("the writer has truncated it below this snapshot: make another one", readable=False)
                    return True
                self._reload(log, truncated=not stays)
            elif log.options.held_by is None and (not self.watched.same_directory or _has_rolled(log)):
                self._relist(log)
            if log.options.held_by is not None:
                return True
            self._follow_end(log)
            if _has_rolled(log):  # in the same step of the file system's clock
                self._relist(log)
                self._follow_end(log)
            if self._epoch > (-1 if log.epochs.latest is None else log.epochs.latest):
                _follow_epochs(log)  # it begins in a gap: the load has left it out, since no batch was beyond
            if log.segments[-1:] == before:  # else the next call looks again
                self.watched.accept()
        except FileNotFoundError:  # a file was deleted after the listing, or the whole directory was
            self.distrust()
            self.is_gone = not _stays(log) and has_gone(log.path)
            return False
        self.is_gone = False
        return True

    # ---- commits of staged files -------------------------------------------------------------------------------------

    def _follow_commits(self, log: LogCore) -> None:
        """R7: load again if the commit that holds this reader back has ended."""
        options = log.options
        look, end_max = options.held_by, options.end_max
        if look is None:
            return
        with contextlib.suppress(CorruptCheckpoint, NewerFormat, OSError):  # then it is held back as before
            options.hold_back(look)
        if options.end_max == end_max:
            return
        log.bound_end()
        try:
            self._reload(log)
        except BaseException:  # the next look does it
            options.end_at(end_max, look)
            log.bound_end()
            raise

    # ---- the log end -------------------------------------------------------------------------------------------------

    def stands(self) -> bool:
        """R2: does the file still have the tail fingerprint?"""
        known = self._tail
        if known is None:
            return True
        try:
            found = os.stat(known.segment.path)
        except FileNotFoundError:
            return False
        if found.st_ino != known.inode or found.st_size < (known.segment.size if known.size is None else known.size):
            return False
        return known.position < 0 or bytes(known.segment.file.read(known.position, _FINGERPRINT_BYTES)) == known.header

    def _tail_was_deleted(self, log: LogCore) -> bool:
        """Has retention deleted the last segment that this reader knows?"""
        present = settled_listing(log.directory.path, log.options.files).logs
        return self._tail is not None and bool(present) and min(present) > self._tail.segment.base_offset

    def _tail_was_cleaned(self, log: LogCore) -> bool:
        """R6: has a cleaner, or a purge, replaced the segment with the last batch of a snapshot?"""
        directory, files, last = log.directory.path, log.options.files, self._last
        present = settled_listing(directory, files).logs
        at = -1 if last is None else bisect.bisect_right(present, last.base_offset) - 1
        if last is None or not 0 <= at < len(present) - 1:  # the newest segment is not cleaned
            return False
        with files.open(names.file_path(directory, present[at], names.LOG)) as file:
            found = find_offset(file, 0, file.length(), last.base_offset)
        if found is None or found.base_offset > last.last_offset:
            return True
        return is_left_of(found, last)

    def _extend(self, segment: Segment) -> None:
        """Take new batches at the end of a segment into the log."""
        found = os.stat(segment.path)
        if not segment.size:
            segment.take_for(found, closed=False)
        size = found.st_size
        scan = segment.extend(size) if size > segment.size else None
        if scan is not None and scan.batches:
            self._tail = tail_fingerprint(segment, scan.last_at)
            self._epoch = max(self._epoch, scan.notable[-1].leader_epoch)
        elif self._tail is None or self._tail.segment.base_offset < segment.base_offset:
            self._tail = tail_fingerprint(segment, -1)

    def _follow_end(self, log: LogCore) -> None:
        if log.segments and not _stays(log):
            active = log.segments[-1]
            self._extend(active)
            log.end_at(max(log.log_end_offset, active.next_offset))
            _follow_start(log)

    # ---- segments ----------------------------------------------------------------------------------------------------

    def _relist(self, log: LogCore) -> None:
        """Follow rolls and deletions."""
        present = set(settled_listing(log.directory.path, log.options.files).logs)
        stays = _stays(log)
        if stays:
            present = {base for base in present if base <= log.segments[-1].base_offset}
        known = {segment.base_offset: segment for segment in log.segments}
        if self._epochs_changed(log):  # else what the load has mended stays
            _follow_epochs(log)
        truncated = bool(known) and max(known) not in present
        if truncated or (known and _compacted(log, present)):
            self._reload(log, truncated=truncated)
            return
        if present == set(known):
            return
        segments: list[Segment] = []
        bases = sorted(present)
        for number, base in enumerate(bases):
            segment = known.get(base) or new_segment(inputs_of(log), base, writable=False)
            if base not in known or (segment is log.segments[-1] and not stays):
                self._extend(segment)
            if number + 1 < len(bases):
                segment.followed_by(bases[number + 1])
            segments.append(segment)
        log.follow(segments, bool(known) and bases[0] > min(known))

    def _reload(self, log: LogCore, *, truncated: bool = False) -> None:
        """Load again: the writer has truncated or replaced segments. An exception leaves the log unchanged. Only a
        truncation lowers the log start."""
        if truncated:
            self._follow_checkpoints(log)  # a klog lowers them before it truncates
        inputs = inputs_of(log)
        if not truncated:
            inputs.log_start_offset = max(inputs.log_start_offset, log.log_start_offset)
        inputs.check_gaps = False  # the writer may compact the topic by now
        self._epochs_changed(log)
        loaded = load_read_only(inputs)
        before, topic_id = self._topic_id, checkpoint.read_topic_id(log.path)
        if loaded.segments:  # a broker lowers its checkpoint after it truncates
            first, last = loaded.segments[0], loaded.segments[-1]
            loaded.log_start_offset = max(min(loaded.log_start_offset, last.next_offset), first.base_offset)
        for segment in log.segments:
            segment.close()  # the name may belong to another file now
        log.directory.loaded(inputs.segment_dir)
        self._topic_id = topic_id or before
        self.lives += before is not None and topic_id not in (None, before)
        producers = log.producers
        log.reload(loaded)
        if _stays(log) and producers.end_offset == log.log_end_offset:
            # Those of its moment: a cleaner may have removed records of a transaction that was open then.
            log.use_producers(producers)
            log.aborted_finder.forget()
        self.loaded(log, loaded)

    def _epochs_changed(self, log: LogCore) -> bool:
        """Has leader-epoch-checkpoint changed since the last call?"""
        before, self._epochs = self._epochs, None
        with contextlib.suppress(OSError):
            self._epochs = file_state(os.path.join(log.directory.path, names.EPOCHS))
        return self._epochs != before

    # ---- checkpoints of the log.dir ----------------------------------------------------------------------------------

    def _follow_checkpoints(self, log: LogCore) -> None:
        """Read the checkpoints of the log.dir: a broker raises the high watermark, a klog that writes removes it, and
        deleted records raise the log start. A truncation lowers it when the log is loaded again."""
        options, key = log.options, (log.topic, log.partition)
        path = options.high_watermark_path
        if path is None:
            return
        found = self._changed(path)
        if found is not None:
            options.follow_high_watermark(found.get(key))
        found = self._changed(os.path.join(os.path.dirname(path), checkpoint.LOG_START))
        if found is not None:
            options.follow_log_start(found.get(key, 0))
        _follow_start(log)

    def _changed(self, path: str) -> Mapping[checkpoint.Partition, int] | None:
        """The content of a checkpoint, None if the file has not changed since the last call."""
        state = None
        with contextlib.suppress(OSError):
            state = file_state(path)
        if self._checkpoints.get(path, ()) == state:
            return None
        with contextlib.suppress(CorruptCheckpoint, OSError):  # the last one that could be read still counts
            offsets = checkpoint.read_offsets(path)
            self._checkpoints[path] = state
            return offsets
        return None


def has_gone(path: str) -> bool:
    """Has the directory of a partition been removed from an existing log.dir?"""
    return not is_directory(path) and is_directory(os.path.dirname(path))


def gone(log: LogCore) -> UnknownTopicOrPartition:
    """The error for a log whose directory has gone."""
    parent = os.path.dirname(log.path)
    return UnknownTopicOrPartition(
        f"{log.name} is no longer in {parent}: it was deleted, or moved to another log.dir, since it was opened. "
        f"`klog ls {parent}` lists what is there"
    )


def _follow_start(log: LogCore) -> None:
    """Raise the log start to that of the checkpoint, once the log reaches so far."""
    start = log.options.log_start_offset
    if log.log_start_offset < start <= log.log_end_offset:
        log.start_at(start)


def _stays(log: LogCore) -> bool:
    """Is it a snapshot?"""
    return log.is_snapshot and log.options.held_by is None


def _follow_epochs(log: LogCore) -> None:
    """Load the leader epochs again: the writer may have begun a new one."""
    epochs = LeaderEpochCache(log.directory.path, log.options.files)
    epochs.load()
    if epochs.problem is None and epochs.entries:
        log.use_epochs(epochs)


def _has_rolled(log: LogCore) -> bool:
    """Is there a new segment at the log end? The mtime of the directory may miss it: older kernels update it in steps
    of milliseconds."""
    end, segments = log.log_end_offset, log.segments
    return (not segments or segments[-1].base_offset != end) and exists(
        names.file_path(log.directory.path, end, names.LOG)
    )


def _compacted(log: LogCore, present: set[int]) -> bool:
    """Has a cleaner replaced closed segments? Retention removes only the oldest, and nothing else changes the file or
    the size of a closed segment."""
    oldest = min(present, default=0)
    for segment in log.segments[:-1]:
        if segment.base_offset < oldest:
            continue
        if segment.base_offset not in present:
            return True
        found = os.stat(segment.path)
        if found.st_size != segment.size or not segment.is_file(found):
            return True
    return False
