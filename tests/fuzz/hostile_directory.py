"""A log directory with damaged files: opened, read, appended to, and opened again.

input := rules:u8 edit*         rules: bit 0 stopped cleanly, bit 1 recovery="kafka", bit 2 checksums recomputed
edit  := file:u8 kind:u8 position:u16 size:u8 bytes{size}
                                kind: 0 overwrite, 1 cut at position, 2 insert, 3 remove the file, 4 a flipped bit
"""

from __future__ import annotations

import contextlib
import functools
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from klog.log.options import Policy
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.reseal import reseal

Value = tuple[int, bytes | None]
_TOPIC = "t"
_FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


@functools.cache
def directory(clean: bool) -> dict[str, bytes]:
    """The files of a small log: several segments, producers, transactions, epochs."""
    with tempfile.TemporaryDirectory(dir=_FAST) as place:
        logs = klog.open(place, create=True, clock=ManualClock(NOW))
        try:
            logs.create_topic(
                _TOPIC, config={"segment.bytes": 700, "segment.index.bytes": 200, "index.interval.bytes": 100}
            )
            log = logs.log(_TOPIC)
            for epoch in range(2):
                log.append_batches(batch([b"plain %d" % n for n in range(3)]), leader_epoch=epoch)
                log.append_batches(produced(1, 0, 2 * epoch, 2), leader_epoch=epoch)
                log.append_batches(transactional(7, epoch, 0, 2), leader_epoch=epoch)
                log.append_batches(marker(7, epoch, "abort"), origin="coordinator", leader_epoch=epoch)
                log.append_batches(batch([b"packed"] * 9, compression="lz4"), leader_epoch=epoch)
            log.flush()
            log.append_batches(batch([b"last"]), leader_epoch=1)
            if clean:
                logs.close()
            return {
                str(path.relative_to(place)): path.read_bytes()
                for path in sorted(Path(place).rglob("*"))
                if path.is_file() and path.name != ".lock"
            }
        finally:
            abandon(logs)


def edits(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(file, kind, position, bytes), at most 16."""
    at = 0
    for _ in range(16):
        if len(data) - at < 5:
            return
        file, kind, position, size = struct.unpack_from(">BBHB", data, at)
        yield file, kind % 5, position, data[at + 5 : at + 5 + size]
        at += 5 + size


def damaged(files: dict[str, bytes], data: bytes) -> dict[str, bytes]:
    """The files after the edits of an input."""
    files = dict(files)
    for file, kind, position, given in edits(data):
        if not files:
            break
        name = sorted(files)[file % len(files)]
        content = files[name]
        at = position % (len(content) + 1)
        if kind == 0:
            files[name] = content[:at] + given + content[at + len(given) :]
        elif kind == 1:
            files[name] = content[:at]
        elif kind == 2:
            files[name] = content[:at] + given + content[at:]
        elif kind == 3:
            del files[name]
        elif at < len(content):
            files[name] = content[:at] + bytes((content[at] ^ 1 << position % 8,)) + content[at + 1 :]
    return files


def directory_target(data: bytes) -> None:
    """Opening raises a KlogError, or the log has only records that were once appended, accepts another record, and
    opens again."""
    if not data:
        return
    plain = directory(bool(data[0] & 1))
    files = damaged(plain, data[1:])
    resealed = bool(data[0] & 4)
    if resealed:
        files = {name: reseal(content) if name.endswith(".log") else content for name, content in files.items()}
    with tempfile.TemporaryDirectory(dir=_FAST) as place:
        for name, content in files.items():
            path = Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        with contextlib.suppress(KlogError):
            found, again = _use(place, "kafka" if data[0] & 2 else "strict")
            # Only a wrong checksum shows that a record's offset lies outside its batch.
            assert set(found) <= set(again) if resealed else found == again, (found, again)


def _use(place: str, recovery: Policy) -> tuple[list[Value], list[Value]]:
    """The records after an append, and after the next start."""
    with klog.open(place, recovery=recovery, clock=ManualClock(NOW)) as logs:
        if _TOPIC not in logs.topics():
            return [], []
        log = logs.log(_TOPIC)
        with contextlib.suppress(KlogError):
            log.verify()
        with contextlib.suppress(KlogError):
            list(log.read(isolation="read_committed"))
        found = _records(log)
        at = log.append([(b"k", b"after", NOW)]).first_offset
        assert log.log_end_offset == at + 1
    with klog.open(place, clock=ManualClock(NOW)) as logs:
        return [*found, (at, b"after")], _records(logs.log(_TOPIC))


def _records(log: klog.Log) -> list[Value]:
    return [(record.offset, record.value) for record in log.read(log.log_start_offset)]
