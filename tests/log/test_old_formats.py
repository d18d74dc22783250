"""Logs with messages of magic 0 and 1, plain and in wrappers, alone and before batches of magic 2: every reader returns
them, recovery checks and cuts them, indexes are built over them. klog appends magic 2 after them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog import inspect
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.record import decode, encode
from tests.support import golden
from tests.support.damage import flip
from tests.support.legacy_reference import Message, Row, encode_message, reseal, wrap
from tests.support.legacy_reference import decode as reference_rows

T = 1_700_000_000_000
CONFIG = {"index.interval.bytes": 200, "segment.index.bytes": 4096, "retention.ms": -1}


def message(magic: int, offset: int, *, size: int = 20) -> bytes:
    key = None if offset % 5 == 0 else b"k%d" % offset
    value = None if offset % 7 == 3 else (b"v%d." % offset) * size
    return encode_message(Message(magic, offset, key, value[:size] if value else value, T + offset if magic else -1))


def wrapper(magic: int, offsets: range) -> bytes:
    """Inner offsets count from 0 in magic 1, and are the log's own in magic 0."""
    base = offsets[0] if magic else 0
    inner = [reseal((n - base).to_bytes(8, "big") + message(magic, n)[8:]) for n in offsets]
    return wrap(magic, offsets[-1], inner, timestamp=T + offsets[-1] if magic else -1)


def old_log(magic: int, start: int, stop: int) -> bytes:
    """Single messages and wrappers of four, alternating."""
    out, offset = b"", start
    while offset < stop:
        if offset % 10 == 4 and offset + 4 <= stop:
            out += wrapper(magic, range(offset, offset + 4))
            offset += 4
        else:
            out += message(magic, offset)
            offset += 1
    return out


def make(directory: Path, segments: dict[int, bytes]) -> Path:
    directory.mkdir(parents=True)
    for base, data in segments.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def new_batch(offset: int, count: int) -> bytes:
    return encode([(b"n%d" % n, b"w", T + n) for n in range(offset, offset + count)], base_offset=offset)


LOGS = {
    "magic 0": {0: old_log(0, 0, 60), 60: old_log(0, 60, 100)},
    "magic 1": {0: old_log(1, 0, 60), 60: old_log(1, 60, 100)},
    "magic 0, then 1": {0: old_log(0, 0, 50), 50: old_log(1, 50, 100)},
    "magic 1, then 2 in one segment": {0: old_log(1, 0, 60), 60: old_log(1, 60, 80) + new_batch(80, 20)},
    "starts inside a wrapper": {7: old_log(1, 7, 100)},
}


def rows_of(data: bytes) -> list[Row]:
    """Encoded by the reference model; the batches of magic 2 after them by klog.record."""
    at = 0
    while at < len(data) and data[at + 16] < 2:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    rows = reference_rows(data[:at])
    rows += [Row(r.offset, r.timestamp, int(r.timestamp_type), r.key, r.value) for b in decode(data[at:]) for r in b]
    return rows


def read(log: klog.Log, **bounds: int) -> list[Row]:
    return [Row(r.offset, r.timestamp, int(r.timestamp_type), r.key, r.value) for r in log.read(**bounds)]


def open_log(directory: Path, **options: object) -> klog.Log:
    return klog.Log.open(directory, config=CONFIG, clock=ManualClock(T + 10_000), **options)  # type: ignore[arg-type]


@pytest.fixture(params=sorted(LOGS))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Row]]:
    segments = LOGS[request.param]
    rows = [row for base in sorted(segments) for row in rows_of(segments[base])]
    assert [row.offset for row in rows] == list(range(min(segments), 100))
    return make(tmp_path / "old-0", segments), rows


@pytest.fixture(params=["clean", "unclean", "read-only", "reopened"])
def opened(request: pytest.FixtureRequest, case: tuple[Path, list[Row]]) -> Iterator[tuple[klog.Log, list[Row]]]:
    directory, rows = case
    if request.param == "reopened":
        open_log(directory, clean_shutdown=False).close()
    clean = request.param in ("clean", "reopened")
    with open_log(directory, clean_shutdown=clean, read_only=request.param == "read-only") as log:
        assert log.recovery.bytes_truncated == 0
        yield log, rows


def test_records_from_every_offset(opened: tuple[klog.Log, list[Row]]) -> None:
    log, rows = opened
    assert (log.log_start_offset, log.log_end_offset) == (rows[0].offset, 100)
    assert read(log) == rows
    for number, row in enumerate(rows):
        if number % 9 == 0:
            assert read(log, start=row.offset) == rows[number:]
        assert read(log, start=row.offset, stop=min(row.offset + 3, 100)) == rows[number : number + 3]


def test_batches_and_columns_and_counts(opened: tuple[klog.Log, list[Row]]) -> None:
    log, rows = opened
    assert [record.offset for batch in log.read().batches() for record in batch] == [row.offset for row in rows]
    table = log.read().to_arrow()
    assert table["offset"].to_pylist() == [row.offset for row in rows]
    assert table["key"].to_pylist() == [row.key for row in rows]
    assert table["value"].to_pylist() == [row.value for row in rows]
    for start in range(rows[0].offset, 100):
        assert log.count(start) == 100 - start
        assert log.count(start, start + 2) == min(2, 100 - start)


def test_raw_bytes_of_every_offset(opened: tuple[klog.Log, list[Row]]) -> None:
    """A fetch begins with the message, or the wrapper, that holds the offset."""
    log, rows = opened
    stored = b"".join(Path(segment.path).read_bytes() for segment in log.segments)
    whole = list(decode(stored))
    for row in rows:
        fetched = bytes(log.fetch(row.offset, max_bytes=1).memory())
        assert [fetched] == [
            bytes(batch.raw) for batch in whole if batch.base_offset <= row.offset <= batch.last_offset
        ]


def test_time_lookups(opened: tuple[klog.Log, list[Row]]) -> None:
    log, rows = opened
    for query in [0, T - 1, *range(T, T + 101)]:
        expected = next(((row.timestamp, row.offset) for row in rows if row.timestamp >= query), None)
        assert log.offset_for_timestamp(query) == expected, query
    assert log.segments[-1].max_timestamp == max(row.timestamp for row in rows if row.offset >= 60)


def test_verify_and_dump(case: tuple[Path, list[Row]]) -> None:
    directory, rows = case
    open_log(directory, clean_shutdown=False).close()
    report = klog.verify(directory)
    assert [problem for problem in report.problems if problem.kind != "checkpoint"] == []
    assert report.records == len(rows)
    entries = [entry for file in inspect.dump(directory) if file.kind == "log" for entry in file.entries]
    assert {entry["type"] for entry in entries} == {"batch"}
    assert [record["offset"] for entry in entries for record in entry["records"]] == [row.offset for row in rows]


def test_the_index_that_recovery_builds_is_the_one_that_appends_would(case: tuple[Path, list[Row]]) -> None:
    """With the files deleted or not: a rebuilt index has an entry per 200 bytes, at a message and with its offset."""
    directory, rows = case
    open_log(directory, clean_shutdown=False).close()
    for log_path in sorted(directory.glob("*.log")):
        data, base = log_path.read_bytes(), int(log_path.name[:20])
        due, since, entries = b"", 0, log_path.with_suffix(".index").read_bytes()
        for batch in decode(data):
            if since > CONFIG["index.interval.bytes"]:
                due += (batch.last_offset - base).to_bytes(4, "big") + batch.position.to_bytes(4, "big")
                since = 0
            since += batch.size
        assert due and entries == due
    before = {path.name: path.read_bytes() for path in directory.glob("*.*index")}
    for path in directory.glob("*.*index"):
        path.unlink()
    with open_log(directory, clean_shutdown=True) as log:
        assert log.count(70) == 30
        assert log.offset_for_timestamp(T + 99) == ((T + 99, 99) if rows[-1].timestamp == T + 99 else None)
        read(log, start=3 + log.log_start_offset)
    assert {path.name: path.read_bytes() for path in directory.glob("*.*index")} == before


def test_appends_continue_in_magic_2(case: tuple[Path, list[Row]]) -> None:
    directory, rows = case
    with open_log(directory, clean_shutdown=False) as log:
        assert log.append([(b"new", b"record", T + 500)]).first_offset == 100
    with open_log(directory, clean_shutdown=True) as log:
        assert read(log) == [*rows, Row(100, T + 500, 0, b"new", b"record")]
        assert [batch.magic for batch in log.read(99).batches()][-1] == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("policy", ["kafka", "strict"])
def test_a_torn_tail_is_cut_to_the_last_whole_message(tmp_path: Path, magic: int, policy: str) -> None:
    data = old_log(magic, 0, 20)
    last = len(message(magic, 19))
    for cut in (*range(1, last, 6), last - 1):
        directory = make(tmp_path / f"{cut}" / "old-0", {0: data[:-cut]})
        with open_log(directory, clean_shutdown=cut % 2 == 0, recovery=policy) as log:
            assert (log.log_end_offset, log.recovery.bytes_truncated) == (19, last - cut)
            assert [row.offset for row in read(log)] == list(range(19))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_invalid_message_before_valid_ones_is_refused_or_cut(tmp_path: Path, magic: int) -> None:
    data = bytearray(old_log(magic, 0, 40))
    position = next(batch.position for batch in decode(bytes(data)) if batch.last_offset >= 20)
    data[position + 40] ^= 1
    directory = make(tmp_path / "old-0", {0: bytes(data)})
    with pytest.raises(CorruptLog, match="valid ones after it"):
        open_log(directory, clean_shutdown=False, recovery="strict")
    assert (directory / f"{0:020d}.log").read_bytes() == data
    with open_log(directory, clean_shutdown=False, recovery="kafka") as log:
        assert [row.offset for row in read(log)] == list(range(log.log_end_offset)) == list(range(20))


@pytest.mark.parametrize("magic", [0, 1])
def test_one_flipped_bit_is_an_error_or_a_valid_prefix(tmp_path: Path, magic: int) -> None:
    """A bit of every third byte of a small log, clean, unclean and read-only in turn: no record is invented. After a crash
    the damage is cut, and the rest is read."""
    good = message(magic, 0) + wrapper(magic, range(1, 5)) + message(magic, 5) + message(magic, 6)
    rows, starts = rows_of(good), [batch.position for batch in decode(good)]
    read_at = Counter[str]()
    for number, at in enumerate(range(magic, len(good), 3)):
        how = ("clean", "read-only", "unclean")[number % 3]
        start = max(start for start in starts if start <= at)
        directory = make(tmp_path / str(at) / "old-0", {0: flip(good, at, at * 3 % 8)})
        try:
            with open_log(
                directory, clean_shutdown=how == "clean", recovery="kafka", read_only=how == "read-only"
            ) as log:
                got = read(log)
        except CorruptBatch:
            assert how != "unclean"
            continue
        read_at[how] += 1
        if at - start >= 8:  # the offset, which no checksum covers, as in Kafka
            assert got == rows[: len(got)], at
            assert how != "unclean" or len(got) == len(rows_of(good[:start])), at
    assert read_at["unclean"] > 20


def test_readers_of_a_wrapper_that_cannot_be_decompressed_raise(tmp_path: Path) -> None:
    """Its checksum is valid, so recovery keeps it, as Kafka does; reads before and after it work."""
    bad = encode_message(Message(1, 14, None, b"no gzip at all", T + 14, 1))
    directory = make(tmp_path / "old-0", {0: old_log(1, 0, 10) + bad + old_log(1, 15, 40)})
    with open_log(directory, clean_shutdown=False) as log:
        assert log.log_end_offset == 40
        assert [record.offset for record in itertools.islice(log.read(), 10)] == list(range(10))
        assert [row.offset for row in read(log, start=15)] == list(range(15, 40))
        for ask in (lambda: read(log), log.count, lambda: read(log, start=12), lambda: list(log.read().columns())):
            with pytest.raises(CorruptBatch, match="gzip"):
                ask()
    (problem,) = [found for found in klog.verify(directory).problems if found.kind == "length"]
    assert problem.offset == 14
    entries = [entry for file in inspect.dump(directory) if file.kind == "log" for entry in file.entries]
    assert [entry["offset"] for entry in entries if entry["type"] == "legacy"] == [14]
    assert len(entries) == len(list(decode(old_log(1, 0, 10) + old_log(1, 15, 40)))) + 1


def test_a_batch_with_a_flipped_bit_in_its_magic_is_not_an_old_message(tmp_path: Path) -> None:
    """The batch's own checksum does not cover the byte: as a message it would end the log at its first record."""
    data = bytearray(new_batch(0, 5) + new_batch(5, 5))
    data[len(data) // 2 + 16] = 0
    for clean in (True, False):
        directory = make(tmp_path / str(clean) / "old-0", {0: bytes(data)})
        with open_log(directory, clean_shutdown=clean, recovery="kafka") as log:
            assert log.log_end_offset == 5
            assert "a batch with an unknown magic" in log.recovery.reason


def test_kafkas_log_of_magic_1(tmp_path: Path) -> None:
    """tests/golden/cleaner: the newest record of each key is what Kafka's own cleaner left."""
    case = golden.HOME / "cleaner" / "legacy-v1"
    config = json.loads((case / "config.json").read_text())
    (before,) = (case / "before").iterdir()
    directory = tmp_path / before.name
    directory.mkdir()
    for path in before.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    for clean in (True, False, True):
        with klog.Log.open(
            directory, config=config["config"], clean_shutdown=clean, clock=ManualClock(config["now_ms"])
        ) as log:
            newest = {record.key: record for record in log.read()}
            left = sorted(newest.values(), key=lambda record: record.offset)
            assert [golden.record_tuple(record) for record in left] == golden.read_records(case / "records.jsonl.gz")
            assert (log.log_end_offset, log.recovery.bytes_truncated) == (91, 0)
            for query in sorted({record.timestamp for record in newest.values()}):
                expected = next(record for record in log.read() if record.timestamp >= query)
                assert log.offset_for_timestamp(query) == (expected.timestamp, expected.offset)
