"""The contestants of bench/tails.py: stores that make one record of 1,000 bytes durable at a time.

    pwrite + fdatasync   the lower bound: only writes the same bytes into preallocated blocks of a file
    klog                 Log.append with durability="sync"
    sqlite3              a transaction for each record; journal_mode=WAL, synchronous=FULL
    LMDB                 a transaction for each record; sync and metasync on, its defaults
    RocksDB              a put with WriteOptions.sync; no compression

Other settings are the defaults, except `piece_bytes`: klog's segment.bytes and RocksDB's write_buffer_size, so that
both begin a new file after the same number of bytes.

Each record has a number, which rises from record to record; after a run the numbers are read from the reopened store.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import klog
from bench.cleaner_limits import make_log
from bench.rocksdb import RocksDb, library_name
from bench.workloads import noise
from klog import record
from klog.disk import RealFiles

VALUE_BYTES = 1000
_NOISE = noise(VALUE_BYTES - 8)
_GROUP = 1000
_MAP_BYTES = 64 << 30
_LINKED_BYTES = 1 << 20
_STEP_BYTES = 16 << 20
_UNIQUE_EVERY = 8


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def value(number: int) -> bytes:
    return key(number) + _NOISE


class Store(ABC):
    """A store in its own directory or file. open() and close() alternate; any thread may call put() in between."""

    name: str
    cleans = False  # whether it implements dirty() and clean()

    def __init__(self, path: Path, piece_bytes: int | None = None) -> None:
        self.path, self.piece_bytes = path, piece_bytes
        self.next_number = 0

    @classmethod
    def needs(cls) -> str:
        """Return the name of a library that the store needs and this machine does not have; "" if the store can run."""
        return ""

    @abstractmethod
    def open(self) -> None:
        """Open the store. Creates it if it does not exist."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def put(self, number: int) -> None:
        """Write a record. It is on disk when this returns."""

    @abstractmethod
    def numbers(self, first: int) -> list[int]:
        """Return the numbers of the records that put() has written, from `first` on, sorted."""

    def fill(self, count: int) -> Iterator[int]:
        """Write `count` records as fast as possible, and sync them at the end. Yields how many are written."""
        raise NotImplementedError

    def dirty(self, size: int) -> None:
        """Write a store of about `size` bytes, most of which a cleaning would remove, and close it."""
        raise NotImplementedError

    def clean(self) -> None:
        """Clean this open store, in this thread."""
        raise NotImplementedError


class PlainFile(Store):
    name = "pwrite + fdatasync"

    def open(self) -> None:
        self._files, fresh = RealFiles(), not self.path.exists()
        self._file = self._files.open(str(self.path), write=True, create=fresh)
        self._size, self._allocated = len(self._encoded(0)), self.path.stat().st_size

    def close(self) -> None:
        self._file.close()

    def put(self, number: int) -> None:
        position = number * self._size
        if position + self._size > self._allocated:
            self._file.preallocate(self._allocated, _STEP_BYTES)
            self._allocated += _STEP_BYTES
        self._file.write(self._encoded(number), position)
        self._files.fdatasync(self._file)

    def numbers(self, first: int) -> list[int]:
        written = record.decode(self.path.read_bytes()[first * self._size :])
        return [int.from_bytes(each.key or b"", "big") for batch in written for each in batch]

    def _encoded(self, number: int) -> bytes:
        return record.encode([(key(number), value(number))])


class Klog(Store):
    name = "klog append"
    cleans = True
    _first: int | None = None  # offset of the first record of put()

    def open(self) -> None:
        self._log = self._opened("sync", self.piece_bytes)

    def close(self) -> None:
        self._log.close()

    def put(self, number: int) -> None:
        info = self._log.append([(b"load" + key(number), value(number))])
        if self._first is None:
            self._first = info.first_offset

    def numbers(self, first: int) -> list[int]:
        written = (int.from_bytes((name or b"")[4:], "big") for name, _ in self._log.read(self._first).pairs())
        return sorted(number for number in written if number >= first)

    def fill(self, count: int) -> Iterator[int]:
        batch = record.encode([(b"fill" + key(number), value(number)) for number in range(_GROUP)])
        with self._opened("os") as log:
            for done in range(0, count, _GROUP):
                log.append_batches(batch)
                yield done
            log.flush()
            self.next_number = count

    def dirty(self, size: int) -> None:
        make_log(self.path, size, max(size // 8, 1 << 16))
        with self._opened("os") as log:
            log.roll()  # appends go to a new segment, not to one that copies share

    def clean(self) -> None:
        stats = self._log.compact()
        assert stats.bytes_after < stats.bytes_before, "nothing was cleaned"

    def _opened(self, durability: Any, segment_bytes: int | None = None) -> klog.Log:
        config: dict[str, Any] = {"cleanup.policy": "compact", "file.delete.delay.ms": 0}
        if segment_bytes is not None:
            config["segment.bytes"] = segment_bytes
        return klog.Log.open(
            self.path, config=config, durability=durability, clean_shutdown=True, recovery_point=1 << 62
        )


class Sqlite(Store):
    name = "sqlite3"

    def open(self) -> None:
        self._open("FULL")

    def _open(self, synchronous: str) -> None:
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        assert self._db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute("CREATE TABLE IF NOT EXISTS log (number INTEGER PRIMARY KEY, value BLOB)")

    def close(self) -> None:
        self._db.close()

    def put(self, number: int) -> None:
        self._db.execute("INSERT INTO log VALUES (?, ?)", (number, value(number)))  # commits

    def numbers(self, first: int) -> list[int]:
        return [number for (number,) in self._db.execute("SELECT number FROM log WHERE number >= ?", (first,))]

    def fill(self, count: int) -> Iterator[int]:
        self._open("OFF")
        for numbers in _groups(count, 64 * _GROUP):
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO log VALUES (?, ?)", ((number, value(number)) for number in numbers))
            self._db.execute("COMMIT")
            yield numbers.stop
        self.close()
        self.next_number = count
        _sync(self.path)


class Lmdb(Store):
    name = "LMDB"

    @classmethod
    def needs(cls) -> str:
        return "" if find_spec("lmdb") else "lmdb (extra [dev])"

    def open(self) -> None:
        self._open(True)

    def _open(self, sync: bool) -> None:
        import lmdb

        self._env = lmdb.open(str(self.path), map_size=_MAP_BYTES, subdir=False, sync=sync)

    def close(self) -> None:
        self._env.close()

    def put(self, number: int) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.put(key(number), value(number), append=True)

    def numbers(self, first: int) -> list[int]:
        with self._env.begin() as transaction:
            cursor = transaction.cursor()
            cursor.set_range(key(first))
            return [int.from_bytes(name, "big") for name in cursor.iternext(values=False)]

    def fill(self, count: int) -> Iterator[int]:
        self._open(False)
        for numbers in _groups(count, 64 * _GROUP):
            with self._env.begin(write=True) as transaction:
                pairs = ((key(number), value(number)) for number in numbers)
                transaction.cursor().putmulti(pairs, append=True)
            yield numbers.stop
        self._env.sync(True)
        self.close()
        self.next_number = count


class Rocks(Store):
    name = "RocksDB"
    cleans = True

    @classmethod
    def needs(cls) -> str:
        return "" if library_name() else "librocksdb"

    def open(self) -> None:
        self._db = RocksDb(self.path, write_buffer_bytes=self.piece_bytes)

    def close(self) -> None:
        self._db.close()

    def put(self, number: int) -> None:
        self._db.put_durably(b"load" + key(number), value(number))

    def numbers(self, first: int) -> list[int]:
        return [int.from_bytes(name[4:], "big") for name in self._db.keys(b"load" + key(first)) if name[:4] == b"load"]

    def fill(self, count: int) -> Iterator[int]:
        self._db = RocksDb(self.path)
        for numbers in _groups(count, _GROUP):
            self._db.put_all((b"fill" + key(number), value(number)) for number in numbers)
            yield numbers.stop
        self._db.flush()
        self.close()
        self.next_number = count
        _sync(*self.path.iterdir())

    def dirty(self, size: int) -> None:
        count = size // VALUE_BYTES
        keys = count // _UNIQUE_EVERY  # each is written eight times, in different memtables
        self._db = RocksDb(self.path, write_buffer_bytes=size // 16, auto_compactions=False)
        for numbers in _groups(count, _GROUP):
            self._db.put_all((b"fill" + key(number % keys), value(number)) for number in numbers)
        self._db.flush()
        self.close()

    def clean(self) -> None:
        self._db.compact()


def copy_store(source: Path, target: Path) -> None:
    """Copy a closed store. Large files, which no store writes to again, are linked."""
    target.mkdir()
    for path in source.iterdir():
        (os.link if path.stat().st_size > _LINKED_BYTES else shutil.copy2)(path, target / path.name)


def remove(path: Path) -> None:
    """Remove a closed store: a directory, or a file and the further files that sqlite3 and LMDB make."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        for suffix in ("", "-wal", "-shm", "-lock"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _groups(count: int, size: int) -> Iterator[range]:
    bounds = [*range(0, count, size), count]
    return itertools.starmap(range, itertools.pairwise(bounds))


def _sync(*paths: Path) -> None:
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
