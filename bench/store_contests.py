"""klog as an embedded store: appends of 1,000 tuples and scans of values, beside lmdb and beside a plain file.

store append    lists of (key, value, timestamp) tuples into a log, without a sync; lmdb by putmulti(append=True) under
                rising 8-byte keys, sync and metasync off
store tuples    the same lists into a log; the peer is klog.record.encode of them alone
store scan      every value read, in order, in Python
store commit    1,000 records durable at a time: klog with durability="sync"; the peer writes the encoded bytes to a
                file with the same preallocation, and calls fdatasync

Each store is new before its measurement and has one empty record: a log's first append syncs the checkpoint of its
leader epoch, which takes milliseconds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import klog
from bench.contest import Contest, Contestant, Factory, Unavailable
from bench.workloads import FIRST_TIMESTAMP, Tuple, workload
from klog import record
from klog.disk import RealFiles

_RECORDS = 1000
_CONFIG = {"segment.bytes": 1 << 30, "retention.ms": -1}
_MAP_BYTES = 1 << 30
_FIRST: Tuple = (b"", b"", FIRST_TIMESTAMP)


def _groups(tiny: bool, times: int) -> list[list[Tuple]]:
    tuples = workload("100B", tiny=False).tuples()[: 16 if tiny else _RECORDS]
    return [tuples] * (2 if tiny else times)


class _Lmdb:
    """An environment that is new at each open()."""

    def __init__(self, path: Path) -> None:
        if find_spec("lmdb") is None:
            raise Unavailable("lmdb (extra [dev])")
        self._path = path
        self._env: Any = None

    def open(self) -> None:
        import lmdb

        self.close()
        self._path.mkdir()
        self._env = lmdb.open(str(self._path), map_size=_MAP_BYTES, sync=False, metasync=False)
        with self._env.begin(write=True) as transaction:
            transaction.put(bytes(8), b"")

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
        shutil.rmtree(self._path, ignore_errors=True)

    def append(self, groups: list[list[Tuple]]) -> None:
        number = 1
        for group in groups:
            with self._env.begin(write=True) as transaction:
                cursor = transaction.cursor()
                cursor.putmulti(
                    [((number + at).to_bytes(8, "big"), value) for at, (_, value, _) in enumerate(group)], append=True
                )
            number += len(group)

    def values(self) -> int:
        with self._env.begin() as transaction:
            return sum(len(value) for _, value in transaction.cursor())


class _Klog:
    def __init__(self, directory: Path, durability: Any = "os") -> None:
        self._directory, self._durability = directory, durability
        self.log: Any = None

    def open(self) -> None:
        self.close()
        self.log = klog.Log.open(self._directory, config=_CONFIG, durability=self._durability)
        self.log.append([_FIRST])

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def append(self, groups: list[list[Tuple]]) -> None:
        for group in groups:
            self.log.append(group)

    def values(self) -> int:
        return sum(len(each.value) for each in self.log.read())


def _append(tiny: bool, folder: Path) -> Contest:
    ours, theirs, groups = _Klog(folder / "store-0"), _Lmdb(folder / "lmdb"), _groups(tiny, 200)
    count, size = sum(map(len, groups)), sum(len(value) for group in groups for _, value, _ in group)

    def check() -> None:
        for store in (ours, theirs):
            store.open()
            store.append(groups)
            assert store.values() == size

    return Contest(
        "store append 100B",
        count,
        size,
        (
            Contestant("klog Log.append, 1,000 tuples", lambda: ours.append(groups), before=ours.open, goal=3),
            Contestant("lmdb putmulti, 1,000 pairs", lambda: theirs.append(groups), before=theirs.open),
        ),
        check,
        lambda: (ours.close(), theirs.close())[0],
    )


def _tuples(tiny: bool, folder: Path) -> Contest:
    ours, groups = _Klog(folder / "store-0"), _groups(tiny, 200)

    def encode() -> None:
        for group in groups:
            record.encode(group)

    def check() -> None:
        ours.open()
        ours.append(groups)
        records = iter(ours.log.read(1))
        for group in groups:
            assert [(each.key, each.value, each.timestamp) for _, each in zip(group, records, strict=False)] == group
            assert [
                (each.key, each.value, each.timestamp)
                for batch in record.decode(record.encode(group))
                for each in batch
            ] == group

    return Contest(
        "store tuples 100B",
        sum(map(len, groups)),
        sum(len(value) for group in groups for _, value, _ in group),
        (
            Contestant("klog Log.append, 1,000 tuples", lambda: ours.append(groups), before=ours.open, goal=0.8),
            Contestant("klog.record.encode of them", encode, before=ours.close),
        ),
        check,
        ours.close,
    )


def _scan(tiny: bool, folder: Path) -> Contest:
    ours, theirs, groups = _Klog(folder / "store-0"), _Lmdb(folder / "lmdb"), _groups(tiny, 200)
    count, size = sum(map(len, groups)), sum(len(value) for group in groups for _, value, _ in group)
    for store in (ours, theirs):
        store.open()
        store.append(groups)

    def check() -> None:
        assert ours.values() == theirs.values() == size
        assert ours.log.log_end_offset == 1 + count

    return Contest(
        "store scan 100B",
        count,
        size,
        (
            Contestant("klog Log.read(), every value", ours.values, goal=2),
            Contestant("lmdb cursor, every value", theirs.values),
        ),
        check,
        lambda: (ours.close(), theirs.close())[0],
    )


def _commit(tiny: bool, folder: Path) -> Contest:
    ours, groups, plain = _Klog(folder / "store-0", "sync"), _groups(tiny, 50), folder / "plain"
    encoded, files = record.encode(groups[0]), RealFiles()
    state: dict[str, Any] = {}

    def before() -> None:
        if "file" in state:
            state.pop("file").close()
        plain.unlink(missing_ok=True)
        state["file"] = files.open(str(plain), write=True, create=True)
        state["file"].preallocate(0, 16 << 20)

    def write() -> None:
        file = state["file"]
        for number in range(len(groups)):
            file.write(encoded, number * len(encoded))
            os.fdatasync(file.fileno())

    def check() -> None:
        ours.open()
        ours.append(groups)
        assert ours.log.log_end_offset == 1 + sum(map(len, groups))
        before()
        write()
        assert plain.stat().st_size == len(groups) * len(encoded)

    def close() -> None:
        ours.close()
        if "file" in state:
            state.pop("file").close()

    run: Callable[[], None] = lambda: ours.append(groups)  # noqa: E731
    return Contest(
        "store commit 100B",
        sum(map(len, groups)),
        len(groups) * len(encoded),
        (
            Contestant('klog Log.append, durability="sync"', run, before=ours.open, goal=0.8),
            Contestant("write and fdatasync", write, before=before),
        ),
        check,
        close,
    )


FACTORIES: dict[str, Factory] = {
    "store append 100B": _append,
    "store tuples 100B": _tuples,
    "store scan 100B": _scan,
    "store commit 100B": _commit,
}
