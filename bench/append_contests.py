"""Encoded batches, appended to a new log: beside a loop in C, and beside Kafka's engine.

    append batches leader    as clients send them: every record checked, offsets assigned. The peer does the same in a
                             loop of C, with klog's own functions: copy, checks, checksum, pwrite with the same
                             preallocation. A further contestant is the pwrite alone
    append batches follower  as a follower takes them: lengths and checksums checked; the peer as above
    append one             one record at a time; the peer is encode and append_batches. A further contestant appends the
                           same batches of an idempotent producer
    append topic           one record at a time by LogManager.append, beside 1,000 partitions of another topic; the peer
                           is the same beside none
    kafka append leader    as clients send them, one batch a request with base offset 0: every record checked, offsets
                           assigned
    kafka append follower  the same batches as a follower takes them

Values have 100 bytes. Nothing is synced, and there is one segment, so that nothing rolls. In the contests with pwrite
the log already has one record: the first append of a leader epoch syncs its checkpoint, which takes milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import klog
from bench.child import write_fetches
from bench.contest import Contest, Contestant, Factory
from bench.kafka_loop import KafkaJvm
from bench.native import compiled
from bench.workloads import FIRST_TIMESTAMP, arrow_table, workload
from klog import record

_SEGMENT_BYTES = 1 << 30
_CONFIG = {"segment.bytes": _SEGMENT_BYTES, "retention.ms": -1, "max.message.bytes": 16 << 20}
_GOALS = {
    ("leader", "16KiB none"): 1.9,
    ("leader", "1MiB none"): 2.2,
    ("leader", "16KiB lz4"): 1.6,
    ("leader", "1MiB lz4"): 2.3,
}
Durability = Literal["os", "sync"]
FIRST = record.encode([(None, b"", FIRST_TIMESTAMP)], leader_epoch=0)


class NewLog:
    """A new log before each measurement, and the batches to append: about 1 MiB of them, `repeats` times.

    begun: the log has one record at offset 0 before the measurement.
    """

    def __init__(
        self, folder: Path, batch_bytes: int, repeats: int, compression: str | None, *, tiny: bool, begun: bool = False
    ) -> None:
        made = record.Encoder(
            arrow_table(workload("100B", tiny=tiny).tuples()),
            compression=compression,
            batch_bytes_max=batch_bytes,
            message_bytes_max=16 << 20,
            timestamp_default=0,
            timestamp_min=0,
            timestamp_max=1 << 62,
        ).next_group(1 << 30)
        assert made is not None
        made.assign(0, 0)
        self.batches = [(bytearray(batch.raw), batch.count) for batch in record.decode(bytes(made))]
        self.requests = [bytes(8) + bytes(batch[8:]) for batch, _ in self.batches]
        self.repeats = repeats
        self.begun = begun
        self.count = repeats * sum(count for _, count in self.batches)
        self.bytes = repeats * sum(len(batch) for batch, _ in self.batches)
        self.directory = folder / "append-0"
        self.log: klog.Log | None = None

    def fresh(self, config: Mapping[str, Any] | None = None, durability: Durability = "os") -> None:
        self.close()
        self.log = klog.Log.open(self.directory, config={**_CONFIG, **(config or {})}, durability=durability)
        if self.begun:
            self.log.append_batches(FIRST)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def lead(self) -> None:
        assert self.log is not None
        append = self.log.append_batches
        for _ in range(self.repeats):
            for request in self.requests:
                append(request)

    def follow(self) -> None:
        assert self.log is not None
        append, number, offset = self.log.append_batches, struct.Struct(">q").pack_into, int(self.begun)
        for _ in range(self.repeats):
            for batch, count in self.batches:
                number(batch, 0, offset)
                append(batch, origin="replication")
                offset += count

    def check(self, append: Callable[[], None], config: Mapping[str, Any] | None = None) -> None:
        self.fresh(config)
        append()
        assert self.log is not None
        count, size = self.count + self.begun, self.bytes + self.begun * len(FIRST)
        assert (self.log.log_end_offset, self.log.count(), self.log.size) == (count, count, size)
        assert sum(1 for _ in self.log.read()) == count
        assert not self.log.verify().problems


def _beside_c(role: str, name: str, batch_bytes: int, tiny: bool, folder: Path, goal: float) -> Contest:
    new = NewLog(folder, batch_bytes, 1 if tiny else 128, None, tiny=tiny, begun=True)
    library, plain = compiled("appends.c", "batch.c", "leader.c", "crc32c.c", "legacy.c"), folder / "plain"
    batches = [bytes(batch) for batch, _ in new.batches]
    largest, count = max(map(len, batches)), len(batches)
    starts, sizes = (ctypes.c_char_p * count)(*batches), (ctypes.c_int64 * count)(*map(len, batches))
    buffer = ctypes.create_string_buffer(largest)
    append = new.lead if role == "leader" else new.follow
    opened: list[int] = []

    def in_c(work: int) -> None:
        numbers = ctypes.c_int64(count), ctypes.c_int64(new.repeats), ctypes.c_int64(len(FIRST)), ctypes.c_int64(1)
        failed = library.append_batches(opened[0], starts, sizes, *numbers, buffer, work)
        assert failed == 0, failed

    def write() -> None:
        in_c(0)

    def composite() -> None:
        in_c(2 if role == "leader" else 1)

    def check() -> None:
        new.check(append)
        for run in (composite, write):
            fresh_file()
            run()
            assert plain.stat().st_size == len(FIRST) + new.bytes
        if role == "leader":  # klog writes the same bytes
            fresh_file()
            composite()
            new.fresh()
            append()
            assert new.log is not None
            stored = Path(new.log.segments[0].path).read_bytes()[: new.log.size]
            assert plain.read_bytes()[len(FIRST) :] == stored[len(FIRST) :]

    def close() -> None:
        new.close()
        while opened:
            os.close(opened.pop())
        plain.unlink(missing_ok=True)

    def fresh_file() -> None:
        close()
        opened.append(os.open(plain, os.O_RDWR | os.O_CREAT, 0o644))
        os.pwrite(opened[0], FIRST, 0)

    def fresh() -> None:
        close()
        new.fresh()

    writing = Contestant("pwrite, same preallocation", write, before=fresh_file)
    return Contest(
        f"append batches {role} {name}",
        new.count,
        new.bytes,
        (
            Contestant("klog append_batches", append, before=fresh, goal=goal),
            writing,
            Contestant("the same work in C", composite, before=fresh_file),
        ),
        check,
        close,
        limit=writing,
    )


def _kafka(role: str, name: str, batch_bytes: int, compression: str | None, tiny: bool, folder: Path) -> Contest:
    new = NewLog(folder, batch_bytes, 1 if tiny else 64, compression, tiny=tiny)
    fetches = write_fetches([b"".join(new.requests)], folder / "fetches")
    jvm = KafkaJvm("KafkaLog", str(_SEGMENT_BYTES))
    question = f"{role} {fetches} {new.repeats} {folder / 'kafka' / 'append-0'}"
    append = new.lead if role == "leader" else new.follow

    def check() -> None:
        answer = jvm.warm_up(question)
        assert (answer.records, answer.bytes) == (new.count, new.bytes)
        new.check(append)

    return jvm.contest(
        f"kafka append {role} {name}",
        new.count,
        new.bytes,
        (
            Contestant("klog append_batches", append, before=new.fresh, goal=_GOALS.get((role, name), 1.35)),
            jvm.contestant("appendAsLeader" if role == "leader" else "appendAsFollower", question, before=new.close),
        ),
        check,
        new.close,
    )


def _one(tiny: bool, folder: Path) -> Contest:
    count, records = 100 if tiny else 4000, [(b"key", bytes(100), FIRST_TIMESTAMP)]
    produced = [record.encode(records, producer_id=1, producer_epoch=0, base_sequence=n) for n in range(count)]
    directory = folder / "one-0"
    opened: list[klog.Log] = []

    def fresh() -> None:
        close()
        opened.append(klog.Log.open(directory, config=_CONFIG))
        opened[0].append_batches(FIRST)

    def close() -> None:
        while opened:
            opened.pop().close()
        shutil.rmtree(directory, ignore_errors=True)

    def append() -> None:
        call = opened[0].append
        for _ in range(count):
            call(records)

    def append_produced() -> None:
        call = opened[0].append_batches
        for batch in produced:
            call(batch)

    def encode_and_append() -> None:
        call, encode = opened[0].append_batches, record.encode
        for _ in range(count):
            call(encode(records))

    def check() -> None:
        for run in (append, append_produced, encode_and_append):
            fresh()
            run()
            assert [each.value for each in opened[0].read(1)] == [records[0][1]] * count
            assert not opened[0].verify().problems

    return Contest(
        "append one",
        count,
        count * len(produced[0]),
        (
            Contestant("klog Log.append", append, before=fresh, goal=0.67),
            Contestant("klog append_batches, idempotent", append_produced, before=fresh),
            Contestant("klog encode and append_batches", encode_and_append, before=fresh),
        ),
        check,
        close,
    )


def _topic(tiny: bool, folder: Path) -> Contest:
    count, others = (10, 5) if tiny else (2000, 1000)
    managers = [klog.open(folder / name, create=True) for name in ("many", "alone")]
    for logs in managers:
        logs.create_topic("t", config=_CONFIG)
    managers[0].create_topic("others", partitions=others)
    one = [(b"key", bytes(100), FIRST_TIMESTAMP)]

    def appends(logs: klog.LogManager) -> Callable[[], None]:
        def run() -> None:
            for _ in range(count):
                logs.append("t", one)

        return run

    def check() -> None:
        for logs in managers:
            appends(logs)()
            assert [each.value for each in logs.read("t")] == [one[0][1]] * count

    def close() -> None:
        for logs in managers:
            logs.close()

    many, alone = map(appends, managers)
    contestants = (
        Contestant(f"LogManager.append beside {others:,} partitions", many, goal=0.8),
        Contestant("LogManager.append beside none", alone),
    )
    return Contest("append topic", count, count * len(record.encode(one)), contestants, check, close)


def _factories() -> dict[str, Factory]:
    made: dict[str, Factory] = {"append one": _one, "append topic": _topic}
    for role, goal in (("leader", 0.95), ("follower", 0.93)):
        for name, size in (("16KiB", 16 << 10), ("64KiB", 64 << 10), ("1MiB", 1 << 20)):
            made[f"append batches {role} {name}"] = lambda tiny, folder, role=role, name=name, size=size, goal=goal: (
                _beside_c(role, name, size, tiny, folder, goal)
            )
        for name, size in (("16KiB", 16 << 10), ("1MiB", 1 << 20)):
            for codec in (None, "lz4"):
                label = f"{name} {codec or 'none'}"
                made[f"kafka append {role} {label}"] = (
                    lambda tiny, folder, role=role, label=label, size=size, codec=codec: _kafka(
                        role, label, size, codec, tiny, folder
                    )
                )
    return made


FACTORIES: dict[str, Factory] = _factories()
