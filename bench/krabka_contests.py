"""klog beside Krabka's log crate, which writes Kafka's files in Rust (rust/src/main.rs).

    krabka fetch        the file region of the batches of 16 KiB at an offset, to be sent by the kernel: read_raw_desc
    krabka read         the bytes of these batches: read_raw, which copies them
    krabka open         1,000 partitions of 64 KiB after a clean stop: Log::open of each
    krabka recover      one segment after a crash: Log::open
    krabka append       encoded batches to a new log, as leader (every record checked) and as follower
    krabka checksum     header and checksum of one batch, from Python and from Rust

Both sides report the processor time of their thread, with everything in the page cache. README.md lists what each of
them does. The check opens with klog the files that Krabka has written or opened.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from typing_extensions import Buffer

import klog
from bench.append_contests import FIRST, NewLog
from bench.child import write_fetches
from bench.contest import Contest, Contestant, Factory, processor_seconds
from bench.engine_contests import Opened, fill_partitions
from bench.fetch_contests import SEGMENT_BYTES, Fetched
from bench.krabka_loop import Krabka
from bench.workloads import arrow_table, workload
from klog import record
from klog.codec import crc32c

_BATCH_BYTES = 16 << 10
_CRC_FROM = 21
_GOAL = 1.0


def _own_clock(
    name: str, work: Callable[[], object], before: Callable[[], object] | None = None, goal: float | None = _GOAL
) -> Contestant:
    return Contestant(name, processor_seconds(work), before=before, goal=goal, own_clock=True)


def _fetch(name: str, max_bytes: int, tiny: bool, folder: Path) -> Contest:
    fetched = Fetched(_BATCH_BYTES, max_bytes, sequential=name != "random", tiny=tiny, folder=folder)
    krabka = Krabka(SEGMENT_BYTES)
    question = f"fetch {fetched.copy} {fetched.listed} {max_bytes}"

    def check() -> None:
        fetched.check(krabka.warm_up(question))

    return krabka.contest(
        f"krabka fetch {name}",
        fetched.count,
        0,
        (_own_clock("klog Log.fetch", fetched.fetch), krabka.contestant("Log::read_raw_desc", question)),
        check,
        fetched.log.close,
    )


def _read(name: str, tiny: bool, folder: Path) -> Contest:
    max_bytes = _BATCH_BYTES
    fetched = Fetched(_BATCH_BYTES, max_bytes, sequential=name != "random", tiny=tiny, folder=folder)
    krabka = Krabka(SEGMENT_BYTES)
    question = f"read {fetched.copy} {fetched.listed} {max_bytes}"

    def view() -> None:
        call = fetched.log.fetch
        for offset in fetched.offsets:
            call(offset, max_bytes).memory()

    def copy() -> None:
        call = fetched.log.fetch
        for offset in fetched.offsets:
            bytes(call(offset, max_bytes).memory())

    def check() -> None:
        fetched.check(krabka.warm_up(question))

    return krabka.contest(
        f"krabka read {name}",
        fetched.count,
        fetched.count * fetched.batch_bytes,
        (
            _own_clock("klog Log.fetch and memory()", view),
            _own_clock("klog Log.fetch and bytes()", copy),
            krabka.contestant("Log::read_raw", question),
        ),
        check,
        fetched.log.close,
    )


def _open(tiny: bool, folder: Path) -> Contest:
    """Open partitions. Each side has its own copy, because Krabka leaves other files."""
    partitions, opened, krabka = 4 if tiny else 1000, Opened(folder), Krabka(SEGMENT_BYTES)
    end = fill_partitions(opened.path, partitions, 1, SEGMENT_BYTES)
    copies = folder / "krabka"
    shutil.copytree(opened.path, copies)
    question = f"open {copies} {end}"

    def check() -> None:
        assert krabka.ask(question).records == partitions
        assert opened.open() == partitions * end
        opened.close()
        with klog.open(copies, read_only=True) as logs:
            assert [log.log_end_offset for log in logs.logs()] == [end] * partitions

    return krabka.contest(
        "krabka open partitions",
        partitions,
        0,
        (
            _own_clock("klog.open, every log loaded", opened.open, before=opened.close),
            krabka.contestant("Log::open", question, before=opened.close),
        ),
        check,
        opened.close,
    )


def _recover(tiny: bool, folder: Path) -> Contest:
    """Recover a log of one segment, because Krabka checks only the last one. There is no producer snapshot at the log
    end."""
    directory, copies = folder / "recover-0", folder / "krabka"
    segment_bytes = 1 << 30
    config = {"retention.ms": -1, "segment.bytes": segment_bytes}
    batches = _requests(_BATCH_BYTES, tiny)
    with klog.Log.open(directory, config=config) as log:
        for _ in range(1 if tiny else 64):
            for batch in batches:
                log.append_batches(batch)
        size, end = log.size, log.log_end_offset
    shutil.copytree(directory, copies / "recover-0")
    krabka = Krabka(segment_bytes)
    question = f"open {copies} {end}"
    opened: list[klog.Log] = []

    def recover() -> None:
        opened.append(klog.Log.open(directory, config=config, clean_shutdown=False, recovery_point=0))

    def crash() -> None:
        while opened:
            opened.pop().close()
        for snapshot in folder.rglob("*.snapshot"):
            snapshot.unlink()

    def check() -> None:
        crash()
        answer = krabka.ask(question)
        assert (answer.records, answer.bytes) == (1, size)
        recover()
        (log,) = opened
        assert (log.log_end_offset, log.recovery.bytes_scanned, log.recovery.bytes_truncated) == (end, size, 0)
        crash()

    return krabka.contest(
        "krabka recover",
        end,
        size,
        (
            _own_clock("klog Log.open after a crash", recover, before=crash),
            krabka.contestant("Log::open", question, before=crash),
        ),
        check,
        crash,
    )


def _append(role: str, name: str, batch_bytes: int, tiny: bool, folder: Path) -> Contest:
    new = NewLog(folder, batch_bytes, 1 if tiny else 64, None, tiny=tiny, begun=True)
    fetches = write_fetches([FIRST, b"".join(new.requests)], folder / "fetches")
    krabka, directory = Krabka(1 << 30), folder / "krabka" / "append-0"
    question = f"{role} {fetches} {new.repeats} {directory}"
    append = new.lead if role == "leader" else new.follow

    def fresh() -> None:
        remove()
        new.fresh()

    def remove() -> None:
        new.close()
        shutil.rmtree(directory, ignore_errors=True)

    def check() -> None:
        remove()
        answer = krabka.ask(question)
        assert (answer.records, answer.bytes) == (new.count, new.bytes)
        new.check(append)
        (ours, theirs) = (next(folder.glob("*.log")).read_bytes() for folder in (new.directory, directory))
        assert ours == theirs
        with klog.Log.open(directory) as log:
            assert log.count() == new.count + 1
            assert not log.verify().problems

    return krabka.contest(
        f"krabka append {role} {name}",
        new.count,
        new.bytes,
        (
            _own_clock("klog append_batches", append, before=fresh),
            krabka.contestant(f"append_verbatim{'' if role == 'leader' else '_at'}", question, before=remove),
        ),
        check,
        new.close,
    )


def _checksum(tiny: bool, folder: Path) -> Contest:
    """Compute the checksums of the batches of one fetch, which stays in the caches."""
    requests, repeats = _requests(_BATCH_BYTES, tiny), 1 if tiny else 512
    krabka = Krabka(SEGMENT_BYTES)
    question = f"checksum {write_fetches([b''.join(requests)], folder / 'fetches')} {repeats}"
    views = [memoryview(request)[_CRC_FROM:] for request in requests]
    copies = [bytes(view) for view in views]

    def sums(parts: Sequence[Buffer]) -> None:
        for _ in range(repeats):
            for part in parts:
                crc32c(part)

    def check() -> None:
        answer = krabka.warm_up(question)
        assert (answer.records, answer.bytes) == (repeats * len(requests), repeats * sum(map(len, requests)))
        for request, view, copy in zip(requests, views, copies, strict=True):
            assert crc32c(view) == crc32c(copy) == int.from_bytes(request[_CRC_FROM - 4 : _CRC_FROM])

    return krabka.contest(
        "krabka checksum 16KiB",
        repeats * len(requests),
        0,
        (
            _own_clock("klog.codec.crc32c of a view", lambda: sums(views)),
            _own_clock("klog.codec.crc32c of bytes", lambda: sums(copies)),
            krabka.contestant("validate_one_v2_batch", question),
        ),
        check,
    )


def _requests(batch_bytes: int, tiny: bool) -> list[bytes]:
    """Return about one MiB of batches, each as a client sends it."""
    made = record.Encoder(
        arrow_table(workload("100B", tiny=tiny).tuples()),
        batch_bytes_max=batch_bytes,
        message_bytes_max=16 << 20,
        timestamp_default=0,
        timestamp_min=0,
        timestamp_max=1 << 62,
    ).next_group(1 << 30)
    assert made is not None
    return [bytes(8) + bytes(batch.raw[8:]) for batch in record.decode(bytes(made))]


def _factories() -> dict[str, Factory]:
    made: dict[str, Factory] = {}
    for name, size in (("random", _BATCH_BYTES), ("sequential", _BATCH_BYTES), ("1MiB", 1 << 20)):
        made[f"krabka fetch {name}"] = lambda tiny, folder, name=name, size=size: _fetch(name, size, tiny, folder)
    for name in ("random", "sequential"):
        made[f"krabka read {name}"] = lambda tiny, folder, name=name: _read(name, tiny, folder)
    made["krabka open partitions"] = _open
    made["krabka recover"] = _recover
    for role in ("leader", "follower"):
        for name, size in (("16KiB", 16 << 10), ("1MiB", 1 << 20)):
            made[f"krabka append {role} {name}"] = lambda tiny, folder, role=role, name=name, size=size: _append(
                role, name, size, tiny, folder
            )
    made["krabka checksum 16KiB"] = _checksum
    return made


FACTORIES: dict[str, Factory] = _factories()
