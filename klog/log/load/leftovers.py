"""What a stop in the middle of deletion or compaction leaves behind, and how a load finishes or undoes it.

    .cleaned   output that was still being written: unlinked, and every .swap with it, since .cleaned files are renamed
               to .swap all before the first original goes
    .swap      complete output whose renaming may have begun: it replaces the originals in its range, if it is sound
    .deleted   on its way out: unlinked, but where a .swap is dropped that had replaced it: then it comes back
    .tmp       what was to replace one of our small files, which is still there as it was: unlinked

  O1  a .swap is dropped only where other segments hold every offset at which it has a batch. Originals that were put
      aside come back for that; where they are gone, the .swap is finished if it is sound, else "strict" refuses
  O2  a load that is stopped anywhere is done again by the next one, to the same end: what a decision was made of goes
      after what it was made for, durably

Kafka believes a .swap unread, and drops every .deleted first; here each byte of a .swap is checked before anything is
removed. An empty one, which a compaction leaves of segments that hold nothing any more, is believed where the original
of its base is gone: else it could as well be one whose bytes have not arrived.
Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, LogSegments.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Collection, Iterable, Iterator

from klog.disk import Files
from klog.errors import CorruptBatch, CorruptLog
from klog.log.load.inputs import Policy
from klog.segment import HeaderWalk, Scan, names, scan_checked, scan_headers

_OFFSET_MAX = 2**63 - 1
_UNFINISHED = (names.DELETED, names.CLEANED, names.SWAP)


def clear_leftovers(directory: str, files: Files, policy: Policy, note: Callable[[str], None]) -> list[str]:
    """Bring a partition directory to live names only: all names there, sorted. note gets a line per thing done.

    Raises CorruptLog under "strict" where records are in a broken .swap alone; OSError.
    """
    listing, foreign = sorted(os.listdir(directory)), []
    for name in listing:
        leftover = name.endswith(_UNFINISHED) or names.is_temporary(name)
        if leftover and _is_directory(os.path.join(directory, name)):
            note(f"{name} left alone: a directory is nothing that was left behind")
            foreign.append(name)
    listing = [name for name in listing if name not in foreign]
    going = [
        name for name in listing if name.endswith(names.DELETED) and not name.endswith(f".checkpoint{names.DELETED}")
    ]
    cleaned = [name for name in listing if name.endswith(names.CLEANED)]
    temporary = [name for name in listing if names.is_temporary(name)]
    if any(name.endswith(names.SWAP) for name in listing):
        _Swaps(directory, files, policy, note, listing).settle(cleaned)
    elif not (going or cleaned or temporary):
        return listing
    for name in cleaned:
        note(f"{name} dropped: unfinished compaction")
    for name in (*cleaned, *going, *temporary):
        files.unlink(os.path.join(directory, name))
    files.fsync_dir(directory)
    return sorted(os.listdir(directory))


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _base(name: str) -> int:
    """The base offset in a file's name; the largest where it has none."""
    parsed = names.parse_name(name.removesuffix(names.SWAP).removesuffix(names.CLEANED).removesuffix(names.DELETED))
    return _OFFSET_MAX if parsed is None else parsed[0]


class _Swaps:
    """The .swap files of a directory, and the segments that they replace or have replaced."""

    def __init__(
        self, directory: str, files: Files, policy: Policy, note: Callable[[str], None], listing: Collection[str]
    ) -> None:
        self._directory, self._files, self._policy, self._note = directory, files, policy, note
        self._swaps = [name for name in listing if name.endswith(names.SWAP)]
        self._logs = [name for name in self._swaps if name.endswith(names.LOG + names.SWAP)]
        self._live = self._list_live()
        self._sound = {name: self._is_sound(name) for name in self._logs}

    def settle(self, cleaned: Collection[str]) -> None:
        """Finish them if they are whole, else drop them if that loses nothing (O1)."""
        whole = not cleaned and all(self._sound.values())
        writing, waiting = set(map(_base, cleaned)), set(map(_base, self._logs))
        ready = [
            name for name in self._swaps if whole or _base(name) not in writing | waiting
        ]  # or its .log is through
        self._finish(ready)
        dropped = [name for name in self._swaps if name not in ready]
        logs = [name for name in dropped if name in self._logs]
        told = all(self._sound[name] for name in logs)
        if logs and (self._needs(logs) or not told):
            self._bring_back(logs)
        if logs and self._needs(logs):
            if self._policy == "strict" and not told:
                raise CorruptLog(
                    f"{', '.join(logs)}: an unfinished compaction, and the segments that it was to replace are gone. "
                    f'Nothing was removed. Restore them, or open with recovery="kafka", which takes it as it is',
                    path=self._path(logs[0]),
                    kind="leftover",
                )
            self._finish(dropped)
        else:
            self._drop(dropped, logs)

    # ---- what is there ---------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _list_live(self) -> dict[int, int]:
        """{base offset of a live segment: where its batches end}, in order; up to the next one where it is damaged."""
        live = sorted(
            name for name in os.listdir(self._directory) if name.endswith(names.LOG) and names.parse_name(name)
        )
        return {_base(name): self._end(name) for name in live}

    def _end(self, name: str) -> int:
        scan = self._scan(name, scan_headers)
        return _OFFSET_MAX if scan.reason else scan.next_offset

    def _scan(self, name: str, how: Callable[..., Scan]) -> Scan:
        file = self._files.open(self._path(name))
        try:
            return how(file, 0, os.fstat(file.fileno()).st_size, 0)
        finally:
            file.close()

    def _is_sound(self, name: str) -> bool:
        """Is a .log.swap made of whole, checked batches?"""
        try:
            scan = self._scan(name, scan_checked)
        except CorruptBatch as error:
            self._note(f"{name}: {error}")
            return False
        size = os.stat(self._path(name)).st_size
        original = name.removesuffix(names.SWAP)
        beside = (original, original + names.DELETED)
        if scan.end == size and (size or not any(os.path.exists(self._path(other)) for other in beside)):
            return True
        self._note(f"{name}: {scan.reason or 'empty'} at byte {scan.end} of {size}, the originals are kept")
        return False

    def _holds(self, offset: int) -> bool:
        """Does a live segment reach an offset, or begin there?"""
        bases = list(self._live)
        at = bisect.bisect_right(bases, offset) - 1
        return at >= 0 and (bases[at] == offset or offset < self._live[bases[at]])

    def _offsets(self, name: str) -> Iterator[int]:
        """Where the batches of a .log.swap begin, as far as it can be read, and where the segment does."""
        yield _base(name)
        file = self._files.open(self._path(name))
        try:
            for header in HeaderWalk(file, 0, os.fstat(file.fileno()).st_size):
                yield header.last_offset if header.magic < 2 else header.base_offset
        finally:
            file.close()

    def _needs(self, logs: Iterable[str]) -> list[int]:
        """Offsets at which these have batches, and no live segment has."""
        return [offset for name in logs for offset in self._offsets(name) if not self._holds(offset)]

    # ---- what is done ----------------------------------------------------------------------------------------------

    def _bring_back(self, logs: Collection[str]) -> None:
        """Originals that were put aside get their names again, where no live segment has come in their place. A .swap
        that is broken does not tell how far it went: to the newest segment at most, which is never compacted."""
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
        for _, base in sorted(plan):  # O2: what shows that they are needed comes last
            self._restore(-base)
        self._files.fsync_dir(self._directory)

    def _restore(self, base: int) -> None:
        """The .log last: until then the next load does it again."""
        suffixes = (*names.SEGMENT_SUFFIXES[1:], names.SNAPSHOT, names.LOG)
        for suffix in suffixes:
            path = names.file_path(self._directory, base, suffix)
            if os.path.exists(path + names.DELETED) and not os.path.exists(path):
                self._files.rename(path + names.DELETED, path)
        self._note(f"segment {base} is back: what was to replace it is not whole")

    def _finish(self, swaps: Collection[str]) -> None:
        """Remove the originals that these replace, and give them their final names."""
        files, directory = self._files, self._directory
        logs = [name for name in swaps if name in self._logs]
        if logs:
            low, high = min(map(_base, logs)), max(self._scan(name, scan_checked).next_offset for name in logs)
            for name in sorted(os.listdir(directory)):
                parsed = names.parse_name(name)
                if parsed is not None and (low <= parsed[0] < high or parsed[0] == low):
                    files.unlink(self._path(name))
            files.fsync_dir(directory)  # an original that came back beside its replacement would be read too
            self._note(f"compaction finished: segments of [{low}, {high}) replaced")
        for base in sorted(set(map(_base, swaps))):
            for name in sorted((name for name in swaps if _base(name) == base), key=lambda name: name not in logs):
                files.rename(self._path(name), self._path(name).removesuffix(names.SWAP))
            files.fsync_dir(
                directory
            )  # upwards: a finished segment with a .swap on either side would count as replaced

    def _drop(self, swaps: Collection[str], logs: Collection[str]) -> None:
        """O2: a .log.swap goes after what belongs to it, a broken one after the others, which would count as ready."""
        others = [name for name in swaps if name not in logs]
        sound, broken = ([name for name in logs if self._sound[name] is kept] for kept in (True, False))
        for group in (others, sound, broken):
            for name in group:
                self._note(f"{name} dropped: unfinished compaction")
                self._files.unlink(self._path(name))
            if group:
                self._files.fsync_dir(self._directory)
