"""Consistent reads without a lock: a reader notices that a writer has changed the files meanwhile, and reads again.

Also handles the errors of a read: adds to damage the offset at which a reader can go on, counts failures of the disk,
reports a deleted log. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from klog.disk import is_directory
from klog.errors import CorruptBatch, CorruptData, UnknownTopicOrPartition
from klog.log.read.divergence import Batch, check_left, truncated
from klog.log.read.refresh import gone, has_gone
from klog.log.state._log_core import LogCore
from klog.log.state._segment_list import Moment
from klog.segment import sound_after

T = TypeVar("T")
_LOOKS_MAX = 100  # a writer that rolls and deletes all the time may remove files during each refresh


def steadily(log: LogCore, work: Callable[[], T]) -> T:
    """The result of work(), which reads files; repeated if a writer has changed them meanwhile.

    A truncation is counted before it removes the first byte, and a removal beyond the log end after it is done. So with
    unchanged counters the result is of one moment.
    """
    while True:
        moment, rewritten = log.moment, log.rewritten
        try:
            found = work()
            if (log.rewritten, log.taken_back) == (rewritten, moment.taken_back):
                return found
        except (CorruptData, FileNotFoundError) as error:
            if not overtaken(log, moment):
                check_there(log, error)
                raise


def noting(log: LogCore, offset: int, look: Callable[[], T]) -> T:
    """steadily(look) for a reader at this offset; counts failed reads. A success does not reset their count, since
    headers may come from memory."""
    try:
        return steadily(log, look)
    except CorruptBatch as error:
        note_next_offset(log, error, offset)
        raise
    except FileNotFoundError:
        raise
    except OSError as error:
        log.read_failed(error)
        raise


def resuming(
    log: LogCore,
    start: int,
    stop: int,
    read: Callable[[int, int], Iterator[tuple[T, int]]],
    batches_of: Callable[[T], Iterable[Batch]],
    bound: Callable[[], int] | None = None,
) -> Iterator[T]:
    """The pieces of [start, stop) that read(offset, stop) yields from an offset on, each with the offset after it.

    If a writer has changed the files meanwhile, other than by appends, it reads on after the last piece. Raises
    LogTruncated if it was truncated below that, OffsetOutOfRange if what follows was deleted, UnknownTopicOrPartition
    if the topic was created again. batches_of: the batches of a piece, or only its last one. bound: that of the
    isolation. A truncation may lower it below stop: a transaction without its marker is undecided again.
    """
    log.check_open()
    offset, lives, rewritten = start, _lives(log), -1
    last: T | None = None
    while offset < stop:
        if _lives(log) != lives:
            raise UnknownTopicOrPartition(
                f"{log.name}: the topic was deleted and created again while it was read; read it again"
            )
        if last is not None and offset > log.log_end_offset:
            raise truncated(log, offset, log.log_end_offset)
        log.check_held(offset)
        moment = log.moment
        if (now := log.rewritten) != rewritten:
            if last is not None:
                check_left(log, batches_of(last), offset)
            rewritten = now
            if bound is not None:
                stop = min(stop, bound())
        try:
            for piece, next_offset in read(offset, stop):
                if not steady(log, moment) or log.rewritten != rewritten:
                    break  # the piece may mix two states of the file: read again
                log.health.read_worked()
                last = None  # the caller may need its memory
                yield piece
                last = piece
                offset = max(offset, next_offset)
            else:
                if log.generation == moment.generation and offset >= log.log_start_offset:
                    return
        except (CorruptData, FileNotFoundError) as error:
            if not overtaken(log, moment):
                note_next_offset(log, error, offset)
                check_there(log, error)
                raise
        except OSError as error:
            log.read_failed(error)
            raise


def _lives(log: LogCore) -> int:
    return 0 if log.follower is None else int(log.follower.lives)


def overtaken(log: LogCore, moment: Moment) -> bool:
    """Has the writer changed the log since that moment, other than by appends? Then the reader reads again.

    In the writer's own process it waits for a change that is being made.
    """
    if log.closed:
        return False
    with log.lock:
        if log.follower is not None:
            for _ in range(_LOOKS_MAX):
                log.follower.distrust()
                if log.follower.refresh_locked(log) or not is_directory(log.path):
                    break
            log.check_open()  # a snapshot may have ended
    return log.moment != moment


def steady(log: LogCore, moment: Moment) -> bool:
    """R3 of refresh: has the writer only appended since that moment? If not, the reader reads again."""
    if log.generation != moment.generation:
        return False
    if log.follower is None:
        return True
    with log.lock:
        return log.follower.stands() or not overtaken(log, moment)


def note_next_offset(log: LogCore, error: Exception, offset: int) -> None:
    """Set next_offset of an error that a reader at this offset got."""
    if not isinstance(error, CorruptBatch) or error.next_offset is not None:
        return
    segments = log.segments
    number = next((n for n, segment in enumerate(segments) if segment.path == error.path), None)
    if number is None:
        return
    try:
        segment = segments[number]
        found = sound_after(segment.file, error.position or 0, segment.size, segment.base_offset, offset + 1)
    except OSError:  # the segment was deleted meanwhile: report the damage without next_offset
        return
    if found is not None:
        error.next_offset = max(found.base_offset, offset + 1)
        return
    later = (segment.base_offset for segment in segments[number + 1 :] if segment.base_offset > offset)
    error.next_offset = next(later, max(log.log_end_offset, offset))


def check_there(log: LogCore, error: Exception) -> None:
    """Raise UnknownTopicOrPartition if the error is due to the deletion of the whole log."""
    if isinstance(error, FileNotFoundError) and (log.health.deleted or has_gone(log.path)):
        raise gone(log) from error
