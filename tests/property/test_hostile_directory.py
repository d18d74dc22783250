"""A bit of a file of a log.dir is flipped, or a file is cut at any position, after a clean stop and after a crash.

Opening, reading and appending return records that were written, in order and at their offsets, or raise a KlogError. There
is no other exception, no hang and no crash. Damage to a cache changes no result.

`make test` draws a sample of all damages; the test marked deep tries one bit of each byte, another one in each run.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from klog.errors import CorruptBatch, KlogError
from klog.log.directory import checkpoint
from klog.record import decode
from tests.support.seeds import drawn

T = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "none", "lz4", "zstd")
CACHES = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "-offset-checkpoint")
OUTSIDE = (*range(8), *range(12, 17))  # header bytes outside the checksum, except the length
Row = tuple[int, bytes | None, bytes | None, int, tuple]
State = Literal["clean", "crashed", "crashed, recover all"]
Policy = Literal["strict", "kafka"]
STATES: tuple[State, ...] = ("clean", "crashed", "crashed, recover all")


class Unsynced(RealFiles):
    """Skips syncs, for speed."""

    def fsync(self, file: LogFile) -> None: ...

    def fdatasync(self, file: LogFile) -> None: ...

    def fsync_dir(self, path: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Damage:
    """A flipped bit in a file; or, if bit is None, a file that is cut at `position`."""

    file: str
    position: int
    bit: int | None

    def to(self, data: bytes) -> bytes:
        if self.bit is None:
            return data[: self.position]
        changed = bytearray(data)
        changed[self.position] ^= 1 << self.bit
        return bytes(changed)


class Directory:
    """A log.dir of three segments after a clean stop or a crash, to be damaged repeatedly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.manager(create=True) as logs:
            sizes = {"segment.bytes": 1100, "index.interval.bytes": 100, "segment.index.bytes": 240}
            logs.create_topic("t", config=sizes)
            for number, codec in enumerate(CODECS * 3):
                at = T + number * 10
                records = [(b"k%d" % number, bytes(40) + b"%d" % number, at), (None, b"w", at + 1, [("h", b"x")])]
                logs.append("t", records, compression=codec)
            log = logs.log("t")
            assert len(log.segments) == 3
            self.records = records_of(log)
            self.bases = [segment.base_offset for segment in log.segments]
            crashed = self.files()
        self.states: dict[State, dict[str, bytes]] = {"clean": self.files(), "crashed": crashed}
        self.states["crashed, recover all"] = {**crashed, checkpoint.RECOVERY_POINT: b""}
        self.outside = self.log_bytes(OUTSIDE)

    def log_bytes(self, of_batch: Iterable[int]) -> dict[str, set[int]]:
        """Return the positions of these header bytes in all batches, by file."""
        return {
            name: {batch.position + byte for batch in decode(data) for byte in of_batch}
            for name, data in self.states["clean"].items()
            if name.endswith(".log")
        }

    def manager(self, *, create: bool = False, recovery: Policy = "strict") -> klog.LogManager:
        return klog.open(self.path, create=create, recovery=recovery, clock=ManualClock(T), files=Unsynced())

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.path.rglob("*") if path.is_file() and path.name != ".lock")
        return {str(path.relative_to(self.path)): path.read_bytes() for path in found}

    def write_files(self, state: State, damage: Damage) -> None:
        shutil.rmtree(self.path)
        (self.path / "t-0").mkdir(parents=True)
        for name, data in self.states[state].items():
            (self.path / name).write_bytes(damage.to(data) if name == damage.file else data)

    def damages(self, state: State, seed: int) -> Iterator[Damage]:
        """Yield each cut, and one flip of each byte. In the preallocated zeros of a crashed log's index, only the first
        bytes are damaged."""
        for name, data in sorted(self.states[state].items()):
            for position in range(len(data)):
                if any(data[max(position - 24, 0) :]):
                    yield Damage(name, position, None)
                    yield Damage(name, position, (position + seed) % 8)

    def check(self, state: State, policy: Policy, damage: Damage) -> None:
        self.write_files(state, damage)
        try:
            with self.manager(recovery=policy) as logs:
                log = logs.log("t")
                try:
                    got = records_of(log)
                except CorruptBatch:
                    assert damage.file.endswith(".log")
                    return
                self.compare(damage, got, lookups(log, self.records))
                log.append([(b"new", b"record", T)])
                assert records_of(log)[:-1] == got and log.count() == len(got) + 1
        except KlogError:  # partition.metadata, not a cache, may have another topic id: InconsistentTopicId
            assert not damage.file.endswith(CACHES)
            return
        with self.manager(recovery=policy) as logs:
            assert records_of(logs.log("t"))[:-1] == got

    def compare(self, damage: Damage, got: list[Row], found: list[int | None]) -> None:
        if damage.file.endswith(".log"):
            assert is_part(got, self.records, offsets=damage.position not in self.outside[damage.file])
        else:
            assert got == self.records
            assert found == [row[0] for row in self.records]


def records_of(log: klog.Log) -> list[Row]:
    return [(r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in log.read()]


def lookups(log: klog.Log, expected: list[Row]) -> list[int | None]:
    """Return the result of a lookup by offset and by timestamp for each record."""
    found: list[int | None] = []
    for offset, _, _, timestamp, _ in expected:
        by_time = log.offset_for_timestamp(timestamp)
        data = log.fetch(offset, 1) if offset < log.log_end_offset else None
        holds = data is not None and any(b.base_offset <= offset < b.next_offset for b in decode(data.memory()))
        found.append(by_time.offset if by_time is not None and holds else None)
    return found


def is_part(got: list[Row], whole: list[Row], *, offsets: bool) -> bool:
    """Return whether got equals whole with some elements removed."""
    rest = iter(whole if offsets else [row[1:] for row in whole])
    return all(row in rest for row in (got if offsets else [row[1:] for row in got]))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    logging.disable(logging.CRITICAL)
    yield Directory(tmp_path / "logs")
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_sampled_damage_to_any_file(directory: Directory, state: State, policy: Policy, seed: int) -> None:
    for damage in random.Random(seed).sample(list(directory.damages(state, seed)), 100):
        try:
            directory.check(state, policy, damage)
        except BaseException as problem:
            raise AssertionError(f"seed {seed}: {damage}") from problem


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_every_damage_to_any_file(directory: Directory, state: State, policy: Policy) -> None:
    for damage in directory.damages(state, drawn()):
        try:
            directory.check(state, policy, damage)
        except BaseException as problem:
            raise AssertionError(f"{damage}") from problem
