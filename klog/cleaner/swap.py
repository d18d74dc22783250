"""From written segments to live ones, so that whatever a crash leaves is the old log or the new one.

    X.log.cleaned ...                  written, synced                        dropped by a load: the old log
    X.log.swap ...                     renamed, synced (W1)                   from here on a load finishes the work
    <sources>.deleted                  renamed; who reads in them goes on     finished by a load
    X.log ...                          renamed, synced                        the new log
    <sources>.deleted                  unlinked after file.delete.delay.ms    (W5: never the target of another rename)

What a load does with each state: klog.log.load.leftovers. It checks every byte of a .swap before it uses it (W2).
All of it under the log's lock. Kafka: LocalLog.replaceSegments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from klog.disk import failed_sync_in, is_final
from klog.log.load.loader import new_segment
from klog.log.retain.cleaning_state import Overtaken
from klog.log.retain.removal import mark_for_deletion_locked, unlink_later_locked
from klog.log.write import failures
from klog.segment import Home, Segment, names

if TYPE_CHECKING:
    from klog.log import Log


def home_of_cleaned(log: Log) -> Home:
    """Where segments are at home that are being written. Whatever an earlier cleaning has left there goes."""
    options = log._options
    home = Home(log.path, log.config, options.files, options.handles, writable=True)
    home.suffix = names.CLEANED
    return home


def check_uncut(log: Log, rewritten: int) -> None:
    """Overtaken where the log was cut since log._rewritten was that: a segment survives it, and appends may bring it
    back to the size it had, with other bytes. Under the log's lock."""
    if log._rewritten != rewritten:
        raise Overtaken(f"{log.name} was cut while it was cleaned")


def check_unchanged(log: Log, directory: str, sources: Sequence[Segment], sizes: Sequence[int]) -> int:
    """Number of the first source in the log. Overtaken: they are not all there any more, closed, as they were."""
    segments = log._segments
    bases = [segment.base_offset for segment in segments]
    with contextlib.suppress(ValueError):
        first = bases.index(sources[0].base_offset)
        now = segments[first : first + len(sources)]
        same = len(now) == len(sources) and all(a is b for a, b in zip(now, sources, strict=True))
        if same and segments[-1] is not sources[-1] and [s.size for s in now] == list(sizes) and log.path == directory:
            return first
    raise Overtaken(f"{log.name} has lost or changed segments of [{sources[0].base_offset}, {sources[-1].next_offset})")


def replace_locked(log: Log, cleaned: Segment, sources: Sequence[Segment], sizes: Sequence[int]) -> Segment:
    """Put a written and synced segment in the place of its sources; the live segment. Durable when it returns.

    Overtaken: nothing has been done. OSError takes the log offline: its next load finds the old log or the new one.
    """
    (live,) = replace_all_locked(log, [cleaned], sources, sizes)
    live.txn_index.checked = True
    return live


def replace_all_locked(
    log: Log, cleaned: Sequence[Segment], sources: Sequence[Segment], sizes: Sequence[int]
) -> list[Segment]:
    """The same with several segments, in order, the first of which begins where the first source does."""
    first = check_unchanged(log, os.path.dirname(cleaned[0].path), sources, sizes)
    lives = [new_segment(log._inputs(), segment.base_offset, writable=True) for segment in cleaned]
    ends = [*(live.base_offset for live in lives[1:]), log._segments[first + len(sources)].base_offset]
    for live, made, end in zip(lives, cleaned, ends, strict=True):
        live.size, live.next_offset = made.size, end
    with _offline_if_interrupted(log):
        _name_swaps(log, cleaned)
        publish_locked(log, first, len(sources), lives, lambda: _swap(log, lives, sources))
    return lives


@contextlib.contextmanager
def _offline_if_interrupted(log: Log) -> Iterator[None]:
    """Ctrl-C takes the log offline: the files may be the new ones by then, and its segments still the old ones. A load
    would finish a swap, whatever had been appended meanwhile."""
    try:
        yield
    except OSError:
        raise
    except BaseException as error:
        log._go_offline(repr(error), disk=failed_sync_in(error) is not None)
        raise


def publish_locked(
    log: Log, first: int, count: int, lives: Sequence[Segment], change: Callable[[], Sequence[str]]
) -> None:
    """Other segments in the place of `count` from number `first` on: change() does it on disk, durably, and answers
    what is to be unlinked. What ends it half-way takes the log offline."""
    to_unlink: list[str] = []
    with _offline_if_interrupted(log):
        log._finally(lambda: to_unlink.extend(change()))
        log._segments = (*log._segments[:first], *lives, *log._segments[first + count :])
        log._generation += 1
        log._aborted_finder.forget()
        unlink_later_locked(
            log, to_unlink
        )  # not before: readers that miss a file check whether the segments are others


def write_cleaned(log: Log, cleaned: Sequence[Segment], write: Callable[[], None]) -> None:
    """Run what writes these .cleaned files and swaps them in; whatever ends it, none of them is left in a log in use.

    A disk that cannot write or sync one is broken (P6, S2): the log goes offline, and what is left is its next load's.
    What runs out, a reading and somebody else's error leave it in use.
    """

    def passes(error: OSError) -> bool:
        written = str(error.filename).endswith(names.CLEANED) and not isinstance(error, FileNotFoundError)
        return not (written and is_final(error))

    try:
        failures.guard(log, write, passes)
    except BaseException:
        if log.offline is None:
            for segment in cleaned:
                with contextlib.suppress(OSError):
                    segment.delete_files()
        raise


def _name_swaps(log: Log, cleaned: Sequence[Segment]) -> None:
    """From .cleaned to .swap, durably. OSError of a rename, or of too many open files: nothing of the log has changed,
    and nothing is left over; of the sync: what a load would find is not known, and the log is offline."""
    files = log._options.files
    for segment in cleaned:
        segment.close()
    paths = [path for segment in cleaned[::-1] for path in segment.paths if os.path.exists(path)]
    swaps = [path.removesuffix(names.CLEANED) + names.SWAP for path in paths]
    done = 0
    try:
        for path, swap in zip(paths, swaps, strict=True):
            files.rename(path, swap)
            done += 1
        log._guard_sync(lambda: files.fsync_dir(log.path))
    except OSError:
        if log.offline is None and done == len(paths):
            done -= 1
            log._guard(lambda: files.rename(swaps[-1], paths[-1]))
        for swap in swaps[:done] if log.offline is None else ():  # while a .cleaned is there, a load takes no .swap
            log._guard(lambda swap=swap: files.unlink(swap))
        raise


def _swap(log: Log, lives: Sequence[Segment], sources: Sequence[Segment]) -> list[str]:
    """The sources aside, the new segments in their place; what is to be unlinked."""
    files = log._options.files
    to_unlink = mark_for_deletion_locked(log, sources, "compaction", kept_snapshot=lives[0].base_offset)
    for live in lives:
        for path in live.paths:
            if os.path.exists(path + names.SWAP):
                files.rename(path + names.SWAP, path)
        files.fsync_dir(log.path)  # one by one: a live one between two that are .swap would count as replaced
    return to_unlink
