"""From written segments to live ones, so that whatever a crash leaves is the old log or the new one.

    X.log.cleaned ...                  written, synced                        dropped by a load: the old log
    X.log.swap ...                     renamed, synced (W1)                   from here on a load finishes the work
    <sources>.deleted                  renamed; who reads in them goes on     finished by a load
    X.log ...                          renamed, synced                        the new log
    <sources>.deleted                  unlinked after file.delete.delay.ms    (W5: never the target of another rename)

What a load does with each state: klog.log.leftovers, which checks every byte of a .swap before it takes its side (W2).
All of it under the log's lock. Kafka: LocalLog.replaceSegments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.log.cleaning_turn import Overtaken
from klog.log.load import new_segment
from klog.log.removal import put_aside_locked, unlink_later_locked
from klog.segment import Home, Segment, names

if TYPE_CHECKING:
    from klog.log import Log


def home_of_cleaned(log: Log) -> Home:
    """Where segments are at home that are being written. Whatever an earlier cleaning has left there goes."""
    options = log._options
    home = Home(log.path, log.config, options.files, options.handles, writable=True)
    home.suffix = names.CLEANED
    return home


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
    first = check_unchanged(log, os.path.dirname(cleaned.path), sources, sizes)
    live = new_segment(log._inputs(), cleaned.base_offset, writable=True)
    live.size = cleaned.size
    live.next_offset = log._segments[first + len(sources)].base_offset
    live.txn_index.checked = True
    _name_swaps(log, cleaned)
    doomed: list[str] = []
    log._finally(lambda: doomed.extend(_swap(log, live, sources)))
    log._segments = (*log._segments[:first], live, *log._segments[first + len(sources) :])
    log._generation += 1
    log._aborted_finder.forget()
    unlink_later_locked(log, doomed)  # not before: readers who miss a file look whether the segments are others by now
    return live


def _name_swaps(log: Log, cleaned: Segment) -> None:
    """From .cleaned to .swap, durably. OSError of a rename, or of too many open files: nothing of the log has changed,
    and nothing is left over; of the sync: what a load would find is not known, and the log is offline."""
    files = log._options.files
    cleaned.close()
    renamed: list[str] = []
    try:
        for path in filter(os.path.exists, cleaned.paths):
            swap = path.removesuffix(names.CLEANED) + names.SWAP
            files.rename(path, swap)
            renamed.append(swap)
        log._guard_sync(lambda: files.fsync_dir(log.path))
    except OSError:
        for swap in (
            renamed[::-1] if log.offline is None else ()
        ):  # .log last: alone, an index would take a live one's place
            log._guard(lambda swap=swap: files.unlink(swap))  # type: ignore[misc]
        raise


def _swap(log: Log, live: Segment, sources: Sequence[Segment]) -> list[str]:
    """The sources aside, the new segment in their place; what is to be unlinked."""
    files = log._options.files
    with log._home_of_deleted().opening:  # who looks for a file of a source meanwhile finds it behind this
        doomed = put_aside_locked(log, sources, "compaction", kept_snapshot=live.base_offset)
    for path in live.paths:
        if os.path.exists(path + names.SWAP):
            files.rename(path + names.SWAP, path)
    files.fsync_dir(log.path)
    return doomed
