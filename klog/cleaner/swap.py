"""Replaces live segments with written ones; a crash leaves the old log or the new one.

    X.log.cleaned ...                  written, synced                        dropped by a load: the old log
    X.log.swap ...                     renamed, synced (W1)                   from here on a load finishes the swap
    <sources>.deleted                  renamed; readers that use them go on   finished by a load
    X.log ...                          renamed, synced                        the new log
    <sources>.deleted                  unlinked after file.delete.delay.ms    (W5: never the target of another rename)

klog.log.load.leftovers handles each of these states in a load. It checks every byte of a .swap before it uses it (W2).
All of it runs under the log's lock. Kafka: LocalLog.replaceSegments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from klog.disk import exists, failed_sync_in, is_final
from klog.errors import Overtaken
from klog.log.core import LogCore
from klog.log.load.inputs import inputs_of, new_segment
from klog.log.write.failures import guard, guard_sync, uninterrupted
from klog.log.write.removal import mark_for_deletion_locked, unlink_later_locked
from klog.segment import Segment, SegmentDir, names


def cleaned_dir(log: LogCore) -> SegmentDir:
    """Return the SegmentDir of segments that are being written."""
    options = log.options
    return SegmentDir(log.path, log.config, options.files, options.handles, writable=True, suffix=names.CLEANED)


def check_uncut(log: LogCore, rewritten: int) -> None:
    """Raise Overtaken if the log was truncated since log.rewritten had this value. A segment survives a truncation,
    and appends may bring it back to the same size with other bytes. Under the log's lock."""
    if log.rewritten != rewritten:
        raise Overtaken(f"{log.name} was truncated while it was cleaned")


def check_unchanged(log: LogCore, directory: str, sources: Sequence[Segment], sizes: Sequence[int]) -> int:
    """Return the number of the first source in the log. Raises Overtaken if not all are there, closed and unchanged;
    CorruptBatch if one has lost its end: its replacement, whose index shows nothing of that, would hide the loss."""
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    with contextlib.suppress(ValueError):
        first = bases.index(sources[0].base_offset)
        now = segments[first : first + len(sources)]
        same = len(now) == len(sources) and all(a is b for a, b in zip(now, sources, strict=True))
        if same and segments[-1] is not sources[-1] and [s.size for s in now] == list(sizes) and log.path == directory:
            for source in sources:
                source.check_end()
            return first
    raise Overtaken(f"{log.name} has lost or changed segments of [{sources[0].base_offset}, {sources[-1].next_offset})")


def replace_locked(log: LogCore, cleaned: Segment, sources: Sequence[Segment], sizes: Sequence[int]) -> Segment:
    """Put a written and synced segment in place of its sources; returns the live segment. Durable when it returns.

    After Overtaken nothing has been done. OSError takes the log offline: its next load finds the old log or the new
    one.
    """
    (live,) = replace_all_locked(log, [cleaned], sources, sizes)
    live.txn_index.note_checked()
    return live


def replace_all_locked(
    log: LogCore, cleaned: Sequence[Segment], sources: Sequence[Segment], sizes: Sequence[int]
) -> list[Segment]:
    """The same with several new segments, in order; the first begins where the first source does."""
    first = check_unchanged(log, os.path.dirname(cleaned[0].path), sources, sizes)
    inputs, following = inputs_of(log), [*cleaned[1:], log.segments[first + len(sources)]]
    lives = [
        new_segment(inputs, made.base_offset, writable=True, size=made.size, next_offset=after.base_offset)
        for made, after in zip(cleaned, following, strict=True)
    ]
    with _offline_if_interrupted(log):
        _name_swaps(log, cleaned)
        publish_locked(log, first, len(sources), lives, lambda: _swap(log, lives, sources))
    return lives


@contextlib.contextmanager
def _offline_if_interrupted(log: LogCore) -> Iterator[None]:
    """Take the log offline if a KeyboardInterrupt comes: the files may be the new ones already, and its segments still
    the old ones. A load would finish a swap, and lose what had been appended meanwhile."""
    try:
        yield
    except OSError:
        raise
    except BaseException as error:
        log.go_offline(repr(error), disk=failed_sync_in(error) is not None)
        raise


def publish_locked(
    log: LogCore, first: int, count: int, lives: Sequence[Segment], change: Callable[[], Sequence[str]]
) -> None:
    """Replace `count` segments from number `first` on: change() does it on disk, durably, and returns what is to be
    unlinked. An error in between takes the log offline."""
    to_unlink: list[str] = []
    with _offline_if_interrupted(log):
        uninterrupted(log, lambda: to_unlink.extend(change()))
        before, after = log.segments[:first], log.segments[first + count :]
        log.segment_list.rewrite((*before, *lives, *after))
        log.aborted_finder.forget()
        # Last: readers that miss a file check whether the segments have changed.
        unlink_later_locked(log, to_unlink)


def write_cleaned(log: LogCore, cleaned: Sequence[Segment], write: Callable[[], None]) -> None:
    """Call write(), which writes these .cleaned files and swaps them in. After an error none of them is left in a log
    that is still in use.

    If the disk cannot write or sync one (P6, S2), the log goes offline, and its next load handles what is left. After
    lack of space or descriptors, a failed read, or any other error, the log stays in use.
    """

    def passes(error: OSError) -> bool:
        written = str(error.filename).endswith(names.CLEANED) and not isinstance(error, FileNotFoundError)
        return not (written and is_final(error))

    try:
        guard(log, write, passes)
    except BaseException:
        if log.health.offline is None:
            for segment in cleaned:
                with contextlib.suppress(OSError):
                    segment.delete_files()
        raise


def _name_swaps(log: LogCore, cleaned: Sequence[Segment]) -> None:
    """Rename .cleaned to .swap, durably. After an OSError of a rename, or of too many open files, the log is unchanged
    and nothing is left over. After one of the sync it is unknown what a load would find, and the log is offline."""
    files = log.options.files
    for segment in cleaned:
        segment.close()
    paths = [path for segment in cleaned[::-1] for path in segment.paths if exists(path)]
    swaps = [path.removesuffix(names.CLEANED) + names.SWAP for path in paths]
    done = 0
    try:
        for path, swap in zip(paths, swaps, strict=True):
            files.rename(path, swap)
            done += 1
        guard_sync(log, lambda: files.fsync_dir(log.path))
    except OSError:
        if log.health.offline is None and done == len(paths):
            done -= 1
            guard(log, lambda: files.rename(swaps[-1], paths[-1]))
        for swap in swaps[:done] if log.health.offline is None else ():  # with a .cleaned, a load ignores a .swap
            guard(log, partial(files.unlink, swap))
        raise


def _swap(log: LogCore, lives: Sequence[Segment], sources: Sequence[Segment]) -> list[str]:
    """Mark the sources for deletion and put the new segments in their place. Returns what is to be unlinked."""
    files = log.options.files
    to_unlink = mark_for_deletion_locked(log, sources, "compaction", kept_snapshot=lives[0].base_offset)
    for live in lives:
        for path in live.paths:
            if exists(path + names.SWAP):
                files.rename(path + names.SWAP, path)
        files.fsync_dir(log.path)  # one by one: a live segment between two .swap files would count as replaced
    return to_unlink
