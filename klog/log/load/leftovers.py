"""Files left by an interrupted deletion or compaction, and how a load finishes or undoes it.

    .cleaned   output that was still being written: unlinked, together with every .swap, since all .cleaned files are
               renamed to .swap before the first original is removed
    .swap      complete output whose renaming may have begun: it replaces the originals in its range, if it is intact
    .deleted   marked for deletion: unlinked, but renamed back if the .swap that had replaced it is dropped
    .tmp       a replacement of a small file that still has its old content: unlinked

  O1  a .swap is dropped only if other segments hold every offset at which it has a batch. Originals marked for deletion
      are renamed back for that. If they are gone, an intact .swap is finished, and for a damaged one "strict" refuses
  O2  an interrupted load is repeated by the next one with the same result: the files that a decision depends on are
      removed, durably, after the files that it is about

Kafka does not check a .swap, and first drops every .deleted; here each byte of a .swap is checked before anything is
removed. Compaction leaves an empty .swap of segments without remaining records. It is accepted only if the original of
its base offset is gone: otherwise its bytes may not have reached the disk.
Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, LogSegments.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Collection, Iterable, Iterator

from klog.arguments import LONG_MAX
from klog.disk import Files, exists, is_directory
from klog.errors import CorruptLog
from klog.log.directory._listing import Listing
from klog.log.options import Policy
from klog.segment import HeaderIterator, Scan, names, scan_checked, scan_headers


def clear_leftovers(listing: Listing, files: Files, policy: Policy, note: Callable[[str], None]) -> Listing:
    """Finish or undo all leftovers of a partition directory. listing: what it holds. Returns what it holds then.

    note is called with a line per action. Raises CorruptLog under "strict" if records are only in a damaged .swap;
    OSError.
    """
    directory, unfinished = listing.directory, []
    for name in listing.unfinished:
        if is_directory(os.path.join(directory, name), follow_symlinks=False):
            note(f"{name} left alone: it is a directory, not an unfinished file")
        else:
            unfinished.append(name)
    going = [
        name for name in unfinished if name.endswith(names.DELETED) and not name.endswith(f".checkpoint{names.DELETED}")
    ]
    cleaned = [name for name in unfinished if name.endswith(names.CLEANED)]
    temporary = [name for name in unfinished if names.is_temporary(name)]
    swaps = [name for name in unfinished if name.endswith(names.SWAP)]
    if swaps:
        _Swaps(directory, files, policy, note, swaps).settle(cleaned)
    elif not (going or cleaned or temporary):
        return listing
    for name in cleaned:
        note(f"{name} dropped: unfinished compaction")
    marked = {_base(name) for name in going if name.endswith(names.LOG + names.DELETED)}
    beside = [name for name in Listing(directory).orphans() if _base(name) in marked]
    if beside:  # O2: an index alone would show that its .log was lost
        remove_orphans(directory, beside, files, note)
        files.fsync_dir(directory)
    for name in (*cleaned, *going, *temporary):
        files.unlink(os.path.join(directory, name))
    files.fsync_dir(directory)
    return Listing(directory)


def remove_orphans(directory: str, orphans: Iterable[str], files: Files, note: Callable[[str], None]) -> None:
    """Remove these index files without a .log."""
    for name in orphans:
        note(f"{name} removed: it has no .log")
        files.unlink(os.path.join(directory, name))


def check_complete(listing: Listing, files: Files) -> None:
    """Raise CorruptLog if some offsets of a log are only in files of an unfinished swap. For a reader, which cannot
    finish it. Raises FileNotFoundError if a writer goes on meanwhile."""
    swaps = [name for name in listing.unfinished if name.endswith(names.SWAP)]
    needed = _Swaps(listing.directory, files, "strict", lambda _: None, swaps).needed()
    if needed:
        raise CorruptLog(
            f"an unfinished compaction: offset {min(needed)} and others are only in its files. A writer that is at "
            f"work finishes it; if there is none, open the log for writing once",
            path=os.path.join(listing.directory, swaps[0]),
            offset=min(needed),
            kind="leftover",
        )


def _base(name: str) -> int:
    """The base offset in a file's name; the largest possible if it has none."""
    parsed = names.parse_name(name.removesuffix(names.SWAP).removesuffix(names.CLEANED).removesuffix(names.DELETED))
    return LONG_MAX if parsed is None else parsed[0]


class _Swaps:
    """The .swap files of a directory, and the segments that they replace."""

    def __init__(
        self, directory: str, files: Files, policy: Policy, note: Callable[[str], None], swaps: Collection[str]
    ) -> None:
        self._directory, self._files, self._policy, self._note = directory, files, policy, note
        self._swaps = swaps
        self._logs = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
        self._live = self._list_live()
        self._sound: dict[str, bool] = {}

    def needed(self) -> list[int]:
        """The offsets that only these files hold."""
        return self._needs(self._logs)

    def settle(self, cleaned: Collection[str]) -> None:
        """Finish the .swap files if they are intact, else drop them if that loses nothing (O1)."""
        self._sound = {name: self._is_sound(name) for name in self._logs}
        whole = not cleaned and all(self._sound.values())
        writing, waiting = set(map(_base, cleaned)), set(map(_base, self._logs))
        ready = [
            name for name in self._swaps if whole or _base(name) not in writing | waiting
        ]  # the latter: its .log has its final name already
        self._finish(ready)
        dropped = [name for name in self._swaps if name not in ready]
        logs = [name for name in dropped if name in self._logs]
        sound = all(self._sound[name] for name in logs)
        if self._needs(logs) or not sound:
            self._bring_back(logs)
        if self._needs(logs):
            if self._policy == "strict" and not sound:
                raise CorruptLog(
                    f"{', '.join(logs)}: an unfinished compaction, and the segments that it was to replace are gone. "
                    f'Nothing was removed. Restore them, or open with recovery="kafka", which accepts it as it is',
                    path=self._path(logs[0]),
                    kind="leftover",
                )
            self._finish(dropped)
        else:
            self._drop(dropped, logs)

    # ---- queries ---------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _list_live(self) -> dict[int, int]:
        """{base offset of a live segment: its end offset}, in order. A damaged one counts up to the next segment."""
        return {base: self._end(names.file_name(base, names.LOG)) for base in Listing(self._directory).logs}

    def _end(self, name: str) -> int:
        scan = self._scan(name, scan_headers)
        return LONG_MAX if scan.reason else scan.next_offset

    def _scan(self, name: str, how: Callable[..., Scan]) -> Scan:
        with self._files.open(self._path(name)) as file:
            return how(file, 0, file.length(), 0)

    def _is_sound(self, name: str) -> bool:
        """Does a .log.swap consist of whole batches with valid checksums?"""
        scan = self._scan(name, scan_checked)
        size = os.stat(self._path(name)).st_size
        original = name.removesuffix(names.SWAP)
        beside = (original, original + names.DELETED)
        if scan.end == size and (size or not any(exists(self._path(other)) for other in beside)):
            return True
        self._note(f"{name}: {scan.reason or 'empty'} at byte {scan.end} of {size}, the originals are kept")
        return False

    def _holds(self, offset: int) -> bool:
        """Does a live segment reach beyond an offset, or begin there?"""
        bases = list(self._live)
        at = bisect.bisect_right(bases, offset) - 1
        return at >= 0 and (bases[at] == offset or offset < self._live[bases[at]])

    def _offsets(self, name: str) -> Iterator[int]:
        """The base offset of a .log.swap and those of its batches, as far as it can be read."""
        yield _base(name)
        with self._files.open(self._path(name)) as file:
            for header in HeaderIterator(file, 0, file.length()):
                yield header.last_offset if header.magic < 2 else header.base_offset

    def _needs(self, logs: Iterable[str]) -> list[int]:
        """The offsets of these files that no live segment holds."""
        return [offset for name in logs for offset in self._offsets(name) if not self._holds(offset)]

    # ---- what is done ----------------------------------------------------------------------------------------------

    def _bring_back(self, logs: Collection[str]) -> None:
        """Rename originals marked for deletion back, unless a live segment has replaced them.

        The end of a damaged .swap is unknown. It is at most the base of the newest segment, which is never compacted.
        """
        low = min(map(_base, logs))
        high = max(self._scan(name, scan_headers).next_offset for name in logs)
        if not all(self._sound[name] for name in logs):
            high = max(high, *self._live, low + 1)
        needed, plan = self._needs(logs), []
        for name in sorted(os.listdir(self._directory)):
            base = _base(name)
            if name.endswith(names.LOG + names.DELETED) and low <= base < high and not self._holds(base):
                end = self._end(name)
                plan.append((any(base <= offset < end for offset in needed), -base))
                self._live = dict(sorted({**self._live, base: end}.items()))
        for _, base in sorted(plan):  # O2: the originals that show the need come last
            self._restore(-base)
        self._files.fsync_dir(self._directory)

    def _restore(self, base: int) -> None:
        """Rename the files of an original back, the .log last: until then the next load repeats it."""
        suffixes = (*names.SEGMENT_SUFFIXES[1:], names.SNAPSHOT, names.LOG)
        for suffix in suffixes:
            path = names.file_path(self._directory, base, suffix)
            if exists(path + names.DELETED) and not exists(path):
                self._files.rename(path + names.DELETED, path)
        self._note(f"segment {base} restored: its replacement is damaged")

    def _finish(self, swaps: Collection[str]) -> None:
        """Remove the originals that these files replace, and give the files their final names."""
        files, directory = self._files, self._directory
        logs = [name for name in swaps if name in self._logs]
        if logs:
            low, high = min(map(_base, logs)), max(self._scan(name, scan_checked).next_offset for name in logs)
            for name in sorted(os.listdir(directory)):
                parsed = names.parse_name(name)
                if parsed is not None and (low <= parsed[0] < high or parsed[0] == low):
                    files.unlink(self._path(name))
            files.fsync_dir(directory)  # after a crash an original must not reappear beside its replacement
            self._note(f"compaction finished: segments of [{low}, {high}) replaced")
        for base in sorted(set(map(_base, swaps))):
            for name in sorted((name for name in swaps if _base(name) == base), key=lambda name: name not in logs):
                files.rename(self._path(name), self._path(name).removesuffix(names.SWAP))
            files.fsync_dir(
                directory
            )  # in ascending order: a finished segment between two .swap files would count as replaced

    def _drop(self, swaps: Collection[str], logs: Collection[str]) -> None:
        """O2: drop each .log.swap after its other files, damaged ones last: else the others would count as ready."""
        others = [name for name in swaps if name not in logs]
        sound, broken = ([name for name in logs if self._sound[name] is kept] for kept in (True, False))
        for group in (others, sound, broken):
            for name in group:
                self._note(f"{name} dropped: unfinished compaction")
                self._files.unlink(self._path(name))
            if group:
                self._files.fsync_dir(self._directory)
