"""What a stop in the middle of deletion or compaction leaves behind, and how a load finishes or undoes it.

    .deleted   on its way out: unlinked
    .cleaned   output that was still being written: unlinked, and every .swap with it, since .cleaned files are renamed
               to .swap all before the first original goes
    .swap      complete output whose renaming may have begun: it replaces the originals in its range, if it is sound
    .tmp       what was to replace one of our small files, which is still there as it was: unlinked

Kafka believes a .swap unread; here every byte of it is checked before anything is removed. An empty one, which a
compaction leaves of segments that hold nothing any more, is believed where the original of its base is gone: else it
could as well be one whose bytes have not arrived.
Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, LogSegments.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.disk import Files
from klog.errors import CorruptBatch
from klog.segment import names, scan_checked


def clear_leftovers(directory: str, files: Files, note: Callable[[str], None]) -> list[str]:
    """Bring a partition directory to live names only: all names there, sorted. note gets a line per thing done."""
    listing, foreign = sorted(os.listdir(directory)), []
    for name in listing:
        leftover = name.endswith((names.DELETED, names.CLEANED, names.SWAP)) or names.is_temporary(name)
        if leftover and _is_directory(os.path.join(directory, name)):
            note(f"{name} left alone: a directory is nothing that was left behind")
            foreign.append(name)
    listing = [name for name in listing if name not in foreign]
    changed = False
    for name in listing:
        deleted = name.endswith(names.DELETED) and not name.endswith(".checkpoint" + names.DELETED)
        if deleted or names.is_temporary(name):
            files.unlink(os.path.join(directory, name))
            changed = True
    cleaned = [name for name in listing if name.endswith(names.CLEANED)]
    swaps = [name for name in listing if name.endswith(names.SWAP)]
    if swaps and not cleaned and _sound(directory, files, swaps, set(listing), note):
        _finish_swap(directory, files, swaps, note)
        changed = True
        swaps = []
    for name in (*cleaned, *swaps):
        note(f"{name} dropped: unfinished compaction")
        files.unlink(os.path.join(directory, name))
        changed = True
    if not changed:
        return listing
    files.fsync_dir(directory)
    return sorted(os.listdir(directory))


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _sound(directory: str, files: Files, swaps: list[str], present: set[str], note: Callable[[str], None]) -> bool:
    """Is every .log.swap made of whole, checked batches?"""
    for name in swaps:
        if not name.endswith(names.LOG + names.SWAP):
            continue
        path = os.path.join(directory, name)
        file = files.open(path)
        try:
            size = os.fstat(file.fileno()).st_size
            scan = scan_checked(file, 0, size, 0)
        except CorruptBatch as error:
            note(f"{name}: {error}")
            return False
        finally:
            file.close()
        if scan.end != size or (size == 0 and name.removesuffix(names.SWAP) in present):
            note(f"{name}: {scan.reason or 'empty'} at byte {scan.end} of {size}, the originals are kept")
            return False
    return True


def _finish_swap(directory: str, files: Files, swaps: list[str], note: Callable[[str], None]) -> None:
    """Remove the originals that the swap files replace, and give those their final names."""
    low, high = None, -1
    for name in swaps:
        parsed = names.parse_name(name.removesuffix(names.SWAP))
        if parsed is None or parsed[1] != names.LOG:
            continue
        file = files.open(os.path.join(directory, name))
        try:
            scan = scan_checked(file, 0, os.fstat(file.fileno()).st_size, 0)
        finally:
            file.close()
        low = parsed[0] if low is None else min(low, parsed[0])
        high = max(high, scan.next_offset)
    if low is not None:
        for name in sorted(os.listdir(directory)):
            parsed = names.parse_name(name)
            if parsed is not None and (low <= parsed[0] < high or parsed[0] == low):
                files.unlink(os.path.join(directory, name))
        files.fsync_dir(directory)  # an original that came back beside its replacement would be read too
        note(f"compaction finished: segments of [{low}, {high}) replaced")
    base = ""
    for name in sorted(swaps):
        if base and not name.startswith(base):
            files.fsync_dir(
                directory
            )  # upwards: a finished segment with a .swap on either side would count as replaced
        base = name.partition(".")[0]
        path = os.path.join(directory, name)
        files.rename(path, path.removesuffix(names.SWAP))
