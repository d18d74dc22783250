"""A disk that records its writes and flushes: a loop device over a file that this process serves through FUSE.

    ext4 or xfs  →  loop device  →  one FUSE file  →  Server: image file, list of records

The loop driver handles a flush of the block layer, and a write with FUA, as FSYNC of its file. So in a power cut the
device may lose only the writes after the last flush in the list. The device can fail flushes, and writes that contain a
marker. It needs /dev/fuse and loop devices, no other program.

Linux: include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.file_systems import copy_image, end_with_parent, run

SECTOR = 512
BLOCK = 4096
MARKER = b"<this write fails>"
_GETATTR, _OPEN, _READ, _WRITE, _RELEASE, _FSYNC, _FLUSH, _INIT, _DESTROY = 3, 14, 15, 16, 18, 20, 25, 26, 38
_NO_REPLY = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET
_IN, _OUT = struct.Struct("=IIQQIIII"), struct.Struct("=IiQ")
_WRITE_BYTES_MAX = 1 << 17
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_DIRECT_IO = 1
_RECORD = struct.Struct("=QI")  # position and size of a write; size 0: a flush
_libc = ctypes.CDLL(None, use_errno=True)


class _Control:
    """Integers shared with the server's process."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("q")

    def get(self, word: int) -> int:
        return int(self._words[word])

    def set(self, word: int, value: int) -> None:
        self._words[word] = value


_COUNT, _FAIL_FLUSHES, _FAIL_MARKED, _FAILURES = range(4)


class Device:
    """The device over the image file `image`. `path` is the FUSE file, while it is served; `log` gets the records."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image, self.path, self.log = image, place / "device", place / "device.log"
        self.path.touch()
        self._control = _Control()

    @property
    def count(self) -> int:
        """The number of writes and flushes so far."""
        return self._control.get(_COUNT)

    @property
    def failures(self) -> int:
        """The number of writes and flushes that failed."""
        return self._control.get(_FAILURES)

    def fail(self, *, flushes: bool = False, marked: bool = False) -> None:
        """From now on fail each flush, or each write that contains MARKER."""
        self._control.set(_FAIL_FLUSHES, flushes)
        self._control.set(_FAIL_MARKED, marked)

    @contextmanager
    def served(self) -> Iterator[None]:
        fuse = os.open("/dev/fuse", os.O_RDWR)
        options = b"fd=%d,rootmode=100000,user_id=0,group_id=0" % fuse
        if _libc.mount(b"klog-test", os.fsencode(self.path), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount of a FUSE file", str(self.path))
        self._control.set(_COUNT, 0)
        parent = os.getpid()
        server = os.fork()
        if server == 0:
            end_with_parent(parent)
            try:
                _Server(fuse, self.image, self.log, self._control).run()
            finally:
                os._exit(0)
        os.close(fuse)
        try:
            yield
        finally:
            run("umount", "-l", str(self.path))
            os.kill(server, signal.SIGKILL)  # it would end by itself, but not while a failed check holds files open
            os.waitpid(server, 0)


class _Server:
    def __init__(self, fuse: int, image: Path, log: Path, control: _Control) -> None:
        self._fuse, self._control = fuse, control
        self._image = os.open(image, os.O_RDWR)
        self._size = os.fstat(self._image).st_size
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def run(self) -> None:
        """Answer requests, one at a time, until the file is unmounted."""
        while True:
            try:
                request = os.read(self._fuse, _WRITE_BYTES_MAX + BLOCK)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):  # an interrupted request
                    continue
                raise
            _, opcode, unique, *_ = _IN.unpack_from(request)
            if opcode in _NO_REPLY:
                continue
            try:
                code, reply = 0, self._answer(opcode, memoryview(request)[_IN.size :])
            except OSError as error:
                code, reply = -(error.errno or errno.EIO), b""
            os.write(self._fuse, _OUT.pack(_OUT.size + len(reply), code, unique) + reply)
            if opcode == _DESTROY:
                return

    def _answer(self, opcode: int, body: memoryview) -> bytes:
        if opcode == _WRITE:
            return self._write(body)
        if opcode == _READ:
            position, size = struct.unpack_from("=QI", body, 8)
            return os.pread(self._image, size, position)
        if opcode == _FSYNC:
            return self._flush()
        if opcode == _INIT:
            return struct.pack(
                "=IIIIHHIIHH28x",
                7,
                31,
                0,
                _BIG_WRITES | _MAX_PAGES,
                0,
                0,
                _WRITE_BYTES_MAX,
                1,
                _WRITE_BYTES_MAX // BLOCK,
                0,
            )
        if opcode == _GETATTR:
            times_and_owner = (0,) * 6
            return struct.pack(
                "=QII6Q10I", 1 << 30, 0, 0, 1, self._size, self._size // SECTOR, 0, 0, 0,
                *times_and_owner[:3], 0o100600, 1, *times_and_owner[3:], BLOCK, 0,
            )  # fmt: skip
        if opcode == _OPEN:
            return struct.pack("=QII", 0, _DIRECT_IO, 0)
        if opcode in (_RELEASE, _FLUSH, _DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not needed by a loop device")

    def _write(self, body: memoryview) -> bytes:
        position, size = struct.unpack_from("=QI", body, 8)
        data = bytes(body[40 : 40 + size])
        if self._control.get(_FAIL_MARKED) and MARKER in data:
            self._fail()
        os.pwrite(self._image, data, position)
        self._add(position, data)
        return struct.pack("=II", size, 0)

    def _flush(self) -> bytes:
        if self._control.get(_FAIL_FLUSHES):
            self._fail()
        self._add(0, b"")
        return b""

    def _fail(self) -> None:
        self._control.set(_FAILURES, self._control.get(_FAILURES) + 1)
        raise OSError(errno.EIO, "a failure on request")

    def _add(self, position: int, data: bytes) -> None:
        """Add a record. It is counted before the kernel gets its answer."""
        os.write(self._log, _RECORD.pack(position, len(data)) + data)
        self._control.set(_COUNT, self._control.get(_COUNT) + 1)


class Write(NamedTuple):
    """A write of the device; without data a flush."""

    position: int
    data: bytes

    def pieces(self, size: int) -> Iterator[Write]:
        for at in range(0, len(self.data), size):
            yield Write(self.position + at, self.data[at : at + size])


def records(log: Path) -> list[Write]:
    data, at, found = log.read_bytes(), 0, []
    while at < len(data):
        position, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        found.append(Write(position, data[at : at + size]))
        at += size
    return found


HOW = ("all", "none", "some", "some sectors", "all but one")
"""What of the writes after the last flush is on the device after a power cut."""


class Remains:
    """Builds the images that a power cut may leave of a device. `base` is the image before the first record; records
    are applied to it as the cuts advance."""

    def __init__(self, base: Path, log: Path) -> None:
        self.records = records(log)
        self._base, self._done = base, 0

    def build(self, image: Path, cut: int, how: str, rng: random.Random, *, honest: int | None = None) -> None:
        """Make `image` the image that a cut after `cut` records leaves. From call to call, `cut` must not decrease.

        honest: flushes from this record on did nothing; None: all flushes worked."""
        flushes = [number for number in range(self._done, cut) if not self.records[number].data]
        durable = max((number for number in flushes if honest is None or number < honest), default=self._done)
        _apply(self._base, self.records[self._done : durable])
        self._done = durable
        copy_image(self._base, image)
        _apply(image, _kept([one for one in self.records[durable:cut] if one.data], how, rng))


def _kept(writes: list[Write], how: str, rng: random.Random) -> list[Write]:
    if how == "none":
        return []
    if how == "all but one" and writes:
        del writes[rng.randrange(len(writes))]
    if how in ("all", "all but one"):
        return writes
    size = SECTOR if how == "some sectors" else BLOCK
    return [piece for write in writes for piece in write.pieces(size) if rng.random() < 0.5]


def _apply(image: Path, writes: list[Write]) -> None:
    fd = os.open(image, os.O_RDWR)
    try:
        for write in writes:
            os.pwrite(fd, write.data, write.position)
    finally:
        os.close(fd)
