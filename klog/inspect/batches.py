"""Scans a .log file, batch by batch, past damage.

    scan(file)    Found      a batch with a valid frame, of any magic; `error`: the damage inside it (crc, a record), or
                             None
                  Legacy     a wrapper message of magic 0 or 1 whose content cannot be read
                  Broken     [position, end) where no batch begins; `torn` if no complete batch follows: usual after a
                             crash

After a broken frame the next batch is searched byte by byte: a known magic, a plausible header, a matching checksum.
The bytes that are checksummed there, and in broken frames, are limited to RESYNC_FACTOR times the file size, also for a
hostile file: after that no other batch is searched.

`examine` does the costly part of a scan and returns only the damage. A later scan with it yields the same items by
reading headers, so segments can be examined in parallel and their batches be compared in order after that.

It finds frames by its own code, not by the scans of klog.segment: those stop at damage.

Memory: a window, or one batch if that is larger, and never more than the file size.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

from klog.codec import crc32c
from klog.errors import CorruptBatch, UnsupportedBatch
from klog.inspect.files import WINDOW, ReadOnlyFile
from klog.record import RecordBatch, decode, validate
from klog.values import dataclass

PREFIX = struct.Struct(">qi")
HEADER = struct.Struct(">qiibIhiqqqhii")  # base_offset .. count, 61 bytes
LEGACY_HEADER_BYTES = 18  # offset, size, crc, magic, attributes
MESSAGE_CRC_FROM = 16
CRC_FROM = 21
CANDIDATE_BYTES = 17
# Where a batch may begin: an offset below 2^56, and magic 2 in its byte; or magic 0 or 1, and a plausible size.
_CANDIDATE = re.compile(rb"(?s)(?=\x00.{7}(?:.{8}\x02|(?!\x00{4})[\x00-\x7f].{7}[\x00\x01]))")
RESYNC_FACTOR = 16
DAMAGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """A framed batch. position: byte in the file; the batch is batch.size long."""

    position: int
    batch: RecordBatch
    error: CorruptBatch | None

    @property
    def end(self) -> int:
        """First byte after the batch."""
        return self.position + self.batch.size


@dataclass(frozen=True, slots=True)
class Legacy:
    """A wrapper of magic 0 or 1 that cannot be read. offset: as stored, its last record's; valid: its checksum
    matches."""

    position: int
    end: int
    magic: int
    offset: int
    valid: bool
    error: CorruptBatch


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes without a frame. zeros: all bytes are NUL, as preallocation or a lost write leaves them."""

    position: int
    end: int
    error: CorruptBatch
    torn: bool
    zeros: bool


Item = Found | Legacy | Broken
Damage = Legacy | Broken | CorruptBatch


@dataclass(frozen=True, slots=True)
class Examined:
    """The damage of a .log file by position: a CorruptBatch is that of a batch with a valid frame. file: the identity
    of its content; a file that has changed since must be examined again."""

    path: str
    file: tuple[int, int, int, int]
    damage: Mapping[int, Damage]


def examine(path: str, progress: Callable[[int], None] | None = None) -> Examined | None:
    """Scan a whole .log file, and return its damage; None if there are more than DAMAGES_MAX damaged parts. progress:
    called with numbers of bytes.

    Raises CorruptData if it is not a regular file, and for a read error; FileNotFoundError.
    """
    damage: dict[int, Damage] = {}
    with ReadOnlyFile(path, scan=True) as file:
        for item in scan(file):
            if progress is not None:
                progress(item.end - item.position)
            if not isinstance(item, Found):
                damage[item.position] = item
            elif item.error is not None:
                damage[item.position] = item.error
            if len(damage) > DAMAGES_MAX:
                return None
        return Examined(path, file.identity, damage)


def scan(file: ReadOnlyFile, start: int = 0, examined: Examined | None = None) -> Iterator[Item]:
    """Yield items in order; each byte of the file from start on belongs to exactly one. examined: what examine() has
    found in this file; if the file is still the same, only its headers are read."""
    budget = RESYNC_FACTOR * file.size + WINDOW
    position = start
    memory = _Memory(file)
    known = examined.damage if examined is not None and examined.file == file.identity else None
    while position < file.size:
        file.passed(position)
        here = None if known is None else known.get(position)
        if isinstance(here, Legacy | Broken):
            yield here
            position = here.end
            continue
        window = memory.batch(position)
        error: CorruptBatch | None = None
        base = position
        try:
            for batch in decode(
                window, path=file.path, file_position=base, verify_crc=False, allow_partial=True, legacy=False
            ):
                if known is not None:
                    here = known.get(position)
                    if isinstance(here, Legacy | Broken):
                        break
                    found = Found(position, batch, here)
                else:
                    found = Found(position, batch, _inside(batch, file.path, position))
                    if found.error is not None and not _is_followed(file, found.end):
                        error = found.error
                        break
                yield found
                position = found.end
        except UnsupportedBatch as unsupported:
            message = _message(file, position)
            if message is not None:
                yield message
                position = message.end
                continue
            error = unsupported
        except CorruptBatch as corrupt:
            error = corrupt
        if known is not None and isinstance(known.get(position), Legacy | Broken):
            continue
        if error is None:
            if position > base:
                continue  # the next batch crosses the end of the window: read on from its beginning
            error = _cut(file, position)
        size = _batch_size(memory.at(position, PREFIX.size))
        budget -= size if 0 < size <= file.size - position else 0
        end, budget = _resync(file, memory, position + 1, budget)
        rest = file.size - position if end == file.size else 0
        zeros = _only_zeros(file, position, end)
        yield Broken(position, end, error, torn=rest > 0, zeros=zeros)
        position = end


def check_batches(file: ReadOnlyFile) -> Iterator[CorruptBatch]:
    """Yield the errors in a file of batches that is not a segment: a metadata snapshot, bootstrap.checkpoint. Their
    offsets count from 0, without a gap."""
    due = 0
    for item in scan(file):
        if isinstance(item, Broken):
            yield item.error
        elif isinstance(item, Found):
            if item.error is not None:
                yield item.error
            elif item.batch.base_offset != due:
                message = f"the batch begins at offset {item.batch.base_offset}, expected {due}"
                yield CorruptBatch(message, path=file.path, position=item.position, offset=due, kind="offset_order")
            due = item.batch.next_offset
        else:
            yield item.error


def batch_at(file: ReadOnlyFile, position: int) -> RecordBatch | None:
    """Return the batch that begins at position; None if no valid batch begins there."""
    size = _batch_size(file.read_at(position, PREFIX.size))
    if not 0 < size <= file.size - position:
        return None
    try:
        batches = decode(file.read_at(position, size), path=file.path, file_position=position, allow_partial=True)
        return next(iter(batches), None)
    except CorruptBatch:
        return None


def _batch_size(data: bytes | memoryview) -> int:
    """Return the size of the batch that begins here, as its header states it; 0 without one."""
    return int(PREFIX.unpack_from(data)[1]) + PREFIX.size if len(data) >= PREFIX.size else 0


class _Memory:
    """The last part of a file that was read: WINDOW bytes, or one batch. What is in it is not read again: a hostile
    file, or one of old messages, has an item every few bytes."""

    def __init__(self, file: ReadOnlyFile) -> None:
        self._file, self._start, self._data = file, 0, b""

    def at(self, position: int, least: int) -> memoryview:
        """Return the bytes from a position on, as many as are in memory: at least `least`, if the file has them."""
        end = self._start + len(self._data)
        if not self._start <= position <= end or (position + least > end and end < self._file.length()):
            self._start, self._data = position, self._file.read_at(position, max(WINDOW, least))
        return memoryview(self._data)[position - self._start :]

    def batch(self, position: int) -> memoryview:
        """Return the bytes from a position on: all of the batch that begins there, if the file has it."""
        window = self.at(position, HEADER.size)
        size = _batch_size(window)
        return self.at(position, size) if len(window) < size <= self._file.length() - position else window


def _inside(batch: RecordBatch, path: str, position: int) -> CorruptBatch | None:
    if batch.magic > 2:  # the magic is outside the checksum; Kafka, and so decode, treats it as 2 in a file
        return CorruptBatch(
            f"magic {batch.magic}, which Kafka never writes", path=path, position=position, offset=batch.base_offset
        )
    try:
        validate(batch.raw, path=path, file_position=position)
    except CorruptBatch as error:
        return error
    return None


def _is_followed(file: ReadOnlyFile, end: int) -> bool:
    """True if the frame of a batch with a wrong checksum ends at the end of the file or before another header."""
    if end == file.size:
        return True
    header = file.read_at(end, HEADER.size)
    return plausible(header, file.size - end)


def plausible(header: bytes | memoryview, left: int) -> bool:
    """True if a batch of magic 2 that fits into `left` bytes could begin with this header."""
    if len(header) < HEADER.size:
        return False
    base_offset, length, epoch, magic, _, attributes, delta, _, _, producer, _, _, count = HEADER.unpack(header)
    return bool(
        magic == 2
        and 49 <= length <= left - PREFIX.size
        and base_offset >= 0
        and epoch >= -1
        and attributes & 7 <= 4
        and delta >= 0
        and count >= 0
        and producer >= -1
    )


def _cut(file: ReadOnlyFile, position: int) -> CorruptBatch:
    left = file.size - position
    prefix = file.read_at(position, PREFIX.size)
    if len(prefix) < PREFIX.size:
        return CorruptBatch(f"{left} bytes, too few for a batch", path=file.path, position=position)
    base_offset, length = PREFIX.unpack(prefix)
    return CorruptBatch(
        f"a batch of {length + PREFIX.size} bytes where the file has {left} left",
        path=file.path,
        position=position,
        offset=base_offset if base_offset >= 0 else None,
    )


def _message(file: ReadOnlyFile, position: int) -> Found | Legacy | None:
    """Return the message of magic 0 or 1 that begins at position; None if it is a batch of magic 2 with a damaged
    magic, or if nothing valid follows it."""
    head = file.read_at(position, LEGACY_HEADER_BYTES)
    if len(head) < LEGACY_HEADER_BYTES:
        return None
    offset, length = PREFIX.unpack_from(head)
    end = position + PREFIX.size + length
    if not _plausible_message(head, file.size - position):
        return None
    whole = file.read_at(position, end - position)
    sound = _sound_message(whole)
    if not sound and not _is_followed(file, end):
        return None
    if not sound and len(whole) >= HEADER.size and _sound_batch(whole):
        return None
    try:
        (batch,) = decode(whole, path=file.path, file_position=position, verify_crc=False)
    except CorruptBatch as error:
        return Legacy(position, end, head[16], offset, sound, error)
    return Found(position, batch, _inside(batch, file.path, position))


def _plausible_message(head: bytes | memoryview, left: int) -> bool:
    offset, length = PREFIX.unpack_from(head)
    return head[16] <= 1 and offset >= 0 and (22 if head[16] else 14) <= length <= left - PREFIX.size


def _sound_message(whole: bytes) -> bool:
    return zlib.crc32(memoryview(whole)[MESSAGE_CRC_FROM:]) == int.from_bytes(whole[12:16])


def _sound_batch(whole: bytes) -> bool:
    return crc32c(memoryview(whole)[CRC_FROM:]) == int.from_bytes(whole[17:21])


def _resync(file: ReadOnlyFile, memory: _Memory, position: int, budget: int) -> tuple[int, int]:
    """Return the position of the next valid batch, else the end of the file; and the rest of the budget."""
    while position < file.size:
        window = memory.at(position, HEADER.size)
        for match in _CANDIDATE.finditer(window):
            start = match.start()
            header: bytes | memoryview = window[start : start + HEADER.size]
            if len(header) < HEADER.size:
                header = file.read_at(position + start, HEADER.size)
            left = file.size - position - start
            message = header[16] < 2
            if _plausible_message(header, left) if message else plausible(header, left):
                size = PREFIX.unpack_from(header)[1] + PREFIX.size
                if size <= budget:
                    budget -= size
                    whole = file.read_at(position + start, size)
                    if len(whole) == size and (_sound_message(whole) if message else _sound_batch(whole)):
                        return position + start, budget
        if len(window) < CANDIDATE_BYTES:
            break
        position += len(window) - CANDIDATE_BYTES + 1
    return file.size, budget


def _only_zeros(file: ReadOnlyFile, position: int, end: int) -> bool:
    while position < end:
        part = file.read_at(position, min(WINDOW, end - position))
        if not part or part.count(0) != len(part):
            return False
        position += len(part)
    return True
