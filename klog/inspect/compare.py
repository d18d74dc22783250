"""diff: finds where two directories of the same partitions begin to differ: replicas, or a backup and its original.

  D1  records are compared, with offsets, epochs and producers; batch and segment boundaries and codecs are not
  D2  the comparison of a partition ends at the first offset at which both have a record and the records differ
  D3  a record that only one of them has, between records that both have, is counted: compaction leaves records out, and
      so does a rescue, which stores the gap (log/directory/gaps.py)
  D4  records below the higher of the two log starts are not compared
  D5  damage with the same bytes in both is not a difference: it is reported beside the result

Segments and batches with the same bytes are not decoded; of two such segments one is checked for damage. Memory: a
window of each file and one batch.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any

from klog import arguments
from klog.disk import check_directory
from klog.errors import CorruptBatch, CorruptData
from klog.inspect.batches import Found, scan
from klog.inspect.files import ReadOnlyFile, is_partition_directory, read_small
from klog.inspect.listing import ls
from klog.inspect.partition_files import LOOKS_MAX, bases, damage_of, items, segment_path
from klog.inspect.texts import parse_epochs
from klog.log.directory import gaps
from klog.progress import Event, Progress
from klog.record import Record, RecordBatch
from klog.values import dataclass

Entry = dict[str, Any]
_FIELDS = (
    *("leader_epoch", "timestamp", "timestamp_type", "key", "value", "headers", "producer_id", "producer_epoch"),
    *("sequence", "is_transactional", "is_control"),
)


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str], *, progress: Progress | None = None) -> Entry:
    """Compare two log.dirs, or two partition directories. Read-only, without a lock.

    Returns {"a", "b", "equal", "partitions"}. A partition: topic, partition, state, a and b (each None if it is missing
    there, or path, log_start_offset, log_end_offset, epochs, problems), compared_from, missing_in_a and missing_in_b
    (count and first offset of records that only the other has), unreadable_in_both (the damage that both have with the
    same bytes, as texts with the files of a), and first_divergence: offset, fields that differ, epoch_a, epoch_b; None
    if there is none. state: equal, diverged, damaged, missing, ends_earlier, gap (records inside are missing, and that
    log has a stored gap there, as after a rescue), compacted (records inside are missing) or starts_later. progress:
    called with Events, in bytes. Raises OSError, and ValueError if one is a log.dir and the other a partition
    directory.
    """
    where = check_directory(arguments.path("a", a)), check_directory(arguments.path("b", b))
    arguments.function("progress", progress)
    alone = [is_partition_directory(path) for path in where]
    if alone[0] != alone[1]:
        raise ValueError(f"a={where[0]!r}, b={where[1]!r}: one is a partition directory, the other is not")
    sides = [_listed(path, alone[0]) for path in where]
    step = _stepper(progress, sum(each["size"] for side in sides for each in side.values()))
    pairs = (_settled(sides[0].get(key), sides[1].get(key), step) for key in sorted({*sides[0], *sides[1]}))
    found = [pair for pair in pairs if pair is not None]
    equal = all(entry["state"] == "equal" for entry in found)
    return {"a": where[0], "b": where[1], "equal": equal, "partitions": found}


Key = tuple[str, int]


def _listed(path: str, alone: bool) -> dict[Key, Entry]:
    """Return the entries of ls() by topic and partition. Two single directories may have different names."""
    found = [entry for topic in ls(path)["topics"] for entry in topic["partitions"]]
    return {("", 0): found[0]} if alone else {(entry["topic"], entry["partition"]): entry for entry in found}


def _stepper(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(Event("compare", min(done, total), total, "bytes"))

    return step


def _settled(a: Entry | None, b: Entry | None, step: Callable[[int], None]) -> Entry | None:
    """Compare a partition, again if a writer has removed files meanwhile. None if both directories are removed."""
    for left in reversed(range(LOOKS_MAX)):
        try:
            return _pair(a, b, step)
        except FileNotFoundError:
            if not left:
                raise
            a, b = _listed_again(a), _listed_again(b)
            if a is b is None:
                return None
    raise AssertionError("unreachable")


def _listed_again(entry: Entry | None) -> Entry | None:
    try:
        return None if entry is None else _listed(entry["path"], True)["", 0]
    except FileNotFoundError:
        return None


def _pair(a: Entry | None, b: Entry | None, step: Callable[[int], None]) -> Entry:
    known = a or b or {}
    found: Entry = {
        "topic": known["topic"],
        "partition": known["partition"],
        "state": "missing",
        "a": _side(a),
        "b": _side(b),
        "compared_from": None,
        "missing_in_a": _Missing().entry(),
        "missing_in_b": _Missing().entry(),
        "unreadable_in_both": [],
        "first_divergence": None,
    }
    if a is not None and b is not None:
        found["compared_from"] = start = max(a["log_start_offset"] or 0, b["log_start_offset"] or 0)
        comparison = _Comparison(a["path"], b["path"], start, step)
        found["first_divergence"] = comparison.run()
        found["missing_in_a"], found["missing_in_b"] = (missing.entry() for missing in comparison.missing)
        found["unreadable_in_both"] = comparison.unreadable
        for name, stream in zip("ab", comparison.streams, strict=True):
            found[name]["problems"] = list(dict.fromkeys(found[name]["problems"] + stream.problems))
        found["state"] = _state(found, in_gaps=any(missing.in_gaps for missing in comparison.missing))
    return found


def _side(entry: Entry | None) -> Entry | None:
    if entry is None:
        return None
    path = os.path.join(entry["path"], "leader-epoch-checkpoint")
    problems = [entry["problem"]] if entry["log_end_offset"] is None else []
    epochs = []
    try:
        epochs = [list(each) for each in parse_epochs(read_small(path), path)]
    except FileNotFoundError:
        pass
    except CorruptData as error:
        problems.append(str(error))
    names = ("path", "log_start_offset", "log_end_offset")
    return {**{name: entry[name] for name in names}, "epochs": epochs, "problems": problems}


def _state(found: Entry, *, in_gaps: bool) -> str:
    a, b = found["a"], found["b"]
    if found["first_divergence"] is not None:
        return "diverged"
    if a["problems"] or b["problems"]:
        return "damaged"
    if a["log_end_offset"] != b["log_end_offset"]:
        return "ends_earlier"
    if found["missing_in_a"]["count"] or found["missing_in_b"]["count"]:
        return "gap" if in_gaps else "compacted"
    return "equal" if a["log_start_offset"] == b["log_start_offset"] else "starts_later"


@dataclass(slots=True)
class _Missing:
    """Records that are not in one of the partitions. gaps: its stored gaps. in_gaps: the number of these records
    there."""

    gaps: Collection[tuple[int, int]] = ()
    count: int = 0
    in_gaps: int = 0
    first: int | None = None

    def add(self, offset: int) -> None:
        self.count += 1
        self.in_gaps += any(start <= offset < end for start, end in self.gaps)
        if self.first is None:
            self.first = offset

    def entry(self) -> Entry:
        return {"count": self.count, "first_offset": self.first}


class _Stream:
    """The records of a partition's intact batches, from an offset on; None: no records. next_offset: the end of the
    last batch so far."""

    def __init__(self, path: str, start: int | None, step: Callable[[int], None]) -> None:
        self.problems: list[str] = []
        self.next_offset = self._start = start or 0
        self._path, self._step = path, step
        self._batches = iter(()) if start is None else self._intact()
        self.skip()

    def skip(self) -> None:
        """Go to the next batch."""
        self._batch = next(self._batches, None)
        self._records: Iterator[Record] | None = None
        self._head: Record | None = None
        if self._batch is not None:
            self.next_offset = self._batch.next_offset

    @property
    def untouched(self) -> RecordBatch | None:
        """The batch, if none of its records was taken."""
        return self._batch if self._records is None else None

    def head(self) -> Record | None:
        """The current record; None at the end."""
        while self._head is None and self._batch is not None:
            self.advance()
        return self._head

    def advance(self) -> None:
        """Go to the next record."""
        if self._batch is None:
            return
        if self._records is None:
            self._records = iter(self._batch)
        try:
            for record in self._records:
                if _offset(record) >= self._start:
                    self._head = record
                    return
        except CorruptBatch as error:
            self.problems.append(str(error))
        self.skip()

    def _intact(self) -> Iterator[RecordBatch]:
        try:
            for _, item in items(self._path, self._start):
                error = damage_of(item)
                if error is not None:
                    self.problems.append(str(error))
                elif isinstance(item, Found) and item.batch.next_offset > self._start:
                    yield item.batch
                self._step(item.end - item.position)
        except CorruptData as error:
            self.problems.append(str(error))


class _Comparison:
    """One partition in two directories. missing: records not in a, records not in b. unreadable: damage in both."""

    def __init__(self, a: str, b: str, start: int, step: Callable[[int], None]) -> None:
        self.missing = _Missing(gaps.read(a)), _Missing(gaps.read(b))
        self.unreadable: list[str] = []
        rest = self._same_until(a, b, start, step)
        self.streams = _Stream(a, rest, step), _Stream(b, rest, step)

    def _same_until(self, a: str, b: str, start: int, step: Callable[[int], None]) -> int | None:
        """Return the base offset of the first segment that differs, from the one with `start` on; `start` if that is
        the first. None if all are the same."""
        one, two = (_from(bases(path), start) for path in (a, b))
        for number, base in enumerate(one):
            if one[number : number + 2] != two[number : number + 2]:
                return start
            found = _damage_if_same(segment_path(a, base), segment_path(b, base), step)
            if found is None:
                return start
            self.unreadable += found
            start = one[number + 1] if number + 1 < len(one) else start
        return None if one else start

    def run(self) -> Entry | None:
        """Return the first divergence; None if there is none."""
        a, b = self.streams
        while True:
            batch, other = a.untouched, b.untouched
            if batch is not None and other is not None and batch.raw == other.raw:
                a.skip()
                b.skip()
                continue
            one, two = a.head(), b.head()
            if one is not None and two is not None and one.offset == two.offset:
                fields = [name for name in _FIELDS if getattr(one, name) != getattr(two, name)]
                if fields:
                    epochs = {"epoch_a": one.leader_epoch, "epoch_b": two.leader_epoch}
                    return {"offset": one.offset, "fields": fields, **epochs}
                a.advance()
                b.advance()
            elif not self._only_one(one, two):
                return None

    def _only_one(self, one: Record | None, two: Record | None) -> bool:
        """Count a record that only one log has. Returns False at the end of both, and after the end of one."""
        a, b = self.streams
        if one is not None and (two is None or _offset(one) < _offset(two)):
            missing, record, stream, other = self.missing[1], one, a, b
        elif two is not None:
            missing, record, stream, other = self.missing[0], two, b, a
        else:
            return False
        if _offset(record) >= other.next_offset and other.head() is None:
            return False
        missing.add(_offset(record))
        stream.advance()
        return True


def _offset(record: Record) -> int:
    offset = record.offset
    assert offset is not None  # of a batch
    return offset


def _from(found: list[int], start: int) -> list[int]:
    at = max(bisect.bisect_right(found, start) - 1, 0)
    return found[at:]


class _Different(Exception):
    """Two files differ."""


class _Compared(ReadOnlyFile):
    """A file that is compared with another one while it is read. Raises _Different."""

    def __init__(self, path: str, other: ReadOnlyFile) -> None:
        super().__init__(path, scan=True)
        self._other = other

    def passed(self, position: int) -> None:
        """Report to both files that the bytes before this position are not needed any more."""
        super().passed(position)
        self._other.passed(position)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to size bytes from position. Raises _Different if the other file has other bytes there."""
        data = super().read_at(position, size)
        if data != self._other.read_at(position, size):
            raise _Different
        return data


def _damage_if_same(a: str, b: str, step: Callable[[int], None]) -> list[str] | None:
    """Return the damage in a segment of which two files have the same bytes; None if they differ, or cannot be read."""
    try:
        with ReadOnlyFile(b, scan=True) as other, _Compared(a, other) as file:
            if file.size != other.size:
                return None
            found = [str(error) for item in scan(file) if (error := damage_of(item)) is not None]
            step(2 * file.size)
            return found
    except (_Different, CorruptData):
        return None
